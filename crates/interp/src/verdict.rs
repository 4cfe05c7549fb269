//! What a call came to: from how it ended and what the kernel counted, to a return code, a limit and one line.
//!
//! Pure. The rules are those of the contract's additions: the program's own status; 1 for an exception; 128+n for
//! death by signal n; 124 for the timeout; 137 with `memory` for out of memory. A line of ours is added only to the
//! stderr of a call that failed, since a good run with something on stderr looks like a failure to clients.

use std::time::Duration;

use ringfence_frame::worker::{Ended, Hints};
use ringfence_op::LimitKind;

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The interpreter said so.
    Done { return_code: i32, ended: Ended, hints: Hints },
    /// The shell ended by itself.
    Shell(Death),
    /// The shell could not be started.
    NotStarted { errno: i32 },
    /// The interpreter died of itself.
    Died(Death),
    /// Something that is no answer came over the interpreter's control channel, or the channel was closed.
    Violated,
    /// No interpreter could be started.
    NoInterpreter,
    /// The source is longer than a frame to an interpreter may be.
    TooLong,
    /// It was stopped from outside: at its timeout, or because a caller asked.
    Stopped { cause: StopCause, what: Stopped },
    /// The whole cell ended.
    CellLost,
}

/// Why a call was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopCause {
    /// Its time was over.
    Timeout(Duration),
    /// A caller asked.
    Asked,
}

/// What was stopped, and what is left of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// The program unwound: variables are kept.
    Interrupted,
    /// The interpreter had to be killed: variables are lost.
    Killed,
    /// A shell command and all that it had started.
    Command,
    /// A shell, by SIGINT; what it had put into the background goes on.
    Shell,
    /// No interpreter was ready before the time was over.
    NeverStarted,
}

/// The end of a process, from its wait status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Signal(i32),
}

/// What was counted during the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Evidence {
    /// The kernel killed a process of the cell because its memory was used up.
    pub(crate) oom_kill: bool,
    /// The kernel refused a process or thread because the cell had too many.
    pub(crate) fork_refused: bool,
    /// The workspace is full now.
    pub(crate) disk_full: bool,
    /// The call's stderr says that no space is left.
    pub(crate) says_no_space: bool,
    /// The call's stderr says that no process could be started.
    pub(crate) says_no_fork: bool,
    /// Output was dropped.
    pub(crate) output_cut: bool,
    /// Memory and processes are limited by rlimits, which count nothing.
    pub(crate) rlimits_only: bool,
}

/// What the caller is told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Verdict {
    pub(crate) return_code: i32,
    pub(crate) limit: Option<LimitKind>,
    /// One line for stderr, without its newline.
    pub(crate) notice: Option<String>,
}

impl Ending {
    /// Whether the program itself ended well: then nothing is looked into.
    pub(crate) fn is_success(self) -> bool {
        matches!(self, Ending::Done { return_code: 0, .. } | Ending::Shell(Death::Exited(0)))
    }
}

impl Death {
    /// Takes a status of `wait(2)` apart.
    pub(crate) fn from_wait(status: i32) -> Self {
        match status & 0x7f {
            0 => Death::Exited((status >> 8) & 0xff),
            signal => Death::Signal(signal),
        }
    }

    fn return_code(self) -> i32 {
        match self {
            Death::Exited(status) => status,
            Death::Signal(signal) => 128 + signal,
        }
    }
}

/// Decides.
pub(crate) fn judge(ending: Ending, evidence: Evidence) -> Verdict {
    let mut verdict = match ending {
        Ending::Done { return_code, ended, hints } => judge_done(return_code, ended, hints, evidence),
        Ending::Shell(death) => judge_shell(death, evidence),
        Ending::NotStarted { errno } => judge_not_started(errno),
        Ending::Died(death) => judge_death(death, evidence),
        Ending::Violated => {
            failed(1, None, "the interpreter's control channel was damaged; variables are lost, files are kept")
        }
        Ending::NoInterpreter if evidence.oom_kill => failed(
            137,
            Some(LimitKind::Memory),
            "no interpreter could be started: the session is out of memory; files are kept",
        ),
        Ending::NoInterpreter if evidence.fork_refused => failed(
            1,
            Some(LimitKind::Processes),
            "no interpreter could be started: the session has too many processes; files are kept",
        ),
        Ending::NoInterpreter => failed(1, None, "no interpreter could be started in this session; files are kept"),
        Ending::TooLong => failed(1, None, "the source is too long; it did not run, variables are kept"),
        Ending::Stopped { cause, what } => judge_stopped(cause, what),
        Ending::CellLost if evidence.oom_kill => failed(
            137,
            Some(LimitKind::Memory),
            "the session ran out of memory and was ended; variables and files are lost",
        ),
        Ending::CellLost => {
            failed(137, None, "the session was ended by a failure of its cell; variables and files are lost")
        }
    };
    if verdict.limit.is_none() && evidence.output_cut {
        verdict.limit = Some(LimitKind::Output);
    }
    verdict
}

