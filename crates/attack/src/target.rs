//! The attacked backend: the few operations that attacks need.

use std::time::{Duration, Instant};

use ringfence_probe::{Address, Answer, Connection, ProbeError, multipart_file, percent_encoded};
use serde_json::{Value, json};
use thiserror::Error;

use crate::catalogue::Tool;

/// A session of the backend.
pub(crate) struct Session {
    connection: Connection,
    id: String,
}

/// What a call came to.
pub(crate) struct Called {
    pub(crate) stdout: String,
    pub(crate) whole: String,
    pub(crate) took: Duration,
}

impl Session {
    /// Leases a session.
    pub(crate) fn lease(address: &Address) -> Result<Self, String> {
        let mut connection = Connection::new(address);
        let answer = connection.call("POST", "/sessions", "application/json", b"{}").map_err(said)?;
        let handle: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        match handle.get("session_id").and_then(Value::as_str) {
            Some(id) if answer.status == 201 => Ok(Session { connection, id: id.to_owned() }),
            _ => Err(format!("CreateSession answered {}", answer.status)),
        }
    }

    /// Its id, for requests by hand.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Runs a program; an answer other than 200 is an error.
    pub(crate) fn run(&mut self, tool: Tool, program: &str, timeout: u64) -> Result<Called, String> {
        let (tool, field) = match tool {
            Tool::Python => ("code_execution", "code"),
            Tool::Bash => ("bash_code_execution", "command"),
        };
        let body = json!({"tool": tool, "input": {field: program}, "timeout_seconds": timeout}).to_string();
        let path = format!("/sessions/{}/exec", self.id);
        let begun = Instant::now();
        let answer = self.connection.call("POST", &path, "application/json", body.as_bytes()).map_err(said)?;
        let took = begun.elapsed();
        let envelope: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let content = envelope.pointer("/result_block/content").cloned().unwrap_or_default();
        if answer.status != 200 || !content.is_object() {
            return Err(format!("Execute answered {}: {}", answer.status, start_of(&answer)));
        }
        let stdout = content.get("stdout").and_then(Value::as_str).unwrap_or("").to_owned();
        Ok(Called { stdout, whole: content.to_string().chars().take(600).collect(), took })
    }

    /// GetFile, PutFile or ListFiles.
    pub(crate) fn get(&mut self, path: &str) -> Result<Answer, String> {
        self.ask("GET", &format!("files?path={}", percent_encoded(path)), "", b"")
    }

    /// PutFile.
    pub(crate) fn put(&mut self, path: &str) -> Result<Answer, String> {
        let (kind, body) = multipart_file(path, b"planted");
        self.ask("POST", "files", &kind, &body)
    }

    /// ListFiles.
    pub(crate) fn list(&mut self, path: &str) -> Result<Answer, String> {
        self.ask("GET", &format!("files/list?path={}", percent_encoded(path)), "", b"")
    }

    fn ask(&mut self, method: &str, rest: &str, kind: &str, body: &[u8]) -> Result<Answer, String> {
        self.connection.call(method, &format!("/sessions/{}/{rest}", self.id), kind, body).map_err(said)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Best effort: a backend that does not answer any more is found by the next step.
        let _ = self.connection.call("DELETE", &format!("/sessions/{}", self.id), "", b"");
    }
}

/// Why nothing can be attacked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CannotAttack {
    /// Nobody is there, or nobody who lets this client in.
    #[error("the backend does not answer")]
    NoAnswer(#[source] ProbeError),
    /// The backend wants another credential.
    #[error("the backend refuses the credential, or its absence, with {status}")]
    Credential {
        /// What it answered.
        status: u16,
    },
    /// No session could be leased for lack of room.
    #[error("the backend has no room for a session now (503)")]
    NoRoom,
}

/// Leases one session and releases it: whether there is anything to attack. What else is wrong with an answer is for the
/// attacks to say.
///
/// # Errors
/// When whatever is attacked would fail for one and the same reason.
pub fn first_contact(address: &Address) -> Result<(), CannotAttack> {
    let mut connection = Connection::new(address);
    let answer = connection.call("POST", "/sessions", "application/json", b"{}").map_err(CannotAttack::NoAnswer)?;
    match answer.status {
        status @ (401 | 403) => Err(CannotAttack::Credential { status }),
        503 => Err(CannotAttack::NoRoom),
        _ => {
            let handle: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            if let Some(id) = handle.get("session_id").and_then(Value::as_str) {
                drop(Session { connection, id: id.to_owned() });
            }
            Ok(())
        }
    }
}

/// Whether the server itself still answers.
pub(crate) fn is_healthy(address: &Address) -> bool {
    Connection::new(address).call("GET", "/health", "", b"").is_ok_and(|answer| answer.status == 200)
}

/// How the server says that it holds sessions; a backend that says nothing is asked for all that a cell holds.
pub(crate) fn tier(address: &Address) -> String {
    let answer = Connection::new(address).call("GET", "/health", "", b"").ok();
    let health: Value = answer.and_then(|answer| serde_json::from_slice(&answer.body).ok()).unwrap_or_default();
    health.get("tier").and_then(Value::as_str).unwrap_or("cell").to_owned()
}

/// The start of a body, for a finding.
pub(crate) fn start_of(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).chars().take(300).collect()
}

fn said(error: ProbeError) -> String {
    let mut text = error.to_string();
    if let Some(cause) = std::error::Error::source(&error) {
        text.push_str(": ");
        text.push_str(&cause.to_string());
    }
    text
}
