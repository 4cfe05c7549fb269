//! `GET` and `HEAD /sessions/{session_id}/files?path=...` or `?file_id=...`

use ringfence_op::SessionId;
use ringfence_wire::Error;

use crate::backend::{Backend, FileName, ReadFile};
use crate::dispatch::{App, Asked};
use crate::mime::content_type;
use crate::query;
use crate::range::Selection;
use crate::refusal::{Refusal, malformed, workspace_path};
use crate::render::Reply;

/// Read one file
///
/// Streamed, with Content-Length, ETag and Last-Modified; HEAD, one range, If-None-Match, If-Modified-Since and
/// If-Range are heard.
#[utoipa::path(
    get, path = "/sessions/{session_id}/files", operation_id = "GetFile", tag = "files",
    params(("session_id" = String, Path, min_length = 1, description = "The id from the session handle, used verbatim."),
        ("path" = Option<String>, Query, min_length = 1, description = "A file relative to the workspace root."),
        ("file_id" = Option<String>, Query, min_length = 1, description = "The `file_id` of a result, instead of `path`."),
    ),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream",
            description = "The file's bytes, typed by its name."),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream", description = "The range asked for."),
        (status = 304, description = "The file is as the request's precondition knows it."),
        (status = 400, body = Error<'static>, description = "The path is a folder or a special file."),
        (status = 403, body = Error<'static>, description = "Path outside the session workspace."),
        (status = 404, body = Error<'static>, description = "Unknown session, or no such file."),
        (status = 416, body = Error<'static>, description = "The range begins behind the end."),
        (status = 422, body = Error<'static>, description = "Malformed query."),
    ),
)]
pub(crate) async fn handle<B: Backend>(app: &App<B>, id: SessionId, asked: Asked<'_>) -> Result<Reply, Refusal> {
    let name = match query::parameters(asked.query(), ["path", "file_id"])? {
        [Some(path), None] if !path.is_empty() => FileName::Path(workspace_path(&path)?),
        [None, Some(file_id)] if !file_id.is_empty() => FileName::Id(file_id),
        _ => return Err(malformed("the query must have either `path` or `file_id`, not empty")),
    };
    let (path, file) = app.backend.open(id, name).await?;
    let selection = Selection::of(asked.headers(), file.size(), file.etag(), file.modified());
    Ok(Reply::File { media_type: content_type(path.as_str()), file: Box::new(file), selection })
}