fn judge_done(return_code: i32, ended: Ended, hints: Hints, evidence: Evidence) -> Verdict {
    let own = Verdict { return_code, limit: None, notice: None };
    if return_code == 0 {
        return own;
    }
    let hint = |bit| ended == Ended::Raised && hints.0 & bit != 0;
    if hint(Hints::MEMORY) && (evidence.oom_kill || evidence.rlimits_only) {
        return failed(
            137,
            Some(LimitKind::Memory),
            "out of memory: the session's memory limit was reached; variables are kept",
        );
    }
    if evidence.oom_kill {
        return failed(return_code, Some(LimitKind::Memory), "out of memory: a process of this call was killed");
    }
    if hint(Hints::PROCESSES) && (evidence.fork_refused || evidence.rlimits_only)
        || evidence.fork_refused && evidence.says_no_fork
    {
        return failed(
            return_code,
            Some(LimitKind::Processes),
            "the session's limit of processes and threads was reached",
        );
    }
    if hint(Hints::DISK) || evidence.disk_full && evidence.says_no_space {
        return failed(return_code, Some(LimitKind::Disk), "no space left: the session's disk limit was reached");
    }
    own
}

fn judge_shell(death: Death, evidence: Evidence) -> Verdict {
    let return_code = death.return_code();
    let own = Verdict { return_code, limit: None, notice: None };
    if return_code == 0 {
        return own;
    }
    if evidence.oom_kill {
        let code = if return_code > 128 { 137 } else { return_code };
        return failed(code, Some(LimitKind::Memory), "out of memory: a process of this command was killed");
    }
    if evidence.fork_refused || evidence.rlimits_only && evidence.says_no_fork {
        return failed(
            return_code,
            Some(LimitKind::Processes),
            "the session's limit of processes and threads was reached",
        );
    }
    if evidence.disk_full && evidence.says_no_space {
        return failed(return_code, Some(LimitKind::Disk), "no space left: the session's disk limit was reached");
    }
    match death {
        Death::Exited(_) => own,
        Death::Signal(signal) => {
            failed(return_code, of_signal(signal), &format!("the shell was killed by {}", signal_name(signal)))
        }
    }
}

/// The limit that a signal alone proves: the kernel sends SIGXCPU where RLIMIT_CPU is used up, which the server may have
/// been started with and a program may set for itself.
fn of_signal(signal: i32) -> Option<LimitKind> {
    (signal == rustix::process::Signal::XCPU.as_raw()).then_some(LimitKind::Cpu)
}

fn judge_not_started(errno: i32) -> Verdict {
    let error = rustix::io::Errno::from_raw_os_error(errno);
    if error == rustix::io::Errno::AGAIN {
        return failed(
            126,
            Some(LimitKind::Processes),
            "the command could not be started: the session has too many processes",
        );
    }
    if error == rustix::io::Errno::NOMEM {
        return failed(126, Some(LimitKind::Memory), "the command could not be started: the session is out of memory");
    }
    failed(126, None, &format!("the command could not be started: {error}"))
}

/// An interpreter that is gone is a failed call, also where it exited with status 0: what it was to remember is lost.
fn judge_death(death: Death, evidence: Evidence) -> Verdict {
    if evidence.oom_kill && death == Death::Signal(9) {
        return failed(
            137,
            Some(LimitKind::Memory),
            "out of memory: the interpreter was killed; variables are lost, files are kept",
        );
    }
    match death {
        Death::Exited(status) => failed(
            if status == 0 { 1 } else { status },
            None,
            &format!("the interpreter exited with status {status}; variables are lost, files are kept"),
        ),
        Death::Signal(signal) => failed(
            128 + signal,
            of_signal(signal),
            &format!("the interpreter was killed by {}; variables are lost, files are kept", signal_name(signal)),
        ),
    }
}

