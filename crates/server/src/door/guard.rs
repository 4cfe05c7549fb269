//! A connection whose every wait has an end: idle, in the middle of a head, and with an answer left unread; and whose
//! refusals all say why, those included that hyper makes of a head it cannot read.
//!
//! The waits inside a body are the intake's; the wait for an answer is the call's own timeout. One timer per
//! connection, moved only when it fires, so that a request that needs no waiting pays for a clock reading alone.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use ringfence_weaken::{Mitigation, holds};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::limits::DoorLimits;

/// The whole answer to a head that does not end.
pub(super) const SLOW_HEAD: &[u8] = b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\n\
content-length: 58\r\nconnection: close\r\n\r\n{\"detail\":\"the head of the request took too long to come\"}";

/// The whole answer to a connection too many.
pub(super) const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
content-length: 59\r\nretry-after: 1\r\nconnection: close\r\n\r\n{\"detail\":\"the server holds as many connections as it may\"}";

/// The whole answer to a head that cannot be read.
const NO_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n\
content-length: 49\r\nconnection: close\r\n\r\n{\"detail\":\"what was sent is no HTTP/1.1 request\"}";

/// The whole answer to a head that is too large.
const LARGE_HEAD: &[u8] = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n\
content-length: 87\r\nconnection: close\r\n\r\n{\"detail\":\"the head of the request is larger than 32 KiB, or has more than 100 fields\"}";

/// Where a connection is between and within its requests; shared with the service.
#[derive(Debug, Default)]
pub(crate) struct Phase {
    begun: AtomicU32,
    busy: AtomicBool,
}

/// Held from the end of a request's head to the end of its answer.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Phase>);

impl Busy {
    pub(crate) fn begin(phase: &Arc<Phase>) -> Self {
        phase.busy.store(true, Ordering::Release);
        phase.begun.fetch_add(1, Ordering::Release);
        Busy(Arc::clone(phase))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

/// A stream with deadlines.
pub(super) struct Guarded<S> {
    stream: S,
    phase: Arc<Phase>,
    /// Requests that had begun when `quiet_since` and `head_since` were last set.
    begun_seen: u32,
    /// Requests whose answers are all out.
    answered: u32,
    quiet_since: Instant,
    head_since: Option<Instant>,
    unread_since: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    idle_max: Duration,
    head_max: Duration,
    write_pause_max: Duration,
}

impl<S> Guarded<S> {
    pub(super) fn new(stream: S, phase: Arc<Phase>, limits: &DoorLimits) -> Self {
        let now = Instant::now();
        Guarded {
            stream,
            phase,
            begun_seen: 0,
            answered: 0,
            quiet_since: now,
            head_since: None,
            unread_since: None,
            timer: Box::pin(tokio::time::sleep_until(now + limits.head_max.min(limits.idle_max))),
            idle_max: limits.idle_max,
            head_max: limits.head_max,
            write_pause_max: limits.write_pause_max,
        }
    }

    /// Ready when the deadline has passed; else the task is woken at it, or before.
    fn passed(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= deadline {
            return Poll::Ready(());
        }
        if self.timer.is_elapsed() || self.timer.deadline() > deadline {
            self.timer.as_mut().reset(deadline);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Guarded<S> {
    fn waiting_for_a_request(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let deadline = match self.head_since {
            Some(since) if holds(Mitigation::HeadTime) => since + self.head_max,
            Some(_) => return Poll::Pending,
            None => self.quiet_since + self.idle_max,
        };
        match self.passed(deadline, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                if self.head_since.is_some() {
                    // Nothing else is being written while a head is read; what does not fit at once is left out.
                    let _written = Pin::new(&mut self.stream).poll_write(cx, SLOW_HEAD);
                }
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }

    /// The answer in the place of hyper's own, whose first bytes these are. No request was handed to the service since all
    /// answers were out, so nobody else can have written them. After it hyper ends the connection. Behind an answer that
    /// is still on its way (requests sent at once) hyper's own stays, for nothing here tells the two apart.
    fn instead_of(&self, bytes: &[u8]) -> Option<&'static [u8]> {
        let (busy, begun) = (self.phase.busy.load(Ordering::Acquire), self.phase.begun.load(Ordering::Acquire));
        match bytes.get(..12) {
            _ if busy || begun != self.answered => None,
            Some(b"HTTP/1.1 400") => Some(NO_HTTP),
            Some(b"HTTP/1.1 431") => Some(LARGE_HEAD),
            _ => None,
        }
    }

    /// Writes what came of [`instead_of`](Self::instead_of), as far as there is room at once, which there is: nothing else
    /// is on its way. To hyper it is its own answer, all of it.
    fn write_instead(&mut self, answer: &[u8], length: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, answer).map_ok(|_| length);
        self.watch_write(result, cx)
    }

    fn watch_write<T>(&mut self, result: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.unread_since = None;
            return result;
        }
        if !holds(Mitigation::UnreadTime) {
            return result;
        }
        let since = *self.unread_since.get_or_insert_with(Instant::now);
        match self.passed(since + self.write_pause_max, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let busy = this.phase.busy.load(Ordering::Acquire);
        let begun = this.phase.begun.load(Ordering::Acquire);
        if busy || begun != this.begun_seen {
            this.begun_seen = begun;
            this.head_since = None;
            this.quiet_since = Instant::now();
        }
        let filled = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(cx, buffer) {
            Poll::Pending if !busy => this.waiting_for_a_request(cx),
            Poll::Ready(Ok(())) if !busy && this.head_since.is_none() && buffer.filled().len() > filled => {
                this.head_since = Some(Instant::now());
                Poll::Ready(Ok(()))
            }
            other => other,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(answer) = this.instead_of(bytes) {
            return this.write_instead(answer, bytes.len(), cx);
        }
        let result = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.watch_write(result, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(answer) = pieces.iter().find(|piece| !piece.is_empty()).and_then(|first| this.instead_of(first)) {
            return this.write_instead(answer, pieces.iter().map(|piece| piece.len()).sum(), cx);
        }
        let result = Pin::new(&mut this.stream).poll_write_vectored(cx, pieces);
        this.watch_write(result, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_flush(cx);
        if matches!(result, Poll::Ready(Ok(()))) && !this.phase.busy.load(Ordering::Acquire) {
            // hyper flushes once all that it holds is written.
            this.answered = this.phase.begun.load(Ordering::Acquire);
        }
        this.watch_write(result, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_written_by_hand_have_their_length() {
        for answer in [SLOW_HEAD, FULL, NO_HTTP, LARGE_HEAD] {
            let text = std::str::from_utf8(answer).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{text}: {}", body.len());
        }
    }
}
