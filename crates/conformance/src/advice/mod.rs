//! How a good backend behaves beyond the contract: what users of sandboxes complain of most, as small programs.
//!
//! None of it decides on conformance. A backend may answer otherwise for reasons of its own; then it should know them.

mod editor;
mod interpreter;
mod limits;
mod output;
mod process;
mod sessions;
mod shell;
mod time;
mod workspace;

use crate::check::{Check, Clause, FileOperation, Run, Severity};

/// The groups in the order in which they are run.
pub(crate) const GROUPS: &[&[Check]] = &[
    output::CHECKS,
    interpreter::CHECKS,
    process::CHECKS,
    shell::CHECKS,
    time::CHECKS,
    sessions::CHECKS,
    workspace::CHECKS,
    editor::CHECKS,
    // Last: a backend that does not survive these would fail everything after them.
    limits::CHECKS,
];

const fn should(
    id: &'static str,
    title: &'static str,
    section: &'static str,
    says: &'static str,
    needs: &'static [FileOperation],
    run: Run,
) -> Check {
    Check { id, title, clause: Clause { section, says }, severity: Severity::Advice, needs, run }
}
