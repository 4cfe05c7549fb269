//! The body of an answer.

use std::io::{self, Read};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::task::JoinHandle;

use crate::backend::ReadFile;
use crate::door::Busy;
use crate::limits::{FILE_PIECE_BYTES, FILE_PIECES_KEPT_MAX};

/// An answer's body. While it lives, its connection counts as busy.
pub(crate) struct Body {
    kind: Kind,
    busy: Option<Busy>,
}

enum Kind {
    Empty,
    Whole(Bytes),
    File(FilePieces),
    Archive(ArchivePieces),
}

impl Body {
    pub(crate) fn empty() -> Self {
        Body { kind: Kind::Empty, busy: None }
    }

    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Body { kind: Kind::Whole(bytes.into()), busy: None }
    }

    /// `length` bytes of a file from `offset` on, read as they are sent.
    pub(crate) fn file(file: Box<dyn ReadFile>, offset: u64, length: u64) -> Self {
        let pool = Arc::new(Pool::default());
        Body { kind: Kind::File(FilePieces { file, offset, left: length, pool }), busy: None }
    }

    /// An archive, packed as it is sent.
    pub(crate) fn archive(packer: impl io::Read + Send + 'static) -> Self {
        Body { kind: Kind::Archive(ArchivePieces::Waiting(Box::new(packer))), busy: None }
    }

    pub(crate) fn hold(mut self, busy: Busy) -> Self {
        self.busy = Some(busy);
        self
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let next = match &mut this.kind {
            Kind::Empty => None,
            Kind::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                this.kind = Kind::Empty;
                (!bytes.is_empty()).then_some(Ok(bytes))
            }
            Kind::File(pieces) => pieces.next(),
            Kind::Archive(pieces) => ready!(pieces.poll_next(cx)),
        };
        Poll::Ready(next.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Empty => true,
            Kind::Whole(bytes) => bytes.is_empty(),
            Kind::File(pieces) => pieces.left == 0,
            Kind::Archive(pieces) => matches!(pieces, ArchivePieces::Ended),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::File(pieces) => SizeHint::with_exact(pieces.left),
            Kind::Archive(_) => SizeHint::default(),
        }
    }
}

/// A file, read piece by piece into buffers that come back when they are sent.
struct FilePieces {
    file: Box<dyn ReadFile>,
    offset: u64,
    left: u64,
    pool: Arc<Pool>,
}

impl FilePieces {
    fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.left == 0 {
            return None;
        }
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(FILE_PIECE_BYTES);
        let mut buffer = self.pool.take();
        let piece = match buffer.get_mut(..wanted) {
            Some(piece) => piece,
            None => return Some(Err(io::ErrorKind::InvalidInput.into())),
        };
        Some(match self.file.read_at(self.offset, piece) {
            // The length is promised: a file that has shrunk cuts the answer off.
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file shrank while it was sent")),
            Ok(length) => {
                self.offset += length as u64;
                self.left -= length as u64;
                Ok(Bytes::from_owner(Lent { buffer, length, pool: Arc::clone(&self.pool) }))
            }
            Err(why) => Err(why),
        })
    }
}

/// Buffers of one answer that wait to be filled again.
#[derive(Default)]
struct Pool(Mutex<Vec<Vec<u8>>>);

impl Pool {
    fn take(&self) -> Vec<u8> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(|| vec![0; FILE_PIECE_BYTES])
    }

    fn put(&self, buffer: Vec<u8>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < FILE_PIECES_KEPT_MAX {
            kept.push(buffer);
        }
    }
}

struct Lent {
    buffer: Vec<u8>,
    length: usize,
    pool: Arc<Pool>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.buffer.get(..self.length).unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.pool.put(std::mem::take(&mut self.buffer));
    }
}

/// An archive, packed piece by piece on threads that may block, a piece only when the one before is on its way.
enum ArchivePieces {
    Waiting(Packer),
    Packing(JoinHandle<(Packer, io::Result<Vec<u8>>)>),
    Ended,
}

type Packer = Box<dyn io::Read + Send>;

impl ArchivePieces {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let mut packing = match std::mem::replace(self, ArchivePieces::Ended) {
            ArchivePieces::Ended => return Poll::Ready(None),
            ArchivePieces::Packing(packing) => packing,
            ArchivePieces::Waiting(packer) => tokio::task::spawn_blocking(move || pack(packer)),
        };
        match Pin::new(&mut packing).poll(cx) {
            Poll::Pending => {
                *self = ArchivePieces::Packing(packing);
                Poll::Pending
            }
            Poll::Ready(Ok((_, Ok(piece)))) if piece.is_empty() => Poll::Ready(None),
            Poll::Ready(Ok((packer, Ok(piece)))) => {
                *self = ArchivePieces::Waiting(packer);
                Poll::Ready(Some(Ok(piece.into())))
            }
            // Cut off, so that no one takes a part for the whole.
            Poll::Ready(Ok((_, Err(why)))) => Poll::Ready(Some(Err(why))),
            Poll::Ready(Err(why)) => Poll::Ready(Some(Err(io::Error::other(why)))),
        }
    }
}

/// The next piece; an empty one is the end.
fn pack(mut packer: Packer) -> (Packer, io::Result<Vec<u8>>) {
    let mut piece = Vec::with_capacity(FILE_PIECE_BYTES);
    let packed = packer.by_ref().take(FILE_PIECE_BYTES as u64).read_to_end(&mut piece);
    (packer, packed.map(|_| piece))
}
