//! What is refused, in which words, and that nothing of it harms.

use std::io::Write;
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::{ADMIN, Setup, ask, raw};

pub(crate) fn refused(setup: &Setup) {
    let authorization = format!("Bearer {ADMIN}");
    let admin = ("Authorization", authorization.as_str());
    let json_body = ("Content-Type", "application/json");
    let post = |headers: &[(&str, &str)], body: &[u8]| ask(setup.address(), "POST /v1/workspaces", headers, body);
    for wrong in
        ["", "{", "[]", "null", "1", "{\"id\":\"a\"}x", "{\"id\":\"a\",\"id\":\"b\"}", "{\"id\":\"a\",\"x\":1}"]
    {
        post(&[admin, json_body], wrong.as_bytes()).refused(422);
    }
    post(&[admin, json_body], b"{\"id\":\"\xff\"}").refused(422);
    post(&[admin, json_body], "[".repeat(60_000).as_bytes()).refused(422);
    let long = post(&[admin, json_body], format!("{{\"{}\":1}}", "x".repeat(60_000)).as_bytes()).refused(422);
    assert!(long.chars().count() <= 300, "{}", long.len());
    post(&[admin], b"{\"id\":\"a\"}").refused(415);
    post(&[admin, ("Content-Type", "text/plain")], b"{\"id\":\"a\"}").refused(415);
    post(&[admin, json_body], &vec![b' '; (64 << 10) + 1]).refused(413);
    let sized = format!(
        "POST /v1/workspaces HTTP/1.1\r\nHost: c\r\n{}: {}\r\nContent-Type: application/json\r\n\
                         Content-Length: 99999999999\r\n\r\n",
        admin.0, admin.1
    );
    raw(setup.address(), sized.as_bytes()).unwrap().refused(413);
    let chunked = format!(
        "POST /v1/workspaces HTTP/1.1\r\nHost: c\r\n{}: {}\r\nContent-Type: application/json\r\n\
                           Transfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
        admin.0,
        admin.1,
        format!("1000\r\n{}\r\n", " ".repeat(4096)).repeat(20)
    );
    raw(setup.address(), chunked.as_bytes()).unwrap().refused(413);

    for id in ["", ".a", "a/b", "a b", "ä", &"a".repeat(65), "a\u{0}"] {
        setup.admin("POST /v1/workspaces", json!({"id": id})).refused(422);
    }
    let policy = |change: Value| {
        let mut policy = json!({"enabled": true, "tools": ["code_execution"]});
        policy.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        json!({"id": "team-a", "policy": policy})
    };
    for change in [
        json!({"tools": []}),
        json!({"tools": vec!["a"; 17]}),
        json!({"timeout_seconds_max": 0}),
        json!({"timeout_seconds_max": 1.5}),
        json!({"sessions_max": 4_294_967_296_u64}),
        json!({"purpose_hint": "x".repeat(2001)}),
        json!({"iterations_max": 1001}),
        json!({"enabled": "yes"}),
        json!({"time_out": 1}),
    ] {
        let detail = setup.admin("POST /v1/workspaces", policy(change)).refused(422);
        assert!(!detail.is_empty());
    }
    for (line, status) in [
        ("GET /", 404),
        ("GET /v1", 404),
        ("GET /v1/workspaces/", 404),
        ("GET /v1/workspaces/a/b", 404),
        ("GET /v1/workspaces/..%2f..%2fetc", 404),
        ("GET /v1/workspaces/%ff", 404),
        ("PATCH /v1/workspaces", 405),
        ("DELETE /v1/grants", 405),
        ("GET /v1/grants", 405),
        ("DELETE /v1/keys/..%2f..%2fadmin-token", 404),
        ("GET /v1/audit?after=x", 400),
        ("GET /v1/audit?limit=1&limit=2", 400),
    ] {
        setup.admin(line, Value::Null).refused(status);
    }
    assert!(setup.folder().join("admin-token").exists());
    // Credentials are looked at before anything is read.
    let unread = ask(setup.address(), "POST /v1/workspaces", &[json_body], &vec![b'x'; 10_000]);
    unread.refused(401);
    assert_eq!(unread.header("cache-control"), Some("no-store"));
    // After all that it works.
    setup.workspace("team-a", json!({"enabled": true, "tools": ["code_execution"]}));
}

pub(crate) fn broken(setup: &Setup) {
    for text in [
        "\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: c\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        "POST /v1/grants HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        &format!("GET /health HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100_000)),
        &format!("GET /health HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(100)),
        "\u{0}\u{1}\u{2}",
    ] {
        let answer = raw(setup.address(), text.as_bytes());
        assert!(answer.is_none_or(|answer| (400..500).contains(&answer.status)), "{text:.40}");
    }
    // Connections that say nothing, or half of something, hold nobody up.
    let held: Vec<TcpStream> = (0..50)
        .map(|number| {
            let mut stream = TcpStream::connect(setup.address()).unwrap();
            if number % 2 == 0 {
                stream.write_all(b"POST /v1/grants HTTP/1.1\r\nHost: c\r\nContent-Length: 100\r\n").unwrap();
            }
            stream
        })
        .collect();
    ask(setup.address(), "GET /ready", &[], b"").is(200);
    drop(held);
}
