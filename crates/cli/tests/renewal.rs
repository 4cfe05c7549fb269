//! Zygotes are replaced under load without a hole in service, and nothing is left of them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use ringfence_testkit::{Client, Footprint, Server, ServerOptions, daemon_descriptors, descendants, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// Few forks, so that many zygotes come and go.
const FORKS_MAX: &str = "6";
/// Where the C library lies, and a hash: the same in all sessions of one zygote.
const LAYOUT: &str =
    "import ctypes; print(ctypes.cast(ctypes.CDLL('libc.so.6').malloc, ctypes.c_void_p).value, hash('a'))";

fn at_rest(server: &Server) -> (Footprint, usize) {
    eventually("the server at rest, with a full pool", || {
        let look = || (Footprint::of(server.pid()), daemon_descriptors(server.pid()));
        let health = server.client().call("GET", "/health", None).json();
        let first = look();
        std::thread::sleep(std::time::Duration::from_millis(500));
        (health["session_count"] == 0 && first == look()).then_some(first)
    })
}

fn walk(address: SocketAddr, rounds: usize) -> HashSet<String> {
    let mut client = Client::new(address, None);
    let mut found = HashSet::new();
    for _ in 0..rounds {
        let mut session = client.lease(&json!({}));
        found.insert(session.python(LAYOUT));
        session.release();
    }
    found
}

fn zygotes_come_and_go(options: ServerOptions, tier: &str) {
    let server = options.args(["--pool-size", "2", "--pool-max", "2", "--zygote-forks-max", FORKS_MAX]).start();
    assert_eq!(server.ready_line("tier"), Some(tier));
    let address = server.address();
    let mut client = server.client();
    let mut old = client.lease(&json!({}));
    let before = old.python(LAYOUT);
    old.python("kept = 1");
    // In a cell this is no folder of the host: then there is nothing to count.
    let folder = PathBuf::from(old.python("import os; print(os.getcwd(), end='')"));
    let folders = || {
        let of_all = folder.ancestors().nth(2).filter(|_| tier == "confined");
        of_all.map(|of_all| std::fs::read_dir(of_all).unwrap().count())
    };
    walk(address, 20);
    assert_eq!(
        (old.python(LAYOUT), old.python("print(kept)")),
        (before, "1\n".to_owned()),
        "it has its zygote's layout"
    );
    old.release();

    let begun = (at_rest(&server), folders());
    let found: HashSet<String> = std::thread::scope(|scope| {
        let walks: Vec<_> = (0..3).map(|_| scope.spawn(move || walk(address, 30))).collect();
        walks.into_iter().flat_map(|walk| walk.join().unwrap()).collect()
    });
    assert!(found.len() > 3, "{} layouts", found.len());
    eventually("nothing left of many zygotes", || ((at_rest(&server), folders()) == begun).then_some(()));
}

#[test]
fn zygotes_of_cells_come_and_go() {
    zygotes_come_and_go(ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")), "cell");
}

/// No namespaces, and a guard for each session.
#[test]
fn zygotes_without_namespaces_come_and_go() {
    let options = ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).args(["--tier", "confined"]);
    zygotes_come_and_go(options.args(["--python", "/usr/bin/python3", "--id-base", "1090000000"]), "confined");
}

/// Children of a process that are interpreters, with the folder that each is in.
fn interpreters_of(parent: u32) -> Vec<(u32, PathBuf)> {
    let stat = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let child =
        |pid: &u32| stat(*pid).rsplit_once(") ").is_some_and(|(_, rest)| rest[2..].starts_with(&format!("{parent} ")));
    let python = |pid: &u32| stat(*pid).contains("(python");
    let all = descendants(parent).into_iter().filter(child).filter(python);
    all.filter_map(|pid| Some((pid, std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?))).collect()
}

/// Guards outlive their zygote, be it that it is replaced or that it is killed meanwhile; and whoever is killed, one that
/// forks comes again.
#[test]
fn a_zygote_without_namespaces_that_is_killed_meanwhile_costs_no_session() {
    let options = ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).args(["--tier", "confined", "--pool-size", "0"]);
    let options = options.args(["--python", "/usr/bin/python3", "--id-base", "1080000000", "--zygote-forks-max", "2"]);
    let server = options.start();
    let keeper = eventually("the keeper", || {
        let name = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        descendants(server.pid()).into_iter().find(|pid| name(pid).trim() == "ringfence-keep")
    });
    let mut client = server.client();
    let mut kept = client.lease(&json!({}));
    let folder = PathBuf::from(kept.python("import os; print(os.getcwd(), end='')"));
    kept.python("kept = 1");
    // Asked for while none forks, it waits until one does.
    let lease = || {
        let answer = server.client().call("POST", "/sessions", Some(&json!({})));
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["session_id"].as_str().unwrap().to_owned()
    };
    let release = |id: &str| server.client().call("DELETE", &format!("/sessions/{id}"), None);
    for _ in 0..4 {
        // Often enough that another zygote is asked for; whether it is there yet is left to chance.
        let ids = [lease(), lease(), lease()];
        ids.iter().for_each(|id| assert_eq!(release(id).status, 204));
        // Whichever is in no session's folder that lives: the one that forks, the next one, one that leaves.
        for (pid, _) in interpreters_of(keeper).into_iter().filter(|(_, at)| *at != folder) {
            let _gone_already = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL);
        }
        assert_eq!(kept.python("print(kept)"), "1\n");
    }
    release(&lease());
    assert_eq!(kept.python("print(kept)"), "1\n");
    kept.release();
    // One zygote, its folder, and what belongs to the server itself.
    let left = eventually("nothing left but a zygote", || {
        let left = interpreters_of(keeper);
        (left.len() == 1 && !folder.exists()).then_some(left)
    });
    let zygotes_own = left[0].1.parent().unwrap().to_owned();
    eventually("no folder left but the zygote's", || {
        let of_all = std::fs::read_dir(zygotes_own.parent().unwrap()).unwrap();
        let hex = |name: &str| name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let left: Vec<_> = of_all.map(|entry| entry.unwrap().path()).collect();
        let mut left =
            left.into_iter().filter(|path| path.file_name().is_some_and(|name| hex(&name.to_string_lossy())));
        (left.next() == Some(zygotes_own.clone()) && left.next().is_none()).then_some(())
    });
}
