//! What the gate adds to a call: the same calls to a trivial backend, straight and through the gate, side by side.
//!
//! `cargo run --release -p ringfence-gate --example latency [CALLS] [CLIENTS] [MICROS]`; with usage recorded, as in
//! production. MICROS is the CPU time that a call takes at the backend: 0 shows the gate alone, some hundreds what it
//! takes from the throughput of a backend that works.

#![expect(clippy::indexing_slicing, reason = "a measuring program may panic")]

use std::convert::Infallible;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use ringfence_gate::{Gate, GateConfig, Pace, Policy, TlsConfig, UsageConfig};
use ringfence_grant::{Algorithm, Ceilings, Grant, GrantId, KeySet, SigningKey, Tools};
use ringfence_op::WorkspaceId;

/// What a call takes at the backend.
static WORK_MICROS: AtomicUsize = AtomicUsize::new(0);

type Failed = Box<dyn Error + Send + Sync>;

const RESULT: &str = r#"{"tool_use_id":"t","execution_time_ms":0,"result_block":{"type":"code_execution_tool_result","tool_use_id":"t","content":{"type":"code_execution_result","stdout":"2\n","stderr":"","return_code":0,"content":[]}},"limit_exceeded":null,"usage":{"cpu_ms":0,"memory_peak_bytes":1000,"stdout_bytes":2,"stderr_bytes":0}}"#;
const CALL: &str = r#"{"tool":"code_execution","input":{"code":"print(1+1)"},"timeout_seconds":60}"#;

fn main() -> Result<(), Failed> {
    let number =
        |place: usize, default| std::env::args().nth(place).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (calls, clients): (usize, usize) = (number(1, 5000), number(2, 8));
    WORK_MICROS.store(number(3, 0), Ordering::Relaxed);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let folder = std::env::temp_dir().join(format!("ringfence-latency-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let measured = measure(&runtime, &folder, calls, clients);
    drop(runtime);
    std::fs::remove_dir_all(&folder)?;
    measured
}

fn measure(runtime: &tokio::runtime::Runtime, folder: &Path, calls: usize, clients: usize) -> Result<(), Failed> {
    let backend = listen(runtime)?;
    let key = SigningKey::generate(Algorithm::EdDsa)?;
    let grant = format!("Authorization: Bearer {}\r\n", claims()?.sign(&key)?.expose());
    let config = config(folder, &key, backend)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let gate = listener.local_addr()?;
    let started = runtime.block_on(async { Gate::start(config) })?;
    runtime.spawn(started.serve(listener, std::future::pending()));
    let mut through = Connection::new(gate, &grant)?;
    let id = loop {
        let leased = through.send("POST /sessions", "{}")?;
        if let Some((_, rest)) = leased.split_once(r#""session_id":""#) {
            break rest.split('"').next().unwrap_or_default().to_owned();
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let (straight, through_gate) = ("POST /sessions/s/exec".to_owned(), format!("POST /sessions/{id}/exec"));
    let mut direct = Connection::new(backend, "")?;
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for turn in 0..calls + calls / 10 {
        let times = [direct.timed(&straight)?, through.timed(&through_gate)?];
        // The first tenth warms up.
        if turn >= calls / 10 {
            near.push(times[0]);
            far.push(times[1]);
        }
    }
    let (near, far) = ([at(&mut near, 0.5), at(&mut near, 0.99)], [at(&mut far, 0.5), at(&mut far, 0.99)]);
    say(&format!("straight   p50 {:>7.1} us   p99 {:>7.1} us\n", near[0], near[1]));
    say(&format!("gate       p50 {:>7.1} us   p99 {:>7.1} us\n", far[0], far[1]));
    say(&format!("added      p50 {:>7.1} us   p99 {:>7.1} us\n", far[0] - near[0], far[1] - near[1]));
    let slow = throughput(backend, "", &straight, calls, clients)?;
    let fast = throughput(gate, &grant, &through_gate, calls, clients)?;
    say(&format!("{clients} clients: straight {slow:.0} calls/s, gate {fast:.0} calls/s, ratio {:.2}\n", fast / slow));
    Ok(())
}

fn say(text: &str) {
    // Nobody reads any more: nothing is left to do.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn at(times: &mut [f64], share: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a place in a list"
    )]
    let place = ((times.len() - 1) as f64 * share) as usize;
    times[place]
}

fn throughput(to: SocketAddr, grant: &str, line: &str, calls: usize, clients: usize) -> Result<f64, Failed> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let client = |_| {
            scope.spawn(|| -> Result<(), Failed> {
                let mut connection = Connection::new(to, grant)?;
                (0..calls / clients).try_for_each(|_| connection.timed(line).map(drop))
            })
        };
        let clients: Vec<_> = (0..clients).map(client).collect();
        clients.into_iter().try_for_each(|client| client.join().map_err(|_| "a client died")?)
    })?;
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    Ok((calls / clients * clients) as f64 / began.elapsed().as_secs_f64())
}

