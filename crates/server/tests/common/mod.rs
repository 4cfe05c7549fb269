//! A server on port 0 over a backend in memory, and a client that writes its requests by hand.
#![allow(dead_code, reason = "each test program uses its part of this")]
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod fake;
pub mod tls;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use ringfence_server::{Access, BearerToken, DoorLimits, Drained, Listener, Server};
use serde_json::Value;
use tokio::sync::oneshot;

pub use fake::Fake;

/// How long a test waits for what must come; never reached when all is well.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A server of its own; stopped and drained at the end of the test.
pub struct TestServer {
    pub address: SocketAddr,
    pub fake: Fake,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<Drained>>,
}

impl TestServer {
    pub fn start() -> Self {
        Self::with(DoorLimits::default(), None)
    }

    pub fn with(limits: DoorLimits, token: Option<&str>) -> Self {
        Self::asking(limits, token.map(|token| BearerToken::new(token.as_bytes()).unwrap()).into())
    }

    pub fn asking(limits: DoorLimits, access: Access) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let fake = Fake::default();
        let server = Server::new(fake.clone(), limits, access).unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            let drained = runtime.block_on(async {
                let stopped = async {
                    let _ended = stopped.await;
                };
                server.serve(Listener::Tcp(listener), stopped).await.unwrap()
            });
            runtime.shutdown_timeout(PATIENCE);
            drained
        });
        TestServer { address, fake, stop: Some(stop), serving: Some(serving) }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// One request on a connection of its own.
    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut stream = self.connect();
        let length = body.len().to_string();
        let mut all = vec![("Connection", "close"), ("Content-Length", length.as_str())];
        all.extend_from_slice(headers);
        stream.write_all(&head(method, path, &all)).unwrap();
        stream.write_all(body).unwrap();
        Answer::read(&mut stream, method == "HEAD")
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &str) -> Answer {
        self.ask("POST", path, &[("Content-Type", "application/json")], body.as_bytes())
    }

    /// A session's path.
    pub fn session(&self) -> String {
        let answer = self.post("/sessions", "{}");
        assert_eq!(answer.status, 201, "{answer:?}");
        format!("/sessions/{}", answer.json()["session_id"].as_str().unwrap())
    }

    pub fn exec(&self, session: &str, code: &str) -> Answer {
        let body = serde_json::json!({"tool": "code_execution", "input": {"code": code}});
        self.post(&format!("{session}/exec"), &body.to_string())
    }

    /// An upload as browsers and the main client write it: `file`, then `path`.
    pub fn put(&self, session: &str, name: &str, content: &[u8], path: Option<&str>) -> Answer {
        let body = form(name, content, path);
        self.ask("POST", &format!("{session}/files"), &[("Content-Type", FORM)], &body)
    }

    /// The server must still answer: called at the end of every hostile test.
    pub fn is_well(&self) {
        assert_eq!(self.get("/health").status, 200);
    }

    /// Stops it, and says how that went.
    pub fn stop(mut self) -> Drained {
        self.end().unwrap()
    }

    /// Tells it to stop without waiting.
    pub fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    fn end(&mut self) -> Option<Drained> {
        drop(self.stop.take());
        self.serving.take().map(|serving| serving.join().unwrap())
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.fake.open_gates();
        if !std::thread::panicking() {
            self.end();
        }
    }
}

pub const FORM: &str = "multipart/form-data; boundary=XY";

pub fn form(name: &str, content: &[u8], path: Option<&str>) -> Vec<u8> {
    let mut body =
        format!("--XY\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n").into_bytes();
    body.extend_from_slice(content);
    body.extend_from_slice(b"\r\n");
    if let Some(path) = path {
        body.extend_from_slice(
            format!("--XY\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n{path}\r\n").as_bytes(),
        );
    }
    body.extend_from_slice(b"--XY--\r\n");
    body
}

pub fn head(method: &str, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: test\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.into_bytes()
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Whether the body had the length that was announced, or its last chunk.
    pub whole: bool,
}

impl Answer {
    /// Reads one answer; `bodiless` is the answer to HEAD.
    pub fn read(stream: &mut TcpStream, bodiless: bool) -> Self {
        Self::try_read(stream, bodiless).expect("an answer")
    }

    /// `None` where the connection ends before an answer begins.
    pub fn try_read(stream: &mut TcpStream, bodiless: bool) -> Option<Self> {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                Ok(_) => return None,
                Err(why) if why.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(why) => panic!("no answer: {why}; so far {:?}", String::from_utf8_lossy(&head)),
            }
        }
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status: u16 = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(':').map(|(n, v)| (n.to_lowercase(), v.trim().to_owned())).unwrap())
            .collect();
        let mut answer = Answer { status, headers, body: Vec::new(), whole: true };
        if status == 100 {
            return Self::try_read(stream, bodiless);
        }
        if bodiless || matches!(status, 204 | 304) {
            return Some(answer);
        }
        if answer.header("transfer-encoding") == Some("chunked") {
            answer.whole = answer.read_chunks(stream);
        } else if let Some(length) = answer.header("content-length").map(|length| length.parse::<u64>().unwrap()) {
            let read = stream.take(length).read_to_end(&mut answer.body);
            answer.whole = read.is_ok() && answer.body.len() as u64 == length;
        }
        Some(answer)
    }

    fn read_chunks(&mut self, stream: &mut TcpStream) -> bool {
        loop {
            let mut line = Vec::new();
            let mut byte = [0];
            while !line.ends_with(b"\r\n") {
                if !matches!(stream.read(&mut byte), Ok(1)) {
                    return false;
                }
                line.push(byte[0]);
            }
            let size = u64::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16).unwrap();
            let before = self.body.len();
            let read = stream.take(size + 2).read_to_end(&mut self.body);
            if read.is_err() || self.body.len() as u64 != before as u64 + size + 2 {
                return false;
            }
            self.body.truncate(self.body.len() - 2);
            if size == 0 {
                return true;
            }
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn detail(&self) -> String {
        self.json()["detail"].as_str().expect("a detail").to_owned()
    }

    /// A refusal: the status, and a detail in our own shape.
    #[track_caller]
    pub fn refused(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{:?}", String::from_utf8_lossy(&self.body));
        self.detail()
    }
}
