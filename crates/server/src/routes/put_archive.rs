//! `POST` or `PUT /sessions/{session_id}/archive?path=`: a tar archive into a folder.

use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use ringfence_op::{Fault, FaultKind, SessionId};
use ringfence_wire::{ArchiveResult, Error};
use tokio::sync::mpsc;

use crate::backend::Backend;
use crate::dispatch::{App, Asked};
use crate::door::Intake;
use crate::limits::{ARCHIVE_PIECES_QUEUED_MAX, ARCHIVE_UPLOADS_MAX, RETRY_AFTER_SECONDS};
use crate::query;
use crate::refusal::{Refusal, workspace_path};
use crate::render::Reply;

/// Unpack a tar archive into a folder
///
/// Uncompressed. Files are written in their order, each whole; a refused entry ends it, and those before it stay.
/// PUT is answered the same.
#[utoipa::path(
    post, path = "/sessions/{session_id}/archive", operation_id = "PutArchive", tag = "files",
    params(("session_id" = String, Path, min_length = 1, description = "The id from the session handle, used verbatim."),
        ("path" = Option<String>, Query, description = "A folder relative to the workspace root; absent, the root."),
    ),
    request_body(content = Vec<u8>, content_type = "application/x-tar"),
    responses(
        (status = 201, body = ArchiveResult, description = "All of it was written."),
        (status = 400, body = Error<'static>, description = "An entry's place is taken by something else."),
        (status = 403, body = Error<'static>, description = "An entry leaves the session workspace."),
        (status = 404, body = Error<'static>, description = "Unknown session."),
        (status = 408, body = Error<'static>, description = "The body came too slowly."),
        (status = 413, body = Error<'static>, description = "Larger than the cap, or than what is left of the workspace."),
        (status = 422, body = Error<'static>, description = "No readable archive."),
        (status = 503, body = Error<'static>, description = "Too many archives at once."),
    ),
)]
pub(crate) async fn handle<B: Backend>(app: &App<B>, id: SessionId, asked: Asked<'_>) -> Result<Reply, Refusal> {
    let [path] = query::parameters(asked.query(), ["path"])?;
    let path = workspace_path(path.as_deref().unwrap_or_default())?;
    // The archive's own headers and padding count as well, so that no endless row of empty files is read.
    let bytes_max = app.limits.upload_bytes_max.saturating_mul(ARCHIVE_UPLOADS_MAX);
    if asked.body.announced().is_some_and(|length| length > bytes_max) {
        return Err(Refusal::BodyTooLarge { bytes_max });
    }
    let Ok(_turn) = Arc::clone(&app.archives).try_acquire_owned() else {
        let kind = FaultKind::Capacity { retry_after_seconds: RETRY_AFTER_SECONDS };
        return Err(Fault::new(kind, "too many archives are being unpacked; try again").into());
    };
    let (pieces, queue) = mpsc::channel(ARCHIVE_PIECES_QUEUED_MAX);
    let archive = Box::new(Fed { queue, piece: Bytes::new(), ended: false });
    let unpacking = app.backend.unpack(id, path, archive, app.limits.upload_bytes_max);
    let (fed, unpacked) = tokio::join!(feed(asked.body, pieces, bytes_max), unpacking);
    fed?;
    Ok(Reply::Unpacked(unpacked?))
}

enum Piece {
    Data(Bytes),
    End,
}

/// Hands the body on, until it ends or nobody takes it any more.
async fn feed(body: &mut Intake, pieces: mpsc::Sender<Piece>, bytes_max: u64) -> Result<(), Refusal> {
    let mut bytes: u64 = 0;
    while let Some(piece) = body.piece().await? {
        bytes = bytes.saturating_add(piece.len() as u64);
        if bytes > bytes_max {
            return Err(Refusal::BodyTooLarge { bytes_max });
        }
        if pieces.send(Piece::Data(piece)).await.is_err() {
            return Ok(());
        }
    }
    let _taken = pieces.send(Piece::End).await;
    Ok(())
}

/// The archive as its unpacker reads it, on a thread that may block. Every wait in it ends, since the body's do.
struct Fed {
    queue: mpsc::Receiver<Piece>,
    piece: Bytes,
    ended: bool,
}

impl io::Read for Fed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.ended {
            match self.queue.blocking_recv() {
                Some(Piece::Data(piece)) => self.piece = piece,
                Some(Piece::End) => self.ended = true,
                None => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the upload broke off")),
            }
        }
        let length = buffer.len().min(self.piece.len());
        if let Some(taken) = buffer.get_mut(..length) {
            self.piece.copy_to_slice(taken);
        }
        Ok(length)
    }
}
