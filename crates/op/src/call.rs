//! One tool call: what is asked ([`Call`]) and what came of it ([`Outcome`]).

use std::time::Duration;

use crate::{ToolUseId, WorkspacePath};

/// One Execute, parsed: the operation, its time and its correlation id.
#[derive(Debug, Clone)]
pub struct Call {
    /// Correlation id, echoed or generated (contract, Execute).
    pub tool_use_id: ToolUseId,
    /// What to run.
    pub operation: Operation,
    /// The timeout in force, after clamping. It starts when the call starts to run, not when it is queued.
    pub timeout: Duration,
}

/// The three tool kinds of contract version 1.
#[derive(Debug, Clone)]
pub enum Operation {
    /// `code_execution`.
    Python(Python),
    /// `bash_code_execution`.
    Bash(Bash),
    /// `text_editor_code_execution`.
    Edit(Edit),
}

/// Source for the session's persistent interpreter.
#[derive(Debug, Clone)]
pub struct Python {
    /// The source, UTF-8.
    pub code: String,
    /// Print the repr of a last expression, as a notebook does. Off unless asked for.
    pub echo_last: bool,
}

/// A shell command; bash starts anew for each call, in the workspace.
#[derive(Debug, Clone)]
pub struct Bash {
    /// The command line or script.
    pub command: String,
}

/// A view or an edit of one file.
#[derive(Debug, Clone)]
pub struct Edit {
    /// The path as the caller wrote it. Refusals of a path are results of the call, so it is parsed late.
    pub path: String,
    /// What to do with it.
    pub command: EditCommand,
}

/// The text-editor command set, mirroring Anthropic's.
#[derive(Debug, Clone)]
pub enum EditCommand {
    /// Show a file, or a directory two levels deep.
    View {
        /// 1-based inclusive first and last line; -1 as last is the end of the file.
        view_range: Option<(i64, i64)>,
    },
    /// Make a new file; an existing one is refused.
    Create {
        /// The whole content.
        file_text: String,
    },
    /// Replace the one occurrence of `old_str`.
    StrReplace {
        /// The text to find; none or several matches are refused.
        old_str: String,
        /// What takes its place.
        new_str: String,
    },
    /// Insert a text after a line.
    Insert {
        /// 0 is before the first line.
        insert_line: i64,
        /// The text, ended with a newline if it has none.
        new_str: String,
    },
    /// Take back the last edit of this file.
    UndoEdit,
}

/// What one run of the interpreter or of the shell came to, before the workspace is looked at.
#[derive(Debug, Clone, Default)]
pub struct CallReport {
    /// What the call wrote on fd 1, decoded, capped head and tail.
    pub stdout: String,
    /// The same for fd 2, with at most one line of ours at its end where the call failed.
    pub stderr: String,
    /// The program's own exit status; 1 for an exception, 128+n for death by signal n, 124 for the timeout.
    pub return_code: i32,
    /// The limit that ended or damaged the call, by evidence.
    pub limit_exceeded: Option<LimitKind>,
    /// The interpreter was lost in this call (or before it, between calls): variables are gone, files are kept.
    pub interpreter_restarted: bool,
    /// What it used.
    pub usage: Usage,
    /// What background threads and processes wrote since the last call.
    pub background: Option<BackgroundOutput>,
}

/// Output of threads and processes that outlived the call that started them, kept apart from every call's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackgroundOutput {
    /// Written to fd 1 between calls.
    pub stdout: String,
    /// Written to fd 2 between calls.
    pub stderr: String,
}

/// The outcome of a call as the door renders it.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Streams, status, limits, usage.
    pub report: CallReport,
    /// Files that the call created or changed, most likely wanted first.
    pub files: Vec<ProducedFile>,
    /// How many more there were than are listed.
    pub files_omitted: u64,
    /// Wall-clock time of the run in milliseconds, without the wait in the queue.
    pub execution_time_ms: u64,
    /// The timeout that was in force.
    pub timeout: Duration,
}

/// A file that a call created or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducedFile {
    /// Stable for the same file of the same session.
    pub file_id: String,
    /// Where it is; a path that GetFile serves.
    pub path: WorkspacePath,
}

/// Which limit ended or damaged a call (`limit_exceeded` on the envelope).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    /// The call's timeout.
    WallClock,
    /// The cell's memory.
    Memory,
    /// The cell's number of processes and threads.
    Processes,
    /// The workspace's bytes or inodes.
    Disk,
    /// The per-stream output cap (the program is not ended for it).
    Output,
    /// The call's CPU seconds.
    Cpu,
}

impl LimitKind {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            LimitKind::WallClock => "wall_clock",
            LimitKind::Memory => "memory",
            LimitKind::Processes => "processes",
            LimitKind::Disk => "disk",
            LimitKind::Output => "output",
            LimitKind::Cpu => "cpu",
        }
    }
}

/// What a call used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time of the cell during the call, milliseconds.
    pub cpu_ms: u64,
    /// The cell's highest memory so far, bytes, where a cgroup tells it.
    pub memory_peak_bytes: Option<u64>,
    /// Bytes written to fd 1, before the cap.
    pub stdout_bytes: u64,
    /// Bytes written to fd 2, before the cap.
    pub stderr_bytes: u64,
}
