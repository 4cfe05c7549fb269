//! The connection and its answers.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};

use thiserror::Error;

use crate::address::{Address, Stream};
use crate::limits::{ANSWER_WAIT_MAX, BODY_KEPT_BYTES_MAX, HEAD_BYTES_MAX, READ_BYTES};

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The base URL cannot be used.
    #[error("'{0}' is no base URL of the form http://host:port or https://host:port")]
    Url(String),
    /// The authorities of one's own cannot be used.
    #[error("the file of authorities cannot be used: {0}")]
    Authorities(&'static str),
    /// The connection failed or was cut.
    #[error("the connection failed")]
    Connection(#[from] io::Error),
    /// What came is no HTTP/1.1 answer.
    #[error("the answer is not HTTP/1.1: {0}")]
    Answer(&'static str),
    /// Over TLS it hangs up before it answers anything.
    #[error("the server lets nobody in; it may ask for a certificate, and none is shown")]
    TurnedAway(#[source] io::Error),
    /// The URL is of the other scheme, as far as can be told.
    #[error("{0}")]
    Scheme(&'static str),
}

/// An answer: status, the kept part of the body, and its whole length.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body, up to 8 MiB of it.
    pub body: Vec<u8>,
    /// How long the whole body was.
    pub body_bytes: u64,
}

/// One connection, opened at its first request and opened again after an error.
#[derive(Debug)]
pub struct Connection {
    address: Address,
    stream: Option<Stream>,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Connection {
    /// A connection that is not open yet.
    #[must_use]
    pub fn new(address: &Address) -> Self {
        Connection { address: address.clone(), stream: None, sent: Vec::new(), received: vec![0; READ_BYTES] }
    }

    /// Sends one request and reads its whole answer. `content_type` goes with a body that is not empty.
    ///
    /// # Errors
    /// When the connection fails, waits for more than two minutes, or what comes is no HTTP/1.1.
    pub fn call(&mut self, method: &str, path: &str, content_type: &str, body: &[u8]) -> Result<Answer, ProbeError> {
        let fresh = self.stream.is_none();
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.address.open(ANSWER_WAIT_MAX).map_err(|error| match is_no_tls(&error) {
                true => ProbeError::Scheme("the server speaks no TLS: its URL may begin with http://"),
                false => ProbeError::Connection(error),
            })?,
        };
        self.sent.clear();
        let Address { host, prefix, token, .. } = &self.address;
        write!(self.sent, "{method} {prefix}{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\n", body.len())?;
        if !body.is_empty() {
            write!(self.sent, "Content-Type: {content_type}\r\n")?;
        }
        if let Some(token) = token {
            write!(self.sent, "Authorization: Bearer {token}\r\n")?;
        }
        self.sent.extend_from_slice(b"\r\n");
        let (answer, keep) = self.exchange(&mut stream, body).map_err(|error| match error {
            ProbeError::Connection(source) if fresh && self.address.is_secure() && hangs_up(&source) => {
                ProbeError::TurnedAway(source)
            }
            other => other,
        })?;
        if keep {
            self.stream = Some(stream);
        }
        Ok(answer)
    }

    fn exchange(&mut self, stream: &mut Stream, body: &[u8]) -> Result<(Answer, bool), ProbeError> {
        if body.len() <= 64 * 1024 {
            self.sent.extend_from_slice(body);
            stream.write_all(&self.sent)?;
        } else {
            stream.write_all(&self.sent)?;
            stream.write_all(body)?;
        }
        stream.flush()?;
        self.receive(stream)
    }

    fn receive(&mut self, stream: &mut Stream) -> Result<(Answer, bool), ProbeError> {
        let mut held = 0;
        let head_end = loop {
            let place = self.received.get_mut(held..).ok_or(ProbeError::Answer("the head is too long"))?;
            let read = stream.read(place)?;
            if read == 0 {
                return Err(ProbeError::Answer("it ended before its head did"));
            }
            held += read;
            let seen = self.received.get(..held).unwrap_or_default();
            if is_tls(seen) {
                return Err(ProbeError::Scheme("the server speaks TLS: its URL may begin with https://"));
            }
            if let Some(at) = seen.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if held > HEAD_BYTES_MAX {
                return Err(ProbeError::Answer("the head is too long"));
            }
        };
        let head = Head::parse(self.received.get(..head_end).unwrap_or_default())?;
        let mut body = Body { kept: Vec::new(), bytes: 0 };
        let begun = self.received.get(head_end..held).unwrap_or_default().to_vec();
        if head.chunked {
            read_chunks(stream, begun, &mut self.received, &mut body)?;
        } else {
            body.take(&begun);
            while body.bytes < head.length {
                let read = stream.read(&mut self.received)?;
                if read == 0 {
                    return Err(ProbeError::Answer("it ended before its Content-Length"));
                }
                body.take(self.received.get(..read).unwrap_or_default());
            }
        }
        Ok((Answer { status: head.status, body: body.kept, body_bytes: body.bytes }, head.keep))
    }
}

/// Whether an answer is an alert of TLS, as its server sends one for a request that is none.
fn is_tls(answer: &[u8]) -> bool {
    const ALERT: u8 = 21;
    matches!(answer, [ALERT, 3, ..])
}

/// Whether the server has ended the connection, with a word of TLS or without.
fn hangs_up(error: &io::Error) -> bool {
    let said = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(said, Some(rustls::Error::AlertReceived(_)))
        || matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof)
}

/// Whether what came in place of a handshake is no TLS at all.
fn is_no_tls(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(inner, Some(rustls::Error::InvalidMessage(_)))
}

struct Head {
    status: u16,
    length: u64,
    chunked: bool,
    keep: bool,
}

impl Head {
    fn parse(bytes: &[u8]) -> Result<Self, ProbeError> {
        let text = std::str::from_utf8(bytes).map_err(|_| ProbeError::Answer("the head is not text"))?;
        let mut lines = text.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1))
            .and_then(|code| code.parse().ok())
            .ok_or(ProbeError::Answer("no status line"))?;
        let mut head = Head { status, length: 0, chunked: false, keep: true };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                head.length = value.parse().map_err(|_| ProbeError::Answer("a wrong Content-Length"))?;
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                head.chunked = value.eq_ignore_ascii_case("chunked");
            } else if name.eq_ignore_ascii_case("connection") {
                head.keep = !value.eq_ignore_ascii_case("close");
            }
        }
        Ok(head)
    }
}