fn judge_stopped(cause: StopCause, what: Stopped) -> Verdict {
    let (code, limit, why) = match cause {
        StopCause::Timeout(after) => (124, Some(LimitKind::WallClock), format!("timed out after {} s", seconds(after))),
        StopCause::Asked => (130, None, "interrupted by the caller".to_owned()),
    };
    let left = match what {
        Stopped::Interrupted if cause == StopCause::Asked => "variables are kept",
        Stopped::Interrupted => "interrupted, variables are kept",
        Stopped::Killed => "killed, variables are lost, files are kept",
        Stopped::Command => "the command and what it had started were killed, files are kept",
        Stopped::Shell => "files are kept",
        Stopped::NeverStarted if cause == StopCause::Asked => "the code did not run",
        Stopped::NeverStarted => "no interpreter was ready, the code did not run",
    };
    failed(code, limit, &format!("{why}; {left}"))
}

fn failed(return_code: i32, limit: Option<LimitKind>, notice: &str) -> Verdict {
    Verdict { return_code, limit, notice: Some(format!("ringfence: {notice}")) }
}

fn seconds(duration: Duration) -> String {
    if duration.subsec_millis() == 0 {
        duration.as_secs().to_string()
    } else {
        format!("{:.1}", duration.as_secs_f64())
    }
}

