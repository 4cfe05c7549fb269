//! Counters of the gate, in the text format of Prometheus, at `GET /metrics` of a listener of their own.
//!
//! A fixed table of atomics: no label is taken from a request, and backends are those of the list (at most
//! [`crate::limits::BACKENDS_MAX`]). No workspace and no session stands in it.

use std::convert::Infallible;
use std::fmt::Write;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use ringfence_listen::Bounds;
use ringfence_tally::Requests;

use crate::answer::Denial;
use crate::body::Body;
use crate::error::GateError;
use crate::limits::{
    HEAD_WAIT, HEADERS_MAX, METRICS_CONNECTIONS_MAX, METRICS_HEAD_BYTES_MAX, OPERATIONS_MAX, STALL_MAX,
};
use crate::shared::Shared;

/// What is counted by: paths as the log names them. The last stands for everything that is not served.
pub(crate) const ROUTES: [&str; 10] = [
    "/sessions",
    "/sessions/{session_id}",
    "/sessions/{session_id}/interrupt",
    "/sessions/{session_id}/exec",
    "/sessions/{session_id}/files",
    "/sessions/{session_id}/files/list",
    "/sessions/{session_id}/archive",
    "/health",
    "/ready",
    "none",
];

/// The statuses that a gate gives or passes on; the last stands for any other.
const STATUSES: [u16; 24] = [
    200, 201, 204, 206, 304, 400, 401, 403, 404, 405, 408, 409, 411, 412, 413, 415, 416, 422, 429, 500, 502, 503, 504,
    0,
];

/// Upper bounds of the duration buckets, microseconds.
const BUCKETS_MICROS: [u64; 12] =
    [250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 500_000, 2_500_000, 10_000_000, 60_000_000];

/// What every name begins with.
const PREFIX: &str = "ringfence_gate";

/// The counters.
#[derive(Debug)]
pub(crate) struct Metrics {
    requests: Requests,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics { requests: Requests::new(ROUTES.len(), &STATUSES, &BUCKETS_MICROS) }
    }
}

/// What is looked up at the moment.
pub(crate) struct Moment<'a> {
    /// Name; whether it takes leases, its sessions, what it may have.
    pub(crate) backends: Vec<(&'a str, (bool, u64, u64))>,
    pub(crate) operations: u64,
    pub(crate) has_keys: bool,
    /// Bytes of the usage spool, where there is one.
    pub(crate) spool_bytes: Option<u64>,
}

impl Metrics {
    pub(crate) fn answered(&self, route: &str, status: StatusCode, taken: Duration) {
        let place = ROUTES.iter().position(|known| *known == route).unwrap_or(ROUTES.len() - 1);
        self.requests.answered(place, status.as_u16(), taken);
    }

    /// Everything, as text. Writing into a String cannot fail.
    pub(crate) fn exposition(&self, moment: &Moment<'_>) -> String {
        let mut text = String::with_capacity(8 << 10);
        heading(&mut text, "operations", "gauge", "Operations that run.");
        let _ = writeln!(text, "ringfence_gate_operations {}", moment.operations);
        heading(&mut text, "has_keys", "gauge", "1 while there is a key set to trust.");
        let _ = writeln!(text, "ringfence_gate_has_keys {}", u8::from(moment.has_keys));
        if let Some(bytes) = moment.spool_bytes {
            heading(&mut text, "spool_bytes", "gauge", "Bytes of usage that are kept until they are shipped.");
            let _ = writeln!(text, "ringfence_gate_spool_bytes {bytes}");
        }
        heading(&mut text, "backend_open", "gauge", "1 while the backend takes leases.");
        for (name, (open, ..)) in &moment.backends {
            let _ = writeln!(text, "ringfence_gate_backend_open{{backend=\"{name}\"}} {}", u8::from(*open));
        }
        heading(&mut text, "backend_sessions", "gauge", "Sessions of the backend, as it said last.");
        for (name, (_, sessions, _)) in &moment.backends {
            let _ = writeln!(text, "ringfence_gate_backend_sessions{{backend=\"{name}\"}} {sessions}");
        }
        heading(&mut text, "backend_sessions_max", "gauge", "Sessions that the backend may have, as it said last.");
        for (name, (_, _, most)) in &moment.backends {
            let _ = writeln!(text, "ringfence_gate_backend_sessions_max{{backend=\"{name}\"}} {most}");
        }
        let labels = |number: usize| format!("route=\"{}\"", ROUTES.get(number).copied().unwrap_or_default());
        self.requests.write(&mut text, PREFIX, "From a request's head to its answer's head.", labels);
        text
    }
}

fn heading(text: &mut String, name: &str, kind: &str, help: &str) {
    ringfence_tally::heading(text, PREFIX, name, kind, help);
}

/// Serves the counters until the gate ends.
pub(crate) async fn serve(shared: Shared, listener: std::net::TcpListener) -> Result<(), GateError> {
    let bounds = Bounds {
        connections_max: METRICS_CONNECTIONS_MAX,
        head_bytes_max: METRICS_HEAD_BYTES_MAX,
        headers_max: HEADERS_MAX,
        head_wait: HEAD_WAIT,
        stall_max: STALL_MAX,
    };
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(&shared, &request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let served = ringfence_listen::serve(listener, None, bounds, service, std::future::pending()).await;
    served.map(drop).map_err(GateError::Listen)
}

fn answer(shared: &Shared, request: &Request<Incoming>) -> Response<Body> {
    if request.uri().path() != "/metrics" {
        return Denial::NoRoute.answer();
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return Denial::WrongMethod("GET, HEAD").answer();
    }
    let all = shared.backends.all();
    let moment = Moment {
        backends: all.iter().map(|backend| (backend.name.as_str(), backend.figures())).collect(),
        operations: (OPERATIONS_MAX - shared.operations.available_permits().min(OPERATIONS_MAX)) as u64,
        has_keys: shared.admission.keys.current().is_some(),
        spool_bytes: shared.spool.as_ref().map(|spool| spool.bytes()),
    };
    let mut answer = Response::new(Body::from(shared.metrics.exposition(&moment)));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_told_and_unknown_routes_and_statuses_are_one() {
        let metrics = Metrics::default();
        metrics.answered("/health", StatusCode::OK, Duration::from_micros(250));
        metrics.answered("/health", StatusCode::OK, Duration::from_secs(100));
        metrics.answered("/made/up", StatusCode::IM_A_TEAPOT, Duration::from_micros(1));
        let backends = vec![("b1", (true, 3, 100))];
        let moment = Moment { backends, operations: 2, has_keys: true, spool_bytes: Some(7) };
        let text = metrics.exposition(&moment);
        for wanted in [
            "ringfence_gate_operations 2\n",
            "ringfence_gate_has_keys 1\n",
            "ringfence_gate_spool_bytes 7\n",
            "ringfence_gate_backend_open{backend=\"b1\"} 1\n",
            "ringfence_gate_backend_sessions{backend=\"b1\"} 3\n",
            "ringfence_gate_requests_total{route=\"/health\",status=\"200\"} 2\n",
            "ringfence_gate_requests_total{route=\"none\",status=\"0\"} 1\n",
            "ringfence_gate_request_duration_seconds_bucket{route=\"/health\",le=\"0.00025\"} 1\n",
            "ringfence_gate_request_duration_seconds_bucket{route=\"/health\",le=\"+Inf\"} 2\n",
            "ringfence_gate_request_duration_seconds_count{route=\"/health\"} 2\n",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
    }
}
