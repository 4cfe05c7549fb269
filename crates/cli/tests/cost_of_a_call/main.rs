//! What the daemon's own code costs: instructions and allocations of each kind of request, held to recorded numbers,
//! which no clock and no load can move.
//!
//! The whole way from the listening socket to the answer runs on one thread over a keeper that costs nothing
//! (`keeper.rs`), with a clock that stands still; the client, the keeper and the interpreters have threads of their own,
//! which are not counted. Instructions are callgrind's. Each kind runs a few times and many times, and what counts is
//! the difference, so that the start costs nothing.
//!
//! `cargo test -p ringfence-cli --test cost_of_a_call` compares; `RINGFENCE_RECORD=1` before it writes the numbers anew:
//! do that where a change is meant to cost what it costs, or the compiler is another one, and say why in the commit.
//!
//! No test harness: the counted thread is the program's first.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that cannot go on ends by a panic, and what it has to say goes to its output"
)]

mod keeper;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use ringfence_frame::keeper::Limiter;
use ringfence_interp::{Interp, InterpConfig, Memory, Renewal};
use ringfence_op::{CallLimits, Tier};
use ringfence_probe::{Address, Connection, multipart_file};
use ringfence_server::backend::{About, OverSessions};
use ringfence_server::{Access, DoorLimits, Listener, Server};
use ringfence_session::{SessionConfig, Sessions};
use serde_json::{Value, json};

/// The recorded numbers, and the compiler that they are of.
const RECORD: &str = "tests/cost_of_a_call/recorded.json";
/// How much more than recorded is let pass where runs differ: the order of things that happen at once, hashes, sizes
/// of reads.
const MORE_PERCENT: u64 = 5;
/// Runs of a kind, few and many.
const RUNS: [u64; 2] = [20, 220];
/// The same for transfers, which are longer.
const RUNS_OF_TRANSFERS: [u64; 2] = [5, 45];
/// The file of the transfers.
const FILE_BYTES: usize = 1 << 20;
/// The name of the one case, as harnesses tell it.
const CASE: &str = "a_call_costs_no_more_than_recorded";

/// What a request costs, by the name of the number.
type Cost = BTreeMap<String, u64>;

/// A request of each kind, sent so often.
struct Kind {
    name: &'static str,
    runs: [u64; 2],
    /// What is counted: instructions of a transfer depend on how many bytes each read happens to find.
    instructions: bool,
    /// It allocates the same number of times whenever it runs.
    exact: bool,
    run: fn(&mut Client, u64),
}

