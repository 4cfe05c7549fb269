//! The commands that speak to a backend by its URL, whichever backend it is.
//!
//! Each is a file of its own: what it is called and takes, and what it does. None of them needs a server on this
//! machine, and none of them knows how sessions are held.

mod completions;
mod connection;
pub(crate) mod ends;
mod exec;
mod fetch;
mod files;
pub(crate) mod interruptible;
mod man;
mod mcp;
pub(crate) mod outcome;
mod run;
mod session;
mod shell;
mod source;
mod transfer;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{ArgMatches, Command};
use serde_json::Value;

pub(crate) use connection::{Connection, SECRET_VARIABLES, VARIABLES, authorities, ca_file_arg, connection_args};

/// What a command does.
pub(crate) type Run = fn(&ArgMatches) -> ExitCode;

/// A command's line of the command line.
type Line = fn() -> Command;

/// Every command: its line of the command line, and what it does.
const COMMANDS: &[(Line, Run)] = &[
    (run::command, run::run),
    (exec::command, exec::run),
    (shell::command, shell::run),
    (session::command, session::run),
    (files::command, files::run),
    (mcp::command, mcp::run),
    (crate::doctor::command, crate::doctor::run),
    (crate::image::command, crate::image::run),
    (completions::command, completions::run),
    (man::command, man::run),
    (crate::check::command, crate::check::run),
    (crate::bench::command, crate::bench::run),
    (crate::attack::command, crate::attack::run),
    (crate::gate::command, crate::gate::run),
    (crate::control::command, crate::control::run),
];

/// For the command line.
pub(crate) fn commands() -> impl Iterator<Item = Command> {
    COMMANDS.iter().map(|(command, _)| command())
}

/// What the command of that name does, if it is one of these.
pub(crate) fn named(name: &str) -> Option<Run> {
    COMMANDS.iter().find(|(command, _)| command().get_name() == name).map(|(_, run)| *run)
}

/// Whether output was lost, as on a full disk.
static OUTPUT_LOST: AtomicBool = AtomicBool::new(false);

/// Writes to standard output. Where nobody reads any more, nothing is left to do; any other failure is told once, and the
/// command ends as not done.
pub(crate) fn print(bytes: impl AsRef<[u8]>) {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe && !OUTPUT_LOST.swap(true, Ordering::Relaxed) => {
            complain(&anyhow::Error::new(error).context("output is lost"));
        }
        _ => (),
    }
}

/// Writes a value to standard output, as one line of JSON.
pub(crate) fn print_json(value: &Value) {
    print(crate::terminal::json_line(value));
}

/// Whether something that was to be printed is lost.
pub(crate) fn output_is_lost() -> bool {
    OUTPUT_LOST.load(Ordering::Relaxed)
}

/// Writes a line about a failure to standard error, with everything that led to it. What a backend says is in it.
pub(crate) fn complain(error: &anyhow::Error) {
    let said = format!("{error:#}");
    let _ = writeln!(std::io::stderr(), "ringfence: {}", crate::terminal::tamed(&said));
}

/// The exit status of a command that has no other than done and not done.
pub(crate) fn ended(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) if output_is_lost() => ExitCode::FAILURE,
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// The exit status of a command that judges: 0 and 1 are its verdict, 2 is that there is none.
pub(crate) fn judged(verdict: anyhow::Result<bool>) -> ExitCode {
    match verdict {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            complain(&error);
            ExitCode::from(2)
        }
    }
}

/// An argument's text; empty where it is not given.
pub(crate) fn text(matches: &ArgMatches, name: &str) -> String {
    matches.get_one::<String>(name).cloned().unwrap_or_default()
}

/// Runs a command to its end on this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(work);
    // A read from a standard input that nobody closes must not hold the end of the program.
    runtime.shutdown_background();
    outcome
}
