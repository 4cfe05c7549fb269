//! `POST /sessions/{session_id}/files`: a multipart form with `file` and, before or after it, `path`.
//!
//! The file streams into an upload that has no place yet, and gets it when the form has ended whole: what is
//! refused, or breaks off, leaves nothing. Other fields are passed over.

use bytes::Bytes;
use hyper::header::CONTENT_TYPE;
use ringfence_op::{Fault, FaultKind, SessionId, WorkspacePath};
use ringfence_wire::{Error, FileUploadResult, FileUploadSchema};

use crate::backend::{Backend, WriteFile};
use crate::dispatch::{App, Asked};
use crate::limits::{FORM_OVERHEAD_BYTES_MAX, PATH_FIELD_BYTES_MAX};
use crate::multipart::{Disposition, Event, Form, FormError};
use crate::refusal::{Refusal, malformed, workspace_path};
use crate::render::Reply;

impl From<FormError> for Refusal {
    fn from(error: FormError) -> Self {
        malformed(error.to_string())
    }
}

/// Write one file
///
/// Missing folders are made; a file there is replaced, at once and whole.
#[utoipa::path(
    post, path = "/sessions/{session_id}/files", operation_id = "PutFile", tag = "files",
    params(("session_id" = String, Path, min_length = 1, description = "The id from the session handle, used verbatim.")),
    request_body(content = FileUploadSchema, content_type = "multipart/form-data"),
    responses(
        (status = 201, body = FileUploadResult<'static>, description = "File written."),
        (status = 400, body = Error<'static>, description = "The path is a folder or a special file."),
        (status = 403, body = Error<'static>, description = "Path outside the session workspace."),
        (status = 404, body = Error<'static>, description = "Unknown session."),
        (status = 408, body = Error<'static>, description = "The body came too slowly."),
        (status = 413, body = Error<'static>, description = "Larger than the cap, or than what is left of the workspace."),
        (status = 422, body = Error<'static>, description = "Malformed form."),
    ),
)]
pub(crate) async fn handle<B: Backend>(app: &App<B>, id: SessionId, asked: Asked<'_>) -> Result<Reply, Refusal> {
    let content_type = asked.headers().get(CONTENT_TYPE).map(|value| value.as_bytes());
    let mut form = Form::new(content_type)?;
    let bytes_max = app.limits.upload_bytes_max;
    let form_bytes_max = bytes_max.saturating_add(FORM_OVERHEAD_BYTES_MAX);
    if asked.body.announced().is_some_and(|length| length > form_bytes_max) {
        return Err(too_large(bytes_max));
    }
    let mut put = Put { app, id, upload: None, file_name: None, path: None, field: Field::None, form_bytes: 0 };
    let mut received: u64 = 0;
    while let Some(piece) = asked.body.piece().await? {
        received = received.saturating_add(piece.len() as u64);
        if received > form_bytes_max {
            return Err(too_large(bytes_max));
        }
        form.feed(piece);
        while let Some(event) = form.next()? {
            put.see(event).await?;
        }
    }
    form.finish()?;
    put.finish()
}

/// Which part of the form is being read.
enum Field {
    None,
    File,
    Path(Vec<u8>),
    Other,
}

struct Put<'a, B: Backend> {
    app: &'a App<B>,
    id: SessionId,
    upload: Option<B::Upload>,
    file_name: Option<String>,
    path: Option<WorkspacePath>,
    field: Field,
    /// Bytes of fields other than the file.
    form_bytes: u64,
}

impl<B: Backend> Put<'_, B> {
    async fn see(&mut self, event: Event) -> Result<(), Refusal> {
        match event {
            Event::Part(disposition) => self.begin(disposition).await,
            Event::Data(data) => self.take(&data),
            Event::PartEnd => self.end(),
            Event::End => Ok(()),
        }
    }

    async fn begin(&mut self, part: Disposition) -> Result<(), Refusal> {
        self.field = match part.name.as_str() {
            "file" if self.upload.is_some() => return Err(malformed("the form has more than one `file`")),
            "file" => {
                let upload = self.app.backend.upload(self.id, self.path.clone(), self.app.limits.upload_bytes_max);
                self.upload = Some(upload.await?);
                self.file_name = part.filename;
                Field::File
            }
            "path" if self.path.is_some() => return Err(malformed("the form has more than one `path`")),
            "path" => Field::Path(Vec::new()),
            _ => Field::Other,
        };
        Ok(())
    }

    fn take(&mut self, data: &Bytes) -> Result<(), Refusal> {
        if !matches!(self.field, Field::File) {
            self.form_bytes = self.form_bytes.saturating_add(data.len() as u64);
            if self.form_bytes > FORM_OVERHEAD_BYTES_MAX {
                let detail = format!("the form's fields besides `file` have more than {FORM_OVERHEAD_BYTES_MAX} bytes");
                return Err(malformed(detail));
            }
        }
        match (&mut self.field, &mut self.upload) {
            (Field::File, Some(upload)) => upload.write(data).map_err(Refusal::Fault),
            (Field::Path(path), _) => {
                path.extend_from_slice(data);
                match path.len() > PATH_FIELD_BYTES_MAX {
                    true => Err(malformed(format!("`path` is longer than {PATH_FIELD_BYTES_MAX} bytes"))),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self) -> Result<(), Refusal> {
        if let Field::Path(path) = std::mem::replace(&mut self.field, Field::None) {
            let text = String::from_utf8(path).map_err(|_| malformed("`path` must be UTF-8"))?;
            // An empty path is none, so that a form with an empty field works.
            if !text.is_empty() {
                self.path = Some(not_the_root(workspace_path(&text)?)?);
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Reply, Refusal> {
        let upload = self.upload.ok_or_else(|| malformed("the form has no `file`"))?;
        let path = match self.path {
            Some(path) => path,
            None => named(self.file_name.as_deref().unwrap_or_default())?,
        };
        let size_bytes = upload.commit(&path)?;
        Ok(Reply::Stored { path, size_bytes })
    }
}

/// The place of an upload without a path: the last component of its name, as Unix and Windows write names.
fn named(file_name: &str) -> Result<WorkspacePath, Refusal> {
    match file_name.rsplit(['/', '\\']).next() {
        None | Some("" | "." | "..") => {
            Err(malformed("the form must have `path`, or a `file` with a filename to take it from"))
        }
        Some(name) => workspace_path(name),
    }
}

fn not_the_root(path: WorkspacePath) -> Result<WorkspacePath, Refusal> {
    match path.is_root() {
        true => Err(malformed("`path` names the workspace itself; it must name a file in it")),
        false => Ok(path),
    }
}

fn too_large(bytes_max: u64) -> Refusal {
    let detail = format!("the file is larger than {bytes_max} bytes, the most that an upload may have");
    Refusal::Fault(Fault::new(FaultKind::TooLarge, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gives_its_last_component() {
        for (name, wanted) in [("a.csv", "a.csv"), ("../../etc/x", "x"), ("C:\\dir\\y.txt", "y.txt"), ("a b", "a b")] {
            assert_eq!(named(name).unwrap().as_str(), wanted, "{name}");
        }
        for wrong in ["", "/", "..", "a/..", "a/", "x\0y", &"x".repeat(300)] {
            assert!(named(wrong).is_err(), "{wrong:?}");
        }
    }
}
