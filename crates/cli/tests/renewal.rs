//! Zygotes are replaced under load without a hole in service, and nothing is left of them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use ringfence_testkit::{Client, Footprint, Server, ServerOptions, daemon_descriptors, eventually};
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
