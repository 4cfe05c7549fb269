//! From what an operation came to, to the answer. The only place that knows which status says what.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hyper::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, HeaderName, HeaderValue, LAST_MODIFIED, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};
use ringfence_op::{Fault, FaultKind, LimitKind, Outcome, WorkspaceId, WorkspacePath};
use ringfence_wire as wire;

use crate::answer::Body;
use crate::backend::{Backend, Counts, Handle, Listing, ReadFile, Unpacked};
use crate::dispatch::App;
use crate::limits::{RETRY_AFTER_SECONDS, RETRY_AFTER_SECONDS_MAX};
use crate::mime::media_type;
use crate::range::Selection;
use crate::refusal::Refusal;

/// What a handler came to.
pub(crate) enum Reply {
    Created(Handle),
    Found(Handle),
    Sessions(Vec<Handle>),
    Interrupted(bool),
    Destroyed,
    Ran { tool: Tool, tool_use_id: String, outcome: Outcome },
    Listed(Listing),
    File { file: Box<dyn ReadFile>, media_type: String, selection: Selection },
    Stored { path: WorkspacePath, size_bytes: u64 },
    Removed,
    Archive(Body),
    Unpacked(Unpacked),
    Health(Counts),
    Tenancy { workspace: WorkspaceId, session_count: u64 },
    Ready,
    OpenApi(&'static str),
    Metrics(String),
}

/// The tool kinds, for the names of their results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Python,
    Bash,
    Edit,
}

