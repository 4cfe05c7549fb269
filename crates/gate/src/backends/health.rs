//! Asking a backend how it is.

use std::sync::Weak;
use std::time::Duration;

use hyper::header::AUTHORIZATION;
use hyper::{Request, StatusCode};
use serde::Deserialize;

use super::Backend;
use crate::body::{Body, Room, Stream, within};
use crate::limits::{HEALTH_BYTES_MAX, HEALTH_WAIT};
use crate::members::Object;
use crate::secret::Bearer;
use crate::upstream::Upstream;
use crate::url::Url;

/// What a backend told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Polled {
    pub(crate) session_count: u64,
    /// 0 where it tells none.
    pub(crate) sessions_max: u64,
    /// It takes no new sessions.
    pub(crate) draining: bool,
}

#[derive(Deserialize)]
struct Health {
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    session_count: Option<u64>,
    #[serde(default)]
    max_sessions: Option<u64>,
}

/// Polls until the backend is dropped.
pub(super) async fn poll(backend: Weak<Backend>, upstream: Upstream, proof: Option<Bearer>, every: Duration) {
    let room = Room::new();
    loop {
        let Some(url) = backend.upgrade().map(|backend| backend.url.clone()) else { return };
        let polled = ask(&url, &upstream, proof.as_ref(), &room).await;
        let Some(backend) = backend.upgrade() else { return };
        if backend.polled(polled) {
            let up = polled.is_some();
            tracing::info!(backend = backend.name, up, "a backend's health changed");
        }
        drop(backend);
        tokio::time::sleep(every).await;
    }
}

async fn ask(url: &Url, upstream: &Upstream, proof: Option<&Bearer>, room: &Room) -> Option<Polled> {
    let deadline = within(HEALTH_WAIT);
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = url.join("/health")?;
    if let Some(proof) = proof {
        request.headers_mut().insert(AUTHORIZATION, proof.header());
    }
    let answer = upstream.send(request, deadline).await.ok()?;
    if answer.status() != StatusCode::OK {
        return None;
    }
    let held = room.collect(Stream::of_backend(answer.into_body(), None), HEALTH_BYTES_MAX, deadline).await.ok()?;
    read(&held.bytes)
}

fn read(bytes: &[u8]) -> Option<Polled> {
    let Object(health): Object<Health> = serde_json::from_slice(bytes).ok()?;
    Some(Polled {
        session_count: health.session_count.unwrap_or(0),
        sessions_max: health.max_sessions.unwrap_or(0),
        draining: health.status.is_some_and(|status| status == "draining"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_read_leniently_but_must_be_json() {
        let told =
            |text: &str| read(text.as_bytes()).map(|told| (told.session_count, told.sessions_max, told.draining));
        assert_eq!(
            told(r#"{"status":"ok","session_count":3,"max_sessions":100,"tier":"cell"}"#),
            Some((3, 100, false))
        );
        assert_eq!(told(r#"{"status":"draining","session_count":3,"max_sessions":100}"#), Some((3, 100, true)));
        assert_eq!(told("{}"), Some((0, 0, false)));
        for wrong in ["", "ok", "[]", r#"{"session_count":-1}"#, "<html>"] {
            assert_eq!(told(wrong), None, "{wrong}");
        }
    }
}
