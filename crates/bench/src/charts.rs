//! A report as charts for a document: Mermaid's `xychart-beta`, which needs nothing but text.

use std::fmt::Write as _;

use crate::report::{Figure, Report};

/// A chart: what grows along it, what it shows, and the works that its points come from.
struct Chart {
    title: &'static str,
    grows: &'static str,
    points: &'static [(&'static str, &'static str)],
}

const CHARTS: &[Chart] = &[
    Chart {
        title: "print(1+1) beside other sessions",
        grows: "live sessions",
        points: &[("1", "print"), ("10", "print_beside_9"), ("100", "print_beside_99"), ("1,000", "print_beside_999")],
    },
    Chart {
        title: "Memory of a session that ran a pandas groupby",
        grows: "live sessions",
        points: &[("1", "memory_1"), ("10", "memory_10"), ("100", "memory_100"), ("1,000", "memory_1000")],
    },
    Chart {
        title: "print(1+1) among files",
        grows: "files in the workspace",
        points: &[("0", "print"), ("1,000", "print_files_1000"), ("50,000", "print_files_50000")],
    },
    Chart {
        title: "A call that writes a file among files",
        grows: "files in the workspace",
        points: &[("0", "write_files_0"), ("1,000", "write_files_1000"), ("50,000", "write_files_50000")],
    },
    Chart {
        title: "Memory of a session and its files",
        grows: "files in the workspace",
        points: &[("0", "memory_files_0"), ("1,000", "memory_files_1000"), ("50,000", "memory_files_50000")],
    },
];

impl Report {
    /// How the backend's figures grow, as Markdown: a block of Mermaid for each chart of which this report has two
    /// points or more, with its numbers in a table below. Empty where there is none.
    #[must_use]
    pub fn to_charts(&self) -> String {
        CHARTS.iter().filter_map(|chart| self.chart(chart)).collect::<Vec<_>>().join("\n")
    }

    fn chart(&self, chart: &Chart) -> Option<String> {
        let figure = |work: &str| self.rows.iter().find(|row| row.work == work).map(|row| &row.backend);
        let points: Vec<(&str, Vec<f64>, String)> = chart
            .points
            .iter()
            .filter_map(|(label, work)| figure(work).map(|figure| (*label, lines(figure), figure.text())))
            .filter(|(_, lines, _)| !lines.is_empty())
            .collect();
        let lines = points.first()?.1.len();
        if points.len() < 2 {
            return None;
        }
        let unit = if lines == 2 { "us (lower line p50, upper p99)" } else { "MiB" };
        let labels: Vec<String> = points.iter().map(|(label, ..)| format!("\"{label}\"")).collect();
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "```mermaid\nxychart-beta\n    title \"{}\"", chart.title);
        let _ = writeln!(out, "    x-axis \"{}\" [{}]\n    y-axis \"{unit}\"", chart.grows, labels.join(", "));
        for line in 0..lines {
            let values = points.iter().filter_map(|(_, lines, _)| lines.get(line));
            let values: Vec<String> = values.map(|value| format!("{value:.1}")).collect();
            let _ = writeln!(out, "    line [{}]", values.join(", "));
        }
        let _ = writeln!(out, "```\n\n| {} | {} |\n| --- | --- |", chart.grows, chart.title);
        for (label, _, text) in &points {
            let _ = writeln!(out, "| {label} | {text} |");
        }
        Some(out)
    }
}

/// The numbers of a figure that are drawn, a line each; none for one that grows with nothing.
fn lines(figure: &Figure) -> Vec<f64> {
    match figure {
        Figure::Latency { p50_us, p99_us, .. } => vec![*p50_us, *p99_us],
        Figure::Memory { mib_each, .. } => vec![*mib_each],
        Figure::Rate { .. } | Figure::Throughput { .. } | Figure::Soak { .. } | Figure::Failed { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Row;
    use crate::work::works;

    fn row(work: &str, backend: Figure) -> Row {
        Row { work: work.to_owned(), about: String::new(), backend, peer: None }
    }

    fn latency(p50_us: f64) -> Figure {
        Figure::Latency { p50_us, p99_us: 10.0 * p50_us, samples: 1 }
    }

    fn report(rows: Vec<Row>) -> Report {
        Report { floor: latency(10.0), bash_floor: latency(900.0), rounds: 1, rows }
    }

    #[test]
    fn every_point_is_a_work() {
        for (_, work) in CHARTS.iter().flat_map(|chart| chart.points) {
            assert!(works().any(|known| known.name == *work), "{work}");
        }
    }

    #[test]
    fn a_report_that_was_written_is_drawn() {
        let failed = Figure::Failed { reason: "why".to_owned() };
        let memory = |mib_each, sessions| Figure::Memory { mib_each, sessions };
        let rows = vec![
            row("print", latency(100.0)),
            row("print_beside_9", failed),
            row("print_beside_99", latency(120.0)),
            row("memory_1", memory(9.0, 1)),
            row("memory_10", memory(8.5, 10)),
        ];
        let json = serde_json::to_string(&report(rows)).unwrap();
        let charts = serde_json::from_str::<Report>(&json).unwrap().to_charts();
        let first = "```mermaid\nxychart-beta\n    title \"print(1+1) beside other sessions\"\n    \
                     x-axis \"live sessions\" [\"1\", \"100\"]\n    y-axis \"us (lower line p50, upper p99)\"\n    \
                     line [100.0, 120.0]\n    line [1000.0, 1200.0]\n```\n\n\
                     | live sessions | print(1+1) beside other sessions |\n| --- | --- |\n\
                     | 1 | 100 us / 1.00 ms |\n| 100 | 120 us / 1.20 ms |\n";
        assert!(charts.starts_with(first), "{charts}");
        assert!(charts.contains("    y-axis \"MiB\"\n    line [9.0, 8.5]\n```"), "{charts}");
        // One point is no growth.
        assert_eq!(charts.matches("```mermaid").count(), 2, "{charts}");
    }

    #[test]
    fn without_growth_there_is_nothing_to_draw() {
        assert_eq!(report(vec![row("print", latency(1.0))]).to_charts(), "");
    }
}
