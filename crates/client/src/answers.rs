//! What a backend answers, read leniently: what the contract requires must be there, everything else may be.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// A leased session, as CreateSession answers it.
#[derive(Debug, Clone, Deserialize)]
pub struct SessionHandle {
    /// Addresses the session in every later operation.
    pub session_id: String,
    /// The idle timeout in force, seconds.
    #[serde(default, deserialize_with = "lenient")]
    pub idle_timeout_seconds: Option<u64>,
    /// The longest life in force, seconds.
    #[serde(default, deserialize_with = "lenient")]
    pub max_lifetime_seconds: Option<u64>,
    /// When it was made, POSIX seconds.
    #[serde(default, deserialize_with = "lenient")]
    pub created_at: Option<f64>,
    /// When it was last used, POSIX seconds.
    #[serde(default, deserialize_with = "lenient")]
    pub last_activity_at: Option<f64>,
    /// The image that it runs (an addition of ringfence).
    #[serde(default, deserialize_with = "lenient")]
    pub image: Option<String>,
    /// How strongly it is held (an addition of ringfence).
    #[serde(default, deserialize_with = "lenient")]
    pub tier: Option<String>,
    /// Whatever else the backend said.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A listing of sessions, as it is on the wire.
#[derive(Debug, Deserialize)]
pub(crate) struct SessionList {
    pub(crate) sessions: Vec<SessionHandle>,
}

/// What an interrupt met, as it is on the wire.
#[derive(Debug, Deserialize)]
pub(crate) struct Interrupted {
    pub(crate) interrupted: bool,
}

/// What a call came to. A program that failed is here too: see [`ExecResult::succeeded`].
#[derive(Debug, Clone)]
pub struct ExecResult {
    /// The correlation id.
    pub tool_use_id: String,
    /// The result block's type. Opaque: a backend may know kinds that this client does not.
    pub block_type: String,
    /// What the call wrote on stdout.
    pub stdout: String,
    /// What it wrote on stderr.
    pub stderr: String,
    /// Its exit status; an absent or null one reads as 0 (contract, result blocks).
    pub return_code: i64,
    /// Files that it produced, by paths that [`read`](crate::Session::read) takes.
    pub files: Vec<ProducedFile>,
    /// How long the backend spent on it, milliseconds.
    pub execution_time_ms: Option<u64>,
    /// The limit that ended or damaged it (an addition of ringfence): `wall_clock`, `memory`, `processes`, `disk`,
    /// `output` or `cpu`.
    pub limit_exceeded: Option<String>,
    /// The interpreter was lost: variables are gone, files are kept (an addition of ringfence).
    pub interpreter_restarted: bool,
    /// The timeout that was in force, seconds (an addition of ringfence).
    pub timeout_seconds: Option<u64>,
    /// What it used (an addition of ringfence).
    pub usage: Option<Usage>,
    /// What threads and processes of earlier calls wrote between the calls (an addition of ringfence).
    pub background: Option<Background>,
    /// The whole envelope, for fields that this client does not know.
    pub envelope: Map<String, Value>,
}

impl ExecResult {
    /// Whether the program ended with status 0.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.return_code == 0
    }

    /// Reads an Execute's answer.
    ///
    /// # Errors
    /// A text that says what is not as the contract describes.
    pub(crate) fn read(envelope: Map<String, Value>) -> Result<Self, String> {
        let block = match envelope.get("result_block") {
            Some(Value::Object(block)) => block,
            Some(other) => return Err(format!("result_block is {}", kind(other))),
            None => return Err("there is no result_block".to_owned()),
        };
        let content = match block.get("content") {
            Some(Value::Object(content)) => content,
            Some(other) => return Err(format!("result_block.content is {}", kind(other))),
            None => return Err("result_block has no content".to_owned()),
        };
        if content.contains_key("error_code") {
            return Err("result_block.content is an error variant, which contract version 1 rules out".to_owned());
        }
        let id = envelope.get("tool_use_id").or_else(|| block.get("tool_use_id")).and_then(Value::as_str);
        let files = match content.get("content") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(entries)) => entries.iter().filter_map(known).collect(),
            Some(other) => return Err(format!("result_block.content.content is {}", kind(other))),
        };
        let of = |name: &str| envelope.get(name);
        Ok(ExecResult {
            tool_use_id: id.unwrap_or_default().to_owned(),
            block_type: block.get("type").and_then(Value::as_str).unwrap_or_default().to_owned(),
            stdout: text(content, "stdout")?,
            stderr: text(content, "stderr")?,
            return_code: match content.get("return_code") {
                None | Some(Value::Null) => 0,
                Some(code) => known(code).ok_or("result_block.content.return_code is no integer")?,
            },
            files,
            execution_time_ms: of("execution_time_ms").and_then(known),
            limit_exceeded: of("limit_exceeded").and_then(known),
            interpreter_restarted: of("interpreter_restarted").and_then(known).unwrap_or(false),
            timeout_seconds: of("timeout_seconds").and_then(known),
            usage: of("usage").and_then(known),
            background: of("background").and_then(known),
            envelope,
        })
    }
}

fn text(content: &Map<String, Value>, name: &str) -> Result<String, String> {
    match content.get(name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(format!("result_block.content.{name} is {}", kind(other))),
    }
}

/// A file that a call produced.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ProducedFile {
    /// Addresses the file.
    pub file_id: String,
    /// The name that the call gave it.
    pub filename: String,
}

