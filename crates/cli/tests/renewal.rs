//! Zygotes are replaced under load without a hole in service, and nothing is left of them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::HashSet;

use ringfence_testkit::{Footprint, Server, ServerOptions, daemon_descriptors, eventually};
use serde_json::json;

/// Few forks, so that many zygotes come and go.
const FORKS_MAX: &str = "6";
const LAYOUT: &str = "print(id(None), hash('a'))";

fn at_rest(server: &Server) -> (Footprint, usize) {
    eventually("the server at rest, with a full pool", || {
        let look = || (Footprint::of(server.pid()), daemon_descriptors(server.pid()));
        let health = server.client().call("GET", "/health", None).json();
        let first = look();
        std::thread::sleep(std::time::Duration::from_millis(500));
        (health["session_count"] == 0 && first == look()).then_some(first)
    })
}

fn walk(server: &Server, rounds: usize) -> HashSet<String> {
    let mut client = server.client();
    let mut found = HashSet::new();
    for _ in 0..rounds {
        let mut session = client.lease(&json!({}));
        found.insert(session.python(LAYOUT));
        session.release();
    }
    found
}

/// `confined`: no namespaces, and a guard for each session.
fn zygotes_come_and_go(options: ServerOptions, tier: &str) {
    let server = options.args(["--pool-size", "2", "--pool-max", "2", "--zygote-forks-max", FORKS_MAX]).start();
    assert_eq!(server.ready_line("tier"), Some(tier));
    let mut client = server.client();
    let mut old = client.lease(&json!({}));
    let before = old.python(LAYOUT);
    old.python("kept = 1");
    walk(&server, 20);
    assert_eq!(
        (old.python(LAYOUT), old.python("print(kept)")),
        (before, "1\n".to_owned()),
        "it has its zygote's layout"
    );
    old.release();

    let begun = at_rest(&server);
    let found: HashSet<String> = std::thread::scope(|scope| {
        let walks: Vec<_> = (0..3).map(|_| scope.spawn(|| walk(&server, 30))).collect();
        walks.into_iter().flat_map(|walk| walk.join().unwrap()).collect()
    });
    assert!(found.len() > 3, "{} layouts", found.len());
    assert_eq!(at_rest(&server), begun, "nothing is left of {} zygotes", found.len());
}

#[test]
fn zygotes_of_cells_come_and_go() {
    zygotes_come_and_go(ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")), "cell");
}

#[test]
fn zygotes_without_namespaces_come_and_go() {
    zygotes_come_and_go(ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).args(["--tier", "confined"]), "confined");
}
