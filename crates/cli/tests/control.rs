//! `ringfence control` as a process: managed by its commands, killed with its front door under load, and everything
//! that they write looked at.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test program may panic")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringfence_fake::{Fake, Rules};
use ringfence_probe::{Address, Connection};
use ringfence_testkit::{Authority, Postgres};
use serde_json::{Value, json};

/// So long that only a hang meets it.
const PATIENCE: Duration = Duration::from_secs(120);
/// In the URL of a PostgreSQL, to be looked for.
const PASSWORD: &str = "password-canary";

fn ringfence(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    command.current_dir(folder).args(arguments).env("RINGFENCE_CONTROL_TOKEN_FILE", "c/admin-token");
    command.env_remove("RINGFENCE_DATABASE_URL");
    command
}

/// A server's process. What it writes is kept.
struct Process {
    child: Child,
    scheme: String,
    address: String,
    written: Arc<Mutex<Vec<u8>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Process {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let written = Arc::new(Mutex::new(Vec::new()));
        let readers = vec![keep(child.stderr.take().unwrap(), &written)];
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let url = line.trim().rsplit(' ').next().and_then(|url| url.split_once("://"));
        let (scheme, address) = url.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&written.lock().unwrap())));
        let (scheme, address) = (scheme.to_owned(), address.to_owned());
        let mut process = Process { child, scheme, address, written, readers };
        process.readers.push(keep(stdout, &process.written));
        process
    }

    fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// SIGKILL.
    fn kill(&mut self) -> Vec<u8> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        self.written.lock().unwrap().clone()
    }

    /// Its arguments and its environment.
    fn seen_by_others(&self) -> Vec<u8> {
        let read = |name: &str| fs::read(format!("/proc/{}/{name}", self.child.id())).unwrap();
        [read("cmdline"), read("environ")].concat()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn keep(mut from: impl Read + Send + 'static, to: &Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    let to = Arc::clone(to);
    std::thread::spawn(move || {
        let mut part = [0_u8; 8192];
        while let Ok(count @ 1..) = from.read(&mut part) {
            to.lock().unwrap().extend_from_slice(&part[..count]);
        }
    })
}

fn private(path: &Path, content: &str) {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn line(path: &Path) -> String {
    fs::read_to_string(path).unwrap().trim().to_owned()
}

/// A folder with a control plane, its address once it runs, and the tokens of a gateway and of a front door.
struct Plane {
    folder: tempfile::TempDir,
    process: Process,
    said: Vec<u8>,
    /// Which database, where it is not the folder's own; and what its listener shows.
    extra: Vec<String>,
    /// Whose certificates are shown.
    authority: Option<Authority>,
}

impl Plane {
    fn start() -> Self {
        Plane::start_on(None, None)
    }

    fn start_on(postgres: Option<&Postgres>, authority: Option<Authority>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut extra = Vec::new();
        if let Some(postgres) = postgres {
            private(&folder.path().join("url"), &format!("{}\n", postgres.database(PASSWORD)));
            extra.extend(["--database-url-file", "url"].map(str::to_owned));
        }
        succeed(ringfence(folder.path(), &["control", "init", "--folder", "c"]).args(&extra));
        assert_eq!(folder.path().join("c/control.db").exists(), postgres.is_none());
        if let Some(authority) = &authority {
            let (certificate, key) = authority.identity("127.0.0.1");
            let path = |path: PathBuf| path.into_os_string().into_string().unwrap();
            extra.extend(["--tls-cert".to_owned(), path(certificate), "--tls-key".to_owned(), path(key)]);
        }
        let process = Process::start({
            let mut serve = serve(folder.path(), "127.0.0.1:0");
            serve.args(&extra);
            serve
        });
        assert_eq!(process.scheme, if authority.is_some() { "https" } else { "http" });
        private(&folder.path().join("id-keys"), &format!("{}\n", "A".repeat(43)));
        let plane = Plane { folder, process, said: Vec::new(), extra, authority };
        plane.manage(&["tokens", "create", "--kind", "gateway", "--name", "gw", "--out", "gateway-token"]);
        plane.manage(&["tokens", "create", "--kind", "gate", "--name", "door", "--out", "usage-token"]);
        plane
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn manage(&self, arguments: &[&str]) -> Value {
        let mut command = ringfence(self.folder.path(), &["control"]);
        if let Some(authority) = &self.authority {
            command.env("RINGFENCE_CONTROL_CA_FILE", authority.ca());
        }
        let output = succeed(command.args(arguments).env("RINGFENCE_CONTROL_URL", self.process.url()));
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    fn workspace(&self, id: &str) {
        self.manage(&["workspaces", "create", id, "--enabled", "true", "--tool", "code_execution"]);
    }

    /// Where it is, for whoever has that token.
    fn address(&self, token: String) -> Address {
        let authorities = self.authority.as_ref().map(|authority| fs::read(authority.ca()).unwrap());
        Address::believing(&self.process.url(), Some(token), authorities.as_deref()).unwrap()
    }

    fn grant(&self, workspace: &str) -> String {
        let address = self.address(line(&self.path("gateway-token")));
        let body = json!({"workspace": workspace}).to_string();
        let answer = Connection::new(&address).call("POST", "/v1/grants", "application/json", body.as_bytes()).unwrap();
        assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
        let answer: Value = serde_json::from_slice(&answer.body).unwrap();
        answer["grant"].as_str().unwrap().to_owned()
    }

    /// Killed, and started again at the same address.
    fn kill_and_start(&mut self) {
        let address = self.process.address.clone();
        let said = self.process.kill();
        self.said.extend(said);
        let mut serve = serve(self.folder.path(), &address);
        serve.args(&self.extra);
        self.process = Process::start(serve);
    }

    fn gate(&self, backend: &str, address: &str) -> Process {
        let (keys, usage) =
            (format!("{}/.well-known/jwks.json", self.process.url()), format!("{}/v1/usage", self.process.url()));
        let backend = format!("b={backend}");
        let arguments = ["gate", "--listen", address, "--issuer", "cp", "--audience", "door", "--keys", &keys];
        let mut command = ringfence(self.folder.path(), &arguments);
        command.args(["--id-keys-file", "id-keys", "--backend", &backend, "--usage-spool", "spool"]);
        command.args(["--usage-url", &usage, "--usage-token-file", "usage-token", "--log-level", "trace"]);
        if let Some(authority) = &self.authority {
            command.arg("--control-ca").arg(authority.ca());
        }
        Process::start(command)
    }

    /// The sums of a workspace's calls, or of its leases, which have no tool.
    fn usage(&self, workspace: &str, tool: &str) -> Value {
        let report = self.manage(&["usage", "--workspace", workspace, "--by", "tool"]);
        report["rows"].as_array().unwrap().iter().find(|row| row["tool"] == tool).cloned().unwrap_or(Value::Null)
    }
}

fn serve(folder: &Path, address: &str) -> Command {
    let mut command = ringfence(folder, &["control", "serve", "--folder", "c", "--listen", address]);
    command.args(["--issuer", "cp", "--audience", "door", "--log-level", "trace"]);
    command
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// A client of a gate that goes on whatever happens to the gate.
struct Caller {
    connection: Connection,
}

impl Caller {
    fn new(gate: &str, grant: String) -> Self {
        Caller { connection: Connection::new(&Address::parse(gate, Some(grant)).unwrap()) }
    }

    /// The body of a success; `None` for a refusal and for a connection that broke.
    fn post(&mut self, path: &str, body: &Value) -> Option<Value> {
        let answer = self.connection.call("POST", path, "application/json", body.to_string().as_bytes()).ok()?;
        assert!(matches!(answer.status, 200 | 201 | 502 | 503), "{} {path}", answer.status);
        (answer.status < 300).then(|| serde_json::from_slice(&answer.body).unwrap())
    }

    fn lease(&mut self) -> String {
        let begun = Instant::now();
        loop {
            if let Some(handle) = self.post("/sessions", &json!({})) {
                return handle["session_id"].as_str().unwrap().to_owned();
            }
            assert!(begun.elapsed() < PATIENCE, "no lease");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn run(&mut self, session: &str) -> bool {
        let call = json!({"tool": "code_execution", "input": {"code": "print(6 * 7)"}});
        self.post(&format!("/sessions/{session}/exec"), &call).is_some()
    }
}

/// Calls of several clients while the control plane and the gate are killed again and again: what a client was told
/// counts, what ran counts, and nothing counts twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_counts_once_whoever_is_killed() {
    let fake = Fake::start(Rules::default()).await.unwrap();
    tokio::task::spawn_blocking(move || under_kills(&fake, None)).await.unwrap();
}

/// The same over a PostgreSQL, which crashes as well and is away while calls go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_counts_once_whoever_is_killed_on_postgresql() {
    let fake = Fake::start(Rules::default()).await.unwrap();
    let killed = move || {
        let mut postgres = Postgres::start();
        under_kills(&fake, Some(&mut postgres));
        assert!(postgres.end().success(), "PostgreSQL ended well");
    };
    tokio::task::spawn_blocking(killed).await.unwrap();
}

/// Waits until more calls have been answered than now.
fn go_on(told: &AtomicU64) {
    let (goal, begun) = (told.load(Ordering::SeqCst) + 40, Instant::now());
    while told.load(Ordering::SeqCst) < goal {
        assert!(begun.elapsed() < PATIENCE, "calls do not go on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn under_kills(fake: &Fake, mut postgres: Option<&mut Postgres>) {
    let backend = fake.url();
    let mut plane = Plane::start_on(postgres.as_deref(), None);
    plane.workspace("team-a");
    plane.workspace("last");
    let (grant, last) = (plane.grant("team-a"), plane.grant("last"));
    let mut gate = plane.gate(backend, "127.0.0.1:0");
    let (gate_url, stop, told) = (gate.url(), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut caller = Caller::new(&gate_url, grant.clone());
                let session = caller.lease();
                while !stop.load(Ordering::SeqCst) {
                    match caller.run(&session) {
                        true => _ = told.fetch_add(1, Ordering::SeqCst),
                        false => std::thread::sleep(Duration::from_millis(5)),
                    }
                }
            });
        }
        for round in 0..6 {
            go_on(&told);
            if round % 2 == 0 {
                plane.kill_and_start();
            } else {
                let said = gate.kill();
                plane.said.extend(said);
                gate = plane.gate(backend, &gate_url["http://".len()..]);
            }
            if let (Some(postgres), 0..3) = (&mut postgres, round) {
                go_on(&told);
                postgres.crash();
                go_on(&told);
                postgres.start_again();
            }
        }
        stop.store(true, Ordering::SeqCst);
    });
    // Shipped in order: when this one is there, everything before it is.
    let mut caller = Caller::new(&gate_url, last);
    let session = caller.lease();
    assert!(caller.run(&session));
    let begun = Instant::now();
    while plane.usage("last", "code_execution")["calls"] != 1 {
        assert!(begun.elapsed() < PATIENCE, "usage does not arrive");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (calls, leases) = (plane.usage("team-a", "code_execution"), plane.usage("team-a", ""));
    let figure = |name: &str| calls[name].as_u64().unwrap();
    let sent = fake.requests().iter().filter(|request| request.ends_with("/exec")).count() as u64 - 1;
    let told = told.into_inner();
    assert!(told >= 240, "{told}");
    assert!(figure("ok") >= told, "what a client was told is counted: {told} {calls}");
    assert!(figure("ok") <= sent, "no call is counted twice: {sent} {calls}");
    assert!(figure("calls") >= sent, "what was sent to a backend is counted: {sent} {calls}");
    assert!(leases["ok"].as_u64().unwrap() >= 3 && leases["calls"] == 0, "{leases}");
    let csv = succeed(
        ringfence(plane.folder.path(), &["control", "usage", "--csv", "--by", "tool"])
            .env("RINGFENCE_CONTROL_URL", plane.process.url()),
    );
    assert!(String::from_utf8(csv.stdout).unwrap().contains("\r\ncode_execution,0,"));
}

/// Everything that the processes write, show to other users of the machine or keep in the database holds no secret.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_written_anywhere() {
    let fake = Fake::start(Rules::default()).await.unwrap();
    let url = fake.url().to_owned();
    tokio::task::spawn_blocking(move || canaries(&url, None, None)).await.unwrap();
}

/// The same over a PostgreSQL: its tables, its log of changes, its answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_written_anywhere_on_postgresql() {
    let fake = Fake::start(Rules::default()).await.unwrap();
    let url = fake.url().to_owned();
    tokio::task::spawn_blocking(move || canaries(&url, Some(Postgres::start()), None)).await.unwrap();
}

/// The same over TLS, whose private key is one of the secrets: managed by commands, asked by a gate, killed and started
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_written_anywhere_over_tls() {
    let fake = Fake::start(Rules::default()).await.unwrap();
    let url = fake.url().to_owned();
    tokio::task::spawn_blocking(move || canaries(&url, None, Some(Authority::new()))).await.unwrap();
}

/// Everything in a folder. Pages that were not written to are nothing but zeros: these are left out.
fn files(folder: &Path, heap: &mut Vec<u8>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files(&entry.path(), heap);
        } else if kind.is_file() {
            heap.extend(fs::read(entry.path()).unwrap().into_iter().filter(|byte| *byte != 0));
        }
    }
}