/// `signal 11 (SIGSEGV)`.
fn signal_name(signal: i32) -> String {
    const NAMES: [(i32, &str); 15] = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (5, "SIGTRAP"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (14, "SIGALRM"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
        (31, "SIGSYS"),
    ];
    match NAMES.iter().find(|(number, _)| *number == signal) {
        Some((_, name)) => format!("signal {signal} ({name})"),
        None => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: fn(i32, u8) -> Ending =
        |return_code, hints| Ending::Done { return_code, ended: Ended::Raised, hints: Hints(hints) };
    const NOTHING: Evidence = Evidence {
        oom_kill: false,
        fork_refused: false,
        disk_full: false,
        says_no_space: false,
        says_no_fork: false,
        output_cut: false,
        rlimits_only: false,
    };

    fn told(ending: Ending, evidence: Evidence) -> (i32, Option<LimitKind>, String) {
        let verdict = judge(ending, evidence);
        (verdict.return_code, verdict.limit, verdict.notice.unwrap_or_default())
    }

    #[test]
    fn a_good_run_gains_no_line_whatever_was_counted() {
        let counted = Evidence { oom_kill: true, fork_refused: true, output_cut: true, ..NOTHING };
        for ending in [DONE(0, 0), Ending::Shell(Death::Exited(0))] {
            assert_eq!(told(ending, counted), (0, Some(LimitKind::Output), String::new()));
        }
    }

    #[test]
    fn the_programs_own_status_passes_through() {
        assert_eq!(told(DONE(3, 0), NOTHING), (3, None, String::new()));
        assert_eq!(told(Ending::Shell(Death::Exited(127)), NOTHING), (127, None, String::new()));
    }

    #[test]
    fn a_lost_interpreter_is_said_and_never_success() {
        let (code, limit, line) = told(Ending::Died(Death::Exited(5)), NOTHING);
        assert_eq!((code, limit), (5, None));
        assert_eq!(line, "ringfence: the interpreter exited with status 5; variables are lost, files are kept");
        assert_eq!(told(Ending::Died(Death::Exited(0)), NOTHING).0, 1);
        let (code, limit, line) = told(Ending::Died(Death::Signal(11)), NOTHING);
        assert_eq!((code, limit), (139, None));
        assert!(line.contains("SIGSEGV"), "{line}");
    }

    #[test]
    fn a_kill_is_memory_only_by_evidence() {
        let oom = Evidence { oom_kill: true, ..NOTHING };
        assert_eq!(told(Ending::Died(Death::Signal(9)), NOTHING).1, None);
        let (code, limit, line) = told(Ending::Died(Death::Signal(9)), oom);
        assert_eq!((code, limit), (137, Some(LimitKind::Memory)));
        assert!(line.contains("memory"), "{line}");
        assert_eq!(told(Ending::Shell(Death::Signal(9)), NOTHING).1, None);
        assert_eq!(told(Ending::Shell(Death::Signal(9)), NOTHING).0, 137);
        assert_eq!(told(Ending::Shell(Death::Exited(137)), oom).1, Some(LimitKind::Memory));
    }

    #[test]
    fn an_exception_names_a_limit_only_with_what_bears_it_out() {
        let rlimits = Evidence { rlimits_only: true, ..NOTHING };
        assert_eq!(told(DONE(1, Hints::MEMORY), NOTHING).1, None);
        assert_eq!(told(DONE(1, Hints::MEMORY), rlimits).0, 137);
        assert_eq!(told(DONE(1, Hints::PROCESSES), NOTHING).1, None);
        let refused = Evidence { fork_refused: true, ..NOTHING };
        assert_eq!(told(DONE(1, Hints::PROCESSES), refused).1, Some(LimitKind::Processes));
        assert_eq!(told(DONE(1, Hints::DISK), NOTHING).1, Some(LimitKind::Disk));
        let full = Evidence { disk_full: true, ..NOTHING };
        assert_eq!(told(Ending::Shell(Death::Exited(1)), full).1, None);
        let said = Evidence { says_no_space: true, ..full };
        assert_eq!(told(Ending::Shell(Death::Exited(1)), said).1, Some(LimitKind::Disk));
    }

    #[test]
    fn a_timeout_says_what_is_left() {
        let timeout = StopCause::Timeout(Duration::from_secs(2));
        let (code, limit, line) = told(Ending::Stopped { cause: timeout, what: Stopped::Interrupted }, NOTHING);
        assert_eq!((code, limit), (124, Some(LimitKind::WallClock)));
        assert_eq!(line, "ringfence: timed out after 2 s; interrupted, variables are kept");
        let (_, _, line) = told(Ending::Stopped { cause: timeout, what: Stopped::Killed }, NOTHING);
        assert_eq!(line, "ringfence: timed out after 2 s; killed, variables are lost, files are kept");
        let asked = Ending::Stopped { cause: StopCause::Asked, what: Stopped::Interrupted };
        let (code, limit, line) = told(asked, NOTHING);
        assert_eq!((code, limit), (130, None));
        assert_eq!(line, "ringfence: interrupted by the caller; variables are kept");
        let asked = Ending::Stopped { cause: StopCause::Asked, what: Stopped::Shell };
        assert_eq!(told(asked, NOTHING).2, "ringfence: interrupted by the caller; files are kept");
        let asked = Ending::Stopped { cause: StopCause::Asked, what: Stopped::Killed };
        assert!(
            told(asked, NOTHING).2.ends_with("interrupted by the caller; killed, variables are lost, files are kept")
        );
    }

    #[test]
    fn used_up_cpu_seconds_are_told_by_their_signal() {
        let (code, limit, line) = told(Ending::Died(Death::Signal(24)), NOTHING);
        assert_eq!((code, limit), (152, Some(LimitKind::Cpu)));
        assert!(line.contains("SIGXCPU"), "{line}");
        assert_eq!(told(Ending::Shell(Death::Signal(24)), NOTHING).1, Some(LimitKind::Cpu));
        assert_eq!(told(Ending::Shell(Death::Signal(15)), NOTHING).1, None);
    }

    #[test]
    fn a_command_that_cannot_start_is_told_apart() {
        assert_eq!(told(Ending::NotStarted { errno: 11 }, NOTHING).1, Some(LimitKind::Processes));
        assert_eq!(told(Ending::NotStarted { errno: 12 }, NOTHING).1, Some(LimitKind::Memory));
        assert_eq!(told(Ending::NotStarted { errno: 2 }, NOTHING).1, None);
    }

    #[test]
    fn wait_statuses_are_read() {
        assert_eq!(Death::from_wait(5 << 8), Death::Exited(5));
        assert_eq!(Death::from_wait(9), Death::Signal(9));
        assert_eq!(Death::from_wait(11 | 0x80), Death::Signal(11));
    }
}
