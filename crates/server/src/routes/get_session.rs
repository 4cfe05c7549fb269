//! `GET /sessions/{session_id}`: the handle, without counting as activity.

use ringfence_op::SessionId;
use ringfence_wire::{Error, SessionHandle};

use crate::backend::Backend;
use crate::dispatch::App;
use crate::refusal::Refusal;
use crate::render::Reply;

/// Describe a session
///
/// Does not count as activity.
#[utoipa::path(
    get, path = "/sessions/{session_id}", operation_id = "DescribeSession", tag = "sessions",
    params(("session_id" = String, Path, min_length = 1, description = "The id from the session handle, used verbatim.")),
    responses(
        (status = 200, body = SessionHandle, description = "The handle as it is now."),
        (status = 404, body = Error<'static>, description = "Unknown session."),
    ),
)]
pub(crate) async fn handle<B: Backend>(app: &App<B>, id: SessionId) -> Result<Reply, Refusal> {
    Ok(Reply::Found(app.backend.handle(id).await?))
}
