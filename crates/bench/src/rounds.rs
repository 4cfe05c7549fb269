//! Runs the chosen works in rounds, backend and peer in turn.

use std::process::{Command, Stdio};
use std::time::Instant;

use hdrhistogram::Histogram;
use ringfence_probe::{Address, Connection};

use crate::error::BenchError;
use crate::report::{Figure, Report, Row, median};
use crate::work::{Effort, Soak, Work, works};
use crate::{floor, growth, work};

/// The name that stands for every work that shows how figures grow.
const GROWTH: &str = "growth";

/// What to measure, of whom.
#[derive(Debug, Clone)]
pub struct Options {
    /// The backend.
    pub backend: Address,
    /// A second one, measured in turn with the first.
    pub peer: Option<Address>,
    /// Names of [`works`], or `growth` for all that show growth; empty is all but those that are marked as long.
    pub only: Vec<String>,
    /// How many rounds each median is of.
    pub rounds: usize,
    /// Operations in each latency round.
    pub samples: u64,
    /// Seconds of each rate round.
    pub seconds: u64,
    /// Live sessions in the density work.
    pub sessions: u64,
    /// The size of the soak work.
    pub soak: Soak,
}

/// Measures; `progress` is told each work's name before it starts.
///
/// # Errors
/// When a work's name is wrong, or the floor cannot be measured. A work that fails is a row that says so.
pub fn run(options: &Options, mut progress: impl FnMut(&str)) -> Result<Report, BenchError> {
    let Options { backend, peer, .. } = options;
    let effort =
        Effort { samples: options.samples, seconds: options.seconds, sessions: options.sessions, soak: options.soak };
    let floor = measure_floor(&effort)?;
    let bash_floor = measure_bash(&effort);
    let mut rows = Vec::new();
    for work in chosen(&options.only)? {
        progress(work.name);
        let rounds = if work.once { 1 } else { options.rounds.max(1) };
        let mut ours = Vec::new();
        let mut theirs = Vec::new();
        for _ in 0..rounds {
            ours.push(measure(work, backend, &effort));
            if let Some(peer) = peer {
                theirs.push(measure(work, peer, &effort));
            }
        }
        let peer = peer.is_some().then(|| median(theirs));
        rows.push(Row { work: work.name.to_owned(), about: work.about.to_owned(), backend: median(ours), peer });
    }
    Ok(Report { floor, bash_floor, rounds: options.rounds.max(1), rows })
}

fn chosen(only: &[String]) -> Result<Vec<&'static Work>, BenchError> {
    if only.is_empty() {
        return Ok(works().filter(|work| !work.long).collect());
    }
    let mut chosen = Vec::new();
    for name in only {
        if name == GROWTH {
            chosen.extend(growth::chosen());
        } else {
            chosen.push(works().find(|work| work.name == name).ok_or_else(|| BenchError::UnknownWork(name.clone()))?);
        }
    }
    Ok(chosen)
}

fn measure(work: &Work, address: &Address, effort: &Effort) -> Figure {
    (work.run)(address, effort).unwrap_or_else(|error| {
        let mut reason = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            reason.push_str(": ");
            reason.push_str(&cause.to_string());
            source = cause.source();
        }
        Figure::Failed { reason }
    })
}

fn measure_floor(effort: &Effort) -> Result<Figure, BenchError> {
    let address = Address::parse(&format!("http://{}", floor::start()?), None)?;
    let mut connection = Connection::new(&address);
    let mut histogram = work::histogram();
    for _ in 0..effort.samples.max(1) {
        let begun = Instant::now();
        connection.call("GET", "/health", "", b"")?;
        work::record(&mut histogram, begun);
    }
    Ok(latency(&histogram))
}

/// A direct start of the shell from this small process, waited for: what a call of the shell cannot be below.
fn measure_bash(effort: &Effort) -> Figure {
    let mut histogram = work::histogram();
    for _ in 0..(effort.samples / 4).max(1) {
        let begun = Instant::now();
        let mut command = Command::new("bash");
        let command = command.args(["-c", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match command.status() {
            Ok(status) if status.success() => work::record(&mut histogram, begun),
            Ok(status) => return Figure::Failed { reason: format!("bash ended with {status}") },
            Err(error) => return Figure::Failed { reason: format!("bash cannot be started: {error}") },
        }
    }
    latency(&histogram)
}

/// The figure of a histogram of nanoseconds.
pub(crate) fn latency(histogram: &Histogram<u64>) -> Figure {
    Figure::Latency {
        p50_us: histogram.value_at_quantile(0.5) as f64 / 1000.0,
        p99_us: histogram.value_at_quantile(0.99) as f64 / 1000.0,
        samples: histogram.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_work_is_named() {
        assert!(matches!(chosen(&["nope".to_owned()]), Err(BenchError::UnknownWork(name)) if name == "nope"));
        assert_eq!(chosen(&["print".to_owned()]).unwrap().len(), 1);
        assert!(chosen(&["growth".to_owned()]).unwrap().iter().any(|work| work.name == "print_beside_999"));
    }

    #[test]
    fn a_backend_that_is_not_there_is_a_failed_row() {
        let options = Options {
            backend: Address::parse("http://127.0.0.1:1", None).unwrap(),
            peer: None,
            only: vec!["health".to_owned()],
            rounds: 1,
            samples: 3,
            seconds: 1,
            sessions: 1,
            soak: Soak { execs: 1, leases: 1, seconds: 0 },
        };
        let report = run(&options, |_| ()).unwrap();
        assert!(!report.complete());
        assert!(report.to_text().contains("health failed on the backend"), "{}", report.to_text());
    }
}
