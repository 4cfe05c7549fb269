//! What a call came to: the envelope, the result block and our additions.

use serde::Serialize;
use utoipa::ToSchema;

use crate::field::is_zero;

/// The outcome of one tool call. A program that failed is in here as well: see `return_code` and `stderr`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ExecResponse<'a> {
    /// The call's correlation id, echoed or generated.
    pub tool_use_id: &'a str,
    /// The result.
    pub result_block: ResultBlock<'a>,
    /// How long the call ran, without the wait in the queue.
    pub execution_time_ms: u64,
    /// The limit that ended or damaged the call; null where none did.
    pub limit_exceeded: Option<LimitExceeded>,
    /// The interpreter was lost in this call or before it: variables are gone, files are kept.
    pub interpreter_restarted: bool,
    /// The timeout that was in force.
    pub timeout_seconds: u64,
    /// What the call used.
    pub usage: Usage,
    /// What threads and processes wrote between the last call and this one; absent where they wrote nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub background: Option<Background<'a>>,
    /// How many more files the call produced than are named; absent where all are named.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    pub files_omitted: u64,
}

/// The result of the tool, in the shape of Anthropic's `code_execution_20250825` blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ResultBlock<'a> {
    /// The tool kind that ran: `code_execution_tool_result`, `bash_code_execution_tool_result` or
    /// `text_editor_code_execution_tool_result`.
    #[schema(min_length = 1)]
    pub r#type: &'a str,
    /// The call's correlation id.
    pub tool_use_id: &'a str,
    /// The payload, one object.
    pub content: CodeExecutionResult<'a>,
}

/// The payload of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CodeExecutionResult<'a> {
    /// Always `code_execution_result`.
    pub r#type: &'a str,
    /// What the call wrote to stdout.
    pub stdout: &'a str,
    /// What the call wrote to stderr.
    pub stderr: &'a str,
    /// The program's exit status; 1 for an exception, 124 for the timeout, 128+n for death by signal n.
    pub return_code: i32,
    /// Files that the call created or changed, most likely wanted first.
    pub content: Vec<CodeExecutionOutputFile<'a>>,
}

/// A file that the call produced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CodeExecutionOutputFile<'a> {
    /// Always `code_execution_output`.
    pub r#type: &'a str,
    /// Addresses the file for retrieval (`file_id` of GetFile); stable for the same file of the same session.
    pub file_id: &'a str,
    /// Its path relative to the workspace root (`path` of GetFile).
    pub filename: &'a str,
}

/// The limits that can end or damage a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitExceeded {
    /// The call's timeout.
    WallClock,
    /// The session's memory.
    Memory,
    /// The session's number of processes and threads.
    Processes,
    /// The workspace's bytes or files.
    Disk,
    /// The cap on an output stream: the middle of it was left out.
    Output,
    /// The call's CPU seconds.
    Cpu,
}

/// What a call used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Usage {
    /// CPU time of the session during the call, milliseconds.
    pub cpu_ms: u64,
    /// The session's highest memory so far, bytes; null where the host does not tell it.
    pub memory_peak_bytes: Option<u64>,
    /// Bytes written to stdout, before the cap.
    pub stdout_bytes: u64,
    /// Bytes written to stderr, before the cap.
    pub stderr_bytes: u64,
}

/// Output between calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Background<'a> {
    /// Written to stdout.
    pub stdout: &'a str,
    /// Written to stderr.
    pub stderr: &'a str,
}
