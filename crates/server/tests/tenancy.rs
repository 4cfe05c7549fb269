//! A server that workspaces share: who is believed, who sees what, and how often each may ask.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;

use std::time::Duration;

use common::{Answer, TestServer};
use ringfence_server::{Access, BearerToken, DoorLimits, Rate, Server, ServerError, Tenancy};
use ringfence_testkit::Authority;
use serde_json::{Value, json};

const PROOF: (&str, &str) = ("Authorization", "Bearer proof");
const A: (&str, &str) = ("X-Ringfence-Workspace", "team-a");
const B: (&str, &str) = ("X-Ringfence-Workspace", "team-b");

fn shared(tenancy: Tenancy) -> TestServer {
    let token = BearerToken::new(b"proof").unwrap();
    TestServer::asking(DoorLimits::default(), Access { token: Some(token), tls: None, tenancy: Some(tenancy) })
}

fn lease(server: &TestServer, fields: &[(&str, &str)]) -> Answer {
    let fields = [&[("Content-Type", "application/json")], fields].concat();
    server.ask("POST", "/sessions", &fields, b"{}")
}

/// A session's path.
fn leased(server: &TestServer, workspace: (&str, &str)) -> String {
    let answer = lease(server, &[PROOF, workspace]);
    assert_eq!(answer.status, 201, "{answer:?}");
    format!("/sessions/{}", answer.json()["session_id"].as_str().unwrap())
}

/// Every operation of the document, as (method, path).
fn operations() -> Vec<(String, String)> {
    let document: Value = serde_json::from_str(include_str!("../openapi.json")).unwrap();
    let paths = document["paths"].as_object().unwrap().iter();
    let operations: Vec<(String, String)> = paths
        .flat_map(|(path, item)| {
            item.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone())).collect::<Vec<_>>()
        })
        .collect();
    assert!(operations.len() > 15, "{operations:?}");
    operations
}

/// A body that the operation would take.
fn ask(server: &TestServer, method: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
    let (kind, body) = match (method, path) {
        ("POST", path) if path.ends_with("/files") => (common::FORM, common::form("a.txt", b"a", Some("a.txt"))),
        (_, path) if path.ends_with("/archive") => ("application/x-tar", vec![0; 1024]),
        ("POST", path) if path.ends_with("/exec") => {
            ("application/json", json!({"tool": "code_execution", "input": {"code": "1"}}).to_string().into_bytes())
        }
        ("POST", _) => ("application/json", b"{}".to_vec()),
        _ => ("text/plain", Vec::new()),
    };
    server.ask(method, &format!("{path}?path=a.txt"), &[&[("Content-Type", kind)], fields].concat(), &body)
}

#[test]
fn every_operation_on_a_session_is_404_for_another_workspace() {
    let server = shared(Tenancy::default());
    let session = leased(&server, A);
    server.fake.write(&session, "a.txt", b"secret of a");
    let mut count = 0;
    for (method, path) in operations().into_iter().filter(|(_, path)| path.contains("{session_id}")) {
        let path = path.replace("/sessions/{session_id}", &session);
        let none = format!("/sessions/{}{}", "0".repeat(32), path.strip_prefix(&session).unwrap());
        let theirs = ask(&server, &method, &path, &[PROOF, B]);
        let nobodys = ask(&server, &method, &none, &[PROOF, B]);
        // In the same words: there is no telling whether it exists.
        assert_eq!((theirs.refused(404), theirs.status), (nobodys.refused(404), nobodys.status), "{method} {path}");
        count += 1;
    }
    assert!(count >= 10, "{count}");
    // It is still there, as it was, and its owner's.
    assert_eq!(server.ask("GET", &session, &[PROOF, A], b"").status, 200);
    assert_eq!(server.fake.files(&session)["a.txt"].as_slice(), b"secret of a");
    let owners = server.ask("GET", &format!("{session}/files?path=a.txt"), &[PROOF, A], b"");
    assert_eq!((owners.status, owners.body.as_slice()), (200, &b"secret of a"[..]));
}