impl Tool {
    pub(crate) const ALL: [Tool; 3] = [Tool::Python, Tool::Bash, Tool::Edit];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Tool::Python => "code_execution",
            Tool::Bash => "bash_code_execution",
            Tool::Edit => "text_editor_code_execution",
        }
    }

    fn result(self) -> &'static str {
        match self {
            Tool::Python => "code_execution_tool_result",
            Tool::Bash => "bash_code_execution_tool_result",
            Tool::Edit => "text_editor_code_execution_tool_result",
        }
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The answer to an operation that was done.
pub(crate) fn reply<B: Backend>(reply: Reply, app: &App<B>) -> Response<Body> {
    match reply {
        Reply::Created(handle) => json(StatusCode::CREATED, &session_handle(&handle, app)),
        Reply::Found(handle) => json(StatusCode::OK, &session_handle(&handle, app)),
        Reply::Sessions(handles) => {
            let sessions = handles.iter().map(|handle| session_handle(handle, app)).collect();
            sized_json(StatusCode::OK, &wire::SessionList { sessions }, handles.len() * 512 + 16)
        }
        Reply::Interrupted(interrupted) => json(StatusCode::OK, &wire::Interrupted { interrupted }),
        Reply::Destroyed | Reply::Removed => plain(StatusCode::NO_CONTENT),
        Reply::Ran { tool, tool_use_id, outcome } => ran(tool, &tool_use_id, &outcome),
        Reply::Listed(listing) => listed(&listing),
        Reply::File { file, media_type, selection } => file_answer(file, &media_type, selection),
        Reply::Stored { path, size_bytes } => {
            json(StatusCode::CREATED, &wire::FileUploadResult { path: path.as_str(), size_bytes })
        }
        Reply::Archive(body) => {
            let mut answer = Response::new(body);
            set(&mut answer, CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
            answer
        }
        Reply::Unpacked(unpacked) => {
            json(StatusCode::CREATED, &wire::ArchiveResult { files: unpacked.files, size_bytes: unpacked.bytes })
        }
        Reply::Health(counts) => health(&counts, app),
        Reply::Tenancy { workspace, session_count } => {
            json(StatusCode::OK, &wire::Tenancy { workspace: workspace.as_str(), session_count })
        }
        Reply::Ready => json(StatusCode::OK, &wire::Ready { status: "ready" }),
        Reply::OpenApi(document) => whole(StatusCode::OK, JSON, Bytes::from_static(document.as_bytes())),
        Reply::Metrics(text) => {
            whole(StatusCode::OK, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"), text.into())
        }
    }
}

/// The answer to a request without a result, and the fault behind it where it is ours and wants to be logged.
pub(crate) fn refusal(refusal: Refusal) -> (Response<Body>, Option<Fault>) {
    let fault = match refusal {
        Refusal::Fault(fault) => fault,
        Refusal::NoRoute => return (error(StatusCode::NOT_FOUND, "nothing is served under this path"), None),
        Refusal::WrongMethod(allow) => {
            let detail = format!("this path answers to {allow} alone");
            let mut answer = error(StatusCode::METHOD_NOT_ALLOWED, &detail);
            set(&mut answer, ALLOW, HeaderValue::from_static(allow));
            return (answer, None);
        }
        Refusal::NoListing => {
            let detail = "sessions are listed only where the server asks for a token: start it with --auth-token-file";
            return (error(StatusCode::FORBIDDEN, detail), None);
        }
        Refusal::Tenancy(detail) => return (error(StatusCode::BAD_REQUEST, detail), None),
        Refusal::SlowBody => {
            let mut answer = error(StatusCode::REQUEST_TIMEOUT, "the body of the request took too long to come");
            set(&mut answer, CONNECTION, HeaderValue::from_static("close"));
            return (answer, None);
        }
        Refusal::BrokenBody => {
            return (error(StatusCode::BAD_REQUEST, "the body of the request broke off, or is wrongly framed"), None);
        }
        Refusal::BodyTooLarge { bytes_max } => {
            let detail = format!("the body of the request is larger than {bytes_max} bytes");
            return (error(StatusCode::PAYLOAD_TOO_LARGE, &detail), None);
        }
    };
    let status = match fault.kind() {
        FaultKind::Malformed => StatusCode::UNPROCESSABLE_ENTITY,
        FaultKind::UnknownTool | FaultKind::NotAFile => StatusCode::BAD_REQUEST,
        FaultKind::Unauthorized => StatusCode::UNAUTHORIZED,
        FaultKind::PathEscapes => StatusCode::FORBIDDEN,
        FaultKind::UnknownSession | FaultKind::UnknownFile => StatusCode::NOT_FOUND,
        FaultKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        FaultKind::Capacity { .. } => StatusCode::SERVICE_UNAVAILABLE,
        FaultKind::House => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut answer = error(status, fault.detail());
    match fault.kind() {
        FaultKind::Unauthorized => set(&mut answer, WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
        FaultKind::Capacity { retry_after_seconds } => {
            let seconds = retry_after_seconds.clamp(RETRY_AFTER_SECONDS, RETRY_AFTER_SECONDS_MAX);
            set(&mut answer, RETRY_AFTER, HeaderValue::from(seconds));
        }
        _ => {}
    }
    let ours = fault.kind() == FaultKind::House;
    (answer, ours.then_some(fault))
}

fn session_handle<B: Backend>(handle: &Handle, app: &App<B>) -> wire::SessionHandle {
    let about = app.backend.about();
    wire::SessionHandle {
        session_id: handle.id.to_string(),
        created_at: posix_seconds(handle.created),
        last_activity_at: posix_seconds(handle.last_activity),
        idle_timeout_seconds: handle.idle.map(whole_seconds),
        max_lifetime_seconds: handle.lifetime.map(whole_seconds),
        image: handle.image.clone(),
        tier: about.tier.as_str().to_owned(),
        limits: wire::Limits {
            memory_bytes: handle.cell.memory_bytes,
            processes: handle.cell.processes,
            cpu_millis: handle.cell.cpu_millis,
            workspace_bytes: handle.cell.workspace_bytes,
            workspace_inodes: handle.cell.workspace_inodes,
            tmp_bytes: handle.cell.tmp_bytes,
            timeout_seconds_default: whole_seconds(about.call.timeout_default.min(handle.timeout_max)),
            timeout_seconds_max: whole_seconds(handle.timeout_max),
            output_bytes_max: about.call.output_bytes_max as u64,
            upload_bytes_max: app.limits.upload_bytes_max,
        },
    }
}

fn ran(tool: Tool, tool_use_id: &str, outcome: &Outcome) -> Response<Body> {
    let report = &outcome.report;
    let files = outcome.files.iter().map(|file| wire::CodeExecutionOutputFile {
        r#type: "code_execution_output",
        file_id: &file.file_id,
        filename: file.path.as_str(),
    });
    let usage = report.usage;
    let envelope = wire::ExecResponse {
        tool_use_id,
        result_block: wire::ResultBlock {
            r#type: tool.result(),
            tool_use_id,
            content: wire::CodeExecutionResult {
                r#type: "code_execution_result",
                stdout: &report.stdout,
                stderr: &report.stderr,
                return_code: report.return_code,
                content: files.collect(),
            },
        },
        execution_time_ms: outcome.execution_time_ms,
        limit_exceeded: report.limit_exceeded.map(limit_exceeded),
        interpreter_restarted: report.interpreter_restarted,
        timeout_seconds: whole_seconds(outcome.timeout),
        usage: wire::Usage {
            cpu_ms: usage.cpu_ms,
            memory_peak_bytes: usage.memory_peak_bytes,
            stdout_bytes: usage.stdout_bytes,
            stderr_bytes: usage.stderr_bytes,
        },
        background: report
            .background
            .as_ref()
            .map(|late| wire::Background { stdout: &late.stdout, stderr: &late.stderr }),
        files_omitted: outcome.files_omitted,
    };
    let room = report.stdout.len() + report.stderr.len();
    sized_json(StatusCode::OK, &envelope, room + room / 16 + 1024)
}

fn limit_exceeded(kind: LimitKind) -> wire::LimitExceeded {
    match kind {
        LimitKind::WallClock => wire::LimitExceeded::WallClock,
        LimitKind::Memory => wire::LimitExceeded::Memory,
        LimitKind::Processes => wire::LimitExceeded::Processes,
        LimitKind::Disk => wire::LimitExceeded::Disk,
        LimitKind::Output => wire::LimitExceeded::Output,
        LimitKind::Cpu => wire::LimitExceeded::Cpu,
    }
}

fn listed(listing: &Listing) -> Response<Body> {
    let files = listing.files.iter().map(|file| wire::FileMetadata {
        path: file.path.as_str(),
        size_bytes: file.size_bytes,
        mime_type: media_type(file.path.as_str()),
        modified_at: file.modified,
    });
    let list = wire::FileList { files: files.collect(), unlistable: listing.unlistable, truncated: listing.truncated };
    sized_json(StatusCode::OK, &list, listing.files.len() * 128 + 64)
}

fn file_answer(file: Box<dyn ReadFile>, media_type: &str, selection: Selection) -> Response<Body> {
    let size = file.size();
    let etag = HeaderValue::try_from(file.etag());
    let modified = HeaderValue::try_from(httpdate::fmt_http_date(file.modified()));
    let mut answer = match selection {
        Selection::Whole => sent(StatusCode::OK, file, 0, size),
        Selection::Part { first, last } => {
            let mut answer = sent(StatusCode::PARTIAL_CONTENT, file, first, last - first + 1);
            set_text(&mut answer, CONTENT_RANGE, format!("bytes {first}-{last}/{size}"));
            answer
        }
        Selection::Unchanged => plain(StatusCode::NOT_MODIFIED),
        Selection::OutOfRange => {
            let detail = format!("the range begins behind the end of the file, which has {size} bytes");
            let mut answer = error(StatusCode::RANGE_NOT_SATISFIABLE, &detail);
            set_text(&mut answer, CONTENT_RANGE, format!("bytes */{size}"));
            return answer;
        }
    };
    if let (Ok(etag), Ok(modified)) = (etag, modified) {
        set(&mut answer, ETAG, etag);
        set(&mut answer, LAST_MODIFIED, modified);
    }
    set(&mut answer, ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    set_text(&mut answer, CONTENT_TYPE, media_type.to_owned());
    // The file is a stranger's: no browser may guess what it is, run it, or show it to others.
    set(&mut answer, X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    set(&mut answer, CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    set(&mut answer, CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    answer
}

fn sent(status: StatusCode, file: Box<dyn ReadFile>, first: u64, length: u64) -> Response<Body> {
    let mut answer = Response::new(Body::file(file, first, length));
    *answer.status_mut() = status;
    // Said here, since the answer to HEAD says it as well.
    set(&mut answer, CONTENT_LENGTH, HeaderValue::from(length));
    answer
}

fn health<B: Backend>(counts: &Counts, app: &App<B>) -> Response<Body> {
    let about = app.backend.about();
    let health = wire::Health {
        status: if counts.draining { "draining" } else { "ok" },
        session_count: counts.sessions,
        max_sessions: counts.sessions_max,
        running_calls: counts.running,
        warm_cells: counts.warm,
        tier: about.tier.as_str(),
        image: &about.image,
        version: env!("CARGO_PKG_VERSION"),
    };
    sized_json(StatusCode::OK, &health, 256)
}

fn error(status: StatusCode, detail: &str) -> Response<Body> {
    json(status, &wire::Error { detail })
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> Response<Body> {
    sized_json(status, value, 512)
}

fn sized_json(status: StatusCode, value: &impl serde::Serialize, room: usize) -> Response<Body> {
    let mut bytes = Vec::with_capacity(room);
    match serde_json::to_writer(&mut bytes, value) {
        Ok(()) => whole(status, JSON, bytes.into()),
        // The shapes of the wire hold texts and numbers, which serialize; a non-finite number becomes null.
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

fn whole(status: StatusCode, media_type: HeaderValue, bytes: Bytes) -> Response<Body> {
    let mut answer = Response::new(Body::whole(bytes));
    *answer.status_mut() = status;
    set(&mut answer, CONTENT_TYPE, media_type);
    answer
}

fn plain(status: StatusCode) -> Response<Body> {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = status;
    answer
}

fn set(answer: &mut Response<Body>, name: HeaderName, value: HeaderValue) {
    answer.headers_mut().insert(name, value);
}

fn set_text(answer: &mut Response<Body>, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        set(answer, name, value);
    }
}

fn posix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Rounded up, so that what is in force is never 0 on the wire.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
