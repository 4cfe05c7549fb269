//! The contract's operations as the bench calls them: each checks that the answer is the right one.

use ringfence_probe::{Address, Answer, Connection, multipart_file, percent_encoded};
use serde_json::{Value, json};

use crate::BenchError;

/// A backend through one keep-alive connection.
pub(crate) struct Backend {
    connection: Connection,
}

impl Backend {
    pub(crate) fn new(address: &Address) -> Self {
        Backend { connection: Connection::new(address) }
    }

    /// `GET /health`.
    pub(crate) fn health(&mut self) -> Result<(), BenchError> {
        let answer = self.connection.call("GET", "/health", "", b"")?;
        expect("GET /health", 200, &answer)
    }

    /// CreateSession; the session's id.
    pub(crate) fn lease(&mut self) -> Result<String, BenchError> {
        let answer = self.connection.call("POST", "/sessions", "application/json", b"{}")?;
        expect("CreateSession", 201, &answer)?;
        parse(&answer)?
            .get("session_id")
            .and_then(Value::as_str)
            .map(str::to_owned)
            .ok_or(BenchError::Answer("a handle without session_id"))
    }

    /// DestroySession.
    pub(crate) fn destroy(&mut self, session: &str) -> Result<(), BenchError> {
        let answer = self.connection.call("DELETE", &format!("/sessions/{session}"), "", b"")?;
        expect("DestroySession", 204, &answer)
    }

    /// Runs Python and holds its stdout to `wanted`.
    pub(crate) fn python(&mut self, session: &str, code: &str, wanted: &str) -> Result<(), BenchError> {
        self.execute(
            session,
            &json!({"tool": "code_execution", "input": {"code": code}, "timeout_seconds": 60}),
            wanted,
        )
    }

    /// Runs a shell command and holds its stdout to `wanted`.
    pub(crate) fn bash(&mut self, session: &str, command: &str, wanted: &str) -> Result<(), BenchError> {
        self.execute(session, &json!({"tool": "bash_code_execution", "input": {"command": command}}), wanted)
    }

    /// Views a file in the editor and holds its text to `wanted`.
    pub(crate) fn view(&mut self, session: &str, path: &str, wanted: &str) -> Result<(), BenchError> {
        let input = json!({"command": "view", "path": path});
        self.execute(session, &json!({"tool": "text_editor_code_execution", "input": input}), wanted)
    }

    fn execute(&mut self, session: &str, request: &Value, wanted: &str) -> Result<(), BenchError> {
        let body = request.to_string();
        let path = format!("/sessions/{session}/exec");
        let answer = self.connection.call("POST", &path, "application/json", body.as_bytes())?;
        expect("Execute", 200, &answer)?;
        let envelope = parse(&answer)?;
        let content = envelope.pointer("/result_block/content").ok_or(BenchError::Answer("no result block"))?;
        let stdout = content.get("stdout").and_then(Value::as_str).unwrap_or("");
        if stdout.trim_end_matches('\n') == wanted {
            return Ok(());
        }
        let seen: String = content.to_string().chars().take(300).collect();
        Err(BenchError::Wrong { operation: "Execute", wanted: format!("stdout {wanted:?}"), seen })
    }

    /// PutFile of `content` under `name`.
    pub(crate) fn put(&mut self, session: &str, name: &str, content: &[u8]) -> Result<(), BenchError> {
        let (kind, body) = multipart_file(name, content);
        let answer = self.connection.call("POST", &format!("/sessions/{session}/files"), &kind, &body)?;
        expect("PutFile", 201, &answer)
    }

    /// GetFile; holds the length of the body to `bytes`.
    pub(crate) fn get(&mut self, session: &str, name: &str, bytes: u64) -> Result<(), BenchError> {
        let answer = self.connection.call(
            "GET",
            &format!("/sessions/{session}/files?path={}", percent_encoded(name)),
            "",
            b"",
        )?;
        expect("GetFile", 200, &answer)?;
        if answer.body_bytes == bytes {
            return Ok(());
        }
        Err(BenchError::Wrong {
            operation: "GetFile",
            wanted: format!("{bytes} bytes"),
            seen: format!("{} bytes", answer.body_bytes),
        })
    }
}

fn expect(operation: &'static str, wanted: u16, answer: &Answer) -> Result<(), BenchError> {
    if answer.status == wanted {
        return Ok(());
    }
    let body = String::from_utf8_lossy(answer.body.get(..300.min(answer.body.len())).unwrap_or_default()).into_owned();
    Err(BenchError::Status { operation, status: answer.status, body })
}

fn parse(answer: &Answer) -> Result<Value, BenchError> {
    serde_json::from_slice(&answer.body).map_err(|_| BenchError::Answer("a body that is not JSON"))
}
