//! What a call came to, for a person, for a program, and for the shell.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use ringfence_client::ExecResult;
use serde_json::{Value, json};

use super::print;
use crate::terminal::tamed;

/// The exit status where the call could not be carried out at all, apart from any that a program is likely to have.
pub(crate) const NOT_RUN: u8 = 125;

/// The result as one object.
pub(crate) fn as_json(session_id: &str, done: &ExecResult) -> Value {
    let files: Vec<Value> =
        done.files.iter().map(|file| json!({"file_id": file.file_id, "filename": file.filename})).collect();
    json!({
        "session_id": session_id,
        "tool_use_id": done.tool_use_id,
        "stdout": done.stdout,
        "stderr": done.stderr,
        "return_code": done.return_code,
        "files": files,
        "execution_time_ms": done.execution_time_ms,
        "limit_exceeded": done.limit_exceeded,
        "interpreter_restarted": done.interpreter_restarted,
    })
}

/// The program's output on our own streams: as it is, but for what a terminal would obey.
pub(crate) fn show(done: &ExecResult) {
    match std::io::stdout().is_terminal() {
        true => print(&*tamed(&done.stdout)),
        false => print(&done.stdout),
    }
    let mut errors = std::io::stderr();
    // Where nobody reads any more, nothing is left to do.
    let _ = match errors.is_terminal() {
        true => errors.write_all(tamed(&done.stderr).as_bytes()),
        false => errors.write_all(done.stderr.as_bytes()),
    };
}

/// The status after a signal, as shells have it.
pub(crate) fn by_signal(number: i32) -> ExitCode {
    ExitCode::from(u8::try_from(128 + number).unwrap_or(1))
}

/// The program's exit status as ours; what no process can end with is 1, and lost output is as a program that did not run.
pub(crate) fn exit(done: &ExecResult) -> ExitCode {
    if super::output_is_lost() {
        return ExitCode::from(NOT_RUN);
    }
    ExitCode::from(u8::try_from(done.return_code).unwrap_or(1))
}
