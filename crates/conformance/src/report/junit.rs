//! The report as JUnit XML, for continuous integration.

use std::fmt::Write;

use super::{Outcome, Report, Row};
use crate::check::{Finding, Severity};

/// One test suite; advice is in it as skipped, since it fails nothing.
#[must_use]
pub fn document(report: &Report) -> String {
    let broken = |row: &&Row| row.severity == Severity::Conformance && matches!(row.outcome, Outcome::Fail(_));
    let unjudged = |row: &&Row| matches!(row.outcome, Outcome::Unjudged(_));
    let failures = report.checks.iter().filter(broken).count();
    let errors = report.checks.iter().filter(unjudged).count();
    let passed = report.count("pass");
    let skipped = report.checks.len() - failures - errors - passed;
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "<testsuite name=\"code-execution contract version {}\" hostname=\"{}\" tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\">",
        report.contract_version,
        escaped(&report.base_url),
        report.checks.len(),
    );
    for row in &report.checks {
        out.push_str(&case(row));
    }
    out.push_str("</testsuite>\n");
    out
}

fn case(row: &Row) -> String {
    let (group, name) = row.id.split_once('.').unwrap_or(("check", row.id));
    let inner = match (&row.outcome, row.severity) {
        (Outcome::Pass, _) => String::new(),
        (Outcome::Skip(reason), _) => format!("<skipped message=\"{}\"/>", escaped(reason)),
        (Outcome::Fail(finding), Severity::Conformance) => problem("failure", row, finding),
        (Outcome::Fail(finding), Severity::Advice) => {
            format!(
                "<skipped message=\"advice: wanted {}; came {}\"/>",
                escaped(&finding.wanted),
                escaped(&finding.came)
            )
        }
        (Outcome::Unjudged(finding), _) => problem("error", row, finding),
    };
    format!("  <testcase classname=\"{}\" name=\"{}\">{inner}</testcase>\n", escaped(group), escaped(name))
}

fn problem(element: &str, row: &Row, finding: &Finding) -> String {
    let Finding { sent, came, wanted } = finding;
    let text =
        format!("clause: {}: {}\nsent: {sent}\ncame: {came}\nwanted: {wanted}", row.clause.section, row.clause.says);
    format!("<{element} message=\"{}\">{}</{element}>", escaped(row.title), escaped(&text))
}

/// Text as XML may hold it.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(letter),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xml_cannot_hold_is_replaced() {
        assert_eq!(escaped("<a & \"b\">\x1b\u{ffff}"), "&lt;a &amp; &quot;b&quot;&gt;\u{fffd}\u{fffd}");
    }
}
