//! Nothing is left behind: processes, mounts, cgroups, descriptors, folders.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use ringfence_testkit::{Footprint, Server, ServerOptions, User, daemon_descriptors, descendants, eventually};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;

/// Mounts and cgroups belong to the machine: one test at a time may count them.
static COUNTING: Mutex<()> = Mutex::new(());

fn counting() -> MutexGuard<'static, ()> {
    COUNTING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start() -> Server {
    ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).args(["--pool-size", "2"]).start()
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

/// Everything of the server's is gone: its processes, mounts and cgroups.
fn all_gone(pids: &[u32], before: &Footprint, pid: u32) {
    eventually("every process is gone", || pids.iter().all(|pid| !is_there(*pid)).then_some(()));
    eventually("mounts and cgroups are back where they were", || {
        let now = Footprint::of(pid);
        (now.mounts == before.mounts && now.cgroups == before.cgroups).then_some(())
    });
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
    let nothing = Footprint::of(0);
    let mut server = start();
    let mut client = server.client();
    let mut session = client.lease(&json!({}));
    session.bash("sleep 1000 > /dev/null 2>&1 &");
    let pids = descendants(server.pid());
    assert!(!pids.is_empty());
    assert!(server.stop().success());
    all_gone(&pids, &nothing, 0);
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
    let nothing = Footprint::of(0);
    let mut server = start();
    let mut client = server.client();
    let mut session = client.lease(&json!({}));
    session.bash("sleep 1000 > /dev/null 2>&1 &");
    let pids = descendants(server.pid());
    kill(whom(&server));
    server.wait();
    eventually("every process is gone", || pids.iter().all(|pid| !is_there(*pid)).then_some(()));
    // What the dead could not take away, such as a cgroup, the next start does.
    let mut next = start();
    assert_eq!(next.client().lease(&json!({})).python("print(1)"), "1\n");
    assert!(next.stop().success());
    all_gone(&pids, &nothing, 0);
}

#[test]
fn an_ordinary_users_server_leaves_nothing() {
    let _counting = counting();
    let nothing = Footprint::of(0);
    let mut options = ServerOptions::new(env!("CARGO_BIN_EXE_ringfence"));
    if rustix::process::geteuid().is_root() {
        options = options.user(User::Other(43_211));
    }
    let mut server = options.start();
    use_a_session(&server, 5);
    let pids = descendants(server.pid());
    assert!(server.stop().success());
    all_gone(&pids, &nothing, 0);
}
