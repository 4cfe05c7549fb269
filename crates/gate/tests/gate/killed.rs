//! Gates in processes of their own, killed with SIGKILL under load; and a look at everything that they write.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_gate::{Gate, UsageConfig};
use serde_json::json;

use crate::support::control::{Control, Mood, USAGE_TOKEN};
use crate::support::gate::{PROOF, config};
use crate::support::{Backend, World, call};

/// Tells this program, started anew, to be a gate.
const ROLE: &str = "RINGFENCE_TEST_GATE";
const NAME: &str = "killed::a_process_of_its_own_is_a_gate_until_its_input_ends";

/// A gate in a process of its own.
struct Process {
    child: Child,
    address: SocketAddr,
    /// What it wrote after its address.
    stdout: BufReader<ChildStdout>,
}

impl Process {
    fn start(world: &World, control: &Control, backends: &[&Backend]) -> Self {
        world.file("usage-token", &format!("{USAGE_TOKEN}\n"));
        let urls: Vec<String> =
            backends.iter().enumerate().map(|(n, backend)| format!("b{n}={}", backend.url())).collect();
        let told = json!({"folder": world.folder.path(), "backends": urls, "usage": control.url()});
        let log = std::fs::OpenOptions::new().create(true).append(true).open(world.path("log")).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture", "--test-threads=1"])
            .env(ROLE, told.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let address = loop {
            let mut line = String::new();
            assert!(stdout.read_line(&mut line).unwrap() > 0, "the gate ended before it listened");
            if let Some((_, address)) = line.split_once("listening ") {
                break address.trim().parse().unwrap();
            }
        };
        Process { child, address, stdout }
    }

    async fn ready(&self) {
        let asking = async {
            while call(self.address, "GET /ready", &[], b"").await.status != 200 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(crate::support::client::PATIENCE, asking).await.expect("ready in time");
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it, and gives what it wrote to its standard output.
    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        rest
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The role of the started process; without the role, the test that such a process starts, serves and ends.
#[test]
fn a_process_of_its_own_is_a_gate_until_its_input_ends() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if let Ok(told) = std::env::var(ROLE) {
        return runtime.block_on(be_a_gate(&serde_json::from_str(&told).unwrap()));
    }
    runtime.block_on(async {
        let (backend, control, world) = (Backend::start("one").await, Control::start().await, World::new());
        let process = Process::start(&world, &control, &[&backend]);
        process.ready().await;
        let ended = tokio::task::spawn_blocking(move || process.end()).await.unwrap();
        assert!(ended.contains("test result: ok"), "{ended}");
    });
}

async fn be_a_gate(told: &serde_json::Value) {
    tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(std::io::stderr).init();
    let folder = Path::new(told["folder"].as_str().unwrap());
    let urls = told["backends"].as_array().unwrap().iter().map(|url| url.as_str().unwrap().to_owned()).collect();
    let mut config = config(folder, urls);
    let mut usage = UsageConfig::new(folder.join("spool"), told["usage"].as_str().unwrap().to_owned());
    usage.token_file = Some(folder.join("usage-token"));
    config.usage = Some(usage);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let line = format!("listening {}\n", listener.local_addr().unwrap());
    std::io::stdout().write_all(line.as_bytes()).unwrap();
    let gate = Gate::start(config).unwrap();
    let input_ends = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    gate.serve(listener, async { drop(input_ends.await) }).await.unwrap();
}

/// Calls through whichever gate is there, as fast as it goes, until told to stop.
struct Load {
    address: Arc<Mutex<SocketAddr>>,
    stop: Arc<AtomicU64>,
    good: Arc<AtomicU64>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn start(address: SocketAddr, grant: &str, id: &str) -> Self {
        let load = Load {
            address: Arc::new(Mutex::new(address)),
            stop: Arc::default(),
            good: Arc::default(),
            tasks: Vec::new(),
        };
        let start = |_| {
            let (address, stop, good) = (Arc::clone(&load.address), Arc::clone(&load.stop), Arc::clone(&load.good));
            let (grant, id) = (grant.to_owned(), id.to_owned());
            tokio::spawn(async move {
                while stop.load(Ordering::SeqCst) == 0 {
                    let to = *address.lock().unwrap();
                    if attempt(to, &grant, &id).await {
                        good.fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
        };
        let tasks = (0..4).map(start).collect();
        Load { tasks, ..load }
    }

    async fn until(&self, good: u64) {
        let waiting = async {
            while self.good.load(Ordering::SeqCst) < good {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(crate::support::client::PATIENCE, waiting).await.expect("load in time");
    }

    async fn end(self) -> u64 {
        self.stop.store(1, Ordering::SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
        self.good.load(Ordering::SeqCst)
    }
}

/// One call; whether its whole result came.
async fn attempt(to: SocketAddr, grant: &str, id: &str) -> bool {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let body = r#"{"tool":"code_execution","input":{"code":"x"}}"#;
    let request = format!(
        "POST /sessions/{id}/exec HTTP/1.1\r\nhost: g\r\nauthorization: {grant}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let Ok(mut stream) = tokio::net::TcpStream::connect(to).await else {
        tokio::time::sleep(Duration::from_millis(5)).await;
        return false;
    };
    let mut answer = Vec::new();
    let sent = stream.write_all(request.as_bytes()).await;
    if sent.is_err() || stream.read_to_end(&mut answer).await.is_err() {
        return false;
    }
    answer.starts_with(b"HTTP/1.1 200") && answer.ends_with(b"}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_gate_loses_and_doubles_no_record() {
    let (backend, control, world) = (Backend::start("one").await, Control::start().await, World::new());
    let mut process = Process::start(&world, &control, &[&backend]);
    process.ready().await;
    let grant = world.issuer.grant("team-a");
    let leased = call(process.address, "POST /sessions", &[("authorization", &grant)], b"").await;
    let id = leased.json()["session_id"].as_str().unwrap().to_owned();
    let load = Load::start(process.address, &grant, &id);
    for round in 1..=6_u64 {
        // Down, up, and taking without saying so: the kill falls into each.
        control.feels([Mood::Takes, Mood::Down, Mood::TakesAndDies][usize::try_from(round % 3).unwrap()]);
        load.until(round * 40).await;
        process.kill();
        process = Process::start(&world, &control, &[&backend]);
        process.ready().await;
        *load.address.lock().unwrap() = process.address;
    }
    let good = load.end().await;
    control.feels(Mood::Takes);
    // Every call that reached the backend is in the books once: those that ended, and those that the kills cut off.
    let ran = || backend.seen().iter().filter(|seen| seen.path.ends_with("/exec")).count();
    control.until(|books| books.records.values().filter(|(record, _)| record["kind"] == "call").count() >= ran()).await;
    tokio::task::spawn_blocking(move || process.end()).await.unwrap();
    let books = control.books.lock().unwrap();
    books.balance();
    let calls = books.records.values().filter(|(record, _)| record["kind"] == "call").count();
    let (ok, unknown) = (books.calls("ok").len(), books.calls("unknown").len());
    // A begin may stand without its request having left the gate: at most one for each client and kill.
    assert!(calls >= ran() && calls <= ran() + 4 * 6, "{calls} records of {} calls", ran());
    assert!(ok as u64 >= good, "{good} results came to clients, {ok} are in the books as such");
    assert_eq!(ok + unknown, calls);
    assert!(good >= 240, "{good}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_a_gate_writes_holds_a_secret() {
    let (backend, control, world) = (Backend::start("one").await, Control::start().await, World::new());
    let process = Process::start(&world, &control, &[&backend]);
    process.ready().await;
    let grant = world.issuer.grant("team-a");
    let headers = [("authorization", grant.as_str())];
    let leased = call(process.address, "POST /sessions", &headers, b"").await;
    let id = leased.json()["session_id"].as_str().unwrap().to_owned();
    let code = r#"{"tool":"code_execution","input":{"code":"code-canary-91"}}"#;
    let path = format!("POST /sessions/{id}/exec");
    let mut wire = Vec::new();
    for grant in
        [grant.clone(), format!("{grant}x"), world.issuer.grant("team-b"), "Bearer made.up.canary-77".to_owned()]
    {
        let answer = call(process.address, &path, &[("authorization", &grant)], code.as_bytes()).await;
        wire.push(format!("{answer:?}"));
    }
    let twice = [headers[0], headers[0], ("x-ringfence-workspace", "forged-canary-12")];
    wire.push(format!("{:?}", call(process.address, &path, &twice, code.as_bytes()).await));
    backend.twist(|seen| seen.path.ends_with("/exec").then(|| crate::support::Reply::json("401 Unauthorized", "{}")));
    wire.push(format!("{:?}", call(process.address, &path, &headers, code.as_bytes()).await));
    control.until(|books| books.records.len() == 3).await;
    let pid = process.child.id();
    let visible = ["environ", "cmdline"].map(|name| std::fs::read(format!("/proc/{pid}/{name}")).unwrap());
    let stdout = tokio::task::spawn_blocking(move || process.end()).await.unwrap();
    let log = std::fs::read_to_string(world.path("log")).unwrap();
    assert!(log.contains("refused") && log.contains("team-a"), "the log was looked at: {log}");
    let mut places = vec![("stdout", stdout), ("log", log), ("wire", wire.concat())];
    for (name, bytes) in ["environ", "cmdline"].iter().zip(visible) {
        places.push((name, String::from_utf8_lossy(&bytes).into_owned()));
    }
    for entry in std::fs::read_dir(world.path("spool")).unwrap() {
        places.push(("spool", String::from_utf8_lossy(&std::fs::read(entry.unwrap().path()).unwrap()).into_owned()));
    }
    let token = grant.strip_prefix("Bearer ").unwrap();
    let private = world.issuer.key.to_jwk();
    let private: serde_json::Value = serde_json::from_str(&private).unwrap();
    let id_key = "c2Vzc2lvbi1pZC1rZXktb2YtMzItYnl0ZXMtaW4taXQ";
    let mut secrets = vec![
        PROOF,
        USAGE_TOKEN,
        id_key,
        private["d"].as_str().unwrap(),
        "canary-77",
        "code-canary-91",
        "forged-canary-12",
    ];
    // The claims of the token are in the log by name; the token is not, nor is a part of it long enough to matter.
    secrets.extend(token.split('.').skip(1));
    let secrets: BTreeSet<&str> = secrets.into_iter().collect();
    for (place, text) in &places {
        for secret in &secrets {
            assert!(!text.contains(secret), "{secret} in {place}");
        }
    }
    // What went to the backend holds the proof, and never the grant.
    let seen = format!("{:?}", backend.seen());
    assert!(seen.contains(PROOF) && !seen.contains(token.rsplit('.').next().unwrap()));
}
