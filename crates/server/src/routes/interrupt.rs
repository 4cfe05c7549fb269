//! `POST /sessions/{session_id}/interrupt`: ours.

use ringfence_op::SessionId;
use ringfence_wire::{Error, Interrupted};

use crate::backend::Backend;
use crate::dispatch::App;
use crate::refusal::Refusal;
use crate::render::Reply;

/// Interrupt the running call
///
/// As ctrl-C at a terminal: SIGINT for the interpreter or for the shell, and for what the call has started in their
/// process group. The call ends when the program does, and its own answer says how; a second interrupt of the same
/// call ends it as its timeout would. Calls that wait in the session are not touched. Answered at once, whatever runs
/// or waits; an edit is no program and is not interrupted.
#[utoipa::path(
    post, path = "/sessions/{session_id}/interrupt", operation_id = "Interrupt", tag = "sessions",
    params(("session_id" = String, Path, min_length = 1, description = "The id from the session handle, used verbatim.")),
    responses(
        (status = 200, body = Interrupted, description = "Interrupted, or nothing was running."),
        (status = 404, body = Error<'static>, description = "Unknown session."),
    ),
)]
pub(crate) async fn handle<B: Backend>(app: &App<B>, id: SessionId) -> Result<Reply, Refusal> {
    Ok(Reply::Interrupted(app.backend.interrupt(id).await?))
}