/// A kept connection.
struct Connection {
    stream: TcpStream,
    grant: String,
}

impl Connection {
    fn new(to: SocketAddr, grant: &str) -> Result<Self, Failed> {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, grant: grant.to_owned() })
    }

    /// Microseconds of one call.
    fn timed(&mut self, line: &str) -> Result<f64, Failed> {
        let began = Instant::now();
        let answer = self.send(line, CALL)?;
        let took = began.elapsed().as_secs_f64() * 1e6;
        if answer.starts_with("HTTP/1.1 200") { Ok(took) } else { Err(answer.into()) }
    }

    fn send(&mut self, line: &str, body: &str) -> Result<String, Failed> {
        let (grant, length) = (&self.grant, body.len());
        let request = format!(
            "{line} HTTP/1.1\r\nhost: g\r\n{grant}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        let mut piece = [0; 8192];
        loop {
            let bytes = self.stream.read(&mut piece)?;
            answer.extend_from_slice(&piece[..bytes]);
            let text = String::from_utf8_lossy(&answer);
            let whole = text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                length == Some(body.len())
            });
            if whole || bytes == 0 {
                return Ok(text.into_owned());
            }
        }
    }
}

/// A backend that does nothing but answer.
fn listen(runtime: &tokio::runtime::Runtime) -> Result<SocketAddr, Failed> {
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _unsupported = stream.set_nodelay(true);
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service_fn(answer)));
        }
    });
    Ok(address)
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, text) = match request.uri().path() {
        "/sessions" => (201, r#"{"session_id":"s"}"#),
        "/health" => (200, r#"{"status":"ok","session_count":1,"max_sessions":100}"#),
        _ => (200, RESULT),
    };
    let works = request.uri().path().ends_with("/exec");
    let _read = request.into_body().collect().await;
    let (began, work) = (Instant::now(), WORK_MICROS.load(Ordering::Relaxed) as u128);
    while works && began.elapsed().as_micros() < work {
        std::hint::spin_loop();
    }
    let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *answer.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or_default();
    answer.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("application/json"));
    Ok(answer)
}

fn claims() -> Result<Grant, Failed> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    Ok(Grant {
        issuer: "control".to_owned(),
        audience: "gate".to_owned(),
        workspace: WorkspaceId::parse("team-a").ok_or("no workspace")?,
        id: GrantId::random()?,
        issued_at: now,
        not_before: now,
        expires_at: now + 3600,
        tools: Tools::new(["code_execution"]).ok_or("no tools")?,
        image: None,
        ceilings: Ceilings::default(),
    })
}

fn config(folder: &Path, key: &SigningKey, backend: SocketAddr) -> Result<GateConfig, Failed> {
    let private = |name: &str, text: &str| -> Result<PathBuf, Failed> {
        let path = folder.join(name);
        let mut options = std::fs::OpenOptions::new();
        options.create_new(true).write(true).mode(0o600).open(&path)?.write_all(text.as_bytes())?;
        Ok(path)
    };
    let keys = private("keys.json", &KeySet::new(vec![key.public().clone()])?.to_json())?;
    // The trivial backend answers whatever it is posted with 200: it is the control plane as well.
    let usage = UsageConfig::new(folder.join("spool"), format!("http://{backend}/usage"));
    Ok(GateConfig {
        issuer: "control".to_owned(),
        audience: "gate".to_owned(),
        skew_seconds: 30,
        keys: keys.to_str().ok_or("the folder has no name")?.to_owned(),
        id_keys_file: private("id-keys", &"A".repeat(43))?,
        backends: vec![format!("b=http://{backend}")],
        backends_file: None,
        tls: TlsConfig::default(),
        backend_token_file: Some(private("proof", "proof")?),
        usage: Some(usage),
        policy: Policy::default(),
        pace: Pace::default(),
        clock: None,
    })
}
