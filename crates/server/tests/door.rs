//! Connections: slow, idle, many, pipelined, hung up; and the end of the server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use common::{Answer, TestServer, head};
use ringfence_server::{DoorLimits, Drained};

/// Deadlines so short that tests see them come.
fn impatient() -> DoorLimits {
    DoorLimits {
        idle_max: Duration::from_millis(300),
        head_max: Duration::from_millis(200),
        body_pause_max: Duration::from_millis(200),
        body_grace: Duration::from_millis(400),
        write_pause_max: Duration::from_millis(300),
        ..DoorLimits::default()
    }
}

/// Reads until the server closes.
fn closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(why) => why.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn an_idle_connection_is_closed() {
    let server = TestServer::with(impatient(), None);
    let mut never_used = server.connect();
    assert_eq!(never_used.read(&mut [0; 16]).unwrap(), 0, "closed without a word");
    let mut used = server.connect();
    used.write_all(&head("GET", "/health", &[])).unwrap();
    assert_eq!(Answer::read(&mut used, false).status, 200);
    assert_eq!(used.read(&mut [0; 16]).unwrap(), 0, "closed without a word");
}

#[test]
fn a_connection_in_use_is_kept() {
    let server = TestServer::with(impatient(), None);
    let mut used = server.connect();
    for _ in 0..2 {
        let mut idle = server.connect();
        idle.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        while idle.read(&mut [0; 1]).is_err() {
            used.write_all(&head("GET", "/health", &[])).unwrap();
            assert_eq!(Answer::read(&mut used, false).status, 200);
        }
    }
}

