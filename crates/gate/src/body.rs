//! Bodies: passed on as they come, or read whole within bounds.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, timeout, timeout_at};

use crate::limits::{DISCARD_BYTES_MAX, DISCARD_WAIT, HELD_BYTES_MAX, STALL_MAX};

/// Why a body did not come to its end.
#[derive(Debug, Error)]
pub(crate) enum BodyError {
    /// It broke off, or its framing is wrong.
    #[error("the body broke off")]
    Broken(#[source] hyper::Error),
    /// Nothing came for [`STALL_MAX`], or not all of it in time.
    #[error("the body stood still")]
    Slow,
    /// It is larger than it may be.
    #[error("the body is larger than {bytes_max} bytes")]
    TooLarge {
        /// What it may be.
        bytes_max: usize,
    },
    /// The gate holds as many bytes of bodies as it may.
    #[error("no room to hold the body")]
    NoRoom,
}

/// A body of a request or an answer.
pub(crate) enum Body {
    /// Nothing, or all of it, with its share of the gate's room.
    Whole { bytes: Bytes, _shares: Vec<OwnedSemaphorePermit> },
    /// As it comes.
    Stream(Stream),
}

impl Body {
    pub(crate) fn empty() -> Self {
        Body::from(Bytes::new())
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Body::Whole { bytes, _shares: Vec::new() }
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Body::from(Bytes::from(text))
    }
}

impl From<Held> for Body {
    fn from(held: Held) -> Self {
        Body::Whole { bytes: held.bytes, _shares: held.shares }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Body::Whole { bytes, .. } => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Body::Stream(stream) => stream.poll(cx).map(|next| next.map(|piece| piece.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Whole { bytes, .. } => bytes.is_empty(),
            Body::Stream(stream) => stream.inner.as_ref().is_none_or(HttpBody::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole { bytes, .. } => SizeHint::with_exact(bytes.len() as u64),
            Body::Stream(stream) => stream.inner.as_ref().map_or(SizeHint::with_exact(0), HttpBody::size_hint),
        }
    }
}

/// When bytes last moved, shared between a body and whoever waits for an answer to it.
#[derive(Debug, Default)]
pub(crate) struct Movement(AtomicU64);

impl Movement {
    /// How many pieces have moved.
    pub(crate) fn pieces(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A body from the wire. Trailers are dropped. One that nobody reads to its end is read a bounded bit further behind
/// the scenes, so that its sender sees the answer and not a reset.
pub(crate) struct Stream {
    inner: Option<Incoming>,
    stall: Option<Pin<Box<Sleep>>>,
    movement: Arc<Movement>,
    discard: bool,
    /// Held as long as the body moves.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Stream {
    /// A body of a client.
    pub(crate) fn of_client(inner: Incoming) -> Self {
        let inner = Some(inner).filter(|inner| !inner.is_end_stream());
        Stream { inner, stall: None, movement: Arc::default(), discard: true, _permit: None }
    }

    /// A body of a backend, with the permit of its operation.
    pub(crate) fn of_backend(inner: Incoming, permit: Option<OwnedSemaphorePermit>) -> Self {
        Stream { inner: Some(inner), stall: None, movement: Arc::default(), discard: false, _permit: permit }
    }

    pub(crate) fn movement(&self) -> Arc<Movement> {
        Arc::clone(&self.movement)
    }

    /// The declared size, where there is one.
    fn exact(&self) -> Option<u64> {
        self.inner.as_ref().map_or(Some(0), |inner| inner.size_hint().exact())
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
            let Poll::Ready(next) = Pin::new(inner).poll_frame(cx) else {
                let stall = self.stall.get_or_insert_with(|| Box::pin(tokio::time::sleep(STALL_MAX)));
                ready!(stall.as_mut().poll(cx));
                self.inner = None;
                return Poll::Ready(Some(Err(BodyError::Slow)));
            };
            self.stall = None;
            match next {
                None => {
                    self.inner = None;
                    return Poll::Ready(None);
                }
                Some(Err(error)) => {
                    self.inner = None;
                    return Poll::Ready(Some(Err(BodyError::Broken(error))));
                }
                Some(Ok(frame)) => {
                    self.movement.0.fetch_add(1, Ordering::Relaxed);
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
            }
        }
    }

    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Some(mut rest) = self.inner.take().filter(|_| self.discard) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let discard = async {
                let mut bytes = 0;
                while let Some(Ok(frame)) = rest.frame().await {
                    bytes += frame.data_ref().map_or(0, Bytes::len);
                    if bytes > DISCARD_BYTES_MAX {
                        break;
                    }
                }
            };
            // Whether all of it came or not, it is over.
            let _over = timeout(DISCARD_WAIT, discard).await;
        });
    }
}

/// The bytes of bodies that the gate holds whole, in KiB, over all operations.
#[derive(Debug, Clone)]
pub(crate) struct Room(Arc<Semaphore>);

/// Bytes of a body that was read whole, with their share of the room.
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    shares: Vec<OwnedSemaphorePermit>,
}

impl Room {
    pub(crate) fn new() -> Self {
        Room(Arc::new(Semaphore::new(HELD_BYTES_MAX >> 10)))
    }

    /// Reads a body whole. Where no room is left it waits for some until the deadline.
    pub(crate) async fn collect(
        &self,
        mut body: Stream,
        bytes_max: usize,
        deadline: Instant,
    ) -> Result<Held, BodyError> {
        let too_large = BodyError::TooLarge { bytes_max };
        if body.exact().is_some_and(|bytes| bytes > bytes_max as u64) {
            return Err(too_large);
        }
        let mut first = Bytes::new();
        let mut whole = BytesMut::new();
        let mut shares = Vec::new();
        let mut free_bytes = 0_usize;
        loop {
            let next = timeout_at(deadline, body.next()).await.map_err(|_| BodyError::Slow)?;
            let Some(piece) = next.transpose()? else { break };
            if first.len() + whole.len() + piece.len() > bytes_max {
                return Err(too_large);
            }
            if piece.len() > free_bytes {
                // A MiB at a time once it is large, so that a body has few shares.
                let step = if whole.len() > 64 << 10 { 1 << 20 } else { 16 << 10 };
                let kib = piece.len().max(step).div_ceil(1 << 10);
                let share = Arc::clone(&self.0).acquire_many_owned(u32::try_from(kib).unwrap_or(u32::MAX));
                let share = timeout_at(deadline, share).await.map_err(|_| BodyError::NoRoom)?;
                shares.push(share.map_err(|_| BodyError::NoRoom)?);
                free_bytes += kib << 10;
            }
            free_bytes -= piece.len();
            // The common body comes in one piece and is not copied.
            if first.is_empty() && whole.is_empty() {
                first = piece;
                continue;
            }
            whole.extend_from_slice(&std::mem::take(&mut first));
            whole.extend_from_slice(&piece);
        }
        let bytes = if whole.is_empty() { first } else { whole.freeze() };
        Ok(Held { bytes, shares })
    }
}

/// The time from now.
pub(crate) fn within(wait: Duration) -> Instant {
    Instant::now() + wait
}
