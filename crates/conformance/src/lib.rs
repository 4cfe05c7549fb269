//! A black-box checker for any backend of the code-execution contract, version 1.
//!
//! [`run`] leases sessions over HTTP, runs programs in them and judges each answer. What the contract demands is
//! [`Severity::Conformance`]; how a good backend behaves beyond it is [`Severity::Advice`], asked only under
//! [`Options::strict`], and never changes whether a backend conforms.
//!
//! May know: the contract, in the project's own words, and the client's bare transport. Never knows: the server, or
//! any backend's peculiarities.
//!
//! **Invariants.**
//! - Every wait, read and list has a bound of the checker's own ([`limits`]): a broken or hostile backend can make a
//!   check fail, and cannot hang or crash the checker, or make it use more memory than a few answers.
//! - What a backend says is shown as an excerpt without control characters; the token is never shown.
//! - Each check judges its own clause alone. What it needs from other clauses it reads leniently; where that cannot
//!   be read it is not judged, and a run in which nothing failed but something was not judged does not conform.
//! - Every session that a check leased is released after it.

mod advice;
mod bench;
mod check;
mod checks;
mod exchange;
mod held;
pub mod limits;
mod report;
mod runner;
mod shape;

pub use check::{Check, Clause, FileOperation, Finding, Severity};
pub use report::{Outcome, Report, Row, junit, text};
pub use runner::{CannotRun, Options, catalogue, run};
