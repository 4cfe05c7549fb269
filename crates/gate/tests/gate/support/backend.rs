//! A backend of the contract on a raw socket, that can hang, lie and cut off.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// A request as it came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The body came to its end.
    pub(crate) whole: bool,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// What becomes of the connection after the bytes of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    Keep,
    Close,
    Hang,
}

/// A reply, byte by byte.
#[derive(Debug, Clone)]
pub(crate) struct Reply(pub(crate) Vec<u8>, pub(crate) Then);

impl Reply {
    pub(crate) fn json(status: &str, json: &str) -> Self {
        Reply::with(status, "content-type: application/json\r\n", json.as_bytes())
    }

    pub(crate) fn with(status: &str, headers: &str, body: &[u8]) -> Self {
        let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
        Reply([head.as_bytes(), body].concat(), Then::Keep)
    }

    pub(crate) fn empty(status: &str) -> Self {
        Reply(format!("HTTP/1.1 {status}\r\n\r\n").into_bytes(), Then::Keep)
    }
}

type Twist = Box<dyn Fn(&Seen) -> Option<Reply> + Send + Sync>;

pub(crate) struct State {
    name: String,
    /// Everything but health polls.
    pub(crate) seen: Mutex<Vec<Seen>>,
    arrived: Notify,
    sessions: Mutex<HashMap<String, String>>,
    files: Mutex<HashMap<String, Vec<u8>>>,
    counter: Mutex<u64>,
    twist: Mutex<Option<Twist>>,
    pub(crate) sessions_max: Mutex<u64>,
    pub(crate) status: Mutex<&'static str>,
    /// Calls that wait until they are told.
    pub(crate) gate: tokio::sync::Semaphore,
}

/// A running backend; it ends when dropped.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    pub(crate) state: Arc<State>,
    task: JoinHandle<()>,
}

impl Backend {
    pub(crate) async fn start(name: &str) -> Self {
        Self::on(name, "127.0.0.1:0".parse().unwrap()).await
    }