struct Body {
    kept: Vec<u8>,
    bytes: u64,
}

impl Body {
    fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let room = BODY_KEPT_BYTES_MAX.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or_default());
    }
}

fn read_chunks(stream: &mut Stream, mut held: Vec<u8>, buffer: &mut [u8], body: &mut Body) -> Result<(), ProbeError> {
    loop {
        let line_end = loop {
            if let Some(at) = held.windows(2).position(|two| two == b"\r\n") {
                break at;
            }
            more(stream, buffer, &mut held)?;
        };
        let size = held
            .get(..line_end)
            .and_then(|line| std::str::from_utf8(line).ok())
            .and_then(|line| usize::from_str_radix(line.split(';').next().unwrap_or("").trim(), 16).ok())
            .ok_or(ProbeError::Answer("a wrong chunk size"))?;
        held.drain(..line_end + 2);
        while held.len() < size + 2 {
            more(stream, buffer, &mut held)?;
        }
        body.take(held.get(..size).unwrap_or_default());
        held.drain(..size + 2);
        if size == 0 {
            return Ok(());
        }
    }
}

fn more(stream: &mut Stream, buffer: &mut [u8], held: &mut Vec<u8>) -> Result<(), ProbeError> {
    match stream.read(buffer)? {
        0 => Err(ProbeError::Answer("it ended inside a chunk")),
        read => {
            held.extend_from_slice(buffer.get(..read).unwrap_or_default());
            Ok(())
        }
    }
}

/// The multipart body of a PutFile and its content type.
#[must_use]
pub fn multipart_file(path: &str, content: &[u8]) -> (String, Vec<u8>) {
    const MARK: &str = "ringfence-probe-7d1f0c9b2a";
    let mut body = Vec::with_capacity(content.len() + path.len() + 512);
    for part in [
        format!("--{MARK}\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n{path}\r\n").as_bytes(),
        format!("--{MARK}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"upload\"\r\n").as_bytes(),
        b"Content-Type: application/octet-stream\r\n\r\n",
        content,
        format!("\r\n--{MARK}--\r\n").as_bytes(),
    ] {
        body.extend_from_slice(part);
    }
    (format!("multipart/form-data; boundary={MARK}"), body)
}

/// A text as a query's value: everything but letters and digits percent-encoded.
#[must_use]
pub fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read() {
        let head = Head::parse(b"HTTP/1.1 201 Created\r\ncontent-length: 12\r\nConnection: close\r\n\r\n").unwrap();
        assert_eq!((head.status, head.length, head.keep, head.chunked), (201, 12, false, false));
        assert!(Head::parse(b"rubbish\r\n\r\n").is_err());
    }
}
