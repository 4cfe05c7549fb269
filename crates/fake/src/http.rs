//! Just enough HTTP/1.1, written by hand so that wrong HTTP can be written too.

use std::io;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::locked;
use crate::state::State;

const HEAD_BYTES_MAX: usize = 64 << 10;
const BODY_BYTES_MAX: usize = 256 << 20;

/// A request, decoded.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// The method.
    pub method: String,
    /// The path, still escaped.
    pub path: String,
    /// The query, unescaped.
    pub query: Vec<(String, String)>,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Asked {
    /// A header's value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A query parameter's value.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; null where it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Whether it is an Execute.
    #[must_use]
    pub fn is_exec(&self) -> bool {
        self.method == "POST" && self.path.ends_with("/exec")
    }

    /// Whether it is a CreateSession.
    #[must_use]
    pub fn is_lease(&self) -> bool {
        self.method == "POST" && self.path == "/sessions"
    }

    /// Whether it is this method on a path that ends so.
    #[must_use]
    pub fn is(&self, method: &str, end: &str) -> bool {
        self.method == method && self.path.ends_with(end)
    }
}

/// An answer.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// Headers besides the length.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// Bytes to send in place of all of the above.
    pub raw: Option<Vec<u8>>,
    /// Nothing is ever sent, and the connection stays open.
    pub silent: bool,
}

impl Reply {
    /// A JSON answer.
    #[must_use]
    pub fn json(status: u16, body: &Value) -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Reply { status, headers, body: body.to_string().into_bytes(), ..Reply::default() }
    }

    /// An error with a reason.
    #[must_use]
    pub fn refusal(status: u16, detail: &str) -> Self {
        Reply::json(status, &serde_json::json!({"detail": detail}))
    }

    /// The body as JSON; null where it is none.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The same answer with its JSON changed.
    #[must_use]
    pub fn changed(mut self, change: impl FnOnce(&mut Value)) -> Self {
        let mut value = self.value();
        change(&mut value);
        self.body = value.to_string().into_bytes();
        self
    }

    fn bytes(&self) -> Vec<u8> {
        if let Some(raw) = &self.raw {
            return raw.clone();
        }
        let mut head = format!("HTTP/1.1 {} Answer\r\nconnection: close\r\n", self.status);
        if self.status != 204 {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        if self.status != 204 {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

/// One request, one answer, end of the connection.
pub(crate) async fn serve(stream: TcpStream, state: Arc<Mutex<State>>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let Some(asked) = request(&mut stream).await? else { return Ok(()) };
    let reply = locked(&state).answer(&asked);
    if reply.silent {
        let mut rest = Vec::new();
        return stream.read_to_end(&mut rest).await.map(drop);
    }
    stream.write_all(&reply.bytes()).await?;
    stream.get_mut().shutdown().await
}

async fn request(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Asked>> {
    let Some(head) = head(stream).await? else { return Ok(None) };
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let method = first.next().unwrap_or_default().to_owned();
    let target = first.next().unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let query = query.split('&').filter(|part| !part.is_empty()).map(pair).collect();
    let mut asked = Asked { method, path: path.to_owned(), query, headers, body: Vec::new() };
    asked.body = if asked.header("transfer-encoding").is_some() {
        chunked(stream).await?
    } else {
        let length = asked.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        exactly(stream, length).await?
    };
    Ok(Some(asked))
}

async fn head(stream: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).await? == 0 {
            return Ok(None);
        }
        head.push(byte[0]);
        if head.len() > HEAD_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the request's head is too long"));
        }
    }
    Ok(Some(String::from_utf8_lossy(&head).trim_end().to_owned()))
}

async fn exactly(stream: &mut BufReader<TcpStream>, length: usize) -> io::Result<Vec<u8>> {
    if length > BODY_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the request's body is too long"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

async fn chunked(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.push(stream.read_u8().await?);
        }
        let text = String::from_utf8_lossy(&line);
        let length = usize::from_str_radix(text.trim(), 16)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let chunk = exactly(stream, length).await?;
        exactly(stream, 2).await?;
        if chunk.is_empty() {
            return Ok(body);
        }
        body.extend_from_slice(&chunk);
    }
}

fn pair(text: &str) -> (String, String) {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    (unescaped(name), unescaped(value))
}

/// Undoes percent escapes; what is no UTF-8 is replaced.
pub(crate) fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let pair = after.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        match (first, pair.and_then(|pair| u8::from_str_radix(pair, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
