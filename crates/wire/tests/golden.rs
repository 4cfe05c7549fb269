//! The answers as they are on the wire, byte for byte (`golden/*.json`), and requests as clients write them.
//!
//! Run with `RINGFENCE_WRITE_GOLDEN=1` to write the files anew; look at what changed before it is checked in: a
//! field that goes, or changes its name or type, breaks clients.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::path::Path;

use ringfence_wire as wire;
use serde::Serialize;

fn holds(name: &str, value: &impl Serialize) {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let text = serde_json::to_string_pretty(value).unwrap() + "\n";
    if std::env::var_os("RINGFENCE_WRITE_GOLDEN").is_some() {
        std::fs::write(&place, &text).unwrap();
    }
    let wanted = std::fs::read_to_string(&place).unwrap_or_else(|why| panic!("{}: {why}", place.display()));
    assert_eq!(text, wanted, "{name}");
}

fn response<'a>(content: wire::CodeExecutionResult<'a>) -> wire::ExecResponse<'a> {
    wire::ExecResponse {
        tool_use_id: "srvtoolu_01",
        result_block: wire::ResultBlock { r#type: "code_execution_tool_result", tool_use_id: "srvtoolu_01", content },
        execution_time_ms: 84,
        limit_exceeded: None,
        interpreter_restarted: false,
        timeout_seconds: 30,
        usage: wire::Usage::default(),
        background: None,
        files_omitted: 0,
    }
}

#[test]
fn a_call_that_produced_nothing() {
    let content = wire::CodeExecutionResult {
        r#type: "code_execution_result",
        stdout: "",
        stderr: "",
        return_code: 0,
        content: Vec::new(),
    };
    holds("exec_quiet.json", &response(content));
}

#[test]
fn a_call_with_everything() {
    let content = wire::CodeExecutionResult {
        r#type: "code_execution_result",
        stdout: "caf\u{e9} \u{1f600}\n\u{fffd}\"\\\u{7}",
        stderr: "Traceback (most recent call last):\n",
        return_code: 124,
        content: vec![wire::CodeExecutionOutputFile {
            r#type: "code_execution_output",
            file_id: "file_1",
            filename: "out/chart.png",
        }],
    };
    let all = wire::ExecResponse {
        limit_exceeded: Some(wire::LimitExceeded::WallClock),
        interpreter_restarted: true,
        usage: wire::Usage { cpu_ms: 71, memory_peak_bytes: Some(9 << 20), stdout_bytes: 20, stderr_bytes: 35 },
        background: Some(wire::Background { stdout: "late", stderr: "" }),
        files_omitted: 7,
        ..response(content)
    };
    holds("exec_full.json", &all);
}

#[test]
fn every_limit_has_its_name() {
    use wire::LimitExceeded::{Cpu, Disk, Memory, Output, Processes, WallClock};
    holds("limits_exceeded.json", &[WallClock, Memory, Processes, Disk, Output, Cpu]);
}

#[test]
fn a_handle() {
    let limits = wire::Limits {
        memory_bytes: 2 << 30,
        processes: 256,
        cpu_millis: 1000,
        workspace_bytes: 1 << 30,
        workspace_inodes: 100_000,
        tmp_bytes: 256 << 20,
        timeout_seconds_default: 30,
        timeout_seconds_max: 600,
        output_bytes_max: 1 << 20,
        upload_bytes_max: 100 << 20,
    };
    let handle = wire::SessionHandle {
        session_id: "0123456789abcdef0123456789abcdef".to_owned(),
        created_at: 1_786_000_000.0,
        last_activity_at: 1_786_000_001.25,
        idle_timeout_seconds: Some(300),
        max_lifetime_seconds: None,
        image: "scientific".to_owned(),
        tier: "cell".to_owned(),
        limits,
    };
    holds("handle.json", &handle);
}

#[test]
fn files_and_the_rest() {
    let file = wire::FileMetadata {
        path: "caf\u{e9}.csv",
        size_bytes: 8,
        mime_type: Some("text/csv"),
        modified_at: 1_786_000_000.5,
    };
    let bare = wire::FileMetadata { path: "Makefile", mime_type: None, ..file.clone() };
    holds("file_list.json", &wire::FileList { files: vec![file, bare], unlistable: 0, truncated: false });
    holds("file_list_partial.json", &wire::FileList { files: Vec::new(), unlistable: 2, truncated: true });
    holds("upload.json", &wire::FileUploadResult { path: "deep/er/x.bin", size_bytes: 256 });
    holds("archive.json", &wire::ArchiveResult { files: 3, size_bytes: 300 });
    holds("error.json", &wire::Error { detail: "`tool` is missing; it must be a string, the tool kind" });
    holds("ready.json", &wire::Ready { status: "ready" });
    let health = wire::Health {
        status: "ok",
        session_count: 1,
        max_sessions: 100,
        running_calls: 0,
        warm_cells: 4,
        tier: "cell",
        image: "scientific",
        version: "0.1.0",
    };
    holds("health.json", &health);
}

/// What the typed request shapes write is what the parser reads.
#[test]
fn requests_are_read_as_they_are_written() {
    let code = wire::CodeExecutionRequest {
        tool: wire::CodeExecutionTool::CodeExecution,
        input: wire::CodeExecutionInput { code: "print(1)".to_owned(), echo_last_expression: Some(true) },
        timeout_seconds: Some(60),
        tool_use_id: None,
    };
    holds("request_code.json", &code);
    let read = wire::ExecRequest::parse(&serde_json::to_vec(&code).unwrap()).unwrap();
    assert_eq!((read.input, read.timeout_seconds), (wire::ExecInput::Code(code.input), Some(60)));

    let edit = wire::TextEditorRequest {
        tool: wire::TextEditorTool::TextEditorCodeExecution,
        input: wire::TextEditorInput {
            command: wire::EditorCommand::StrReplace,
            path: "a.py".to_owned(),
            file_text: None,
            old_str: Some("a".to_owned()),
            new_str: Some(String::new()),
            insert_line: None,
            view_range: None,
        },
        timeout_seconds: None,
        tool_use_id: Some("mine".to_owned()),
    };
    holds("request_edit.json", &edit);
    let read = wire::ExecRequest::parse(&serde_json::to_vec(&edit).unwrap()).unwrap();
    let action = wire::EditAction::StrReplace { old_str: "a".to_owned(), new_str: String::new() };
    assert_eq!(read.input, wire::ExecInput::Edit(wire::TextEditorEdit { path: "a.py".to_owned(), action }));
    assert_eq!(read.tool_use_id.as_deref(), Some("mine"));
}
