//! What is told about requests: one event each, and their ids. Never a body, code, output or credential.
//!
//! Answered requests are told at `debug`, refused ones at `info`, our own failures at `error` with their cause.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode};
use ringfence_op::{Fault, Tenant};

use crate::dispatch::Route;
use crate::limits::REQUEST_ID_BYTES_MAX;
use crate::metrics::Metrics;

/// The header of a request's id, in both directions.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Where fresh request ids come from: random once, then counted, so that no request pays for randomness.
pub(crate) struct RequestIds {
    server: u32,
    next: AtomicU64,
}

/// The id of one request: the client's own where that is short and plain, else a fresh one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestId(HeaderValue);

impl RequestIds {
    pub(crate) fn new() -> Result<Self, getrandom::Error> {
        Ok(RequestIds { server: getrandom::u32()?, next: AtomicU64::new(1) })
    }

    pub(crate) fn of(&self, headers: &HeaderMap) -> RequestId {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let sent = headers
            .get(X_REQUEST_ID)
            .filter(|id| !id.is_empty() && id.len() <= REQUEST_ID_BYTES_MAX && id.as_bytes().iter().all(plain));
        RequestId(sent.cloned().unwrap_or_else(|| self.fresh()))
    }

    fn fresh(&self) -> HeaderValue {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        HeaderValue::try_from(format!("{:08x}-{number:x}", self.server)).unwrap_or(HeaderValue::from_static("none"))
    }
}

impl RequestId {
    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }

    fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

/// What is told of a request.
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a Method,
    pub(crate) route: Route,
    pub(crate) request_id: &'a RequestId,
    /// Where the server is shared.
    pub(crate) tenant: Option<For<'a>>,
}

/// Who a request is for.
pub(crate) struct For<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) grant: Option<&'a str>,
}

/// Counts and tells one answered request. `fault` is there for our own failures only.
pub(crate) fn answered(
    metrics: &Metrics,
    asked: &Asked<'_>,
    status: StatusCode,
    taken: Duration,
    fault: Option<Fault>,
) {
    metrics.answered(asked.route, status, taken);
    let (method, route, request_id) = (asked.method.as_str(), asked.route.path(), asked.request_id.as_str());
    let workspace = asked.tenant.as_ref().map(|tenant| tenant.tenant.workspace.as_str());
    let grant = asked.tenant.as_ref().and_then(|tenant| tenant.grant);
    let micros = u64::try_from(taken.as_micros()).unwrap_or(u64::MAX);
    if let Some(fault) = fault {
        let cause = fault.cause().map_or_else(|| fault.detail().to_owned(), |cause| chain(cause));
        tracing::error!(method, route, status = status.as_u16(), micros, request_id, workspace, grant, cause, "failed");
    } else if status.as_u16() >= 400 {
        tracing::info!(method, route, status = status.as_u16(), micros, request_id, workspace, grant, "refused");
    } else {
        tracing::debug!(method, route, status = status.as_u16(), micros, request_id, workspace, grant, "answered");
    }
}

/// An error and what is behind it, on one line.
fn chain(cause: &dyn Error) -> String {
    let mut text = cause.to_string();
    let mut next = cause.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_id_of_the_client_is_kept() {
        let ids = RequestIds::new().unwrap();
        let of = |id: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(X_REQUEST_ID, id.parse().unwrap());
            ids.of(&headers)
        };
        assert_eq!(of("abc-1_2.3").as_str(), "abc-1_2.3");
        for odd in ["", "a b", "a\"b", "x\u{e9}", &"a".repeat(REQUEST_ID_BYTES_MAX + 1)] {
            assert_ne!(of(odd).as_str(), odd, "{odd}");
        }
        assert_ne!(ids.of(&HeaderMap::new()), ids.of(&HeaderMap::new()));
    }

    #[test]
    fn a_chain_is_told_whole() {
        let inner = std::io::Error::other("inner");
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] std::io::Error);
        assert_eq!(chain(&Outer(inner)), "outer: inner");
    }
}