fn canaries(backend: &str, postgres: Option<Postgres>, authority: Option<Authority>) {
    let mut plane = Plane::start_on(postgres.as_ref(), authority);
    plane.workspace("team-a");
    let grant = plane.grant("team-a");
    let mut gate = plane.gate(backend, "127.0.0.1:0");
    let mut caller = Caller::new(&gate.url(), grant.clone());
    let session = caller.lease();
    assert!(caller.run(&session));
    // What goes wrong is told, too.
    let key = fs::read_dir(plane.path("c/keys")).unwrap().next().unwrap().unwrap().path();
    let secret_key = fs::read_to_string(&key).unwrap();
    plane.kill_and_start();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    plane.kill_and_start();
    let admin = line(&plane.path("c/admin-token"));
    // A secret where an id belongs, or in a query.
    let misplaced = format!("/v1/tokens/{}", line(&plane.path("gateway-token")));
    let queried = format!("/v1/audit?token={admin}");
    for (method, path, token) in [
        ("DELETE", misplaced.as_str(), admin.clone()),
        ("GET", queried.as_str(), admin.clone()),
        ("POST", "/v1/grants", line(&plane.path("gateway-token"))),
        ("POST", "/v1/grants", admin.clone()),
        ("GET", "/v1/audit?limit=1000", admin.clone()),
        ("GET", "/v1/tokens", admin.clone()),
        ("GET", "/v1/keys", admin.clone()),
        ("GET", "/v1/nothing", admin.clone()),
        ("POST", "/v1/usage", line(&plane.path("usage-token"))),
    ] {
        let address = plane.address(token);
        let body = json!({"workspace": "team-a"}).to_string();
        let answer = Connection::new(&address).call(method, path, "application/json", body.as_bytes()).unwrap();
        plane.said.extend(answer.body);
    }
    let mut heap = plane.process.seen_by_others();
    heap.extend(gate.seen_by_others());
    heap.extend(plane.process.kill());
    heap.extend(gate.kill());
    heap.extend(plane.said.clone());
    let text = String::from_utf8_lossy(&heap).into_owned();
    assert!(text.contains("chmod 600") && text.len() > 2000, "they wrote something: {text}");
    let mut kept = Vec::new();
    match postgres {
        None => {
            for name in ["c/control.db", "c/control.db-wal"] {
                kept.extend(fs::read(plane.path(name)).unwrap_or_default());
            }
        }
        Some(mut postgres) => {
            // In order: what it held in memory is in its files then.
            postgres.stop();
            files(&postgres.data(), &mut kept);
        }
    }
    let told = String::from_utf8_lossy(&kept).contains("workspace.created");
    assert!(told, "what the database keeps is what is looked at");
    heap.extend(kept);
    files(&plane.path("spool"), &mut heap);
    let d = secret_key.split("\"d\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let signature = grant.rsplit('.').next().unwrap().to_owned();
    let tokens = ["gateway-token", "usage-token"].map(|name| line(&plane.path(name)));
    let mut secrets = [vec![admin, d, signature, "A".repeat(43), PASSWORD.to_owned()], tokens.to_vec()].concat();
    if let Some(authority) = &plane.authority {
        let pem = fs::read_to_string(authority.path("127.0.0.1.key")).unwrap();
        // The first line says which kind of key it is, the last one is public: the second has most of what is secret.
        secrets.push(pem.lines().filter(|line| !line.starts_with("-----")).nth(1).unwrap().to_owned());
    }
    for secret in secrets {
        let found = heap.windows(secret.len()).position(|window| window == secret.as_bytes());
        if let Some(at) = found {
            let around = &heap[at.saturating_sub(200)..at];
            panic!("a secret of {} bytes after: {}", secret.len(), String::from_utf8_lossy(around));
        }
    }
}

#[test]
fn a_wrong_configuration_is_told_and_holds_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let ended = |command: &mut Command| -> (Option<i32>, String) {
        let Output { status, stdout, stderr } = command.output().unwrap();
        assert!(stdout.is_empty());
        (status.code(), String::from_utf8(stderr).unwrap())
    };
    let serve = || serve(folder, "127.0.0.1:0");
    let (code, said) = ended(&mut serve());
    assert!(code == Some(2) && said.contains("init"), "{code:?} {said}");
    succeed(&mut ringfence(folder, &["control", "init", "--folder", "c"]));
    for (url, word) in [
        ("postgres://u:hush-hush@127.0.0.1:1/d", "connecting"),
        ("postgres://u:hush-hush@[/d", "cannot be read"),
        ("mysql://u:hush-hush@h/d", "scheme"),
        ("hush-hush", "scheme"),
    ] {
        private(&folder.join("url"), url);
        let (code, said) = ended(serve().args(["--database-url-file", "url"]));
        assert!(code == Some(2) && said.contains(word) && !said.contains("hush"), "{code:?} {said}");
        let (code, said) = ended(serve().env("RINGFENCE_DATABASE_URL", url));
        assert!(code == Some(2) && said.contains(word) && !said.contains("hush"), "{code:?} {said}");
    }
    fs::set_permissions(folder.join("url"), fs::Permissions::from_mode(0o644)).unwrap();
    let (code, said) = ended(serve().args(["--database-url-file", "url"]));
    assert!(code == Some(2) && said.contains("chmod 600") && !said.contains("hush"), "{code:?} {said}");
    let (code, said) = ended(serve().args(["--grant-seconds", "0"]));
    assert!(code == Some(2) && said.contains("86400"), "{code:?} {said}");
    fs::write(folder.join("c/admin-token"), "short\n").unwrap();
    let (code, said) = ended(&mut serve());
    assert!(code == Some(2) && said.contains("admin-token") && !said.contains("short\n"), "{code:?} {said}");
    // Commands that speak to it say what they lack.
    let (code, said) =
        ended(ringfence(folder, &["control", "keys", "list"]).env_remove("RINGFENCE_CONTROL_TOKEN_FILE"));
    assert!(code == Some(1) && said.contains("--token-file"), "{code:?} {said}");
}

