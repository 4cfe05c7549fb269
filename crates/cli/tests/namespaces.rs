//! What surrounds the server's processes and its sessions, as the kernel describes it: namespaces, ids, groups,
//! descriptors; and what is left when one of them goes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::fs;

use ringfence_testkit::{Server, ServerOptions, User, daemon_descriptors, descendants, eventually};
use rustix::process::{Gid, Pid, Signal, kill_process};
use rustix::thread::set_thread_groups;
use serde_json::json;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ringfence");
/// The kinds that the fleet has of its own, and each cell again.
const KINDS: [&str; 6] = ["user", "pid", "mnt", "net", "ipc", "uts"];

/// As whoever runs the tests, and as an ordinary user where that is root.
fn users() -> Vec<User> {
    let root = rustix::process::geteuid().is_root();
    if root { vec![User::Same, User::Other(43_212)] } else { vec![User::Same] }
}

fn options(user: User) -> ServerOptions {
    ServerOptions::new(PROGRAM).user(user).args(["--pool-size", "0", "--pool-max", "0"])
}

fn status(pid: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

fn name(pid: u32) -> String {
    status(pid, "Name")
}

/// It has ended, though nobody may have asked yet how.
fn is_gone(pid: u32) -> bool {
    let state = status(pid, "State");
    state.is_empty() || state.starts_with('Z')
}

fn namespace(pid: u32, kind: &str) -> String {
    fs::read_link(format!("/proc/{pid}/ns/{kind}")).map(|link| link.display().to_string()).unwrap_or_default()
}

/// Warden and keeper.
fn outer(server: &Server) -> (u32, u32) {
    let all = descendants(server.pid());
    assert_eq!(name(all[1]), "ringfence-keep");
    (all[0], all[1])
}

/// The first processes of the server's cells.
fn inits(server: &Server) -> Vec<u32> {
    descendants(server.pid()).into_iter().filter(|pid| name(*pid) == "init").collect()
}

/// A server with two sessions in which an interpreter and a command run.
fn busy(options: ServerOptions) -> Server {
    let server = options.start();
    for _ in 0..2 {
        let mut client = server.client();
        let handle = client.call("POST", "/sessions", Some(&json!({}))).json();
        let path = format!("/sessions/{}/exec", handle["session_id"].as_str().unwrap());
        for body in [
            json!({"tool": "code_execution", "input": {"code": "print(1)"}}),
            json!({"tool": "bash_code_execution", "input": {"command": "sleep 1000 > /dev/null 2>&1 &"}}),
        ] {
            assert_eq!(client.call("POST", &path, Some(&body)).status, 200);
        }
    }
    server
}

#[test]
fn the_fleet_has_namespaces_of_its_own() {
    for user in users() {
        let server = busy(options(user));
        let (warden, keeper) = outer(&server);
        let below = descendants(keeper);
        assert!(below.len() >= 5, "a zygote, two inits and what they hold: {below:?}");
        for pid in [vec![keeper], below].concat() {
            for kind in KINDS {
                let (own, hosts) = (namespace(pid, kind), namespace(warden, kind));
                assert_ne!(own, hosts, "{} is in the host's {kind} namespace, run by {user:?}", name(pid));
            }
            let devices = fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap();
            let devices: Vec<&str> =
                devices.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
            assert!(devices.iter().all(|device| *device == "lo"), "{} sees {devices:?}", name(pid));
        }
        // The first process of its pid namespace: with it go all others.
        assert_eq!(status(keeper, "NSpid").split_whitespace().last(), Some("1"));
    }
}

#[test]
fn every_session_has_namespaces_and_an_id_of_its_own() {
    for user in users() {
        let server = busy(options(user));
        let (_, keeper) = outer(&server);
        let inits = inits(&server);
        assert_eq!(inits.len(), 2);
        for kind in KINDS {
            let different: BTreeSet<String> = inits.iter().chain([&keeper]).map(|pid| namespace(*pid, kind)).collect();
            assert_eq!(different.len(), 3, "{kind} namespaces of two sessions and the keeper, run by {user:?}");
        }
        let ids: BTreeSet<String> = inits.iter().map(|pid| status(*pid, "Uid")).collect();
        let own_ids = user == User::Same && rustix::process::geteuid().is_root();
        assert_eq!(ids.len(), if own_ids { 2 } else { 1 }, "{ids:?}, run by {user:?}");
    }
}

/// Whoever starts the server may be in groups that may read what no session may.
#[test]
fn no_process_of_the_fleet_is_in_a_group_of_whoever_started_it() {
    if !rustix::process::geteuid().is_root() {
        println!("an ordinary user cannot leave its groups: SECURITY.md says so");
        return;
    }
    // Groups are a thread's own; what it starts has them.
    set_thread_groups(&[4, 24].map(Gid::from_raw)).unwrap();
    let server = busy(options(User::Same));
    let (warden, _) = outer(&server);
    assert_eq!(status(warden, "Groups"), "4 24", "what is looked for was there at the start");
    for pid in [vec![server.pid()], descendants(warden)].concat() {
        assert_eq!(status(pid, "Groups"), "", "{}", name(pid));
    }
}

#[test]
fn init_holds_few_descriptors() {
    for user in users() {
        let server = busy(options(user));
        for init in inits(&server) {
            // Three of /dev/null, the daemon's link, /proc, the workspace, /dev/null again, its children's signals.
            let count = daemon_descriptors(init);
            assert!((1..=8).contains(&count), "{count} descriptors, run by {user:?}");
        }
    }
}

/// The first processes of two sessions without namespaces.
fn guards() -> (Server, Vec<u32>) {
    let base = (1_200_000_000 + (std::process::id() << 4)).to_string();
    let options = ServerOptions::new(PROGRAM).args(["--tier", "confined", "--python", "/usr/bin/python3"]);
    let server = busy(options.args(["--pool-size", "0", "--pool-max", "0", "--id-base", &base]));
    let (_, keeper) = outer(&server);
    let children = |parent: u32| {
        descendants(parent)
            .into_iter()
            .filter(move |pid| status(*pid, "PPid") == parent.to_string())
            .collect::<Vec<_>>()
    };
    let guards: Vec<u32> = children(keeper).into_iter().flat_map(children).collect();
    assert_eq!(guards.len(), 2, "of two sessions");
    (server, guards)
}

#[test]
fn a_guard_holds_few_descriptors() {
    let (_server, guards) = guards();
    for guard in guards {
        // The three streams, two links, two folders, /proc, the session's domain, the two ends of a wake-up.
        let count = daemon_descriptors(guard);
        assert!((1..=12).contains(&count), "{count} descriptors");
    }
}

#[test]
fn a_session_without_namespaces_has_no_capability() {
    let root = rustix::process::geteuid().is_root();
    let (_server, guards) = guards();
    for guard in guards {
        let all = [vec![guard], descendants(guard)].concat();
        assert!(all.len() >= 2, "an interpreter or a command: {all:?}");
        for pid in all {
            // An ordinary user cannot empty the bounding set: SECURITY.md says so.
            for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"].into_iter().chain(root.then_some("CapBnd")) {
                assert_eq!(status(pid, set), "0000000000000000", "{set} of {}", name(pid));
            }
        }
    }
}

#[test]
fn a_released_session_leaves_no_process() {
    for user in users() {
        let server = options(user).start();
        let mut client = server.client();
        let mut session = client.lease(&json!({}));
        session.bash("sleep 1000 > /dev/null 2>&1 &");
        let inits = inits(&server);
        let held = [inits.clone(), inits.iter().flat_map(|init| descendants(*init)).collect()].concat();
        assert!(held.len() >= 2, "init and what the command left: {held:?}");
        session.release();
        eventually("the session's processes are gone", || held.iter().all(|pid| is_gone(*pid)).then_some(()));
    }
}

#[test]
fn the_keeper_ends_with_the_warden() {
    for user in users() {
        let mut server = busy(options(user));
        let (warden, keeper) = outer(&server);
        let held = [vec![keeper], descendants(keeper)].concat();
        kill_process(Pid::from_raw(warden.cast_signed()).unwrap(), Signal::KILL).unwrap();
        eventually("the fleet is gone", || held.iter().all(|pid| is_gone(*pid)).then_some(()));
        assert_eq!(server.wait().code(), Some(5), "every session was lost");
    }
}