/// What a call used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Usage {
    /// CPU time, milliseconds.
    #[serde(default, deserialize_with = "lenient")]
    pub cpu_ms: Option<u64>,
    /// Highest memory, bytes.
    #[serde(default, deserialize_with = "lenient")]
    pub memory_peak_bytes: Option<u64>,
    /// Bytes written to stdout, before any cap.
    #[serde(default, deserialize_with = "lenient")]
    pub stdout_bytes: Option<u64>,
    /// Bytes written to stderr, before any cap.
    #[serde(default, deserialize_with = "lenient")]
    pub stderr_bytes: Option<u64>,
}

/// Output of threads and processes that outlived the call that started them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Background {
    /// Written to fd 1 between calls.
    #[serde(default)]
    pub stdout: String,
    /// Written to fd 2 between calls.
    #[serde(default)]
    pub stderr: String,
}

/// One file of a listing.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct FileEntry {
    /// Relative to the workspace's root.
    pub path: String,
    /// Its size.
    pub size_bytes: u64,
    /// Its media type, where the backend derived one.
    #[serde(default, deserialize_with = "lenient")]
    pub mime_type: Option<String>,
    /// When it was last written, POSIX seconds.
    #[serde(default, deserialize_with = "lenient")]
    pub modified_at: Option<f64>,
}

/// A listing, as it is on the wire.
#[derive(Debug, Deserialize)]
pub(crate) struct FileList {
    pub(crate) files: Vec<FileEntry>,
}

/// Where an upload was stored.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StoredFile {
    /// Relative to the workspace's root.
    pub path: String,
    /// How many bytes were stored.
    pub size_bytes: u64,
}

/// What `/health` says. The contract has no such route; the common backends have it.
#[derive(Debug, Clone, Deserialize)]
pub struct Health {
    /// `ok` where all is well.
    #[serde(default)]
    pub status: String,
    /// Sessions held now.
    #[serde(default, deserialize_with = "lenient")]
    pub session_count: Option<u64>,
    /// The most that may be held.
    #[serde(default, deserialize_with = "lenient")]
    pub max_sessions: Option<u64>,
    /// Whatever else the backend said.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// An optional field whose value is of a type that is not known here counts as absent.
fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Option<T>, D::Error> {
    Value::deserialize(from).map(|value| known(&value))
}

/// The value, where it is of the wanted type. `300.0` is the integer 300, as in JSON Schema.
fn known<T: DeserializeOwned>(value: &Value) -> Option<T> {
    let whole = value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 9e15 && value.is_f64());
    T::deserialize(value).ok().or_else(|| {
        // The cast is exact: whole, and within 2^53.
        #[expect(clippy::cast_possible_truncation, reason = "whole and below 9e15")]
        whole.and_then(|number| T::deserialize(Value::from(number as i64)).ok())
    })
}

/// What a value is, for an error text.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(envelope: Value) -> Result<ExecResult, String> {
        let Value::Object(envelope) = envelope else { panic!("no object") };
        ExecResult::read(envelope)
    }

    #[test]
    fn unknown_fields_and_types_are_tolerated() {
        let done = read(json!({
            "tool_use_id": "t", "later": [1], "usage": "much", "limit_exceeded": 5, "execution_time_ms": 12.0,
            "result_block": {"type": "quantum_result", "tool_use_id": "t", "also": null,
                "content": {"stdout": null, "return_code": null, "new": {}, "content": [{"file_id": "1", "filename": "a"}, {"odd": 1}]}}
        }))
        .unwrap();
        assert_eq!((done.block_type.as_str(), done.stdout.as_str(), done.return_code), ("quantum_result", "", 0));
        assert_eq!(done.execution_time_ms, Some(12));
        assert_eq!((done.usage, done.limit_exceeded.clone()), (None, None));
        assert_eq!(done.files, [ProducedFile { file_id: "1".into(), filename: "a".into() }]);
        assert!(done.envelope.contains_key("later"));
    }

    #[test]
    fn what_would_read_as_an_empty_success_is_an_error() {
        for (envelope, part) in [
            (json!({"type": "code_execution_tool_result", "content": {}}), "no result_block"),
            (json!({"result_block": null}), "result_block is null"),
            (json!({"result_block": {}}), "no content"),
            (json!({"result_block": {"content": []}}), "content is a list"),
            (json!({"result_block": {"content": {"error_code": "unavailable"}}}), "error variant"),
            (json!({"result_block": {"content": {"stdout": 5}}}), "stdout is a number"),
            (json!({"result_block": {"content": {"return_code": "0"}}}), "return_code"),
        ] {
            let said = read(envelope.clone()).unwrap_err();
            assert!(said.contains(part), "{envelope}: {said}");
        }
    }

    #[test]
    fn additions_are_read() {
        let done = read(json!({
            "tool_use_id": "t", "limit_exceeded": "memory", "interpreter_restarted": true, "timeout_seconds": 30,
            "usage": {"cpu_ms": 5, "stdout_bytes": 7}, "background": {"stdout": "late"},
            "result_block": {"type": "x", "tool_use_id": "t", "content": {"return_code": 137}}
        }))
        .unwrap();
        assert_eq!(done.limit_exceeded.as_deref(), Some("memory"));
        assert!(done.interpreter_restarted && !done.succeeded());
        assert_eq!(done.timeout_seconds, Some(30));
        assert_eq!(done.usage.unwrap().cpu_ms, Some(5));
        assert_eq!(done.background.unwrap().stdout, "late");
    }

    #[test]
    fn a_handle_keeps_what_it_does_not_know() {
        let handle: SessionHandle = serde_json::from_value(
            json!({"session_id": "s", "idle_timeout_seconds": 30.0, "created_at": "now", "shard": 3}),
        )
        .unwrap();
        assert_eq!(handle.idle_timeout_seconds, Some(30));
        assert_eq!(handle.created_at, None);
        assert_eq!(handle.more["shard"], 3);
    }
}