/// Over TLS a command believes whom the authorities name, and says nothing to anybody else.
#[test]
fn commands_say_that_it_is_the_control_plane_which_does_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    private(&folder.path().join("token"), "hush\n");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{nobody}");
    let arguments = ["control", "keys", "list", "--url", &url, "--token-file", "token"];
    let output = ringfence(folder.path(), &arguments).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the control plane does not answer") && !said.contains("backend"), "{said}");
}

#[test]
fn commands_speak_tls_to_whom_the_authorities_name() {
    let plane = Plane::start_on(None, Some(Authority::new()));
    assert_eq!(plane.manage(&["workspaces", "list"]), json!({"workspaces": []}));
    let other = Authority::new();
    let plain = plane.process.url().replace("https", "http");
    let ca = plane.authority.as_ref().unwrap().ca();
    for (url, authorities, word) in [
        (plane.process.url(), None, "certificate"),
        (plane.process.url(), Some(other.ca()), "certificate"),
        (plane.process.url().replace("127.0.0.1", "localhost"), Some(ca.clone()), "certificate"),
        (plain, Some(ca.clone()), "begin with https://"),
        (plane.process.url(), Some(plane.path("c/admin-token")), "PEM"),
        (plane.process.url(), Some(plane.path("nowhere")), "nowhere"),
        ("ftp://x".to_owned(), Some(ca), "https://"),
    ] {
        let mut command = ringfence(plane.folder.path(), &["control", "workspaces", "list", "--url", &url]);
        if let Some(authorities) = &authorities {
            command.arg("--ca-file").arg(authorities);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(word), "{url} {authorities:?}: {said}");
        assert!(!said.contains(&line(&plane.path("c/admin-token"))), "{said}");
    }
    // A key that others can read, and one of another certificate.
    let (certificate, key) = other.identity("another");
    let (_, strangers) = other.identity("strangers");
    for (file, word) in [(&strangers, "another.pem"), (&key, "chmod 600")] {
        if word == "chmod 600" {
            fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
        }
        let mut command = serve(plane.folder.path(), "127.0.0.1:0");
        let output = command.arg("--tls-cert").arg(&certificate).arg("--tls-key").arg(file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(word), "{:?} {said}", output.status);
    }
}