const KINDS: &[Kind] = &[
    Kind { exact: true, name: "health", runs: RUNS, instructions: true, run: Client::health },
    Kind { exact: true, name: "exec", runs: RUNS, instructions: true, run: Client::exec },
    Kind { exact: false, name: "lease_and_destroy", runs: RUNS, instructions: true, run: Client::lease_and_destroy },
    Kind { exact: false, name: "put_file", runs: RUNS_OF_TRANSFERS, instructions: false, run: Client::put },
    Kind { exact: false, name: "get_file", runs: RUNS_OF_TRANSFERS, instructions: false, run: Client::get },
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if let [word, kind, runs] = &words[..]
        && word == "count"
    {
        let kind = KINDS.iter().find(|known| known.name == kind).expect("a known kind");
        let allocated = count(kind, runs.parse().expect("a number"));
        println!("{}", json!({"allocations": allocated.count_total, "allocated_bytes": allocated.bytes_total}));
        return ExitCode::SUCCESS;
    }
    if !words.is_empty() && !words.iter().any(|word| CASE.contains(word.as_str())) {
        println!("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out");
        return ExitCode::SUCCESS;
    }
    let seen: BTreeMap<String, Cost> = KINDS.iter().map(|kind| (kind.name.to_owned(), cost(kind))).collect();
    if std::env::var_os("RINGFENCE_RECORD").is_some() {
        let record = json!({"rustc": rustc(), "costs": seen});
        let text = serde_json::to_string_pretty(&record).expect("JSON") + "\n";
        std::fs::write(record_path(), text).expect("the record can be written");
        println!("recorded in {RECORD}");
        return ExitCode::SUCCESS;
    }
    let complaints = compare(&seen);
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    let good = complaints.is_empty();
    let (verdict, passed) = if good { ("ok", 1) } else { ("FAILED", 0) };
    println!("test {CASE} ... {verdict}\n");
    println!("test result: {verdict}. {passed} passed; {} failed; 0 ignored; 0 measured; 0 filtered out", 1 - passed);
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What is worse than recorded.
fn compare(seen: &BTreeMap<String, Cost>) -> Vec<String> {
    let text = std::fs::read_to_string(record_path()).expect("the record can be read");
    let record: Value = serde_json::from_str(&text).expect("the record is JSON");
    let recorded: BTreeMap<String, Cost> =
        serde_json::from_value(record["costs"].clone()).expect("the record has the costs");
    let mut complaints = Vec::new();
    for (kind, cost) in seen {
        for (number, value) in cost {
            let Some(before) = recorded.get(kind).and_then(|cost| cost.get(number)) else {
                complaints.push(format!("{kind}: {number} is not recorded; it is {value}"));
                continue;
            };
            println!("{kind}: {number} {value}, recorded {before}");
            let most = if exact(kind, number) { *before } else { before * (100 + MORE_PERCENT) / 100 };
            if *value > most {
                complaints
                    .push(format!("{kind}: {number} is {value}; recorded is {before}, at most {most} is let pass"));
            }
        }
    }
    if !complaints.is_empty() && record["rustc"] != rustc() {
        complaints.push(format!("the record is of {}, this is {}", record["rustc"], rustc()));
    }
    if !complaints.is_empty() {
        complaints.push(format!(
            "to record anew: RINGFENCE_RECORD=1 cargo test -p ringfence-cli --test cost_of_a_call ({RECORD})"
        ));
    }
    complaints
}

/// Whether a number is the same in every run.
fn exact(kind: &str, number: &str) -> bool {
    number == "allocations" && KINDS.iter().any(|known| known.name == kind && known.exact)
}

fn record_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORD)
}

fn rustc() -> String {
    let output = Command::new("rustc").arg("--version").output().expect("rustc tells its version");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// What one request of the kind costs.
fn cost(kind: &Kind) -> Cost {
    let [few, many] = kind.runs.map(|runs| counted(kind, runs));
    let runs = kind.runs[1] - kind.runs[0];
    // To the nearest: the start differs by a few.
    let each = |name: &String| (many[name].saturating_sub(few[name]) + runs / 2) / runs;
    many.keys().map(|name| (name.clone(), each(name))).collect()
}

/// What this program costs when it runs so many requests of the kind.
fn counted(kind: &Kind, runs: u64) -> Cost {
    let own = std::env::current_exe().expect("this program has a path");
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = if kind.instructions {
        let out = folder.path().join("callgrind");
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--separate-threads=yes", "--quiet"]);
        command.arg(format!("--callgrind-out-file={}", out.display())).arg(own);
        command
    } else {
        Command::new(own)
    };
    let output = command.args(["count", kind.name, &runs.to_string()]).output();
    let output = output.expect("valgrind can be run: install Debian's package `valgrind`");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} ended with {}:\n{said}", kind.name, output.status);
    let mut cost: Cost = serde_json::from_slice(&output.stdout).expect("it says what it allocated");
    if kind.instructions {
        // The first thread's file.
        let text = std::fs::read_to_string(folder.path().join("callgrind-01")).expect("callgrind's count");
        let total = text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok());
        cost.insert("instructions".to_owned(), total.expect("a total"));
    }
    cost
}

