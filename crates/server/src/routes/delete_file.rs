//! `DELETE /sessions/{session_id}/files?path=...`

use ringfence_op::SessionId;
use ringfence_wire::Error;

use crate::backend::Backend;
use crate::dispatch::{App, Asked};
use crate::query;
use crate::refusal::{Refusal, malformed, workspace_path};
use crate::render::Reply;

/// Remove one file
#[utoipa::path(
    delete, path = "/sessions/{session_id}/files", operation_id = "DeleteFile", tag = "files",
    params(("session_id" = String, Path, min_length = 1, description = "The id from the session handle, used verbatim."),
        ("path" = String, Query, min_length = 1, description = "A file relative to the workspace root."),
    ),
    responses(
        (status = 204, description = "File removed."),
        (status = 400, body = Error<'static>, description = "The path is a folder."),
        (status = 403, body = Error<'static>, description = "Path outside the session workspace."),
        (status = 404, body = Error<'static>, description = "Unknown session, or no such file."),
        (status = 422, body = Error<'static>, description = "Malformed query."),
    ),
)]
pub(crate) async fn handle<B: Backend>(app: &App<B>, id: SessionId, asked: Asked<'_>) -> Result<Reply, Refusal> {
    let [path] = query::parameters(asked.query(), ["path"])?;
    let path =
        path.filter(|path| !path.is_empty()).ok_or_else(|| malformed("the query must have `path`, not empty"))?;
    app.backend.remove(id, workspace_path(&path)?).await?;
    Ok(Reply::Removed)
}
