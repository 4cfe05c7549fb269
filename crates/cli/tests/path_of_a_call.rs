//! What a call costs the daemon in system calls: held to a recorded number, which no clock and no load can move.
//!
//! strace counts them. Of many calls the cheapest is taken: on a busy machine some last long enough for the server to
//! watch their pipes, which is what it is meant to do.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test's helpers end it where the machine fails them")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ringfence_testkit::{ServerOptions, eventually};
use serde_json::json;

/// Calls that are counted.
const CALLS: usize = 60;
/// System calls of the daemon for one `print(1+1)`, from the request to the next; docs/performance.md has the list.
const EXEC_MAX: usize = 16;
/// The same for GET /health.
const HEALTH_MAX: usize = 3;

/// strace on every thread of a process.
struct Tracer {
    child: Child,
}

impl Tracer {
    fn start(pid: u32, log: &Path) -> Self {
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-s", "16", "-e", "signal=none", "-o"]).arg(log).args(["-p", &pid.to_string()]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.expect("strace can be run: install Debian's package `strace`");
        let tracer = Tracer { child };
        let traced = |task: &fs::DirEntry| {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|pid| pid.trim() != "0"))
        };
        eventually("every thread is traced", || {
            fs::read_dir(format!("/proc/{pid}/task")).unwrap().all(|task| traced(&task.unwrap())).then_some(())
        });
        tracer
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let _ = self.child.wait();
    }
}

/// The system calls between one request of this kind and the next, for the cheapest one, by name.
fn cheapest(log: &str, request: &str) -> BTreeMap<String, usize> {
    let mut spans: Vec<Vec<&str>> = Vec::new();
    for line in log.lines() {
        let Some((_, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        if call.contains(request) {
            spans.push(Vec::new());
        }
        // The second half of a call that another thread interrupted is not counted again.
        if !call.starts_with("<...")
            && let (Some(span), Some((name, _))) = (spans.last_mut(), call.split_once('('))
        {
            span.push(name);
        }
    }
    // The last one has no next request behind it.
    spans.pop();
    // Which thread comes to wait for the kernel is chance, and a call on which it changes has one wake-up in place of one
    // wait: as cheap by number. The cheapest is one without.
    let wakes = |span: &&Vec<&str>| span.iter().filter(|name| **name == "futex").count();
    let span = spans.iter().min_by_key(|span| (wakes(span), span.len())).expect("requests were traced");
    let mut counts = BTreeMap::new();
    for name in span {
        *counts.entry((*name).to_owned()).or_default() += 1;
    }
    counts
}

#[test]
fn a_call_makes_no_more_system_calls_than_recorded() {
    let server =
        ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).args(["--pool-size", "1", "--pool-max", "1"]).start();
    let mut client = server.client();
    let mut session = client.lease(&json!({}));
    assert_eq!(session.python("print(1+1)"), "2\n");
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("strace");
    let tracer = Tracer::start(server.pid(), &log);
    for _ in 0..CALLS {
        assert_eq!(session.python("print(1+1)"), "2\n");
    }
    drop(session);
    for _ in 0..CALLS {
        assert_eq!(client.call("GET", "/health", None).status, 200);
    }
    drop(tracer);
    let log = fs::read_to_string(&log).unwrap();
    for (request, most) in [("\"POST /sessions/", EXEC_MAX), ("\"GET /health", HEALTH_MAX)] {
        let counts = cheapest(&log, request);
        let total: usize = counts.values().sum();
        assert!(total <= most, "{request}: {total} system calls, {most} are recorded: {counts:?}");
        assert_eq!(counts.get("futex"), None, "no thread wakes another: {counts:?}");
    }
}