/// Runs the server on this thread until the client, on another, has sent its requests: what this thread allocated.
fn count(kind: &'static Kind, runs: u64) -> allocation_counter::AllocationInfo {
    let workspace = tempfile::tempdir().expect("a folder");
    let keeper = keeper::start(workspace.path());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    allocation_counter::measure(|| {
        runtime.block_on(async {
            // As long as this task blocks, the paused clock stands still.
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = format!("http://{}", listener.local_addr().expect("an address"));
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let client = tokio::task::spawn_blocking(move || {
                (kind.run)(&mut Client::new(&address), runs);
                drop(stop);
            });
            let (image, calls) = (keeper::root(), CallLimits::default());
            let config = InterpConfig {
                pool_size: 1,
                pool_max: 1,
                memory: Arc::new(Memory::new(0)),
                renewal: Renewal::default(),
                zygotes_apart: None,
                calls: calls.clone(),
            };
            let about = About { image: image.image.clone(), tier: Tier::Cell, call: calls, echo_last: false };
            let interp = Interp::start(keeper, Limiter::CgroupV1, &[image], config).expect("the keeper's socket");
            let sessions = Sessions::start(interp, SessionConfig::default());
            let server = Server::new(OverSessions::new(sessions, about), DoorLimits::default(), Access::default());
            let server = server.expect("a server");
            let serving = server.serve(Listener::Tcp(listener), async { drop(stopped.await) });
            serving.await.expect("it serves");
            client.await.expect("every request was answered");
        });
    })
}

/// Whoever sends the requests.
struct Client {
    connection: Connection,
}

impl Client {
    fn new(address: &str) -> Self {
        Client { connection: Connection::new(&Address::parse(address, None).expect("an address")) }
    }

    fn call(&mut self, wanted: u16, method: &str, path: &str, kind: &str, body: &[u8]) -> (Vec<u8>, u64) {
        let answer = self.connection.call(method, path, kind, body).expect("an answer");
        let said = String::from_utf8_lossy(&answer.body[..answer.body.len().min(300)]).into_owned();
        assert_eq!(answer.status, wanted, "{method} {path}: {said}");
        (answer.body, answer.body_bytes)
    }

    fn json(&mut self, wanted: u16, path: &str, body: &Value) -> Value {
        let (body, _) = self.call(wanted, "POST", path, "application/json", body.to_string().as_bytes());
        serde_json::from_slice(&body).expect("JSON")
    }

    fn lease(&mut self) -> String {
        let handle = self.json(201, "/sessions", &json!({}));
        format!("/sessions/{}", handle["session_id"].as_str().expect("an id"))
    }

    fn health(&mut self, runs: u64) {
        for _ in 0..runs {
            self.call(200, "GET", "/health", "", b"");
        }
    }

    fn exec(&mut self, runs: u64) {
        let path = format!("{}/exec", self.lease());
        let request = json!({"tool": "code_execution", "input": {"code": "print(1+1)"}, "timeout_seconds": 60});
        for _ in 0..runs {
            let answer = self.json(200, &path, &request);
            assert_eq!(answer.pointer("/result_block/content/stdout"), Some(&json!("2\n")), "{answer}");
        }
    }

    fn lease_and_destroy(&mut self, runs: u64) {
        for _ in 0..runs {
            let session = self.lease();
            self.call(204, "DELETE", &session, "", b"");
        }
    }

    fn put(&mut self, runs: u64) {
        let path = format!("{}/files", self.lease());
        let (kind, body) = multipart_file("file.bin", &vec![b'x'; FILE_BYTES]);
        for _ in 0..runs {
            self.call(201, "POST", &path, &kind, &body);
        }
    }

    fn get(&mut self, runs: u64) {
        let path = format!("{}/files", self.lease());
        let (kind, body) = multipart_file("file.bin", &vec![b'x'; FILE_BYTES]);
        self.call(201, "POST", &path, &kind, &body);
        for _ in 0..runs {
            let (_, bytes) = self.call(200, "GET", &format!("{path}?path=file.bin"), "", b"");
            assert_eq!(bytes, FILE_BYTES as u64);
        }
    }
}
