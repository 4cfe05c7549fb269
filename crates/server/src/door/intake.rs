//! A request's body, read with every wait and size bounded.

use std::future::poll_fn;
use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use hyper::HeaderMap;
use hyper::body::{Body as _, Incoming};
use hyper::header::EXPECT;
use ringfence_weaken::{Mitigation, holds};
use tokio::time::Instant;

use crate::limits::{BODY_BYTES_PER_SECOND_MIN, DoorLimits, LINGER_MAX, LINGER_UPLOADS_MAX};
use crate::refusal::Refusal;

/// A body on its way in.
pub(crate) struct Intake {
    body: Incoming,
    begun: Instant,
    received: u64,
    /// The client sends the body only when it is asked to go on.
    waits_for_continue: bool,
    limits: DoorLimits,
}

impl Intake {
    pub(crate) fn new(body: Incoming, headers: &HeaderMap, limits: &DoorLimits) -> Self {
        let waits_for_continue = headers.contains_key(EXPECT);
        Intake { body, begun: Instant::now(), received: 0, waits_for_continue, limits: limits.clone() }
    }

    /// The announced length, where one is.
    pub(crate) fn announced(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// The next piece, or the end.
    ///
    /// # Errors
    /// `SlowBody` when it pauses too long or comes too slowly in all; `BrokenBody` when it ends before its end.
    pub(crate) async fn piece(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            let next = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx));
            let frame = match tokio::time::timeout(self.limits.body_pause_max, next).await {
                Err(_) => return Err(Refusal::SlowBody),
                Ok(None) => return Ok(None),
                Ok(Some(Err(_))) => return Err(Refusal::BrokenBody),
                Ok(Some(Ok(frame))) => frame,
            };
            // Trailers say nothing that is wanted here.
            let Ok(piece) = frame.into_data() else { continue };
            self.received = self.received.saturating_add(piece.len() as u64);
            let earned = std::time::Duration::from_secs(self.received / BODY_BYTES_PER_SECOND_MIN);
            if holds(Mitigation::BodyTime) && self.begun.elapsed() > self.limits.body_grace.saturating_add(earned) {
                return Err(Refusal::SlowBody);
            }
            return Ok(Some(piece));
        }
    }

    /// The whole body of a JSON request.
    ///
    /// # Errors
    /// As [`piece`](Self::piece); `BodyTooLarge` over the limit, at once where the length is announced.
    pub(crate) async fn whole(&mut self) -> Result<Bytes, Refusal> {
        let bytes_max = if holds(Mitigation::BodyBytes) { self.limits.json_bytes_max } else { usize::MAX >> 1 };
        let too_large = Refusal::BodyTooLarge { bytes_max: bytes_max as u64 };
        if self.announced().is_some_and(|length| length > bytes_max as u64) {
            return Err(too_large);
        }
        let Some(first) = self.piece().await? else { return Ok(Bytes::new()) };
        if self.body.is_end_stream() && first.len() <= bytes_max {
            return Ok(first);
        }
        let mut whole = BytesMut::from(first);
        while let Some(piece) = self.piece().await? {
            if whole.len() + piece.len() > bytes_max {
                return Err(too_large);
            }
            whole.extend_from_slice(&piece);
        }
        match whole.len() > bytes_max {
            true => Err(too_large),
            false => Ok(whole.freeze()),
        }
    }

    /// Whether nothing more is to come.
    pub(crate) fn is_finished(&self) -> bool {
        self.body.is_end_stream()
    }

    /// Throws away what is left of the body, for a while and up to a size, behind the answer. A client that sends
    /// its whole request before it reads would see a reset instead of the answer, were the connection closed on it.
    pub(crate) fn linger(mut self) {
        if self.is_finished() || (self.waits_for_continue && self.received == 0) {
            return;
        }
        let bytes_max = self.limits.upload_bytes_max.saturating_mul(LINGER_UPLOADS_MAX).saturating_add(self.received);
        tokio::spawn(async move {
            let reading = async { while self.received <= bytes_max && matches!(self.piece().await, Ok(Some(_))) {} };
            let _late = tokio::time::timeout(LINGER_MAX, reading).await;
        });
    }
}