/// Every command once, and a backup that is served.
#[test]
fn the_commands_manage_a_control_plane() {
    let plane = Plane::start();
    plane.workspace("team-a");
    let set = plane.manage(&["workspaces", "set", "team-a", "--timeout-max", "60", "--name", "Team A"]);
    assert_eq!((&set["version"], &set["policy"]["timeout_seconds_max"]), (&json!(2), &json!(60)));
    let set = plane.manage(&["workspaces", "set", "team-a", "--clear", "timeout-max"]);
    assert_eq!((&set["name"], set["policy"].get("timeout_seconds_max")), (&json!("Team A"), None));
    assert_eq!(plane.manage(&["workspaces", "show", "team-a"]), set);
    assert_eq!(plane.manage(&["workspaces", "list"])["workspaces"], json!([set]));
    let secret = plane.path("gateway-token");
    assert_eq!(fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600);
    let tokens = plane.manage(&["tokens", "list"])["tokens"].as_array().unwrap().clone();
    assert_eq!(tokens.len(), 2);
    // A file that is there is not written over, and no token is made.
    let again = ["control", "tokens", "create", "--kind", "gate", "--name", "x", "--out", "gateway-token"];
    let again = ringfence(plane.folder.path(), &again).env("RINGFENCE_CONTROL_URL", plane.process.url()).output();
    assert_eq!(again.unwrap().status.code(), Some(1));
    assert_eq!(plane.manage(&["tokens", "list"])["tokens"].as_array().unwrap().len(), 2);

    plane.grant("team-a");
    let next = plane.manage(&["keys", "rotate", "--algorithm", "ES256"]);
    assert_eq!(next["state"], "next");
    plane.manage(&["keys", "revoke", next["kid"].as_str().unwrap()]);
    let states = plane.manage(&["keys", "list"]);
    let states: Vec<_> = states["keys"].as_array().unwrap().iter().map(|key| key["state"].clone()).collect();
    assert_eq!(states, [json!("signing"), json!("revoked")]);
    let audit = plane.manage(&["audit", "--workspace", "team-a", "--limit", "1000"]);
    assert!(audit["lines"].as_array().unwrap().iter().any(|line| line["action"] == "grant.made"));

    let prune = |arguments: &[&str]| {
        let mut command = ringfence(plane.folder.path(), &["control", "prune", "--folder", "c"]);
        command.args(arguments).output().unwrap()
    };
    // Everything is of today.
    let pruned = prune(&["--usage-keep-days", "30", "--audit-keep-days", "30"]);
    assert!(pruned.status.success() && pruned.stdout.starts_with(b"0 records"), "{pruned:?}");
    let audit = plane.manage(&["audit", "--limit", "1000"]);
    let closed = audit["lines"].as_array().unwrap().iter().find(|line| line["action"] == "usage.closed").unwrap();
    assert_eq!(closed["actor"], "command");
    assert_eq!(plane.manage(&["usage"])["closed_before"], closed["detail"]["before"]);
    for wrong in [&[][..], &["--usage-keep-days", "6"], &["--audit-keep-days", "0"], &["--usage-keep-days", "soon"]] {
        assert_eq!(prune(wrong).status.code(), Some(2), "{wrong:?}");
    }

    succeed(&mut ringfence(plane.folder.path(), &["control", "backup", "--folder", "c", "copy.db"]));
    private(&plane.path("copy-url"), &format!("sqlite:{}\n", plane.path("copy.db").display()));
    let mut command = serve(plane.folder.path(), "127.0.0.1:0");
    let restored = Process::start({
        command.args(["--database-url-file", "copy-url"]);
        command
    });
    let listed = succeed(
        ringfence(plane.folder.path(), &["control", "workspaces", "show", "team-a"])
            .env("RINGFENCE_CONTROL_URL", restored.url()),
    );
    assert_eq!(serde_json::from_slice::<Value>(&listed.stdout).unwrap(), set);
    plane.manage(&["workspaces", "delete", "team-a"]);
    let gone = tokens[0]["id"].as_str().unwrap();
    plane.manage(&["tokens", "revoke", gone]);
}
