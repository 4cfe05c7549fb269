//! Shipping: batches to the control plane, each the same however often it is sent.

use std::fs::File;
use std::io::{self, BufReader, Seek, SeekFrom};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use ringfence_usage::{Batch, Record};
use serde::Deserialize;
use thiserror::Error;
use tokio::time::timeout_at;

use super::id::uuid;
use super::line::{self, Mark};
use super::position::{Pending, Place, Position};
use super::recover::segment_path;
use super::spool::Spool;
use crate::body::{Body, within};
use crate::error::GateError;
use crate::limits::{BATCH_RECORDS_MAX, BATCH_WAIT, TAKEN_BYTES_MAX};
use crate::secret::Bearer;
use crate::upstream::{SendError, Upstream};
use crate::url::Url;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Where and how batches are sent.
pub(crate) struct Destination {
    pub(crate) url: Url,
    pub(crate) token: Option<Bearer>,
    /// What the gate calls itself in a batch.
    pub(crate) gate: String,
    /// The pause after the first failure; it doubles up to `pause_max`.
    pub(crate) pause_first: Duration,
    pub(crate) pause_max: Duration,
    /// How long records are gathered into a batch.
    pub(crate) gather: Duration,
}

/// Sends batches to the control plane.
pub(crate) struct Shipper {
    spool: Arc<Spool>,
    upstream: Upstream,
    destination: Destination,
    position: Position,
}

/// Why a batch is sent again.
#[derive(Debug, Error)]
enum ShipError {
    #[error("the spool cannot be read or written")]
    Spool(#[source] io::Error),
    #[error("the batch could not be sent")]
    Send(#[source] SendError),
    #[error("the control plane answered {0}")]
    Status(StatusCode),
    #[error("the batch could not be made")]
    Make,
}

impl Shipper {
    /// Goes on where the last process ended.
    ///
    /// # Errors
    /// Where its position cannot be read: to guess it would lose or double records.
    pub(crate) fn new(spool: Arc<Spool>, upstream: Upstream, destination: Destination) -> Result<Self, GateError> {
        let position = Position::read(spool.folder())?;
        Ok(Shipper { spool, upstream, destination, position })
    }

    /// Ships for ever.
    pub(crate) async fn run(mut self) {
        let mut pause = self.destination.pause_first;
        loop {
            match self.batch().await {
                Ok(true) => pause = self.destination.pause_first,
                Ok(false) => {
                    self.spool.synced.notified().await;
                    tokio::time::sleep(self.destination.gather).await;
                }
                Err(error) => {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(%error, cause, "usage is kept and sent again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(self.destination.pause_max);
                }
            }
        }
    }

    /// Ships one batch; `false` where there was nothing to ship.
    async fn batch(&mut self) -> Result<bool, ShipError> {
        let (upto, segments) = self.spool.readable();
        let upto = self.position.pending.as_ref().map_or(upto, |pending| pending.end);
        let (spool, from) = (Arc::clone(&self.spool), self.position.shipped);
        let read = move || read_ends(&spool, &segments, from, upto);
        let (records, end) = tokio::task::spawn_blocking(read).await.map_err(|_| ShipError::Make)??;
        if records.is_empty() {
            // Nothing but beginnings, or nothing at all. It need not be written down: it would be found again.
            self.position = Position { shipped: end, pending: None };
            self.spool.forget(end);
            return Ok(false);
        }
        let key = match &self.position.pending {
            Some(pending) => pending.key.clone(),
            None => {
                let key = uuid().map_err(|_| ShipError::Make)?;
                self.position.pending = Some(Pending { key: key.clone(), end });
                if let Err(error) = self.write_position().await {
                    self.position.pending = None;
                    return Err(error);
                }
                key
            }
        };
        self.send(key, records).await?;
        // It was taken: were this not written down, it would be sent again under the same key.
        self.position = Position { shipped: end, pending: None };
        self.write_position().await?;
        self.spool.forget(end);
        Ok(true)
    }

    async fn write_position(&self) -> Result<(), ShipError> {
        let (spool, position) = (Arc::clone(&self.spool), self.position.clone());
        let write = tokio::task::spawn_blocking(move || spool.write_position(&position));
        write.await.map_err(|_| ShipError::Make)?.map_err(ShipError::Spool)
    }

    async fn send(&self, key: String, records: Vec<Record>) -> Result<(), ShipError> {
        let Destination { url, token, gate, .. } = &self.destination;
        let batch = Batch { batch: key, gate: gate.clone(), records };
        let body = serde_json::to_string(&batch).map_err(|_| ShipError::Make)?;
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = url.join("").ok_or(ShipError::Make)?;
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_str(&batch.batch).map_err(|_| ShipError::Make)?);
        if let Some(token) = token {
            headers.insert(header::AUTHORIZATION, token.header());
        }
        let deadline = within(BATCH_WAIT);
        let answer = self.upstream.send(request, deadline).await.map_err(ShipError::Send)?;
        if !answer.status().is_success() {
            return Err(ShipError::Status(answer.status()));
        }
        // It is taken, whatever its body is and whether it comes.
        let body = Limited::new(answer.into_body(), TAKEN_BYTES_MAX).collect();
        if let Ok(Ok(body)) = timeout_at(deadline, body).await {
            let records = late(&body.to_bytes());
            if records > 0 {
                tracing::error!(
                    records,
                    batch = batch.batch,
                    "usage came too late: the control plane does not count it"
                );
            }
        }
        Ok(())
    }
}

/// How many records the control plane has refused for good, since it has closed their days.
fn late(body: &[u8]) -> u64 {
    #[derive(Deserialize)]
    struct Taken {
        #[serde(default)]
        late: u64,
    }
    serde_json::from_slice(body).map_or(0, |taken: Taken| taken.late)
}

/// The ends between two places, as many as a batch holds, and where they stop.
fn read_ends(
    spool: &Spool,
    segments: &[(u64, u64)],
    from: Place,
    upto: Place,
) -> Result<(Vec<Record>, Place), ShipError> {
    let (mut records, mut at, mut damaged) = (Vec::new(), from, 0_u64);
    for (number, _) in segments.iter().filter(|(number, _)| *number >= from.segment && *number <= upto.segment) {
        if *number != at.segment {
            at = Place { segment: *number, offset: 0 };
        }
        let mut file = File::open(segment_path(spool.folder(), *number)).map_err(ShipError::Spool)?;
        file.seek(SeekFrom::Start(at.offset)).map_err(ShipError::Spool)?;
        let mut reader = BufReader::new(file);
        while at < upto {
            if records.len() == BATCH_RECORDS_MAX {
                return Ok((records, at));
            }
            let Some(line) = line::next(&mut reader).map_err(ShipError::Spool)? else {
                // The end of a segment that is not written to any more.
                at = Place { segment: number + 1, offset: 0 };
                break;
            };
            at.offset += line.bytes;
            match line.says {
                Some((Mark::End, record)) => records.push(record),
                Some((Mark::Begin, _)) => {}
                None => damaged += 1,
            }
        }
    }
    if damaged > 0 {
        tracing::warn!(lines = damaged, "torn or damaged lines of the usage spool were stepped over");
    }
    Ok((records, at))
}

#[cfg(test)]
mod tests {
    use super::late;

    #[test]
    fn what_came_too_late_is_read_and_everything_else_is_nothing() {
        assert_eq!(late(br#"{"batch":"b","records":3,"new":1,"late":2}"#), 2);
        for other in ["", "{}", "taken", "[]", r#"{"late":-1}"#, r#"{"late":"many"}"#] {
            assert_eq!(late(other.as_bytes()), 0, "{other}");
        }
    }
}
