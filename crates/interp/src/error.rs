//! Why there is no cell.

use std::io;

/// A cell, or an interpreter in it, could not be had.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The keeper is gone; nothing more can be made.
    #[error("the keeper is gone")]
    KeeperGone,
    /// The keeper could not make the cell.
    #[error("the keeper could not make a cell: {}", failed_step(*.step, *.errno))]
    CellFailed {
        /// Which of the keeper's steps failed.
        step: u32,
        /// The kernel's error number.
        errno: i32,
    },
    /// The interpreter could not be forked.
    #[error("the interpreter could not be forked into the cell: errno {errno}")]
    WorkerFailed {
        /// The kernel's error number; 0 where there is no zygote.
        errno: i32,
    },
    /// The interpreter ended before it said that it serves.
    #[error("the interpreter ended before it served: wait status {status}")]
    WorkerDied {
        /// Its wait status as `wait(2)` gives it.
        status: i32,
    },
    /// The interpreter said something else than `Hello`, or nothing in time.
    #[error("the interpreter did not say hello")]
    NoHello,
    /// The cell ended while its interpreter was started.
    #[error("the cell ended while it was made")]
    CellLost,
    /// The keeper's answer did not fit its message.
    #[error("the keeper handed over {count} descriptors for a new cell")]
    Descriptors {
        /// How many came.
        count: usize,
    },
    /// No cell within the bound.
    #[error("no cell was ready in time")]
    TimedOut,
    /// The machine or our control group is short of memory.
    #[error("memory is short")]
    ShortOfMemory,
    /// Workspaces do not share zygotes, and others have as many as there may be.
    #[error("workspaces have all zygotes that there may be: {sets} must be given up first")]
    ZygotesTaken {
        /// How many of them must have no cell in use any more; at least 1.
        sets: usize,
    },
    /// The pool is closed.
    #[error("no more cells are handed out")]
    Closed,
    /// The kernel refused a socket, pipe or registration.
    #[error("could not {doing}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// The step in the jail's words, and the kernel's for what was wrong.
fn failed_step(step: u32, errno: i32) -> String {
    let error = io::Error::from_raw_os_error(errno);
    match ringfence_jail::StepName::from_number(step) {
        Some(name) => format!("cannot {name}: {error}"),
        None => format!("step {step}: {error}"),
    }
}

impl LeaseError {
    /// For `map_err`.
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> LeaseError {
        move |source| LeaseError::Io { doing, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_that_could_not_be_made_says_what_failed_in_words() {
        let error = LeaseError::CellFailed { step: 60, errno: 11 }.to_string();
        assert!(
            error.contains("cannot start the session's first process: Resource temporarily unavailable"),
            "{error}"
        );
        assert!(LeaseError::CellFailed { step: 0, errno: 11 }.to_string().contains("step 0"));
    }
}
