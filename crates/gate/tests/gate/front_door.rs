//! Grants, tenancy, routing and streaming, with backends that keep to the contract.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{Backend, Issuer, TestGate, World, call, raw};
use ringfence_gate::Clock;
use ringfence_grant::{Ceilings, Tools};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_walk_through_the_gate() {
    let backend = Backend::start("one").await;
    let world = World::new();
    let gate = world.gate(&[&backend]).await;
    let grant = world.issuer.grant("team-a");
    let leased = gate.call("POST /sessions", &grant, r#"{"new_hint":[1]}"#).await;
    assert_eq!((leased.status, leased.header("content-type")), (201, Some("application/json")));
    let handle = leased.json();
    let id = handle["session_id"].as_str().unwrap().to_owned();
    assert_ne!(id, "one-1");
    assert_eq!((&handle["tier"], &handle["idle_timeout_seconds"]), (&json!("x"), &json!(300)));
    let read = gate.call(&format!("GET /sessions/{id}"), &grant, "").await;
    assert_eq!((read.status, read.json()["session_id"].as_str()), (200, Some(id.as_str())));
    let done = gate.execute(&grant, &id, "print(1)").await;
    assert_eq!((done.status, &done.json()["result_block"]["content"]["stdout"]), (200, &json!("one")));
    let interrupted = gate.call(&format!("POST /sessions/{id}/interrupt"), &grant, "{}").await;
    assert_eq!((interrupted.status, interrupted.json()), (200, json!({"interrupted": true})));
    let stranger = world.issuer.grant("team-b");
    assert_eq!(gate.call(&format!("POST /sessions/{id}/interrupt"), &stranger, "").await.status, 404);
    assert_eq!(backend.seen().iter().filter(|seen| seen.path == "/sessions/one-1/interrupt").count(), 1);
    let put = gate.call(&format!("POST /sessions/{id}/files?x=y%20z"), &grant, "a,b\n1,2\n").await;
    assert_eq!((put.status, put.json()["size_bytes"].as_u64()), (201, Some(8)));
    assert!(backend.seen().iter().any(|seen| seen.path == "/sessions/one-1/files?x=y%20z"));
    let got = gate.call(&format!("GET /sessions/{id}/files?path=f"), &grant, "").await;
    assert_eq!((got.status, got.text().as_str(), got.header("content-length")), (200, "a,b\n1,2\n", Some("8")));
    assert_eq!((got.header("etag"), got.header("x-content-type-options")), (Some("\"1\""), Some("nosniff")));
    let head = gate.call(&format!("HEAD /sessions/{id}/files?path=f"), &grant, "").await;
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, Some("8"), 0));
    let none = gate.call(&format!("GET /sessions/{id}/files?path=none"), &grant, "").await;
    assert_eq!((none.status, none.json()["detail"].as_str()), (404, Some("no such file")));
    assert_eq!(gate.call(&format!("GET /sessions/{id}/files/list"), &grant, "").await.json(), json!({"files": []}));
    assert_eq!(gate.call(&format!("DELETE /sessions/{id}"), &grant, "").await.status, 204);
    assert_eq!(gate.execute(&grant, &id, "print(1)").await.status, 404);
    gate.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_grant_of_the_test_vectors_meets_its_outcome() {
    let vectors: Value = serde_json::from_str(include_str!("../../../grant/tests/vectors.json")).unwrap();
    let backend = Backend::start("one").await;
    let world = World::new();
    world.file("keys.json", &vectors["key_set"].to_string());
    let mut config = world.config(&[&backend]);
    let text = |name: &str| vectors[name].as_str().unwrap().to_owned();
    (config.issuer, config.audience) = (text("issuer"), text("audience"));
    config.skew_seconds = vectors["skew_seconds"].as_u64().unwrap();
    let now = vectors["now"].as_u64().unwrap();
    config.clock = Some(Arc::new(move || now));
    let gate = TestGate::start(config).await;
    let mut leased = 0;
    for case in vectors["cases"].as_array().unwrap() {
        let (name, token) = (case["name"].as_str().unwrap(), case["token"].as_str().unwrap());
        let answer = gate.call("POST /sessions", &format!("Bearer {token}"), "").await;
        // Spaces between scheme and token are the header's, not the token's (RFC 9110, 11.4).
        if case["outcome"] == "accepted" || token.starts_with(' ') {
            assert_eq!(answer.status, 201, "{name}: {}", answer.text());
            leased += 1;
            continue;
        }
        let challenge = answer.header("www-authenticate").unwrap_or_else(|| panic!("{name}: {}", answer.text()));
        assert!(challenge.starts_with("Bearer realm=\"ringfence\""), "{name}");
        if token.is_empty() {
            assert!(matches!(answer.status, 400 | 401), "{name}: {}", answer.status);
        } else {
            assert_eq!(answer.status, 401, "{name}");
            assert!(challenge.contains("error=\"invalid_token\""), "{name}: {challenge}");
        }
        assert!(answer.json()["detail"].is_string());
    }
    assert_eq!((backend.sessions(), backend.seen().len()), (leased, leased), "only good grants reached the backend");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_and_doubled_credentials_are_told_apart() {
    let backend = Backend::start("one").await;
    let world = World::new();
    let gate = world.gate(&[&backend]).await;
    let grant = world.issuer.grant("team-a");
    let ask = |headers: Vec<(&'static str, String)>| {
        let address = gate.address;
        async move {
            let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let answer = call(address, "POST /sessions", &headers, b"").await;
            (answer.status, answer.header("www-authenticate").unwrap_or_default().to_owned())
        }
    };
    let plain = "Bearer realm=\"ringfence\"".to_owned();
    assert_eq!(ask(vec![]).await, (401, plain.clone()));
    assert_eq!(ask(vec![("authorization", "Basic dTpw".to_owned())]).await, (401, plain.clone()));
    let twice = ask(vec![("authorization", grant.clone()), ("Authorization", grant.clone())]).await;
    assert_eq!(twice, (400, format!("{plain}, error=\"invalid_request\"")));
    assert_eq!(ask(vec![("authorization", grant)]).await.0, 201);
    assert_eq!(backend.sessions(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenancy_comes_from_the_grant_alone() {
    let backend = Backend::start("one").await;
    let world = World::new();
    let gate = world.gate(&[&backend]).await;
    let claims = Issuer::claims("team-a");
    let grant = world.issuer.bearer(&claims);
    let headers = [
        ("authorization", grant.as_str()),
        ("x-ringfence-workspace", "team-b"),
        ("X-RINGFENCE-WORKSPACE", "team-c"),
        ("x_ringfence_workspace", "team-d"),
        ("x-ringfence-grant", "forged"),
        ("x-ringfence-sessions-max", "99"),
        ("connection", "x-ringfence-workspace, authorization, content-type"),
        ("x-forwarded-for", "10.0.0.1"),
        ("forwarded", "for=10.0.0.1"),
        ("cookie", "a=b"),
        ("proxy-authorization", "Basic x"),
        ("te", "trailers"),
        ("x-request-id", "request-7"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("tracestate", "a=1"),
    ];
    let leased = call(gate.address, "POST /sessions", &headers, b"{}").await;
    assert_eq!((leased.status, leased.header("x-request-id")), (201, Some("request-7")));
    let seen = backend.seen().pop().unwrap();
    let of = |name: &str| -> Vec<&str> {
        let all = seen.headers.iter().filter(|(key, _)| key.replace('_', "-").eq_ignore_ascii_case(name));
        all.map(|(_, value)| value.as_str()).collect()
    };
    assert_eq!(of("x-ringfence-workspace"), ["team-a"]);
    assert_eq!(of("x-ringfence-grant"), [claims.id.as_str()]);
    assert_eq!(of("x-ringfence-sessions-max"), [""; 0]);
    assert_eq!(of("authorization"), [format!("Bearer {}", crate::support::gate::PROOF)]);
    assert_eq!(of("x-request-id"), ["request-7"]);
    assert_eq!(of("traceparent").len() + of("tracestate").len(), 2);
    for gone in ["connection", "x-forwarded-for", "forwarded", "cookie", "proxy-authorization", "te"] {
        assert_eq!(of(gone), [""; 0], "{gone}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_kinds_are_those_of_the_grant() {
    let backend = Backend::start("one").await;
    let world = World::new();
    let gate = world.gate(&[&backend]).await;
    let grant = world.issuer.grant("team-a");
    let id = gate.lease(&grant).await;
    let path = format!("POST /sessions/{id}/exec");
    for (body, status) in [
        (r#"{"tool":"code_execution","input":{"code":"x"}}"#, 200),
        (r#"{"tool":"bash_code_execution","input":{"command":"x"}}"#, 400),
        (r#"{"tool":"sql","input":{}}"#, 400),
        (r#"{"tool":"code_execution","tool":"bash_code_execution","input":{}}"#, 422),
        (r#"{"tool":"code_execution","t\u006fol":"bash_code_execution","input":{}}"#, 422),
        (r#"{"tool":["code_execution"]}"#, 422),
        (r#"{"input":{}}"#, 422),
        (r#"{"tool":"code_execution"} {"tool":"bash_code_execution"}"#, 422),
        ("not json", 422),
        ("", 422),
    ] {
        let answer = gate.call(&path, &grant, body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
    }
    assert_eq!(backend.seen().iter().filter(|seen| seen.path.ends_with("/exec")).count(), 1);
    let mut both = Issuer::claims("team-a");
    both.tools = Tools::new(["code_execution", "bash_code_execution"]).unwrap();
    let both = world.issuer.bearer(&both);
    let bash = r#"{"tool":"bash_code_execution","input":{"command":"x"}}"#;
    assert_eq!(gate.call(&path, &both, bash).await.status, 200);
    let large = format!(r#"{{"tool":"code_execution","input":{{"code":"{}"}}}}"#, "x".repeat(4 << 20));
    assert_eq!(gate.call(&path, &grant, &large).await.status, 413);
    let just = format!(r#"{{"tool":"code_execution","input":{{"code":"{}"}}}}"#, "x".repeat((4 << 20) - 100));
    assert_eq!(gate.call(&path, &grant, &just).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn image_and_ceilings_are_put_into_the_hints() {
    let backend = Backend::start("one").await;
    let world = World::new();
    let gate = world.gate(&[&backend]).await;
    let mut claims = Issuer::claims("team-a");
    claims.image = Some("pinned".to_owned());
    claims.ceilings = Ceilings {
        sessions_max: Some(3),
        timeout_seconds_max: Some(20),
        idle_timeout_seconds_max: Some(100),
        max_lifetime_seconds_max: Some(10_000),
    };
    let grant = world.issuer.bearer(&claims);
    for (asked, sent) in [
        ("", json!({"image": "pinned", "idle_timeout_seconds": 100, "max_lifetime_seconds": 3600})),
        (
            r#"{"image":"other","idle_timeout_seconds":50,"max_lifetime_seconds":99999,"x":1.50}"#,
            json!({"image": "pinned", "idle_timeout_seconds": 50, "max_lifetime_seconds": 10_000, "x": 1.5}),
        ),
    ] {
        let leased = gate.call("POST /sessions", &grant, asked).await;
        assert_eq!(leased.status, 201, "{}", leased.text());
        let seen = backend.seen().pop().unwrap();
        assert_eq!(seen.json(), sent);
        assert_eq!(seen.header("x-ringfence-sessions-max"), Some("3"));
    }
    let malformed = gate.call("POST /sessions", &grant, r#"{"idle_timeout_seconds":"50"}"#).await;
    assert_eq!(malformed.status, 422);
    let id = gate.lease(&grant).await;
    for (asked, sent) in [("", 20), (r#","timeout_seconds":500"#, 20), (r#","timeout_seconds":7"#, 7)] {
        let body = format!(r#"{{"tool":"code_execution","input":{{"code":"\u0031"}}{asked}}}"#);
        assert_eq!(gate.call(&format!("POST /sessions/{id}/exec"), &grant, &body).await.status, 200);
        let seen = backend.seen().pop().unwrap();
        assert_eq!(seen.json()["timeout_seconds"], sent);
        assert!(String::from_utf8(seen.body).unwrap().contains(r#"{"code":"\u0031"}"#), "the code stays as written");
    }
    backend.twist(|seen| {
        let lax = r#"{"session_id":"lax","idle_timeout_seconds":101,"max_lifetime_seconds":60}"#;
        (seen.path == "/sessions").then(|| crate::support::Reply::json("201 Created", lax))
    });
    assert_eq!(gate.call("POST /sessions", &grant, "").await.status, 502, "a ceiling that the backend does not keep");
    backend.until(|seen| seen.method == "DELETE" && seen.path == "/sessions/lax").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_there_for_its_workspace_alone_and_for_every_gate() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let world = World::new();
    let (first, second) = (world.gate(&[&one, &two]).await, world.gate(&[&one, &two]).await);
    let (a, b) = (world.issuer.grant("team-a"), world.issuer.grant("team-b"));
    let mut ids = BTreeSet::new();
    for turn in 0..6 {
        let (here, there) = if turn % 2 == 0 { (&first, &second) } else { (&second, &first) };
        let id = here.lease(&a).await;
        assert_eq!(there.execute(&a, &id, "x").await.status, 200);
        let stranger = there.execute(&b, &id, "x").await;
        let unknown = there.execute(&b, "made-up", "x").await;
        assert_eq!((stranger.status, stranger.text()), (404, unknown.text()), "no hint that it exists");
        for line in ["GET", "DELETE"] {
            assert_eq!(here.call(&format!("{line} /sessions/{id}"), &b, "").await.status, 404);
        }
        assert_eq!(here.call(&format!("GET /sessions/{id}/files?path=f"), &b, "").await.status, 404);
        assert!(ids.insert(id));
    }
    assert!(one.sessions() > 0 && two.sessions() > 0, "both backends were used");
    let before = one.seen().len() + two.seen().len();
    let id = ids.first().unwrap().as_str();
    let other_world = World::new();
    other_world.file("id-keys", &format!("{}\n", "A".repeat(43)));
    for made_up in ["one-1", "b0", "127.0.0.1:1", "..", "%2e%2e", &id[1..], &format!("{id}A"), &"A".repeat(600)] {
        let answer = first.execute(&a, made_up, "x").await;
        assert_eq!(answer.status, 404, "{made_up}");
    }
    assert_eq!(one.seen().len() + two.seen().len(), before, "no made-up id reached a backend");
    let foreign = other_world.gate(&[&one]).await;
    assert_eq!(foreign.execute(&other_world.issuer.grant("team-a"), id, "x").await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_ends_during_a_call_does_not_end_it() {
    let backend = Backend::start("one").await;
    let world = World::new();
    let mut config = world.config(&[&backend]);
    let claims = Issuer::claims("team-a");
    let now = Arc::new(AtomicU64::new(claims.issued_at));
    let clock = Arc::clone(&now);
    config.clock = Some(Arc::new(move || clock.load(Ordering::SeqCst)) as Clock);
    let gate = TestGate::start(config).await;
    let grant = world.issuer.bearer(&claims);
    let id = gate.lease(&grant).await;
    let running = gate.execute(&grant, &id, "wait");
    let ended = async {
        backend.until(|seen| seen.path.ends_with("/exec")).await;
        now.store(claims.expires_at + 6, Ordering::SeqCst);
        let refused = gate.execute(&grant, &id, "x").await;
        assert_eq!(refused.status, 401);
        assert!(refused.header("www-authenticate").unwrap().contains("expired"));
        backend.state.gate.add_permits(1);
    };
    let (done, ()) = tokio::join!(running, ended);
    assert_eq!(done.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ambiguous_requests_are_refused_and_never_passed_on() {
    let backend = Backend::start("one").await;
    let world = World::new();
    let gate = world.gate(&[&backend]).await;
    let grant = world.issuer.grant("team-a");
    let id = gate.lease(&grant).await;
    let before = backend.seen().len();
    let auth = format!("Authorization: {grant}\r\nConnection: close\r\n");
    let exec = format!("POST /sessions/{id}/exec HTTP/1.1\r\nHost: g\r\n{auth}");
    let body = r#"{"tool":"code_execution","input":{"code":"x"}}"#;
    let length = body.len();
    for (what, request) in [
        ("two lengths", format!("{exec}Content-Length: {length}\r\nContent-Length: 5\r\n\r\n{body}")),
        ("a list of lengths", format!("{exec}Content-Length: {length}, 5\r\n\r\n{body}")),
        ("a signed length", format!("{exec}Content-Length: +{length}\r\n\r\n{body}")),
        ("an unknown coding", format!("{exec}Transfer-Encoding: xchunked\r\n\r\n{body}")),
        ("two codings", format!("{exec}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n")),
        ("a space before the colon", format!("{exec}Content-Length : {length}\r\n\r\n{body}")),
        ("a bad chunk", format!("{exec}Transfer-Encoding: chunked\r\n\r\nzz\r\n{body}\r\n0\r\n\r\n")),
        ("two hosts", format!("{exec}Host: h\r\nContent-Length: {length}\r\n\r\n{body}")),
        ("an upgrade", format!("{exec}Upgrade: h2c\r\nContent-Length: {length}\r\n\r\n{body}")),
        ("a folded field", format!("{exec}X: a\r\n b\r\nContent-Length: {length}\r\n\r\n{body}")),
        (
            "two types",
            format!("{exec}Content-Type: a/b\r\nContent-Type: c/d\r\nContent-Length: {length}\r\n\r\n{body}"),
        ),
        ("connect", format!("CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: g\r\n{auth}\r\n")),
        ("trace", format!("TRACE /sessions/{id} HTTP/1.1\r\nHost: g\r\n{auth}\r\n")),
        ("a path that climbs", format!("GET /sessions/{id}/files/../../../health HTTP/1.1\r\nHost: g\r\n{auth}\r\n")),
    ] {
        let answer = raw(gate.address, request.as_bytes()).await;
        assert!((400..500).contains(&answer.status), "{what}: {}", answer.status);
    }
    // Both a length and chunks: the chunks count (RFC 9112, 6.3), and what goes on is framed anew.
    let both =
        format!("{exec}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n");
    let answer = raw(gate.address, both.as_bytes()).await;
    let passed = backend.seen().split_off(before);
    match answer.status {
        200 => {
            assert_eq!((passed.len(), passed[0].body.as_slice()), (1, body.as_bytes()));
            assert_eq!(
                (passed[0].header("transfer-encoding"), passed[0].header("content-length")),
                (None, Some(length.to_string().as_str()))
            );
        }
        status => assert!((400..500).contains(&status) && passed.is_empty(), "{status}"),
    }
    // A target with another host in it goes where every request goes.
    let absolute = format!("GET http://127.0.0.1:1/sessions/{id} HTTP/1.1\r\nHost: g\r\n{auth}\r\n");
    assert_eq!(raw(gate.address, absolute.as_bytes()).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_stream_both_ways() {
    let backend = Backend::start("one").await;
    let world = World::new();
    let gate = world.gate(&[&backend]).await;
    let grant = world.issuer.grant("team-a");
    let id = gate.lease(&grant).await;
    let large: Vec<u8> = (0..20 << 20).map(|n: u32| (n % 251) as u8).collect();
    let headers = [("authorization", grant.as_str()), ("content-type", "multipart/form-data; boundary=x")];
    let put = call(gate.address, &format!("POST /sessions/{id}/files"), &headers, &large).await;
    assert_eq!((put.status, put.json()["size_bytes"].as_u64()), (201, Some(large.len() as u64)));
    assert_eq!(backend.seen().pop().unwrap().header("content-type"), Some("multipart/form-data; boundary=x"));
    let got = call(gate.address, &format!("GET /sessions/{id}/files?path=f"), &headers, b"").await;
    assert!(got.status == 200 && got.body == large && got.whole);
    // The first piece is at the client before the last has left the backend: nothing waits for the whole.
    backend.twist(|_| {
        Some(crate::support::Reply(
            b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello".to_vec(),
            crate::support::Then::Hang,
        ))
    });
    let mut stream = TcpStream::connect(gate.address).await.unwrap();
    let request = format!("GET /sessions/{id}/files?path=f HTTP/1.1\r\nhost: g\r\nauthorization: {grant}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"hello") {
        let mut piece = [0; 1024];
        let bytes =
            tokio::time::timeout(crate::support::client::PATIENCE, stream.read(&mut piece)).await.unwrap().unwrap();
        assert!(bytes > 0, "the gate gave up");
        seen.extend_from_slice(&piece[..bytes]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_breaks_off_is_no_upload_and_an_early_refusal_is_seen() {
    let backend = Backend::start("one").await;
    let world = World::new();
    let gate = world.gate(&[&backend]).await;
    let grant = world.issuer.grant("team-a");
    let id = gate.lease(&grant).await;
    let mut stream = TcpStream::connect(gate.address).await.unwrap();
    let head = format!(
        "POST /sessions/{id}/files HTTP/1.1\r\nhost: g\r\nauthorization: {grant}\r\ncontent-length: 1000\r\n\r\nhalf"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    drop(stream);
    let cut = backend.until(|seen| seen.path.ends_with("/files")).await;
    assert!(!cut.whole, "the backend saw that it broke off");
    // Without a grant the body is never looked at, and the client sees why although it still sends.
    let refused = call(gate.address, &format!("POST /sessions/{id}/files"), &[], &vec![b'x'; 3 << 20]).await;
    assert_eq!(refused.status, 401);
    backend.twist(|seen| {
        let large = seen.path.ends_with("/files");
        large.then(|| crate::support::Reply::json("413 Payload Too Large", r#"{"detail":"too large"}"#))
    });
    let headers = [("authorization", grant.as_str())];
    let large = call(gate.address, &format!("POST /sessions/{id}/files"), &headers, &vec![b'x'; 3 << 20]).await;
    assert_eq!((large.status, large.json()["detail"].as_str()), (413, Some("too large")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_kept_and_paths_and_methods_are_told_apart() {
    let backend = Backend::start("one").await;
    let world = World::new();
    let gate = world.gate(&[&backend]).await;
    let grant = world.issuer.grant("team-a");
    let mut stream = TcpStream::connect(gate.address).await.unwrap();
    let two = format!(
        "POST /sessions HTTP/1.1\r\nhost: g\r\nauthorization: {grant}\r\ncontent-length: 2\r\n\r\n{{}}\
         GET /health HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(two.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert_eq!((text.matches("HTTP/1.1 201").count(), text.matches("HTTP/1.1 200").count()), (1, 1), "{text}");
    let wrong = gate.call("PUT /sessions", &grant, "").await;
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("POST")));
    assert_eq!(gate.call("GET /metrics", &grant, "").await.status, 404);
    let health = gate.call("GET /health", "none", "").await.json();
    assert_eq!(
        (&health["status"], &health["max_sessions"], &health["backends"]),
        (&json!("ok"), &json!(100), &json!(1))
    );
}
