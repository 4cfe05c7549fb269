//! A blocking keep-alive HTTP/1.1 connection, as thin as a measuring client must be.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};

use crate::BenchError;
use crate::limits::{ANSWER_WAIT_MAX, BODY_KEPT_BYTES_MAX, HEAD_BYTES_MAX};

/// Host, port and path prefix of a backend, and the bearer token where it wants one.
#[derive(Clone)]
pub(crate) struct Address {
    host: String,
    prefix: String,
    token: Option<String>,
}

impl Address {
    /// Parses `http://host:port[/prefix]`.
    pub(crate) fn parse(url: &str, token: Option<String>) -> Result<Self, BenchError> {
        let wrong = || BenchError::Url(url.to_owned());
        let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
        let (host, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() {
            return Err(wrong());
        }
        let host = if host.rsplit(':').next().is_some_and(|p| p.parse::<u16>().is_ok()) {
            host.to_owned()
        } else {
            format!("{host}:80")
        };
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{}", prefix.trim_end_matches('/')) };
        Ok(Address { host, prefix, token })
    }
}

/// An answer: status, the kept part of the body, and its whole length.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    pub(crate) body_bytes: u64,
}

/// One connection, opened at its first request and opened again after an error.
pub(crate) struct Connection {
    address: Address,
    stream: Option<TcpStream>,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(address: &Address) -> Self {
        Connection { address: address.clone(), stream: None, sent: Vec::new(), received: vec![0; 256 * 1024] }
    }

    /// Sends one request and reads its whole answer.
    pub(crate) fn call(
        &mut self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<Answer, BenchError> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => open(&self.address.host)?,
        };
        self.sent.clear();
        let Address { host, prefix, token } = &self.address;
        write!(self.sent, "{method} {prefix}{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\n", body.len())?;
        if !body.is_empty() {
            write!(self.sent, "Content-Type: {content_type}\r\n")?;
        }
        if let Some(token) = token {
            write!(self.sent, "Authorization: Bearer {token}\r\n")?;
        }
        self.sent.extend_from_slice(b"\r\n");
        if body.len() <= 64 * 1024 {
            self.sent.extend_from_slice(body);
            stream.write_all(&self.sent)?;
        } else {
            stream.write_all(&self.sent)?;
            stream.write_all(body)?;
        }
        let (answer, keep) = self.receive(&mut stream)?;
        if keep {
            self.stream = Some(stream);
        }
        Ok(answer)
    }

    fn receive(&mut self, stream: &mut TcpStream) -> Result<(Answer, bool), BenchError> {
        let mut held = 0;
        let head_end = loop {
            let place = self.received.get_mut(held..).ok_or(BenchError::Answer("the head is too long"))?;
            let read = stream.read(place)?;
            if read == 0 {
                return Err(BenchError::Answer("it ended before its head did"));
            }
            held += read;
            let seen = self.received.get(..held).unwrap_or_default();
            if let Some(at) = seen.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if held > HEAD_BYTES_MAX {
                return Err(BenchError::Answer("the head is too long"));
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
                    return Err(BenchError::Answer("it ended before its Content-Length"));
                }
                body.take(self.received.get(..read).unwrap_or_default());
            }
        }
        Ok((Answer { status: head.status, body: body.kept, body_bytes: body.bytes }, head.keep))
    }
}

fn open(host: &str) -> Result<TcpStream, BenchError> {
    let address = host.to_socket_addrs()?.next().ok_or_else(|| BenchError::Url(host.to_owned()))?;
    let stream = TcpStream::connect_timeout(&address, ANSWER_WAIT_MAX)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_WAIT_MAX))?;
    stream.set_write_timeout(Some(ANSWER_WAIT_MAX))?;
    Ok(stream)
}

struct Head {
    status: u16,
    length: u64,
    chunked: bool,
    keep: bool,
}

impl Head {
    fn parse(bytes: &[u8]) -> Result<Self, BenchError> {
        let text = std::str::from_utf8(bytes).map_err(|_| BenchError::Answer("the head is not text"))?;
        let mut lines = text.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1))
            .and_then(|code| code.parse().ok())
            .ok_or(BenchError::Answer("no status line"))?;
        let mut head = Head { status, length: 0, chunked: false, keep: true };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                head.length = value.parse().map_err(|_| BenchError::Answer("a wrong Content-Length"))?;
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

fn read_chunks(
    stream: &mut TcpStream,
    mut held: Vec<u8>,
    buffer: &mut [u8],
    body: &mut Body,
) -> Result<(), BenchError> {
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
            .ok_or(BenchError::Answer("a wrong chunk size"))?;
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

fn more(stream: &mut TcpStream, buffer: &mut [u8], held: &mut Vec<u8>) -> Result<(), BenchError> {
    match stream.read(buffer)? {
        0 => Err(BenchError::Answer("it ended inside a chunk")),
        read => {
            held.extend_from_slice(buffer.get(..read).unwrap_or_default());
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_taken_apart() {
        let address = Address::parse("http://127.0.0.1:8080/prefix/", None).unwrap();
        assert_eq!((address.host.as_str(), address.prefix.as_str()), ("127.0.0.1:8080", "/prefix"));
        assert_eq!(Address::parse("http://host", None).unwrap().host, "host:80");
        assert!(Address::parse("https://host", None).is_err());
        assert!(Address::parse("http://", None).is_err());
    }

    #[test]
    fn a_head_is_read() {
        let head = Head::parse(b"HTTP/1.1 201 Created\r\ncontent-length: 12\r\nConnection: close\r\n\r\n").unwrap();
        assert_eq!((head.status, head.length, head.keep, head.chunked), (201, 12, false, false));
        assert!(Head::parse(b"rubbish\r\n\r\n").is_err());
    }
}