    pub(crate) async fn on(name: &str, address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            name: name.to_owned(),
            seen: Mutex::default(),
            arrived: Notify::new(),
            sessions: Mutex::default(),
            files: Mutex::default(),
            counter: Mutex::new(0),
            twist: Mutex::new(None),
            sessions_max: Mutex::new(100),
            status: Mutex::new("ok"),
            gate: tokio::sync::Semaphore::new(0),
        });
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Backend { address, state, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Replies as this says, where it says anything.
    pub(crate) fn twist(&self, twist: impl Fn(&Seen) -> Option<Reply> + Send + Sync + 'static) {
        *self.state.twist.lock().unwrap() = Some(Box::new(twist));
    }

    pub(crate) fn straight(&self) {
        *self.state.twist.lock().unwrap() = None;
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }

    pub(crate) fn sessions(&self) -> usize {
        self.state.sessions.lock().unwrap().len()
    }

    /// Waits until a request came that is like this.
    pub(crate) async fn until(&self, like: impl Fn(&Seen) -> bool) -> Seen {
        loop {
            let arrived = self.state.arrived.notified();
            if let Some(seen) = self.seen().into_iter().rev().find(|seen| like(seen)) {
                return seen;
            }
            tokio::time::timeout(super::client::PATIENCE, arrived).await.expect("a request in time");
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(stream: TcpStream, state: Arc<State>) {
    let mut stream = BufReader::new(stream);
    while let Some(seen) = request(&mut stream).await {
        let whole = seen.whole;
        let reply = reply(&state, seen).await;
        if stream.get_mut().write_all(&reply.0).await.is_err() {
            return;
        }
        match reply.1 {
            Then::Keep if whole => {}
            Then::Keep | Then::Close => return,
            Then::Hang => std::future::pending().await,
        }
    }
}

async fn request(stream: &mut BufReader<TcpStream>) -> Option<Seen> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_until(b'\n', &mut head).await.ok()? == 0 {
            return None;
        }
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let mut first = lines.next()?.split(' ');
    let mut seen =
        Seen { method: first.next()?.to_owned(), path: first.next()?.to_owned(), whole: true, ..Seen::default() };
    seen.headers = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    if seen.header("transfer-encoding").is_some() {
        seen.whole = chunks(stream, &mut seen.body).await.is_some();
    } else if let Some(length) = seen.header("content-length") {
        let length: u64 = length.parse().unwrap();
        let read = (&mut *stream).take(length).read_to_end(&mut seen.body).await;
        seen.whole = read.is_ok() && seen.body.len() as u64 == length;
    }
    Some(seen)
}

async fn chunks(stream: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> Option<()> {
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let size = usize::from_str_radix(line.trim_end(), 16).ok()?;
        let mut piece = vec![0; size + 2];
        stream.read_exact(&mut piece).await.ok()?;
        body.extend_from_slice(&piece[..size]);
        if size == 0 {
            return Some(());
        }
    }
}

async fn reply(state: &State, seen: Seen) -> Reply {
    if seen.path == "/health" {
        let (count, max) = (state.sessions.lock().unwrap().len(), *state.sessions_max.lock().unwrap());
        let status = *state.status.lock().unwrap();
        return Reply::json(
            "200 OK",
            &format!(r#"{{"status":"{status}","session_count":{count},"max_sessions":{max}}}"#),
        );
    }
    state.seen.lock().unwrap().push(seen.clone());
    state.arrived.notify_waiters();
    let twisted = state.twist.lock().unwrap().as_ref().and_then(|twist| twist(&seen));
    if let Some(reply) = twisted {
        return reply;
    }
    if seen.path.ends_with("/exec") && seen.body.windows(4).any(|four| four == b"wait") {
        state.gate.acquire().await.unwrap().forget();
    }
    honest(state, &seen)
}

/// What a backend of the contract replies.
fn honest(state: &State, seen: &Seen) -> Reply {
    let (path, query) = seen.path.split_once('?').unwrap_or((&seen.path, ""));
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let workspace = seen.header("x-ringfence-workspace").unwrap_or_default().to_owned();
    let unknown = || Reply::json("404 Not Found", r#"{"detail":"no such session"}"#);
    let mut sessions = state.sessions.lock().unwrap();
    match (seen.method.as_str(), parts.as_slice()) {
        ("GET", ["tenancy"]) => {
            let count = sessions.values().filter(|owner| **owner == workspace).count();
            Reply::json("200 OK", &format!(r#"{{"workspace":"{workspace}","session_count":{count}}}"#))
        }
        ("POST", ["sessions"]) => {
            if sessions.len() as u64 >= *state.sessions_max.lock().unwrap() {
                return Reply::with("503 Service Unavailable", "retry-after: 7\r\n", b"full");
            }
            let hints: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
            let mut counter = state.counter.lock().unwrap();
            *counter += 1;
            let id = format!("{}-{counter}", state.name);
            sessions.insert(id.clone(), workspace);
            let of = |name: &str, default: u64| hints[name].as_u64().unwrap_or(default);
            let (idle, life) = (of("idle_timeout_seconds", 300), of("max_lifetime_seconds", 3600));
            Reply::json(
                "201 Created",
                &format!(
                    r#"{{"session_id":"{id}","idle_timeout_seconds":{idle},"max_lifetime_seconds":{life},"tier":"x"}}"#
                ),
            )
        }
        (_, ["sessions", id, ..]) if !sessions.contains_key(*id) => unknown(),
        ("GET", ["sessions", id]) => Reply::json("200 OK", &format!(r#"{{"session_id":"{id}","tier":"x"}}"#)),
        ("DELETE", ["sessions", id]) => {
            sessions.remove(*id);
            Reply::empty("204 No Content")
        }
        ("POST", ["sessions", _, "interrupt"]) => Reply::json("200 OK", r#"{"interrupted":true}"#),
        ("POST", ["sessions", _, "exec"]) => result(&state.name),
        ("POST", ["sessions", id, "files"]) => {
            state.files.lock().unwrap().insert((*id).to_owned(), seen.body.clone());
            Reply::json("201 Created", &format!(r#"{{"path":"f","size_bytes":{}}}"#, seen.body.len()))
        }
        ("GET" | "HEAD", ["sessions", id, "files"]) => {
            let files = state.files.lock().unwrap();
            match files.get(*id).filter(|_| query != "path=none") {
                Some(file) => {
                    let headers = "content-type: text/csv\r\nx-content-type-options: nosniff\r\netag: \"1\"\r\n";
                    let mut reply = Reply::with("200 OK", headers, file);
                    if seen.method == "HEAD" {
                        reply.0.truncate(reply.0.len() - file.len());
                    }
                    reply
                }
                None => Reply::json("404 Not Found", r#"{"detail":"no such file"}"#),
            }
        }
        ("GET", ["sessions", _, "files", "list"]) => Reply::json("200 OK", r#"{"files":[]}"#),
        _ => Reply::json("404 Not Found", r#"{"detail":"nothing here"}"#),
    }
}

/// A good answer to a call.
pub(crate) fn result(stdout: &str) -> Reply {
    Reply::json("200 OK", &envelope(stdout))
}

pub(crate) fn envelope(stdout: &str) -> String {
    format!(
        r#"{{"tool_use_id":"t","execution_time_ms":4,"result_block":{{"type":"code_execution_tool_result","tool_use_id":"t","content":{{"type":"code_execution_result","stdout":"{stdout}","stderr":"","return_code":0,"content":[]}}}},"limit_exceeded":null,"usage":{{"cpu_ms":3,"memory_peak_bytes":1000,"stdout_bytes":{},"stderr_bytes":0}}}}"#,
        stdout.len()
    )
}
