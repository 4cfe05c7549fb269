//! The key set: rotated, wrong, huge, slow and gone; and the files of a gate.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use ringfence_gate::Gate;
use ringfence_grant::{Algorithm, KeySet, SigningKey};

use crate::support::backend::Seen;
use crate::support::{Backend, Issuer, Reply, TestGate, Then, World};

/// Asks until the gate has looked at its keys again.
async fn until_status(gate: &TestGate, grant: &str, status: u16) {
    let asking = async {
        while gate.call("POST /sessions", grant, "").await.status != status {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(crate::support::client::PATIENCE, asking).await.expect("in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_rotated_without_a_hole_and_taken_away_at_once() {
    let backend = Backend::start("one").await;
    let world = World::new();
    let gate = world.gate(&[&backend]).await;
    let old = world.issuer.grant("team-a");
    assert_eq!(gate.call("POST /sessions", &old, "").await.status, 201);
    let next = Issuer { key: SigningKey::generate(Algorithm::Es256).unwrap() };
    let new = next.grant("team-a");
    assert_eq!(gate.call("POST /sessions", &new, "").await.status, 401, "not published yet");
    let keys = [world.issuer.key.public().clone(), next.key.public().clone()];
    world.file("keys.json", &KeySet::new(keys.to_vec()).unwrap().to_json());
    until_status(&gate, &new, 201).await;
    assert_eq!(gate.call("POST /sessions", &old, "").await.status, 201, "both sign");
    world.file("keys.json", &next.key_set());
    until_status(&gate, &old, 401).await;
    assert_eq!(gate.call("POST /sessions", &new, "").await.status, 201);
    // What is no key set changes nothing.
    for wrong in ["", "{}", "nonsense", &"x".repeat(100_000)] {
        world.file("keys.json", wrong);
        tokio::time::sleep(Duration::from_millis(60)).await;
        assert_eq!(gate.call("POST /sessions", &new, "").await.status, 201, "{:.20}", wrong);
    }
    fs::remove_file(world.path("keys.json")).unwrap();
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(gate.call("POST /sessions", &new, "").await.status, 201, "the last good one stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_set_of_a_url_is_refreshed_and_bad_answers_change_nothing() {
    let (backend, control) = (Backend::start("one").await, Backend::start("control").await);
    let world = World::new();
    let grant = world.issuer.grant("team-a");
    let keys = |seen: &Seen| seen.path == "/keys";
    control.twist(move |seen| keys(seen).then(|| Reply(Vec::new(), Then::Close)));
    let mut config = world.config(&[&backend]);
    config.keys = format!("{}/keys", control.url());
    let gate = TestGate::unready(config);
    gate.until(|ready| ready.status == 503, "/ready").await;
    let answer = gate.call("POST /sessions", &grant, "").await;
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (503, Some("5")),
        "no keys: nobody is let in or turned away"
    );
    let good = world.issuer.key_set();
    let served = good.clone();
    control.twist(move |seen| keys(seen).then(|| Reply::json("200 OK", &served)));
    until_status(&gate, &grant, 201).await;
    let stranger = Issuer::new();
    let huge = format!("{{\"keys\":[],\"x\":\"{}\"}}", "x".repeat(1 << 20));
    let moved = Reply::with("302 Found", "location: http://127.0.0.1:1/\r\n", b"");
    for reply in [
        Reply::json("200 OK", "{\"keys\":[]}"),
        Reply::json("200 OK", &huge),
        Reply::json("500 Internal Server Error", &stranger.key_set()),
        moved,
        Reply(Vec::new(), Then::Close),
        Reply(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{".to_vec(), Then::Close),
    ] {
        let before = control.seen().len();
        let bad = reply.clone();
        control.twist(move |seen| keys(seen).then(|| bad.clone()));
        // Asked at least twice since: the first may have been under way.
        let seen = |control: &Backend| control.seen().len();
        while seen(&control) < before + 2 {
            control.until(keys).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(
            gate.call("POST /sessions", &grant, "").await.status,
            201,
            "{:.60?}",
            String::from_utf8_lossy(&reply.0)
        );
        assert_eq!(gate.call("POST /sessions", &stranger.grant("team-a"), "").await.status, 401);
    }
    drop(control);
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(gate.call("POST /sessions", &grant, "").await.status, 201, "the control plane may be down");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_set_that_cannot_be_confirmed_is_trusted_for_a_bounded_time() {
    let backend = Backend::start("one").await;
    let world = World::new();
    let mut config = world.config(&[&backend]);
    config.pace.keys_stale_max = Duration::from_millis(300);
    let gate = TestGate::start(config).await;
    let grant = world.issuer.grant("team-a");
    until_status(&gate, &grant, 201).await;
    fs::remove_file(world.path("keys.json")).unwrap();
    until_status(&gate, &grant, 503).await;
    world.file("keys.json", &world.issuer.key_set());
    until_status(&gate, &grant, 201).await;
}

#[tokio::test]
async fn a_gate_does_not_start_with_what_it_cannot_trust() {
    let backend = Backend::start("one").await;
    let world = World::new();
    let start = |change: &dyn Fn(&mut ringfence_gate::GateConfig)| {
        let mut config = world.config(&[&backend]);
        change(&mut config);
        match Gate::start(config) {
            Ok(_) => String::new(),
            Err(error) => {
                let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                format!("{error}: {source}")
            }
        }
    };
    assert_eq!(start(&|_| {}), "");
    let open = world.file("open", "c2Vzc2lvbi1pZC1rZXktb2YtMzItYnl0ZXMtaW4taXQ\n");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let short = world.file("short", "c2Vzc2lvbg\n");
    world.file("bad-keys.json", "{\"keys\":[]}");
    let private = world.issuer.key.to_jwk();
    world.file("private.json", &format!("{{\"keys\":[{}]}}", private.as_str()));
    for (said, change) in [
        (
            "others can use it",
            Box::new(|config: &mut ringfence_gate::GateConfig| config.id_keys_file = open.clone())
                as Box<dyn Fn(&mut ringfence_gate::GateConfig)>,
        ),
        ("others can use it", Box::new(|config| config.backend_token_file = Some(open.clone()))),
        ("32 bytes", Box::new(|config| config.id_keys_file = short.clone())),
        ("No such file", Box::new(|config| config.id_keys_file = "/nonexistent".into())),
        (
            "no key that grants",
            Box::new(|config| config.keys = world.path("bad-keys.json").to_str().unwrap().to_owned()),
        ),
        ("private", Box::new(|config| config.keys = world.path("private.json").to_str().unwrap().to_owned())),
        ("No such file", Box::new(|config| config.keys = "/nonexistent".to_owned())),
        ("--control-ca", Box::new(|config| config.keys = "https://control/keys".to_owned())),
        ("--backend-ca", Box::new(|config| config.backends = vec!["b0=https://h".to_owned()])),
        ("there is none", Box::new(|config| config.backends.clear())),
        ("NAME=URL", Box::new(|config| config.backends = vec!["http://h".to_owned()])),
        ("iss", Box::new(|config| config.issuer = String::new())),
        ("aud", Box::new(|config| config.audience = "a b".to_owned())),
    ] {
        let answer = start(&*change);
        assert!(answer.contains(said), "{said}: {answer}");
        assert!(!answer.contains("c2Vzc2lvb") && !answer.contains(crate::support::gate::PROOF), "{answer}");
    }
}
