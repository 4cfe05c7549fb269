//! What was measured, as text and as JSON.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// One figure of one backend: the median over the rounds of each of its numbers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Figure {
    /// Time of one operation, microseconds.
    Latency {
        /// Median.
        p50_us: f64,
        /// 99th percentile.
        p99_us: f64,
        /// Operations in each round.
        samples: u64,
    },
    /// Operations a second.
    Rate {
        /// How many.
        per_second: f64,
    },
    /// Bytes moved a second, in MiB.
    Throughput {
        /// How many.
        mib_per_second: f64,
    },
    /// Memory of the machine for each session, MiB.
    Memory {
        /// How many.
        mib_each: f64,
        /// Sessions that were live.
        sessions: u64,
    },
    /// What a soak came to. Growth is that of the whole machine, from the first tenth to the end.
    Soak {
        /// Calls that were right.
        execs: u64,
        /// Sessions.
        leases: u64,
        /// How long it took.
        seconds: u64,
        /// Growth of the memory in use, MiB.
        memory_mib: f64,
        /// Growth of the number of processes.
        processes: i64,
        /// Growth of the number of open files.
        open_files: i64,
    },
    /// The work could not be done.
    Failed {
        /// Why.
        reason: String,
    },
}

impl Figure {
    /// The number that ratios are made of, and whether less is better.
    fn main_number(&self) -> Option<(f64, bool)> {
        match self {
            Figure::Latency { p50_us, .. } => Some((*p50_us, true)),
            Figure::Rate { per_second } => Some((*per_second, false)),
            Figure::Throughput { mib_per_second } => Some((*mib_per_second, false)),
            Figure::Memory { mib_each, .. } => Some((*mib_each, true)),
            Figure::Soak { execs, seconds, .. } => Some((*execs as f64 / (*seconds).max(1) as f64, false)),
            Figure::Failed { .. } => None,
        }
    }

    pub(crate) fn text(&self) -> String {
        match self {
            Figure::Latency { p50_us, p99_us, .. } => format!("{} / {}", micros(*p50_us), micros(*p99_us)),
            Figure::Rate { per_second } => format!("{per_second:.0} /s"),
            Figure::Throughput { mib_per_second } => format!("{mib_per_second:.0} MiB/s"),
            Figure::Memory { mib_each, sessions } => format!("{mib_each:.1} MiB x {sessions}"),
            Figure::Soak { execs, leases, seconds, memory_mib, processes, open_files } => format!(
                "{execs} calls, {leases} leases, {seconds} s: {memory_mib:+.1} MiB, {processes:+} processes, \
                 {open_files:+} open files"
            ),
            Figure::Failed { .. } => "failed".to_owned(),
        }
    }
}

fn micros(us: f64) -> String {
    if us < 1000.0 { format!("{us:.0} us") } else { format!("{:.2} ms", us / 1000.0) }
}

/// One work: the backend's figure and, where one was given, the peer's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The work's name.
    pub work: String,
    /// What is done.
    pub about: String,
    /// The backend under `--base-url`.
    pub backend: Figure,
    /// The backend under `--peer-url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Figure>,
}

/// All that one run measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// A fixed answer from a bare server in this process: what HTTP on loopback costs on this machine.
    pub floor: Figure,
    /// A direct start of `bash -c true` from this process.
    pub bash_floor: Figure,
    /// How many rounds each median is of.
    pub rounds: usize,
    /// The works, in the order in which they ran.
    pub rows: Vec<Row>,
}

impl Report {
    /// Whether every work gave its figure.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.rows.iter().all(|row| row.backend.main_number().is_some())
    }

    /// A table for people. Latencies are `p50 / p99`; the ratio is the backend's number over the peer's.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let peers = self.rows.iter().any(|row| row.peer.is_some());
        // Writing to a String cannot fail.
        let _ = writeln!(out, "floor (bare loopback HTTP): {}   rounds: {}", self.floor.text(), self.rounds);
        let _ = writeln!(out, "a direct start of bash: {}\n", self.bash_floor.text());
        let _ = write!(out, "{:<22} {:>24}", "work", "backend");
        let _ = if peers { writeln!(out, " {:>24} {:>8}", "peer", "ratio") } else { writeln!(out) };
        for row in &self.rows {
            let _ = write!(out, "{:<22} {:>24}", row.work, row.backend.text());
            if let Some(peer) = &row.peer {
                let ratio = match (row.backend.main_number(), peer.main_number()) {
                    (Some((ours, _)), Some((theirs, _))) if theirs > 0.0 => format!("{:.2}", ours / theirs),
                    _ => "-".to_owned(),
                };
                let _ = write!(out, " {:>24} {:>8}", peer.text(), ratio);
            }
            out.push('\n');
        }
        for row in &self.rows {
            for (whose, figure) in [("backend", Some(&row.backend)), ("peer", row.peer.as_ref())] {
                if let Some(Figure::Failed { reason }) = figure {
                    let _ = writeln!(out, "\n{} failed on the {whose}: {reason}", row.work);
                }
            }
        }
        out
    }
}

/// The median figure of several rounds; the first failure if there is one.
pub(crate) fn median(rounds: Vec<Figure>) -> Figure {
    if let Some(failed) = rounds.iter().find(|figure| matches!(figure, Figure::Failed { .. })) {
        return failed.clone();
    }
    let mut rounds = rounds;
    rounds.sort_by(|a, b| {
        let number = |f: &Figure| f.main_number().map_or(f64::NAN, |(n, _)| n);
        number(a).total_cmp(&number(b))
    });
    let middle = rounds.len() / 2;
    let mut p99s: Vec<f64> = rounds
        .iter()
        .filter_map(|f| if let Figure::Latency { p99_us, .. } = f { Some(*p99_us) } else { None })
        .collect();
    p99s.sort_by(f64::total_cmp);
    match rounds.into_iter().nth(middle) {
        Some(Figure::Latency { p50_us, p99_us, samples }) => {
            Figure::Latency { p50_us, p99_us: p99s.get(middle).copied().unwrap_or(p99_us), samples }
        }
        Some(figure) => figure,
        None => Figure::Failed { reason: "no round was run".to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(p50_us: f64, p99_us: f64) -> Figure {
        Figure::Latency { p50_us, p99_us, samples: 1 }
    }

    #[test]
    fn each_number_has_its_own_median() {
        let figure = median(vec![latency(3.0, 10.0), latency(1.0, 30.0), latency(2.0, 20.0)]);
        assert!(matches!(figure, Figure::Latency { p50_us: 2.0, p99_us: 20.0, .. }), "{figure:?}");
    }

    #[test]
    fn one_failed_round_is_a_failed_work() {
        let figure = median(vec![latency(1.0, 1.0), Figure::Failed { reason: "why".to_owned() }]);
        assert!(matches!(figure, Figure::Failed { .. }));
    }

    #[test]
    fn the_table_shows_ratio_and_failure() {
        let report = Report {
            floor: latency(50.0, 60.0),
            bash_floor: latency(900.0, 1200.0),
            rounds: 1,
            rows: vec![Row {
                work: "print".to_owned(),
                about: String::new(),
                backend: latency(100.0, 1.0),
                peer: Some(latency(400.0, 1.0)),
            }],
        };
        assert!(report.to_text().contains("0.25"), "{}", report.to_text());
        assert!(report.complete());
    }
}
