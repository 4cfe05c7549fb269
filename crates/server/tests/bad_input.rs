//! Requests that are wrong, each in its way: a status and a detail for each, and others served meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod common;

use std::io::Write;

use common::{Answer, TestServer, head};
use ringfence_server::DoorLimits;

#[test]
fn bodies_that_are_no_call() {
    let server = TestServer::start();
    let session = server.session();
    let path = format!("{session}/exec");
    for body in [
        &b""[..],
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"{}",
        br#"{"tool": "code_execution", "input": {"code": "print(1)"}"#,
        br#"{"tool": "code_execution"}"#,
        br#"{"tool": "code_execution", "input": {"code": 5}}"#,
        br#"{"tool": "code_execution", "input": {"code": "1"}, "timeout_seconds": 1.5}"#,
        br#"{"tool": "code_execution", "input": {"code": "1"}, "timeout_seconds": 0}"#,
        br#"{"tool": "bash_code_execution", "input": {"command": "a\u0000b"}}"#,
        br#"{"tool": "text_editor_code_execution", "input": {"command": "rename", "path": "x"}}"#,
    ] {
        server.ask("POST", &path, &[("Content-Type", "application/json")], body).refused(422);
    }
    let long_id =
        format!(r#"{{"tool": "code_execution", "input": {{"code": "1"}}, "tool_use_id": "{}"}}"#, "x".repeat(2000));
    assert!(server.post(&path, &long_id).refused(422).contains("tool_use_id"));
    assert!(server.fake.last_call.lock().unwrap().is_none(), "nothing of it ran");
    let deep = format!(r#"{{"tool": "code_execution", "input": {{"code": "1"}}, "x": {}"#, "[".repeat(2_000_000));
    server.post(&path, &deep).refused(422);
    for body in [r#"{"idle_timeout_seconds": 0}"#, r#"{"max_lifetime_seconds": "5"}"#, "[]", "{"] {
        server.post("/sessions", body).refused(422);
    }
}

#[test]
fn bodies_that_are_too_large() {
    let server = TestServer::with(DoorLimits { json_bytes_max: 10_000, ..DoorLimits::default() }, None);
    let session = server.session();
    let path = format!("{session}/exec");
    let fits = server.exec(&session, &"x".repeat(9_900));
    assert_eq!(fits.status, 200);
    // Announced, and sent whole before the answer is read.
    assert!(server.exec(&session, &"x".repeat(200_000)).refused(413).contains("10000"));
    // Of unknown length.
    let mut stream = server.connect();
    stream.write_all(&head("POST", &path, &[("Transfer-Encoding", "chunked")])).unwrap();
    for _ in 0..20 {
        stream.write_all(format!("400\r\n{}\r\n", "x".repeat(0x400)).as_bytes()).unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    Answer::read(&mut stream, false).refused(413);
    server.is_well();
}

#[test]
fn ids_that_are_none() {
    let server = TestServer::start();
    let call = r#"{"tool": "code_execution", "input": {"code": "1"}}"#;
    let long = "a".repeat(300);
    let upper = "A".repeat(32);
    for id in ["nope", &long, &upper, "%00", "..%2f..%2fetc", "%2e%2e", "%", "%zz", "a%20b", "*", "%c3%28", ""] {
        let path = format!("/sessions/{id}");
        server.post(&format!("{path}/exec"), call).refused(404);
        server.get(&path).refused(404);
        server.get(&format!("{path}/files/list")).refused(404);
        server.get(&format!("{path}/files?path=x")).refused(404);
        server.put(&path, "x", b"1", None).refused(404);
        server.ask("DELETE", &path, &[], b"").refused(404);
    }
    server.get("/sessions/../../etc/passwd").refused(404);
    server.is_well();
}

#[test]
fn paths_and_methods_that_are_not_served() {
    let server = TestServer::start();
    let session = server.session();
    for path in ["/", "/nothing", "/sessions/", "//sessions", "/health/", "/sessions/x/exec/more", "/%00"] {
        server.get(path).refused(404);
    }
    for (method, path, allow) in [
        ("PUT", "/sessions", "GET, HEAD, POST"),
        ("GET", &format!("{session}/interrupt"), "POST"),
        ("PUT", session.as_str(), "GET, HEAD, DELETE"),
        ("GET", &format!("{session}/exec"), "POST"),
        ("PATCH", &format!("{session}/files"), "GET, HEAD, POST, DELETE"),
        ("POST", &format!("{session}/files/list"), "GET, HEAD"),
        ("DELETE", &format!("{session}/archive"), "GET, POST, PUT"),
        ("POST", "/health", "GET, HEAD"),
        ("OPTIONS", "/ready", "GET, HEAD"),
        ("BREW", "/metrics", "GET, HEAD"),
    ] {
        let answer = server.ask(method, path, &[], b"");
        answer.refused(405);
        assert_eq!(answer.header("allow"), Some(allow), "{method} {path}");
    }
}

#[test]
fn the_credential_is_wanted_everywhere_but_for_watching() {
    let server = TestServer::with(DoorLimits::default(), Some("s3cret"));
    let good = [("Authorization", "Bearer s3cret")];
    for path in ["/health", "/ready"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    let id = "0".repeat(32);
    for (method, path) in [
        ("POST", "/sessions".to_owned()),
        ("GET", format!("/sessions/{id}")),
        ("DELETE", format!("/sessions/{id}")),
        ("POST", format!("/sessions/{id}/exec")),
        ("GET", format!("/sessions/{id}/files/list")),
        ("GET", format!("/sessions/{id}/files?path=x")),
        ("POST", format!("/sessions/{id}/files")),
        ("DELETE", format!("/sessions/{id}/files?path=x")),
        ("GET", format!("/sessions/{id}/archive")),
        ("PUT", format!("/sessions/{id}/archive")),
        ("GET", "/openapi.json".to_owned()),
        ("GET", "/metrics".to_owned()),
        ("GET", "/nothing".to_owned()),
        ("PATCH", "/sessions".to_owned()),
    ] {
        for wrong in [&[][..], &[("Authorization", "Bearer wrong")], &[("Authorization", "Basic s3cret")]] {
            let answer = server.ask(method, &path, wrong, b"");
            answer.refused(401);
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{method} {path}");
        }
        assert_ne!(server.ask(method, &path, &good, b"").status, 401, "{method} {path}");
    }
    assert_eq!(server.ask("POST", "/sessions", &good, b"").status, 201);
    // An upload without the credential is answered although its sender reads only when all is sent.
    let form = common::form("x", &vec![0; 3_000_000], None);
    let headers = [("Content-Type", common::FORM)];
    server.ask("POST", &format!("/sessions/{id}/files"), &headers, &form).refused(401);
}

/// Without a token, whoever reaches the port may use it; a web page in a browser on this machine reaches it too.
#[test]
fn a_web_page_is_no_caller_of_a_server_without_a_token() {
    let page = ("Origin", "http://attacker.example");
    let open = TestServer::with(DoorLimits::default(), None);
    open.ask("POST", "/sessions", &[page, ("Content-Type", "text/plain")], b"{}").refused(401);
    assert_eq!(open.ask("POST", "/sessions", &[], b"{}").status, 201);
    let guarded = TestServer::with(DoorLimits::default(), Some("s3cret"));
    assert_eq!(guarded.ask("POST", "/sessions", &[page, ("Authorization", "Bearer s3cret")], b"{}").status, 201);
}

/// Heads that HTTP itself forbids: refused or cut off, never taken for something else.
#[test]
fn heads_that_are_none() {
    let server = TestServer::start();
    let many: String = (0..200).map(|number| format!("X-{number}: y\r\n")).collect();
    let cases = [
        ("GET /health HTTP/1.1\r\nHost: x\r\nX: \0\r\n\r\n".to_owned(), 400),
        ("GET /health HTTP/1.1\r\nHost x\r\n\r\n".to_owned(), 400),
        ("GET /health HTTP/9.9\r\nHost: x\r\n\r\n".to_owned(), 400),
        ("GET\r\n\r\n".to_owned(), 400),
        ("\u{1}\u{2}\u{3} / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("POST /sessions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x".to_owned(), 400),
        ("POST /sessions HTTP/1.1\r\nHost: x\r\nContent-Length: +2\r\n\r\n{}".to_owned(), 400),
        ("POST /sessions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n".to_owned(), 400),
        ("POST /sessions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n".to_owned(), 400),
        ("POST /sessions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n".to_owned(), 400),
        ("POST /sessions HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), 400),
        (format!("GET /health HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "y".repeat(100_000)), 431),
        (format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "y".repeat(100_000)), 431),
        (format!("GET /health HTTP/1.1\r\nHost: x\r\n{many}\r\n"), 431),
    ];
    for (request, status) in cases {
        let mut stream = server.connect();
        // The server may close on what it has seen before all is sent.
        let _sent = stream.write_all(request.as_bytes());
        if let Some(answer) = Answer::try_read(&mut stream, false) {
            assert_eq!(answer.status, status, "{request:.80}");
            // hyper's own answers have none.
            assert!(!answer.detail().is_empty(), "{request:.80}");
        }
        server.is_well();
    }
}

/// The answer of hyper's own is told from those of ours, on a connection that has been used before as well.
#[test]
fn a_head_that_is_none_after_a_good_one() {
    let server = TestServer::start();
    let session = server.session();
    // A file that ends as such an answer does must come out as it is.
    let bare = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n".repeat(3000);
    server.fake.write(&session, "bare", &bare);
    let mut stream = server.connect();
    for _ in 0..3 {
        stream.write_all(&head("GET", &format!("{session}/files?path=bare"), &[])).unwrap();
        assert_eq!(Answer::read(&mut stream, false).body, bare);
    }
    stream.write_all(b"GET\r\n\r\n").unwrap();
    Answer::read(&mut stream, false).refused(400);
    assert!(Answer::try_read(&mut stream, false).is_none(), "the connection ends");
    // Both at once: hyper's own answer comes, behind ours, as hyper makes it.
    let mut stream = server.connect();
    let both = [&head("GET", &format!("{session}/files?path=bare"), &[])[..], b"GET\r\n\r\n"].concat();
    stream.write_all(&both).unwrap();
    assert_eq!(Answer::read(&mut stream, false).body, bare);
    assert_eq!(Answer::try_read(&mut stream, false).map(|answer| answer.status), Some(400));
}

/// A request smuggled behind another's body is read as body, or not at all.
#[test]
fn two_lengths_hide_no_second_request() {
    let server = TestServer::start();
    let smuggled = "DELETE /sessions/x HTTP/1.1\r\nHost: x\r\n\r\n";
    let lengths =
        ["Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"];
    for both in lengths {
        let mut stream = server.connect();
        let request = format!("POST /sessions HTTP/1.1\r\nHost: x\r\n{both}\r\n0\r\n\r\n{smuggled}");
        stream.write_all(request.as_bytes()).unwrap();
        let first = Answer::read(&mut stream, false);
        assert!(matches!(first.status, 201 | 400), "{first:?}");
        assert!(Answer::try_read(&mut stream, false).is_none(), "the connection ends with the ambiguous request");
    }
    for broken in ["zz\r\n", "5\r\nab", "fffffffffffffffff\r\n", "-1\r\n", "5;\n\r\n"] {
        let mut stream = server.connect();
        stream.write_all(&head("POST", "/sessions", &[("Transfer-Encoding", "chunked")])).unwrap();
        stream.write_all(broken.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        if let Some(answer) = Answer::try_read(&mut stream, false) {
            answer.refused(400);
        }
    }
    server.is_well();
}