#[test]
fn a_workspace_lists_and_counts_its_own() {
    let server = shared(Tenancy::default());
    let sessions = [leased(&server, A), leased(&server, A), leased(&server, B)];
    let list = |workspace| {
        let list = server.ask("GET", "/sessions", &[PROOF, workspace], b"").json();
        let ids = list["sessions"].as_array().unwrap().iter();
        let mut paths: Vec<_> =
            ids.map(|handle| format!("/sessions/{}", handle["session_id"].as_str().unwrap())).collect();
        paths.sort();
        paths
    };
    let mut first_two = sessions[..2].to_vec();
    first_two.sort();
    assert_eq!((list(A), list(B)), (first_two, sessions[2..].to_vec()));
    let count = |workspace| server.ask("GET", "/tenancy", &[PROOF, workspace], b"").json();
    assert_eq!(count(A), json!({"workspace": "team-a", "session_count": 2}));
    assert_eq!(count(("X-Ringfence-Workspace", "team-c")), json!({"workspace": "team-c", "session_count": 0}));
}

#[test]
fn without_a_proof_nothing_is_believed() {
    let server = shared(Tenancy::default());
    let session = leased(&server, A);
    for (method, path) in operations().into_iter().filter(|(_, path)| !["/health", "/ready"].contains(&path.as_str())) {
        let path = path.replace("/sessions/{session_id}", &session);
        for fields in [&[A][..], &[A, ("Authorization", "Bearer wrong")], &[A, PROOF, PROOF], &[]] {
            let answer = ask(&server, &method, &path, fields);
            answer.refused(401);
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{method} {path}");
        }
    }
    assert_eq!(server.ask("GET", &session, &[PROOF, A], b"").status, 200);
}

#[test]
fn a_tenancy_that_is_not_told_as_it_must_be_is_400_and_nobodys() {
    let server = shared(Tenancy::default());
    let session = leased(&server, A);
    let open = ["/health", "/ready", "/openapi.json", "/metrics"];
    for (method, path) in operations() {
        let of_the_server = open.contains(&path.as_str());
        let path = path.replace("/sessions/{session_id}", &session);
        for fields in [
            &[][..],
            &[A, A],
            &[A, B],
            &[("X-Ringfence-Workspace", "")],
            &[("X-Ringfence-Workspace", "team a")],
            &[("X-Ringfence-Workspace", "team-a, team-b")],
            &[A, ("X-Ringfence-Sessions-Max", "0")],
            &[A, ("X-Ringfence-Sessions-Max", "many")],
        ] {
            let answer = ask(&server, &method, &path, &[&[PROOF][..], fields].concat());
            if of_the_server {
                assert_eq!(answer.status, 200, "{method} {path}");
            } else {
                assert_eq!(answer.status, 400, "{method} {path} {fields:?}");
                assert!(answer.detail().contains("enancy") || answer.detail().contains("X-Ringfence"), "{answer:?}");
            }
        }
    }
    assert_eq!(server.ask("GET", &session, &[PROOF, A], b"").status, 200);
}

#[test]
fn the_ceiling_of_a_grant_reaches_the_lease() {
    let server = shared(Tenancy::default());
    assert_eq!(lease(&server, &[PROOF, A, ("X-Ringfence-Sessions-Max", "3")]).status, 201);
    let told = server.fake.last_lease.lock().unwrap().clone().unwrap().tenant.unwrap();
    assert_eq!((told.workspace.as_str(), told.sessions_max), ("team-a", Some(3)));
}

