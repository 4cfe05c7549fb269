//! HTTP/1.1 over a std TcpStream, one connection kept open, and the six operations on top.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

/// How long an answer is waited for: above every timeout that tests use.
const PATIENCE: Duration = Duration::from_secs(120);
/// The largest answer that is taken.
const ANSWER_BYTES_MAX: u64 = 512 << 20;

/// One connection to a server.
#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    token: Option<String>,
    connection: Option<BufReader<TcpStream>>,
}

/// An HTTP answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
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

    /// A header's value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Client {
    /// Connects on the first request.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Client { address, token: None, connection: None }
    }

    /// Shows this bearer token from now on.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// One request.
    ///
    /// # Errors
    /// When the server cannot be reached or ends the connection without an answer.
    pub fn request(&mut self, method: &str, path: &str, kind: &str, body: &[u8]) -> std::io::Result<Answer> {
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n", self.address, body.len());
        if !kind.is_empty() {
            head.push_str(&format!("Content-Type: {kind}\r\n"));
        }
        if let Some(token) = &self.token {
            head.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        head.push_str("\r\n");
        let mut connection = match self.connection.take() {
            Some(open) => open,
            None => {
                let stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                stream.set_nodelay(true)?;
                BufReader::new(stream)
            }
        };
        connection.get_mut().write_all(&[head.as_bytes(), body].concat())?;
        let answer = read_answer(&mut connection, method == "HEAD")?;
        if answer.header("connection") != Some("close") {
            self.connection = Some(connection);
        }
        Ok(answer)
    }

    /// One request that must be answered.
    ///
    /// # Panics
    /// When it is not.
    pub fn call(&mut self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let (kind, bytes) = body.map_or(("", Vec::new()), |body| ("application/json", body.to_string().into_bytes()));
        self.request(method, path, kind, &bytes).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
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
        const MARK: &str = "ringfence-testkit-boundary";
        let head = format!(
            "--{MARK}\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n{path}\r\n--{MARK}\r\nContent-Disposition: \
             form-data; name=\"file\"; filename=\"upload\"\r\nContent-Type: application/octet-stream\r\n\r\n"
        );
        let body = [head.as_bytes(), content, format!("\r\n--{MARK}--\r\n").as_bytes()].concat();
        let path = format!("/sessions/{}/files", self.id);
        let kind = format!("multipart/form-data; boundary={MARK}");
        self.client.request("POST", &path, &kind, &body).unwrap_or_else(|error| panic!("POST {path}: {error}"))
    }

    /// Fetches a file; `path` must need no quoting.
    ///
    /// # Panics
    /// When the server cannot be reached.
    pub fn get(&mut self, path: &str) -> Answer {
        self.client.call("GET", &format!("/sessions/{}/files?path={path}", self.id), None)
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

fn read_answer(connection: &mut BufReader<TcpStream>, no_body: bool) -> std::io::Result<Answer> {
    let wrong = |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_owned());
    let mut line = String::new();
    if connection.read_line(&mut line)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let status = line.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or_else(|| wrong(&line))?;
    let mut headers = Vec::new();
    loop {
        line.clear();
        connection.read_line(&mut line)?;
        let text = line.trim_end();
        if text.is_empty() {
            break;
        }
        let (name, value) = text.split_once(':').ok_or_else(|| wrong(text))?;
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let mut answer = Answer { status, headers, body: Vec::new() };
    if no_body || status == 204 || status == 304 {
        return Ok(answer);
    }
    answer.body = match answer.header("content-length") {
        Some(length) => read_exactly(connection, length.parse().map_err(|_| wrong(length))?)?,
        None if answer.header("transfer-encoding") == Some("chunked") => read_chunks(connection)?,
        None => return Err(wrong("neither Content-Length nor chunks")),
    };
    Ok(answer)
}

fn read_exactly(connection: &mut BufReader<TcpStream>, length: u64) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    connection.take(length.min(ANSWER_BYTES_MAX)).read_to_end(&mut body)?;
    if body.len() as u64 == length { Ok(body) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
}

fn read_chunks(connection: &mut BufReader<TcpStream>) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        connection.read_line(&mut line)?;
        let length = u64::from_str_radix(line.trim(), 16)
            .map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))?;
        body.extend(read_exactly(connection, length)?);
        connection.read_line(&mut String::new())?;
        if length == 0 {
            return Ok(body);
        }
    }
}
