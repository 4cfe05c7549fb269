//! Bodies of requests: bytes at hand, or an upload read from somewhere while it is sent.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, ReadBuf};

use crate::limits::UPLOAD_CHUNK_BYTES;

/// The body of every request.
pub(crate) type Outgoing = UnsyncBoxBody<Bytes, io::Error>;

/// A body that is at hand.
pub(crate) fn whole(bytes: Bytes) -> Outgoing {
    Full::new(bytes).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// A multipart body: what goes before the file, the file from a reader, what goes after it.
pub(crate) struct Streamed {
    stage: Stage,
    head: Bytes,
    tail: Bytes,
    reader: Pin<Box<dyn AsyncRead + Send>>,
    /// Bytes that the reader still owes, where its length is known.
    owed: Option<u64>,
    buffer: BytesMut,
    sent: Arc<AtomicU64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Head,
    Reader,
    Done,
}

impl Streamed {
    pub(crate) fn new(head: Bytes, reader: Pin<Box<dyn AsyncRead + Send>>, length: Option<u64>, tail: Bytes) -> Self {
        let sent = Arc::new(AtomicU64::new(0));
        Streamed { stage: Stage::Head, head, tail, reader, owed: length, buffer: BytesMut::new(), sent }
    }

    /// A count that grows while the body is sent.
    pub(crate) fn progress(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.sent)
    }

    fn count(&self, bytes: Bytes) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    /// The next piece of the reader; empty at its end.
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let wanted = self.owed.map_or(UPLOAD_CHUNK_BYTES, |owed| {
            usize::try_from(owed).unwrap_or(UPLOAD_CHUNK_BYTES).min(UPLOAD_CHUNK_BYTES)
        });
        if wanted == 0 {
            return Poll::Ready(Ok(Bytes::new()));
        }
        self.buffer.resize(wanted, 0);
        let mut space = ReadBuf::new(&mut self.buffer);
        ready!(self.reader.as_mut().poll_read(cx, &mut space))?;
        let filled = space.filled().len();
        if let Some(owed) = &mut self.owed {
            if filled == 0 {
                let text = format!("the reader ended {owed} bytes before the length that was said");
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, text)));
            }
            *owed = owed.saturating_sub(filled as u64);
        }
        Poll::Ready(Ok(self.buffer.split_to(filled).freeze()))
    }
}

impl Body for Streamed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match self.stage {
            Stage::Head => {
                self.stage = Stage::Reader;
                let head = std::mem::take(&mut self.head);
                self.count(head)
            }
            Stage::Reader => {
                let piece = match ready!(self.read(cx)) {
                    Ok(piece) => piece,
                    Err(error) => {
                        self.stage = Stage::Done;
                        return Poll::Ready(Some(Err(error)));
                    }
                };
                if !piece.is_empty() {
                    return self.count(piece);
                }
                self.stage = Stage::Done;
                let tail = std::mem::take(&mut self.tail);
                self.count(tail)
            }
            Stage::Done => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stage == Stage::Done
    }

    fn size_hint(&self) -> SizeHint {
        self.owed.map_or_else(SizeHint::default, |owed| {
            SizeHint::with_exact(owed.saturating_add(self.head.len() as u64).saturating_add(self.tail.len() as u64))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(file: &'static [u8], length: Option<u64>) -> Streamed {
        Streamed::new(Bytes::from_static(b"<"), Box::pin(file), length, Bytes::from_static(b">"))
    }

    #[tokio::test]
    async fn head_file_and_tail_come_in_order() {
        for length in [None, Some(4)] {
            let body = body(b"file", length);
            let progress = body.progress();
            assert_eq!(body.size_hint().exact(), length.map(|length| length + 2));
            assert_eq!(body.collect().await.unwrap().to_bytes(), "<file>");
            assert_eq!(progress.load(Ordering::Relaxed), 6);
        }
    }

    #[tokio::test]
    async fn a_longer_reader_is_cut_at_its_length_and_a_shorter_one_is_an_error() {
        assert_eq!(body(b"filefile", Some(4)).collect().await.unwrap().to_bytes(), "<file>");
        let error = body(b"fi", Some(4)).collect().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
