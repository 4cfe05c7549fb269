//! What a check is, and how it ends.

use std::future::Future;
use std::pin::Pin;

use serde::Serialize;

use crate::bench::Bench;

/// One check.
pub struct Check {
    /// Its name: a group and a word. Stable.
    pub id: &'static str,
    /// What holds when it passes.
    pub title: &'static str,
    /// Where that is said.
    pub clause: Clause,
    /// Whether it decides on conformance.
    pub severity: Severity,
    /// The optional operations that it uses; without one of them it is skipped.
    pub(crate) needs: &'static [FileOperation],
    pub(crate) run: Run,
}

/// The body of a check.
pub(crate) type Run = for<'a> fn(&'a Bench) -> Pin<Box<dyn Future<Output = Result<(), Stop>> + Send + 'a>>;

/// Where a check comes from.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Clause {
    /// The title of the contract's section; for advice, the kind of behaviour.
    pub section: &'static str,
    /// What is said there, in the project's own words.
    pub says: &'static str,
}

/// What a failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The contract demands it.
    Conformance,
    /// Users are better off with it.
    Advice,
}

/// The operations that a backend may leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOperation {
    /// `GET .../files/list`.
    List,
    /// `GET .../files`.
    Read,
    /// `POST .../files`.
    Put,
}

impl FileOperation {
    /// Its name in the contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            FileOperation::List => "ListFiles",
            FileOperation::Read => "GetFile",
            FileOperation::Put => "PutFile",
        }
    }
}

/// What was found wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The request.
    pub sent: String,
    /// The answer, or why there was none.
    pub came: String,
    /// What should have come.
    pub wanted: String,
}

/// Why a check ended before it passed.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Its clause is broken.
    Fail(Finding),
    /// What it is about is optional and absent.
    Skip(String),
    /// Something else is broken, so that its clause could not be looked at.
    Unjudged(Finding),
}
