//! The shell: entries of a person or a pipe, each a call of one session.

mod entry;
mod input;

use std::io::Write;
use std::time::Duration;

use ringfence_client::{ClientError, ExecResult, Session, ToolCall};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

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
    /// Ctrl-C on a pipe.
    Interrupted,
}

/// Runs entries until the input is over.
///
/// # Errors
/// When the input cannot be read, the session is gone, or the backend cannot be reached.
pub(crate) fn run(runtime: &Runtime, session: &Session, input: &mut Input, options: &Options) -> anyhow::Result<Ended> {
    let (first, more) = if input.is_terminal() { (">>> ", "... ") } else { ("", "") };
    let mut entry = String::new();
    loop {
        let line = input.line(if entry.is_empty() { first } else { more }, runtime)?;
        match line {
            Line::Text(line) => {
                entry.push_str(&line);
                entry.push('\n');
            }
            Line::Dropped => {
                entry.clear();
                continue;
            }
            Line::Interrupted => return Ok(Ended::Interrupted),
            // What is left unfinished is Python's to complain about.
            Line::End if entry.trim().is_empty() => return Ok(Ended::Done),
            Line::End => {
                call(runtime, session, &entry, options)?;
                return Ok(Ended::Done);
            }
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
        call(runtime, session, &entry, options)?;
    }
}

/// Runs one entry and shows what it came to.
fn call(runtime: &Runtime, session: &Session, entry: &str, options: &Options) -> anyhow::Result<()> {
    let call = match entry.strip_prefix('!') {
        Some(command) if command.trim().is_empty() => return Ok(()),
        Some(command) => ToolCall::bash(command.trim()),
        None => ToolCall::other("code_execution", json!({"code": entry, "echo_last_expression": true})),
    };
    let call = call.timeout(options.timeout);
    match runtime.block_on(interruptible(session, &call)) {
        Ok(done) => show(session, &done, options),
        // What a backend finds wrong with one entry does not end the shell.
        Err(error @ (ClientError::Refused { .. } | ClientError::Unavailable { .. })) => complain(&error.into()),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Ctrl-C interrupts the call, as often as it is pressed; its answer is still waited for.
async fn interruptible(session: &Session, call: &ToolCall) -> Result<ExecResult, ClientError> {
    let run = session.run(call);
    tokio::pin!(run);
    let mut presses = signal(SignalKind::interrupt()).ok();
    loop {
        tokio::select! {
            biased;
            done = &mut run => return done,
            () = pressed(&mut presses) => {
                if let Err(error) = session.interrupt().await {
                    let error = anyhow::Error::new(error);
                    complain(&error.context("the call cannot be interrupted; it ends by its own time"));
                }
            }
        }
    }
}

/// The next ctrl-C; never one where signals cannot be heard.
async fn pressed(presses: &mut Option<Signal>) {
    match presses {
        Some(presses) => {
            let _ = presses.recv().await;
        }
        None => std::future::pending().await,
    }
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
