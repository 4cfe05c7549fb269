//! `GET /sessions/{session_id}/files/list?path=&recursive=`

use ringfence_op::SessionId;
use ringfence_wire::{Error, FileList};

use crate::backend::Backend;
use crate::dispatch::{App, Asked};
use crate::query;
use crate::refusal::{Refusal, workspace_path};
use crate::render::Reply;

/// List the files of a folder
#[utoipa::path(
    get, path = "/sessions/{session_id}/files/list", operation_id = "ListFiles", tag = "files",
    params(("session_id" = String, Path, min_length = 1, description = "The id from the session handle, used verbatim."),
        ("path" = Option<String>, Query, description = "A folder relative to the workspace root; absent, the root."),
        ("recursive" = Option<bool>, Query, description = "Also the files of all folders below it."),
    ),
    responses(
        (status = 200, body = FileList<'static>, description = "The folder's files."),
        (status = 400, body = Error<'static>, description = "The path is a file, not a folder."),
        (status = 403, body = Error<'static>, description = "Path outside the session workspace."),
        (status = 404, body = Error<'static>, description = "Unknown session, or no such folder."),
        (status = 422, body = Error<'static>, description = "Malformed query."),
    ),
)]
pub(crate) async fn handle<B: Backend>(app: &App<B>, id: SessionId, asked: Asked<'_>) -> Result<Reply, Refusal> {
    let [path, recursive] = query::parameters(asked.query(), ["path", "recursive"])?;
    let path = workspace_path(path.as_deref().unwrap_or_default())?;
    let recursive = query::flag(recursive.as_deref(), "recursive")?;
    Ok(Reply::Listed(app.backend.list(id, path, recursive).await?))
}
