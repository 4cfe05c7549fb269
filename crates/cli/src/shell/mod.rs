//! The shell: entries of a person or a pipe, each a call of one session.

mod entry;
mod input;

use std::io::Write;
use std::time::Duration;

use ringfence_client::{ClientError, ExecResult, Session, ToolCall};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::client_commands::ends::Ends;
use crate::client_commands::interruptible::{Uninterrupted, interruptible};
use crate::client_commands::{complain, outcome, print_json};
use crate::limits::PROGRAM_BYTES_MAX;
use input::Line;

pub(crate) use input::Input;

/// How the shell's calls are.
pub(crate) struct Options {
    /// The budget of each.
    pub(crate) timeout: Duration,
    /// Whether results are shown as JSON, one line each.
    pub(crate) json: bool,
}

/// How the shell ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The input is over, or the end was asked for.
    Done,
    /// By a signal of this number: ctrl-C on a pipe, SIGTERM, or the terminal is gone.
    BySignal(i32),
}

/// Runs entries until the input is over.
///
/// # Errors
/// When the input cannot be read, the session is gone, or the backend cannot be reached.
pub(crate) fn run(
    runtime: &Runtime,
    session: &Session,
    input: &mut Input,
    ends: &mut Ends,
    options: &Options,
) -> anyhow::Result<Ended> {
    let (first, more) = if input.is_terminal() { (">>> ", "... ") } else { ("", "") };
    let mut entry = String::new();
    loop {
        let line = input.line(if entry.is_empty() { first } else { more }, runtime, ends)?;
        match line {
            Line::Text(line) => {
                entry.push_str(&line);
                entry.push('\n');
            }
            Line::Dropped => {
                entry.clear();
                continue;
            }
            Line::Signal(number) => return Ok(Ended::BySignal(number)),
            // What is left unfinished is Python's to complain about.
            Line::End if entry.trim().is_empty() => return Ok(Ended::Done),
            Line::End => return Ok(call(runtime, session, &entry, ends, options)?.unwrap_or(Ended::Done)),
        }
        if entry.trim().is_empty() {
            entry.clear();
            continue;
        }
        if !entry.starts_with('!') && !entry::is_whole(&entry) && entry.len() as u64 <= PROGRAM_BYTES_MAX {
            continue;
        }
        let entry = std::mem::take(&mut entry);
        if matches!(entry.trim(), "exit" | "quit" | "exit()" | "quit()") {
            return Ok(Ended::Done);
        }
        input.remember(&entry);
        if let Some(ended) = call(runtime, session, &entry, ends, options)? {
            return Ok(ended);
        }
    }
}

/// Runs one entry and shows what it came to; how the shell ends, where it ends by that.
fn call(
    runtime: &Runtime,
    session: &Session,
    entry: &str,
    ends: &mut Ends,
    options: &Options,
) -> anyhow::Result<Option<Ended>> {
    let call = match entry.strip_prefix('!') {
        Some(command) if command.trim().is_empty() => return Ok(None),
        Some(command) => ToolCall::bash(command.trim()),
        None => ToolCall::other("code_execution", json!({"code": entry, "echo_last_expression": true})),
    };
    let call = call.timeout(options.timeout);
    let outcome = runtime.block_on(async {
        tokio::select! {
            biased;
            done = interruptible(session, &call, Uninterrupted::Wait) => Ok(done),
            number = ends.next() => Err(Ended::BySignal(number)),
        }
    });
    match outcome {
        Err(ended) => return Ok(Some(ended)),
        Ok(done) => match done {
            Ok(done) => done.iter().for_each(|done| show(session, done, options)),
            // What a backend finds wrong with one entry does not end the shell.
            Err(error @ (ClientError::Refused { .. } | ClientError::Unavailable { .. })) => complain(&error.into()),
            Err(error) => return Err(error.into()),
        },
    }
    Ok(None)
}

fn show(session: &Session, done: &ExecResult, options: &Options) {
    if options.json {
        return print_json(&outcome::as_json(session.id(), done));
    }
    outcome::show(done);
    let (dim, plain) = if crate::progress::decorated() { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
    for file in &done.files {
        let name = file.filename.escape_debug();
        // Where nobody reads any more, nothing is left to do.
        let _ = writeln!(std::io::stderr(), "{dim}wrote {name}{plain}");
    }
}
