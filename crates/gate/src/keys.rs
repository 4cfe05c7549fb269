//! The key set: from a file or a URL, refreshed behind the scenes, the last good one kept for a bounded time.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use hyper::{Method, Request, StatusCode};
use ringfence_grant::limits::KEY_SET_BYTES_MAX;
use ringfence_grant::{KeyError, KeySet};
use ringfence_secret::{SecretError, read_regular};
use thiserror::Error;
use tokio::sync::Notify;

use crate::body::{Body, Room, Stream, within};
use crate::error::GateError;
use crate::limits::{KEYS_PAUSE_MIN, KEYS_WAIT};
use crate::upstream::Upstream;
use crate::url::Url;

/// Where the key set comes from.
#[derive(Debug, Clone)]
pub(crate) enum KeySource {
    File(PathBuf),
    Url(Url),
}

/// Why a key set was not had. The one in use stays.
#[derive(Debug, Error)]
enum FetchError {
    #[error("the file cannot be read")]
    File(#[source] SecretError),
    #[error("the URL gave no answer")]
    NoAnswer,
    #[error("the URL answered {0}")]
    Status(StatusCode),
    #[error("the document did not come whole, in time and in size")]
    Body(#[source] crate::body::BodyError),
    #[error("the document is no key set")]
    Keys(#[source] KeyError),
}

/// A key set, and how many there were before it.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) set: KeySet,
    pub(crate) generation: u64,
}

struct Slot {
    current: Option<Arc<Current>>,
    confirmed: Instant,
}

/// The key set in use.
pub(crate) struct Keys {
    source: KeySource,
    slot: RwLock<Slot>,
    asked: Notify,
    refresh_every: Duration,
    stale_max: Duration,
}

impl Keys {
    /// A file must be good at once; a URL may become so later.
    pub(crate) fn new(source: KeySource, refresh_every: Duration, stale_max: Duration) -> Result<Self, GateError> {
        let slot = RwLock::new(Slot { current: None, confirmed: Instant::now() });
        let keys = Keys { source, slot, asked: Notify::new(), refresh_every, stale_max };
        if let KeySource::File(path) = &keys.source {
            match from_file(path) {
                Ok(set) => keys.take(set),
                Err(FetchError::File(error)) => return Err(error.into()),
                Err(FetchError::Keys(source)) => return Err(GateError::Keys { path: path.clone(), source }),
                Err(other) => {
                    return Err(GateError::Content { path: path.clone(), reason: other.to_string() });
                }
            }
        }
        Ok(keys)
    }

    /// The key set; `None` where there is none, or where it was last confirmed too long ago to be trusted.
    pub(crate) fn current(&self) -> Option<Arc<Current>> {
        let slot = self.slot.read().unwrap_or_else(PoisonError::into_inner);
        slot.current.clone().filter(|_| slot.confirmed.elapsed() <= self.stale_max)
    }

    /// A grant names a key that is not in the set: it may have been published just now.
    pub(crate) fn ask(&self) {
        self.asked.notify_one();
    }

    /// Refreshes for ever.
    pub(crate) async fn refresh(&self, upstream: &Upstream, room: &Room) {
        loop {
            match self.fetch(upstream, room).await {
                Ok(set) => self.take(set),
                Err(error) => {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(%error, cause, "the key set could not be refreshed: the last good one stays");
                }
            }
            // Asked for or not, never sooner than this: unknown keys are easily made up.
            tokio::time::sleep(KEYS_PAUSE_MIN.min(self.refresh_every)).await;
            let rest = self.refresh_every.saturating_sub(KEYS_PAUSE_MIN);
            let _asked = tokio::time::timeout(rest, self.asked.notified()).await;
        }
    }

    fn take(&self, set: KeySet) {
        let mut slot = self.slot.write().unwrap_or_else(PoisonError::into_inner);
        slot.confirmed = Instant::now();
        let generation = match &slot.current {
            Some(current) if current.set == set => return,
            Some(current) => current.generation + 1,
            None => 0,
        };
        let ids: Vec<&str> = set.keys().iter().map(|key| key.key_id()).collect();
        tracing::info!(keys = ids.join(" "), "a key set is in use");
        slot.current = Some(Arc::new(Current { set, generation }));
    }

    async fn fetch(&self, upstream: &Upstream, room: &Room) -> Result<KeySet, FetchError> {
        let url = match &self.source {
            KeySource::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || from_file(&path)).await;
                return read.unwrap_or(Err(FetchError::NoAnswer));
            }
            KeySource::Url(url) => url,
        };
        let deadline = within(KEYS_WAIT);
        let uri = url.join("").ok_or(FetchError::NoAnswer)?;
        let mut request = Request::new(Body::empty());
        (*request.method_mut(), *request.uri_mut()) = (Method::GET, uri);
        let answer = upstream.send(request, deadline).await.map_err(|_| FetchError::NoAnswer)?;
        if answer.status() != StatusCode::OK {
            return Err(FetchError::Status(answer.status()));
        }
        let body = Stream::of_backend(answer.into_body(), None);
        let held = room.collect(body, KEY_SET_BYTES_MAX, deadline).await.map_err(FetchError::Body)?;
        KeySet::parse(&held.bytes).map_err(FetchError::Keys)
    }
}

fn from_file(path: &std::path::Path) -> Result<KeySet, FetchError> {
    let document = read_regular(path, KEY_SET_BYTES_MAX).map_err(FetchError::File)?;
    KeySet::parse(&document).map_err(FetchError::Keys)
}
