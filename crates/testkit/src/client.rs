//! The operations that tests call, over one kept-alive connection.

use std::net::SocketAddr;

use ringfence_probe::{Address, Connection, multipart_file, percent_encoded};
use serde_json::{Value, json};

/// One connection to a server.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
}

/// An HTTP answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body, up to 8 MiB of it.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }
}

impl Client {
    /// Connects on the first request; shows the bearer token where there is one.
    ///
    /// # Panics
    /// Never: an address makes a URL.
    #[must_use]
    pub fn new(address: SocketAddr, token: Option<&str>) -> Self {
        let address = Address::parse(&format!("http://{address}"), token.map(str::to_owned)).expect("a URL");
        Client { connection: Connection::new(&address) }
    }

    /// One request, if the server answers it.
    pub fn try_call(&mut self, method: &str, path: &str, kind: &str, body: &[u8]) -> Option<Answer> {
        let answer = self.connection.call(method, path, kind, body).ok()?;
        Some(Answer { status: answer.status, body: answer.body })
    }

    /// One request that must be answered, with JSON.
    ///
    /// # Panics
    /// When it is not.
    pub fn call(&mut self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let (kind, bytes) = body.map_or(("", Vec::new()), |body| ("application/json", body.to_string().into_bytes()));
        self.try_call(method, path, kind, &bytes).unwrap_or_else(|| panic!("{method} {path} was not answered"))
    }

    /// Leases a session.
    ///
    /// # Panics
    /// When it is refused.
    pub fn lease(&mut self, hints: &Value) -> Session<'_> {
        let answer = self.call("POST", "/sessions", Some(hints));
        assert_eq!(answer.status, 201, "lease: {}", String::from_utf8_lossy(&answer.body));
        let handle = answer.json();
        let id = handle["session_id"].as_str().expect("a session id").to_owned();
        Session { client: self, id, handle }
    }
}

/// A leased session.
#[derive(Debug)]
pub struct Session<'c> {
    client: &'c mut Client,
    /// Its id.
    pub id: String,
    /// The handle as it was answered.
    pub handle: Value,
}

impl Session<'_> {
    /// Runs a tool; the envelope.
    ///
    /// # Panics
    /// When the call itself is refused.
    pub fn execute(&mut self, body: &Value) -> Value {
        let answer = self.client.call("POST", &format!("/sessions/{}/exec", self.id), Some(body));
        assert_eq!(answer.status, 200, "exec: {}", String::from_utf8_lossy(&answer.body));
        answer.json()
    }

    /// Runs Python that must succeed; what it printed.
    ///
    /// # Panics
    /// When it fails.
    pub fn python(&mut self, code: &str) -> String {
        succeeded(&self.execute(&json!({"tool": "code_execution", "input": {"code": code}})))
    }

    /// Runs a command that must succeed; what it printed.
    ///
    /// # Panics
    /// When it fails.
    pub fn bash(&mut self, command: &str) -> String {
        succeeded(&self.execute(&json!({"tool": "bash_code_execution", "input": {"command": command}})))
    }

    /// Uploads a file.
    ///
    /// # Panics
    /// When the server cannot be reached.
    pub fn put(&mut self, path: &str, content: &[u8]) -> Answer {
        let (kind, body) = multipart_file(path, content);
        let path = format!("/sessions/{}/files", self.id);
        self.client.try_call("POST", &path, &kind, &body).unwrap_or_else(|| panic!("POST {path} was not answered"))
    }

    /// Fetches a file.
    ///
    /// # Panics
    /// When the server cannot be reached.
    pub fn get(&mut self, path: &str) -> Answer {
        self.client.call("GET", &format!("/sessions/{}/files?path={}", self.id, percent_encoded(path)), None)
    }

    /// Releases the session.
    ///
    /// # Panics
    /// When that is refused.
    pub fn release(self) {
        let answer = self.client.call("DELETE", &format!("/sessions/{}", self.id), None);
        assert_eq!(answer.status, 204, "release: {}", String::from_utf8_lossy(&answer.body));
    }
}

fn succeeded(envelope: &Value) -> String {
    let content = &envelope["result_block"]["content"];
    assert_eq!(content["return_code"], 0, "{envelope:#}");
    content["stdout"].as_str().expect("stdout is a text").to_owned()
}
