//! The report as a table for people.

use super::{Outcome, Report, Row};
use crate::check::Finding;

const ID_WIDTH: usize = 28;

/// One row, with its finding below it where there is one. `colours` adds terminal colours to the first word.
#[must_use]
pub fn row(row: &Row, colours: bool) -> String {
    let word = row.word();
    let painted = match (colours, &row.outcome) {
        (true, Outcome::Pass) => format!("\x1b[32m{word:8}\x1b[0m"),
        (true, Outcome::Fail(_)) if word == "FAIL" => format!("\x1b[31m{word:8}\x1b[0m"),
        (true, Outcome::Fail(_) | Outcome::Unjudged(_)) => format!("\x1b[33m{word:8}\x1b[0m"),
        _ => format!("{word:8}"),
    };
    let line = format!("{painted}  {:ID_WIDTH$}  {}\n", row.id, row.title);
    match &row.outcome {
        Outcome::Pass => line,
        Outcome::Skip(reason) => format!("{line}            {reason}\n"),
        Outcome::Fail(finding) | Outcome::Unjudged(finding) => line + &below(row, finding),
    }
}

fn below(row: &Row, finding: &Finding) -> String {
    let Finding { sent, came, wanted } = finding;
    format!(
        "            clause  {}: {}\n            sent    {sent}\n            came    {came}\n            wanted  {wanted}\n",
        row.clause.section, row.clause.says
    )
}

/// The counts and the verdict.
#[must_use]
pub fn summary(report: &Report) -> String {
    let counts: Vec<String> = [
        ("pass", "passed"),
        ("FAIL", "failed"),
        ("skip", "skipped"),
        ("unjudged", "not judged"),
        ("advice", "advised"),
    ]
    .iter()
    .map(|(word, said)| (report.count(word), said))
    .filter(|(count, said)| *count > 0 || **said == "failed")
    .map(|(count, said)| format!("{count} {said}"))
    .collect();
    let verdict = if report.conforming { "conforms to" } else { "does not conform to" };
    format!(
        "\n{} checks: {}\n{} {verdict} contract version {}\n",
        report.checks.len(),
        counts.join(", "),
        report.base_url,
        report.contract_version
    )
}
