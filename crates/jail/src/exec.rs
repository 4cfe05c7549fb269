//! Starting a program in a process of its own: the fork, the steps of a plan, exec, and word of what failed.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfence_sys::namespace::Namespaces;
use ringfence_sys::process::{self, Child, Forked, Single, Strings};
use ringfence_sys::signal;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::keeper::cells::{end, read_report};
use crate::limits::CELL_STEPS_WAIT_MAX;
use crate::plan::Step;
use crate::step::StepName;
use crate::steps::{self, Failure, Hands, REPORT_BYTES};

/// What is started, and how.
pub(crate) struct Exec<'a> {
    /// Of its own, beside those that it shares with this process.
    pub(crate) namespaces: Namespaces,
    /// What is done before the program runs.
    pub(crate) plan: &'a [Step],
    /// Doors of the groups that the plan enters.
    pub(crate) doors: &'a [OwnedFd],
    /// The program's descriptors, from 0 on.
    pub(crate) fds: &'a [BorrowedFd<'a>],
    pub(crate) program: &'a CStr,
    pub(crate) arguments: &'a Strings,
    pub(crate) environment: &'a Strings,
    /// What has failed where there is no process to carry out the plan.
    pub(crate) start: StepName,
    /// What has failed where the plan is carried out and the program does not run.
    pub(crate) exec: StepName,
}

/// Starts it, and waits until the program runs or a step has failed; then nothing of it is left.
pub(crate) fn start(single: &Single, what: &Exec<'_>) -> Result<Child, Failure> {
    let at = |error: io::Error| Failure::new(what.start, &error);
    let (report, report_of_child) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from).map_err(at)?;
    // Behind the program's descriptors, until exec.
    let report_number = what.fds.len() as i32;
    let program_has = what.fds.iter().map(|fd| (*fd, false));
    let stay: Vec<_> = program_has.chain([(report_of_child.as_fd(), true)]).collect();
    let hands = Hands { doors: what.doors, stay: &stay, report_number, report: report_of_child.as_fd(), filter: None };
    match process::fork(single, what.namespaces).map_err(at)? {
        Forked::Child => {
            steps::run_or_exit(what.plan, &hands);
            // This process's mask would be inherited; that it cannot be set is not known to happen.
            let _ = signal::unblock_all();
            let error = process::exec(what.program, what.arguments, what.environment);
            steps::fail(Failure::new(what.exec, &error), None, report_number)
        }
        Forked::Parent(child) => {
            drop(report_of_child);
            let mut bytes = [0; REPORT_BYTES];
            let outcome = match read_report(report.as_fd(), &mut bytes, CELL_STEPS_WAIT_MAX) {
                // Closed by exec.
                Ok(0) => Ok(()),
                Ok(_) => Failure::from_report(bytes),
                Err(error) => Err(at(error)),
            };
            outcome.inspect_err(|_| end(&child))?;
            Ok(child)
        }
    }
}
