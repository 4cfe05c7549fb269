//! What a run found.

pub mod junit;
pub mod text;

use serde::Serialize;

use crate::check::{Check, Clause, Finding, Severity};

/// How one check ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "outcome", content = "because")]
pub enum Outcome {
    /// Its clause holds.
    Pass,
    /// Its clause is broken.
    Fail(Finding),
    /// What it is about is optional and absent.
    Skip(String),
    /// Something else is broken, so that its clause could not be looked at.
    Unjudged(Finding),
}

/// One check of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The check's name.
    pub id: &'static str,
    /// What holds when it passes.
    pub title: &'static str,
    /// Where that is said.
    pub clause: Clause,
    /// Whether it decides on conformance.
    pub severity: Severity,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Row {
    pub(crate) fn new(check: &Check, outcome: Outcome) -> Self {
        let Check { id, title, clause, severity, .. } = check;
        // Advice stands alone: where it could not be judged, the answer that prevented it is what it found.
        let outcome = match outcome {
            Outcome::Unjudged(finding) if *severity == Severity::Advice => Outcome::Fail(finding),
            outcome => outcome,
        };
        Row { id, title, clause: *clause, severity: *severity, outcome }
    }

    /// The outcome in one word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match (&self.outcome, self.severity) {
            (Outcome::Pass, _) => "pass",
            (Outcome::Fail(_), Severity::Conformance) => "FAIL",
            (Outcome::Fail(_), Severity::Advice) => "advice",
            (Outcome::Skip(_), _) => "skip",
            (Outcome::Unjudged(_), _) => "unjudged",
        }
    }
}

/// A whole run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The contract's version.
    pub contract_version: u32,
    /// Where the backend is.
    pub base_url: String,
    /// Whether the behaviour beyond the contract was asked for.
    pub strict: bool,
    /// Whether the backend conforms, as far as this run looked.
    pub conforming: bool,
    /// Each check, in the order in which it was run.
    pub checks: Vec<Row>,
}

impl Report {
    pub(crate) fn new(base_url: String, strict: bool, checks: Vec<Row>) -> Self {
        let stands =
            |row: &Row| row.severity == Severity::Advice || matches!(row.outcome, Outcome::Pass | Outcome::Skip(_));
        let conforming = checks.iter().all(stands);
        Report { contract_version: 1, base_url, strict, conforming, checks }
    }

    /// How many rows end with this word.
    #[must_use]
    pub fn count(&self, word: &str) -> usize {
        self.checks.iter().filter(|row| row.word() == word).count()
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// Never in practice: everything in it is plain data.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }
}
