//! What the contract demands, clause by clause.

mod confine;
mod content;
mod credential;
mod envelope;
mod failure;
mod files;
mod gone;
mod lease;
mod release;
mod request;
mod state;
mod tool;
mod upload;

use crate::check::{Check, Clause, FileOperation, Run, Severity};

/// The groups in the order in which they are run.
pub(crate) const GROUPS: &[&[Check]] = &[
    lease::CHECKS,
    envelope::CHECKS,
    content::CHECKS,
    tool::CHECKS,
    failure::CHECKS,
    request::CHECKS,
    state::CHECKS,
    files::CHECKS,
    upload::CHECKS,
    confine::CHECKS,
    gone::CHECKS,
    release::CHECKS,
    credential::CHECKS,
];

const fn must(
    id: &'static str,
    title: &'static str,
    section: &'static str,
    says: &'static str,
    needs: &'static [FileOperation],
    run: Run,
) -> Check {
    Check { id, title, clause: Clause { section, says }, severity: Severity::Conformance, needs, run }
}
