//! Counters of requests by route, status and duration, in the text format of Prometheus.
//!
//! For: one way to count for the server's door and for the front door. May know: nothing. Never knows: which routes there
//! are, what is served.
//!
//! **Invariant.** Tables of a fixed size: no label is taken from a request, so nothing that a client sends makes them grow.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Requests that were answered.
#[derive(Debug)]
pub struct Requests {
    statuses: &'static [u16],
    buckets_micros: &'static [u64],
    routes: Vec<Route>,
}

#[derive(Debug)]
struct Route {
    statuses: Vec<AtomicU64>,
    buckets: Vec<AtomicU64>,
    micros: AtomicU64,
}

fn zeros(count: usize) -> Vec<AtomicU64> {
    std::iter::repeat_with(AtomicU64::default).take(count).collect()
}

impl Requests {
    /// So many routes; the statuses that are told apart, of which the last stands for any other; the upper bounds of
    /// the buckets of durations, microseconds, in order.
    #[must_use]
    pub fn new(routes: usize, statuses: &'static [u16], buckets_micros: &'static [u64]) -> Self {
        let route = || Route {
            statuses: zeros(statuses.len()),
            buckets: zeros(buckets_micros.len()),
            micros: AtomicU64::default(),
        };
        Requests { statuses, buckets_micros, routes: std::iter::repeat_with(route).take(routes).collect() }
    }

    /// Counts one, of a route by its number.
    pub fn answered(&self, route: usize, status: u16, taken: Duration) {
        let Some(route) = self.routes.get(route) else { return };
        let others = self.statuses.len().saturating_sub(1);
        let known = self.statuses.iter().position(|known| *known == status).unwrap_or(others);
        if let Some(count) = route.statuses.get(known) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let micros = u64::try_from(taken.as_micros()).unwrap_or(u64::MAX);
        if let Some(count) = route.buckets.get(self.buckets_micros.partition_point(|bound| *bound < micros)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        route.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Writes `PREFIX_requests_total` and `PREFIX_request_duration_seconds`, each route with its labels; `measured` says
    /// from when to when a duration is. What was never asked for is left out.
    pub fn write(&self, text: &mut String, prefix: &str, measured: &str, labels: impl Fn(usize) -> String) {
        heading(text, prefix, "requests_total", "counter", "Requests answered, by route and status.");
        for (number, route) in self.routes.iter().enumerate() {
            let labels = labels(number);
            for (status, count) in self.statuses.iter().zip(&route.statuses).filter(|(_, count)| load(count) > 0) {
                let labels = format!("{labels},status=\"{status}\"");
                line(text, prefix, "requests_total", &labels, load(count));
            }
        }
        heading(text, prefix, "request_duration_seconds", "histogram", measured);
        for (number, route) in self.routes.iter().enumerate() {
            let count: u64 = route.statuses.iter().map(load).sum();
            if count > 0 {
                self.write_durations(text, prefix, &labels(number), route, count);
            }
        }
    }

    fn write_durations(&self, text: &mut String, prefix: &str, labels: &str, route: &Route, count: u64) {
        let mut below = 0;
        for (bound, bucket) in self.buckets_micros.iter().zip(&route.buckets) {
            below += load(bucket);
            let bound = *bound as f64 / 1e6;
            line(text, prefix, "request_duration_seconds_bucket", &format!("{labels},le=\"{bound}\""), below);
        }
        // Another thread may have counted since the statuses were summed up: a histogram never falls.
        let count = count.max(below);
        line(text, prefix, "request_duration_seconds_bucket", &format!("{labels},le=\"+Inf\""), count);
        let seconds = load(&route.micros) as f64 / 1e6;
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(text, "{prefix}_request_duration_seconds_sum{{{labels}}} {seconds}");
        line(text, prefix, "request_duration_seconds_count", labels, count);
    }
}

/// What a name is.
pub fn heading(text: &mut String, prefix: &str, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {prefix}_{name} {help}\n# TYPE {prefix}_{name} {kind}");
}

/// A value under that name, with labels where they are not empty.
pub fn line(text: &mut String, prefix: &str, name: &str, labels: &str, value: u64) {
    let _ = match labels {
        "" => writeln!(text, "{prefix}_{name} {value}"),
        _ => writeln!(text, "{prefix}_{name}{{{labels}}} {value}"),
    };
}

/// What was counted.
#[must_use]
pub fn load(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_told() {
        let requests = Requests::new(2, &[200, 0], &[100, 250]);
        requests.answered(0, 200, Duration::from_micros(250));
        requests.answered(0, 200, Duration::from_secs(1));
        requests.answered(1, 418, Duration::from_micros(100));
        requests.answered(2, 200, Duration::from_micros(1));
        let mut text = String::new();
        requests.write(&mut text, "x", "How long.", |number| format!("route=\"{number}\""));
        let wanted = "\
# HELP x_requests_total Requests answered, by route and status.
# TYPE x_requests_total counter
x_requests_total{route=\"0\",status=\"200\"} 2
x_requests_total{route=\"1\",status=\"0\"} 1
# HELP x_request_duration_seconds How long.
# TYPE x_request_duration_seconds histogram
x_request_duration_seconds_bucket{route=\"0\",le=\"0.0001\"} 0
x_request_duration_seconds_bucket{route=\"0\",le=\"0.00025\"} 1
x_request_duration_seconds_bucket{route=\"0\",le=\"+Inf\"} 2
x_request_duration_seconds_sum{route=\"0\"} 1.00025
x_request_duration_seconds_count{route=\"0\"} 2
x_request_duration_seconds_bucket{route=\"1\",le=\"0.0001\"} 1
x_request_duration_seconds_bucket{route=\"1\",le=\"0.00025\"} 1
x_request_duration_seconds_bucket{route=\"1\",le=\"+Inf\"} 1
x_request_duration_seconds_sum{route=\"1\"} 0.0001
x_request_duration_seconds_count{route=\"1\"} 1
";
        assert_eq!(text, wanted);
    }
}
