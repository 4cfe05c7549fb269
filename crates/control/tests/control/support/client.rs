//! One request, one answer, one connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// So long that only a hang meets it.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body as JSON, of an answer with that status.
    #[track_caller]
    pub(crate) fn is(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The detail of a refusal with that status.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16) -> String {
        let body = self.is(status);
        let object = body.as_object().unwrap_or_else(|| panic!("{}", self.text()));
        assert_eq!(object.keys().collect::<Vec<_>>(), ["detail"]);
        object["detail"].as_str().unwrap().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// `line` is `METHOD PATH`.
pub(crate) fn ask(address: SocketAddr, line: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut head = format!("{line} HTTP/1.1\r\nHost: control\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    exchange(address, &[head.as_bytes(), body].concat(), false).expect("an answer")
}

/// Sends bytes as they are, and nothing after them; `None` where the connection ends without a whole answer.
pub(crate) fn raw(address: SocketAddr, bytes: &[u8]) -> Option<Answer> {
    exchange(address, bytes, true)
}

fn exchange(address: SocketAddr, bytes: &[u8], end: bool) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The other side may answer and close before it has read everything.
    let _unread = stream.write_all(bytes);
    if end {
        let _unread = stream.shutdown(std::net::Shutdown::Write);
    }
    let mut got = Vec::new();
    let mut part = [0_u8; 65536];
    loop {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(count) => got.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}"),
        }
    }
    let end = got.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8(got[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, head, body: got[end + 4..].to_vec() })
}
