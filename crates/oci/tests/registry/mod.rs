//! A registry that speaks as much of the distribution API as pulls use, and fails where a test wants it to.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use ringfence_oci::Digest;

use crate::fixtures::Image;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// What is answered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Only so many bytes of the body come before the connection is closed, or held without a word.
    pub(crate) cut: Option<usize>,
    pub(crate) hold: bool,
}

impl Response {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Response { status, body: body.into(), ..Response::default() }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}

type Handler = dyn Fn(&Request) -> Response + Send + Sync;

/// A server on a port of its own. Dropped, it is gone.
pub(crate) struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    ended: Arc<AtomicBool>,
    accepter: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(handler: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let ended = Arc::new(AtomicBool::new(false));
        let handler: Arc<Handler> = Arc::new(handler);
        let (log, over) = (Arc::clone(&requests), Arc::clone(&ended));
        let accepter = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                let (log, over, handler) = (Arc::clone(&log), Arc::clone(&over), Arc::clone(&handler));
                let stream = stream.unwrap();
                // What a client that went away makes of the connection is not this server's business.
                std::thread::spawn(move || drop(serve(stream, &log, &over, handler.as_ref())));
            }
        });
        Server { address, requests, ended, accepter: Some(accepter) }
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// The paths that were asked for, with the part where one was.
    pub(crate) fn asked(&self) -> Vec<String> {
        let line = |request: &Request| match request.header("range") {
            Some(range) => format!("{} {range}", request.path),
            None => request.path.clone(),
        };
        self.requests().iter().map(line).collect()
    }

    pub(crate) fn forget(&self) {
        self.requests.lock().unwrap().clear();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Wakes the accepter.
        drop(TcpStream::connect(self.address));
        drop(self.accepter.take().map(JoinHandle::join));
    }
}

fn serve(stream: TcpStream, log: &Mutex<Vec<Request>>, over: &AtomicBool, handler: &Handler) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        let (name, value) = line.split_once(':').unwrap();
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length: &String| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let request = Request { method, path, headers, body: String::from_utf8(body).unwrap() };
    log.lock().unwrap().push(request.clone());
    let response = handler(&request);
    let mut stream = stream;
    let mut head = format!("HTTP/1.1 {} X\r\nconnection: close\r\n", response.status);
    let lengthless = response.headers.iter().any(|(name, _)| name == "transfer-encoding");
    if !lengthless {
        head.push_str(&format!("content-length: {}\r\n", response.body.len()));
    }
    for (name, value) in &response.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let sent = response.cut.unwrap_or(response.body.len()).min(response.body.len());
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    stream.write_all(&response.body[..sent])?;
    stream.flush()?;
    if response.hold {
        // Until the client goes away, or the server.
        stream.set_read_timeout(Some(std::time::Duration::from_millis(50)))?;
        while !over.load(Ordering::SeqCst) {
            match (&stream).read(&mut [0; 64]) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// What a repository holds: documents by tag and digest, blobs by digest.
#[derive(Clone, Default)]
pub(crate) struct Content {
    pub(crate) manifests: BTreeMap<String, Vec<u8>>,
    pub(crate) blobs: BTreeMap<String, Vec<u8>>,
}

impl Content {
    pub(crate) fn image(mut self, tag: &str, image: &Image) -> Self {
        self = self.manifest(tag, &image.manifest);
        for blob in image.layers.iter().chain([&image.config]) {
            self.blobs.insert(Digest::of(blob).to_string(), blob.clone());
        }
        self
    }

    pub(crate) fn manifest(mut self, tag: &str, content: &[u8]) -> Self {
        self.manifests.insert(tag.to_owned(), content.to_vec());
        self.manifests.insert(Digest::of(content).to_string(), content.to_vec());
        self
    }

    /// Answers as a registry does for the repository `some/thing`.
    pub(crate) fn answer(&self, request: &Request) -> Response {
        let not_found = || Response::new(404, r#"{"errors": [{"code": "UNKNOWN", "message": "not known"}]}"#);
        let Some(rest) = request.path.strip_prefix("/v2/some/thing/") else { return not_found() };
        let (kind, name) = rest.split_once('/').unwrap_or_default();
        match kind {
            "manifests" => match self.manifests.get(name) {
                Some(content) => {
                    Response::new(200, content.clone()).with("docker-content-digest", Digest::of(content).to_string())
                }
                None => not_found(),
            },
            "blobs" => self.blobs.get(name).map_or_else(not_found, |content| part(request, content)),
            _ => not_found(),
        }
    }
}

/// A blob, or the part of it that is asked for.
pub(crate) fn part(request: &Request, content: &[u8]) -> Response {
    let from = request.header("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    match from {
        Some(from) if from >= content.len() => Response::new(416, ""),
        Some(from) => {
            let range = format!("bytes {from}-{}/{}", content.len() - 1, content.len());
            Response::new(206, &content[from..]).with("content-range", range)
        }
        None => Response::new(200, content),
    }
}
