//! `GET /sessions/{session_id}/archive?path=`: a folder as a tar archive.

use ringfence_op::SessionId;
use ringfence_wire::Error;

use crate::answer::Body;
use crate::backend::Backend;
use crate::dispatch::{App, Asked};
use crate::query;
use crate::refusal::{Refusal, workspace_path};
use crate::render::Reply;

/// Read a folder as a tar archive
///
/// Streamed while the folder is read; an archive that cannot be finished is cut off.
#[utoipa::path(
    get, path = "/sessions/{session_id}/archive", operation_id = "GetArchive", tag = "files",
    params(("session_id" = String, Path, min_length = 1, description = "The id from the session handle, used verbatim."),
        ("path" = Option<String>, Query, description = "A folder relative to the workspace root; absent, the root."),
    ),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/x-tar", description = "The archive."),
        (status = 400, body = Error<'static>, description = "The path is no folder."),
        (status = 403, body = Error<'static>, description = "Path outside the session workspace."),
        (status = 404, body = Error<'static>, description = "Unknown session, or no such folder."),
        (status = 422, body = Error<'static>, description = "Malformed query."),
    ),
)]
pub(crate) async fn handle<B: Backend>(app: &App<B>, id: SessionId, asked: Asked<'_>) -> Result<Reply, Refusal> {
    let [path] = query::parameters(asked.query(), ["path"])?;
    let path = workspace_path(path.as_deref().unwrap_or_default())?;
    Ok(Reply::Archive(Body::archive(app.backend.archive(id, path).await?)))
}
