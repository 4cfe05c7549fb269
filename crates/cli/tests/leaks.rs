//! Nothing is left behind: processes, mounts, cgroups, descriptors, folders.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use ringfence_testkit::{
    Footprint, Server, ServerOptions, User, cgroups_of, daemon_descriptors, descendants, eventually, mounts,
};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;

/// Mounts belong to the machine: one test at a time may count them.
static COUNTING: Mutex<()> = Mutex::new(());

fn counting() -> MutexGuard<'static, ()> {
    COUNTING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start() -> Server {
    ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).args(["--pool-size", "2", "--pool-max", "2"]).start()
}

/// The footprint of a server with a full pool and no session; looked at until it stands still.
fn at_rest(server: &Server, what: &str) -> (Footprint, usize) {
    eventually(what, || {
        let health = server.client().call("GET", "/health", None).json();
        let first = (Footprint::of(server.pid()), daemon_descriptors(server.pid()));
        std::thread::sleep(std::time::Duration::from_millis(300));
        let second = (Footprint::of(server.pid()), daemon_descriptors(server.pid()));
        (health["session_count"] == 0 && first == second).then_some(second)
    })
}

fn use_a_session(server: &Server, rounds: usize) {
    let mut client = server.client();
    for round in 0..rounds {
        let mut session = client.lease(&json!({}));
        assert_eq!(session.python(&format!("print({round})")), format!("{round}\n"));
        session.bash("sleep 1000 > /dev/null 2>&1 & echo data > file");
        assert_eq!(session.get("file").status, 200);
        session.release();
    }
}

/// What a server had that must be gone in the end.
struct Held {
    pids: Vec<u32>,
    mounts_before: Vec<String>,
}

impl Held {
    /// Of a server that runs; `mounts_before` are those from before its start.
    fn by(server: &Server, mounts_before: Vec<String>) -> Self {
        let pids = descendants(server.pid());
        let has_cgroups = server.ready_line("limits").unwrap().starts_with("cgroup");
        assert_eq!(has_cgroups, !cgroups_of(&pids).is_empty(), "what is looked for is there while the server runs");
        assert!(pids.len() > 3, "{pids:?}");
        Held { pids, mounts_before }
    }

    fn processes_are_gone(&self) {
        eventually("every process is gone", || self.pids.iter().all(|pid| !is_there(*pid)).then_some(()));
    }

    fn all_is_gone(&self) {
        self.processes_are_gone();
        eventually("its cgroups are gone", || cgroups_of(&self.pids).is_empty().then_some(()));
        eventually("mounts are as they were", || (mounts() == self.mounts_before).then_some(()));
    }
}

fn is_there(pid: u32) -> bool {
    Pid::from_raw(pid as i32).is_some_and(|pid| test_kill_process(pid).is_ok())
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn two_hundred_sessions_leave_nothing() {
    let _counting = counting();
    let server = start();
    use_a_session(&server, 2);
    let before = at_rest(&server, "the server is at rest after two sessions");
    use_a_session(&server, 200);
    eventually("the server is at rest again, as it was before", || {
        (at_rest(&server, "the server is at rest after two hundred sessions") == before).then_some(())
    });
}

#[test]
fn a_drained_shutdown_leaves_nothing() {
    let _counting = counting();
    let mounts_before = mounts();
    let mut server = start();
    let mut client = server.client();
    client.lease(&json!({})).bash("sleep 1000 > /dev/null 2>&1 &");
    let held = Held::by(&server, mounts_before);
    assert!(server.stop().success());
    held.all_is_gone();
}

#[test]
fn a_killed_daemon_leaves_nothing() {
    let _counting = counting();
    killed(|server| server.pid());
}

#[test]
fn a_killed_keeper_leaves_nothing() {
    let _counting = counting();
    // The keeper is two processes: one outside that made the fleet, and its child inside.
    for depth in [0, 1] {
        killed(|server| descendants(server.pid())[depth]);
    }
}

fn killed(whom: impl Fn(&Server) -> u32) {
    let mounts_before = mounts();
    let mut server = start();
    let mut client = server.client();
    client.lease(&json!({})).bash("sleep 1000 > /dev/null 2>&1 &");
    let held = Held::by(&server, mounts_before);
    kill(whom(&server));
    server.wait();
    held.processes_are_gone();
    // What the dead could not take away, such as a cgroup, the next start does.
    let mut next = start();
    assert_eq!(next.client().lease(&json!({})).python("print(1)"), "1\n");
    assert!(next.stop().success());
    held.all_is_gone();
}

#[test]
fn an_ordinary_users_server_leaves_nothing() {
    let _counting = counting();
    let mounts_before = mounts();
    let mut options = ServerOptions::new(env!("CARGO_BIN_EXE_ringfence"));
    if rustix::process::geteuid().is_root() {
        options = options.user(User::Other(43_211));
    }
    let mut server = options.start();
    use_a_session(&server, 5);
    let held = Held::by(&server, mounts_before);
    assert!(server.stop().success());
    held.all_is_gone();
}