#[test]
fn a_workspace_that_asks_too_often_waits_and_no_other() {
    // One in an hour: the test is not about the clock.
    let rate = Rate { interval: Duration::from_secs(3600), burst: 2 };
    let server = shared(Tenancy { rate: Some(rate) });
    let session = leased(&server, A);
    assert_eq!(server.ask("GET", &session, &[PROOF, A], b"").status, 200);
    let late = server.ask("GET", &session, &[PROOF, A], b"");
    late.refused(503);
    let seconds: u64 = late.header("retry-after").unwrap().parse().unwrap();
    assert!((3500..=3600).contains(&seconds), "{seconds}");
    // Others, what a front door asks, and what gives a session back are not held up.
    assert_eq!(lease(&server, &[PROOF, B]).status, 201);
    assert_eq!(server.ask("GET", "/tenancy", &[PROOF, A], b"").status, 200);
    assert_eq!(server.ask("DELETE", &session, &[PROOF, A], b"").status, 204);
}

#[test]
fn where_the_server_is_not_shared_the_fields_of_strangers_change_nothing() {
    let server = TestServer::with(DoorLimits::default(), Some("proof"));
    let wrong = [("X-Ringfence-Workspace", "not one, but two"), ("X-Ringfence-Sessions-Max", "0")];
    let session = format!(
        "/sessions/{}",
        lease(&server, &[&[PROOF], &wrong[..]].concat()).json()["session_id"].as_str().unwrap()
    );
    assert_eq!(server.fake.last_lease.lock().unwrap().clone().unwrap().tenant, None);
    for fields in [&[PROOF, A][..], &[PROOF, B], &[PROOF, B, A], &[PROOF]] {
        assert_eq!(server.ask("GET", &session, fields, b"").status, 200);
    }
    server.ask("GET", "/tenancy", &[PROOF, A], b"").refused(404);
}

#[test]
fn tenancy_without_any_proof_is_refused_at_the_start() {
    let access = Access { tenancy: Some(Tenancy::default()), ..Access::default() };
    let refused = Server::new(common::Fake::default(), DoorLimits::default(), access);
    assert!(matches!(refused, Err(ServerError::Unproven)));
    // Certificates prove something where clients must have one.
    let authority = Authority::new();
    for (client_ca, good) in [(None, false), (Some(authority.ca()), true)] {
        let access = Access {
            tenancy: Some(Tenancy::default()),
            tls: Some(common::tls::server(&authority, client_ca.as_deref())),
            ..Access::default()
        };
        assert_eq!(Server::new(common::Fake::default(), DoorLimits::default(), access).is_ok(), good);
    }
}

#[test]
fn a_certificate_proves_who_tells_the_workspace() {
    let (ours, others) = (Authority::new(), Authority::new());
    let tls = Some(common::tls::server(&ours, Some(&ours.ca())));
    let access = Access { tls, tenancy: Some(Tenancy::default()), ..Access::default() };
    let server = TestServer::asking(DoorLimits::default(), access);
    let lease = |fields: &[(&str, &str)]| {
        let all = [&[("Connection", "close"), ("Content-Length", "0")], fields].concat();
        common::head("POST", "/sessions", &all)
    };
    let ask = |client: &ringfence_tls::ClientTls, request: &[u8]| common::tls::ask(server.address, client, request);
    let gate = common::tls::client(&ours, Some(&ours));
    assert_eq!(ask(&gate, &lease(&[A])).as_deref(), Some("HTTP/1.1 201 Created"));
    assert_eq!(ask(&gate, &lease(&[])).as_deref(), Some("HTTP/1.1 400 Bad Request"));
    // No certificate, a stranger's, no TLS at all: nothing is served.
    assert_eq!(ask(&common::tls::client(&ours, None), &lease(&[A])), None);
    assert_eq!(ask(&common::tls::client(&ours, Some(&others)), &lease(&[A])), None);
    let mut plain = server.connect();
    std::io::Write::write_all(&mut plain, &lease(&[A])).unwrap();
    let mut answer = Vec::new();
    let _reset = std::io::Read::read_to_end(&mut plain, &mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert_eq!(server.fake.last_lease.lock().unwrap().clone().unwrap().tenant.unwrap().workspace.as_str(), "team-a");
}
