//! `DELETE /sessions/{session_id}`
//!
//! A session that is gone is in the desired state already (contract, DestroySession), so its release is answered
//! 204 like any other. What can be no session's id at all is 404: a client that sends such has lost its own.

use ringfence_op::{FaultKind, SessionId};
use ringfence_wire::Error;

use crate::backend::Backend;
use crate::dispatch::App;
use crate::refusal::Refusal;
use crate::render::Reply;

/// Release a session
///
/// Its state is destroyed, and a call that runs in it ends. A session that is gone already is answered the same.
#[utoipa::path(
    delete, path = "/sessions/{session_id}", operation_id = "DestroySession", tag = "sessions",
    params(("session_id" = String, Path, min_length = 1, description = "The id from the session handle, used verbatim.")),
    responses(
        (status = 204, description = "Session released, or already gone."),
        (status = 404, body = Error<'static>, description = "This can be no session's id."),
    ),
)]
pub(crate) async fn handle<B: Backend>(app: &App<B>, id: SessionId) -> Result<Reply, Refusal> {
    match app.backend.destroy(id).await {
        Err(fault) if fault.kind() != FaultKind::UnknownSession => Err(fault.into()),
        _ => Ok(Reply::Destroyed),
    }
}