#[test]
fn a_head_that_does_not_end_is_408() {
    let server = TestServer::with(impatient(), None);
    let mut stalled = server.connect();
    stalled.write_all(b"GET /health HTTP/1.1\r\nHost:").unwrap();
    Answer::read(&mut stalled, false).refused(408);
    assert!(closed(&mut stalled));
    // One byte at a time is no better: the head as a whole has its time. Also as a second request.
    let mut dripping = server.connect();
    dripping.write_all(&head("GET", "/health", &[])).unwrap();
    assert_eq!(Answer::read(&mut dripping, false).status, 200);
    let mut writer = dripping.try_clone().unwrap();
    let drip = std::thread::spawn(move || {
        while writer.write_all(b"G").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    if let Some(answer) = Answer::try_read(&mut dripping, false) {
        answer.refused(408);
    }
    assert!(closed(&mut dripping));
    drip.join().unwrap();
}

#[test]
fn a_body_that_does_not_come_is_408() {
    let server = TestServer::with(impatient(), None);
    let session = server.session();
    let mut stalled = server.connect();
    stalled.write_all(&head("POST", &format!("{session}/exec"), &[("Content-Length", "100")])).unwrap();
    stalled.write_all(b"{").unwrap();
    Answer::read(&mut stalled, false).refused(408);
    assert!(closed(&mut stalled));
    // Steady, but slower than any honest client.
    let mut dripping = server.connect();
    let headers = [("Content-Length", "1000000"), ("Content-Type", common::FORM)];
    dripping.write_all(&head("POST", &format!("{session}/files"), &headers)).unwrap();
    let mut writer = dripping.try_clone().unwrap();
    let drip = std::thread::spawn(move || {
        while writer.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    if let Some(answer) = Answer::try_read(&mut dripping, false) {
        answer.refused(408);
    }
    assert!(closed(&mut dripping));
    drip.join().unwrap();
    server.is_well();
}

#[test]
fn an_answer_that_nobody_reads_is_given_up() {
    let server = TestServer::with(impatient(), None);
    let session = server.session();
    server.fake.write(&session, "big", &vec![1; 64 << 20]);
    let mut stream = server.connect();
    stream.write_all(&head("GET", &format!("{session}/files?path=big"), &[])).unwrap();
    // The connection counts until it is given up; stopping waits for it.
    let mut first = [0; 1];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(server.stop(), Drained::Clean);
    assert!(closed(&mut stream));
}

#[test]
fn a_call_may_take_longer_than_any_wait_for_a_client() {
    let server = TestServer::with(impatient(), None);
    let session = server.session();
    let mut stream = server.connect();
    let body = r#"{"tool": "code_execution", "input": {"code": "wait"}}"#;
    let length = body.len().to_string();
    stream.write_all(&head("POST", &format!("{session}/exec"), &[("Content-Length", &length)])).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    server.fake.await_waiting(1);
    // Another connection goes idle and is closed meanwhile, so the deadlines have passed for sure.
    assert!(closed(&mut server.connect()));
    assert!(closed(&mut server.connect()));
    server.fake.open_gates();
    assert_eq!(Answer::read(&mut stream, false).status, 200);
}

#[test]
fn a_client_that_has_no_more_to_say_gets_its_answer() {
    let server = TestServer::start();
    let session = server.session();
    let mut stream = server.connect();
    let body = r#"{"tool": "code_execution", "input": {"code": "wait"}}"#;
    let length = body.len().to_string();
    stream.write_all(&head("POST", &format!("{session}/exec"), &[("Content-Length", &length)])).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    server.fake.await_waiting(1);
    server.fake.open_gates();
    assert_eq!(Answer::read(&mut stream, false).status, 200);
    assert!(closed(&mut stream));
}

#[test]
fn a_thousand_idle_connections_hurt_nobody() {
    let server = TestServer::start();
    let session = server.session();
    let idle: Vec<TcpStream> = (0..1000).map(|_| server.connect()).collect();
    for code in ["a", "b", "c"] {
        assert_eq!(server.exec(&session, code).status, 200);
    }
    let mut last = idle.into_iter().next_back().unwrap();
    last.write_all(&head("GET", "/health", &[])).unwrap();
    assert_eq!(Answer::read(&mut last, false).status, 200);
}

#[test]
fn a_connection_too_many_is_told_so() {
    let server = TestServer::with(DoorLimits { connections_max: 2, ..DoorLimits::default() }, None);
    let mut one = server.connect();
    let mut two = server.connect();
    for stream in [&mut one, &mut two] {
        stream.write_all(&head("GET", "/health", &[])).unwrap();
        assert_eq!(Answer::read(stream, false).status, 200);
    }
    let mut third = server.connect();
    let answer = Answer::read(&mut third, false);
    answer.refused(503);
    assert_eq!(answer.header("retry-after"), Some("1"));
    drop(one);
    // There is room again as soon as the server has seen that.
    loop {
        let mut stream = server.connect();
        let _sent = stream.write_all(&head("GET", "/health", &[]));
        if Answer::try_read(&mut stream, false).is_some_and(|answer| answer.status == 200) {
            break;
        }
    }
}

#[test]
fn requests_in_a_row_are_answered_in_a_row() {
    let server = TestServer::start();
    let session = server.session();
    let mut stream = server.connect();
    let mut all = Vec::new();
    for number in 0..50 {
        let body = format!(r#"{{"tool": "code_execution", "input": {{"code": "n{number}"}}}}"#);
        all.extend_from_slice(&head(
            "POST",
            &format!("{session}/exec"),
            &[("Content-Length", &body.len().to_string())],
        ));
        all.extend_from_slice(body.as_bytes());
    }
    stream.write_all(&all).unwrap();
    for number in 0..50 {
        let answer = Answer::read(&mut stream, false).json();
        assert_eq!(answer["result_block"]["content"]["stdout"], format!("ran n{number}\n"));
    }
}

#[test]
fn a_large_output_comes_whole() {
    let server = TestServer::start();
    let session = server.session();
    let answer = server.exec(&session, "output:500000");
    let stdout = answer.json()["result_block"]["content"]["stdout"].as_str().unwrap().to_owned();
    assert!(stdout == "\u{e9}\"\n".repeat(500_000));
}

#[test]
fn stopping_lets_answers_in_the_making_be_sent() {
    let mut server = TestServer::start();
    let session = server.session();
    let mut idle = server.connect();
    idle.write_all(&head("GET", "/health", &[])).unwrap();
    assert_eq!(Answer::read(&mut idle, false).status, 200);
    let mut stream = server.connect();
    let body = r#"{"tool": "code_execution", "input": {"code": "wait"}}"#;
    stream
        .write_all(&head("POST", &format!("{session}/exec"), &[("Content-Length", &body.len().to_string())]))
        .unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    server.fake.await_waiting(1);
    server.begin_stop();
    assert!(closed(&mut idle), "an idle connection is closed at once");
    server.fake.open_gates();
    let answer = Answer::read(&mut stream, false);
    assert_eq!(answer.status, 200);
    assert!(closed(&mut stream), "it is the last answer of its connection");
    assert!(TcpStream::connect(server.address).is_err() || closed(&mut server.connect()));
    assert_eq!(server.stop(), Drained::Clean);
}

#[test]
fn stopping_has_an_end() {
    let limits = DoorLimits { drain_max: Duration::from_millis(100), ..DoorLimits::default() };
    let server = TestServer::with(limits, None);
    let session = server.session();
    let mut stream = server.connect();
    let body = r#"{"tool": "code_execution", "input": {"code": "wait"}}"#;
    stream
        .write_all(&head("POST", &format!("{session}/exec"), &[("Content-Length", &body.len().to_string())]))
        .unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    server.fake.await_waiting(1);
    assert_eq!(server.stop(), Drained::CutOff(1));
    assert!(closed(&mut stream));
}

#[test]
fn a_unix_socket_serves_as_well() {
    use std::os::unix::net::{UnixListener, UnixStream};
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("door");
    let listener = UnixListener::bind(&place).unwrap();
    let server = ringfence_server::Server::new(
        common::Fake::default(),
        DoorLimits::default(),
        None::<ringfence_server::BearerToken>,
    )
    .unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(server.serve(ringfence_server::Listener::Unix(listener), async {
            let _ended = stopped.await;
        }))
    });
    let mut stream = UnixStream::connect(&place).unwrap();
    stream.write_all(&head("GET", "/health", &[("Connection", "close")])).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    drop(stop);
    assert_eq!(serving.join().unwrap().unwrap(), Drained::Clean);
}
