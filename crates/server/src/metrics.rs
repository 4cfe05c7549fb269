//! Counters of the door, in the text format of Prometheus at `GET /metrics`.
//!
//! Fixed tables of atomics: no label is taken from a request, so nothing that a client sends makes them grow.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::StatusCode;
use ringfence_op::{LimitKind, Outcome};
use ringfence_tally::{Requests, load};

use crate::backend::Counts;
use crate::dispatch::Route;
use crate::render::{Reply, Tool};

/// The statuses that the door answers; the last stands for any other.
const STATUSES: [u16; 22] =
    [200, 201, 204, 206, 304, 400, 401, 403, 404, 405, 408, 409, 412, 413, 414, 416, 422, 431, 500, 501, 503, 0];

/// Upper bounds of the duration buckets, microseconds.
const BUCKETS_MICROS: [u64; 14] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 2_500_000, 10_000_000, 60_000_000];

/// What every name begins with.
const PREFIX: &str = "ringfence";

/// How calls end, as the outcome label says it.
const OUTCOMES: [&str; 8] = ["ok", "failed", "wall_clock", "memory", "processes", "disk", "output", "cpu"];

/// The counters.
#[derive(Debug)]
pub(crate) struct Metrics {
    requests: Requests,
    calls: [[AtomicU64; OUTCOMES.len()]; Tool::ALL.len()],
    connections_refused: AtomicU64,
    handshakes_failed: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            requests: Requests::new(Route::ALL.len(), &STATUSES, &BUCKETS_MICROS),
            calls: Default::default(),
            connections_refused: AtomicU64::default(),
            handshakes_failed: AtomicU64::default(),
        }
    }
}

impl Metrics {
    pub(crate) fn connection_refused(&self) {
        self.connections_refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn handshake_failed(&self) {
        self.handshakes_failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts what a call came to.
    pub(crate) fn replied(&self, reply: &Reply) {
        let Reply::Ran { tool, outcome, .. } = reply else { return };
        if let Some(count) = self.calls.get(*tool as usize).and_then(|row| row.get(outcome_index(outcome))) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn answered(&self, route: Route, status: StatusCode, taken: Duration) {
        self.requests.answered(route as usize, status.as_u16(), taken);
    }

    /// Everything, as text.
    pub(crate) fn exposition(&self, counts: &Counts) -> String {
        let mut text = String::with_capacity(16 << 10);
        gauge(&mut text, "sessions", "Sessions that exist.", counts.sessions);
        gauge(&mut text, "sessions_max", "Sessions that may exist.", counts.sessions_max);
        gauge(&mut text, "calls_running", "Calls that run.", counts.running);
        gauge(&mut text, "cells_warm", "Cells ready to be leased.", counts.warm);
        let help = "Zygotes that are one workspace's, or in reserve for one.";
        gauge(&mut text, "workspace_zygotes", help, counts.zygotes_apart);
        gauge(&mut text, "draining", "1 while no lease is taken any more.", counts.draining.into());
        heading(&mut text, "connections_refused_total", "counter", "Connections refused at the limit.");
        line(&mut text, "connections_refused_total", "", load(&self.connections_refused));
        heading(&mut text, "handshakes_failed_total", "counter", "Connections that spoke no TLS or proved nothing.");
        line(&mut text, "handshakes_failed_total", "", load(&self.handshakes_failed));
        self.write_calls(&mut text);
        let labels = |number: usize| Route::ALL.get(number).map(labels).unwrap_or_default();
        self.requests.write(&mut text, PREFIX, "From a request's head to its answer's first byte.", labels);
        text
    }

    fn write_calls(&self, text: &mut String) {
        heading(text, "calls_total", "counter", "Calls that ran, by tool kind and how they ended.");
        for (tool, row) in Tool::ALL.iter().zip(&self.calls) {
            for (outcome, count) in OUTCOMES.iter().zip(row) {
                let labels = format!("tool=\"{}\",outcome=\"{outcome}\"", tool.name());
                line(text, "calls_total", &labels, load(count));
            }
        }
    }
}

fn labels((route, path): &(Route, &str)) -> String {
    format!("operation=\"{route:?}\",route=\"{path}\"")
}

fn outcome_index(outcome: &Outcome) -> usize {
    match outcome.report.limit_exceeded {
        None if outcome.report.return_code == 0 => 0,
        None => 1,
        Some(LimitKind::WallClock) => 2,
        Some(LimitKind::Memory) => 3,
        Some(LimitKind::Processes) => 4,
        Some(LimitKind::Disk) => 5,
        Some(LimitKind::Output) => 6,
        Some(LimitKind::Cpu) => 7,
    }
}

fn gauge(text: &mut String, name: &str, help: &str, value: u64) {
    heading(text, name, "gauge", help);
    line(text, name, "", value);
}

fn heading(text: &mut String, name: &str, kind: &str, help: &str) {
    ringfence_tally::heading(text, PREFIX, name, kind, help);
}

fn line(text: &mut String, name: &str, labels: &str, value: u64) {
    ringfence_tally::line(text, PREFIX, name, labels, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_told() {
        let metrics = Metrics::default();
        metrics.answered(Route::Health, StatusCode::OK, Duration::from_micros(70));
        metrics.answered(Route::Health, StatusCode::OK, Duration::from_secs(100));
        metrics.answered(Route::None, StatusCode::IM_A_TEAPOT, Duration::from_micros(100));
        let outcome = Outcome::default();
        metrics.replied(&Reply::Ran { tool: Tool::Bash, tool_use_id: String::new(), outcome });
        let text = metrics.exposition(&Counts { sessions: 3, ..Counts::default() });
        for wanted in [
            "ringfence_sessions 3\n",
            "ringfence_requests_total{operation=\"Health\",route=\"/health\",status=\"200\"} 2\n",
            "ringfence_requests_total{operation=\"None\",route=\"none\",status=\"0\"} 1\n",
            "ringfence_request_duration_seconds_bucket{operation=\"Health\",route=\"/health\",le=\"0.0001\"} 1\n",
            "ringfence_request_duration_seconds_bucket{operation=\"Health\",route=\"/health\",le=\"60\"} 1\n",
            "ringfence_request_duration_seconds_bucket{operation=\"Health\",route=\"/health\",le=\"+Inf\"} 2\n",
            "ringfence_request_duration_seconds_count{operation=\"Health\",route=\"/health\"} 2\n",
            "ringfence_calls_total{tool=\"bash_code_execution\",outcome=\"ok\"} 1\n",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
    }
}
