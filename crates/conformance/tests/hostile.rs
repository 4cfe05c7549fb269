//! Servers that speak no contract, or no HTTP at all: the checker ends, in time, and says that they do not conform.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io;
use std::time::Duration;

use ringfence_conformance::{CannotRun, Options, Report, run, text};
use ringfence_fake::{Fake, RawServer, Reply, Rules};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Only a run that hangs takes this long; it is no measure of speed.
const HANGS: Duration = Duration::from_secs(120);

async fn check(url: &str) -> Result<Report, CannotRun> {
    timeout(HANGS, run(&Options::new(url), &mut |_| {})).await.unwrap()
}

/// The same with little patience, for servers that use up all of it.
async fn check_impatiently(url: &str) -> Result<Report, CannotRun> {
    let mut options = Options::new(url);
    options.patience = Duration::from_millis(300);
    options.headroom = Duration::from_millis(100);
    timeout(HANGS, run(&options, &mut |_| {})).await.unwrap()
}

async fn request(stream: &mut TcpStream) -> io::Result<()> {
    let mut bytes = vec![0; 64 << 10];
    stream.read(&mut bytes).await.map(drop)
}

/// The report of a server that does this with every connection.
async fn against<F, D>(each: F) -> Report
where
    F: Fn(TcpStream) -> D + Send + 'static,
    D: Future<Output = io::Result<()>> + Send + 'static,
{
    let server = RawServer::start(each).await.unwrap();
    let report = check_impatiently(server.url()).await.unwrap();
    assert!(!report.conforming);
    assert_eq!(report.count("pass"), 0, "{}", text::summary(&report));
    assert!(!report.json().unwrap().is_empty());
    report
}

/// Sends a head, then the same piece for ever.
async fn endless(mut stream: TcpStream, head: &'static [u8], piece: &'static [u8]) -> io::Result<()> {
    request(&mut stream).await?;
    stream.write_all(head).await?;
    loop {
        stream.write_all(piece).await?;
    }
}

#[tokio::test]
async fn a_server_that_says_nothing() {
    let report = against(|mut stream| async move {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.map(drop)
    });
    assert!(report.await.count("unjudged") > 0);
}

#[tokio::test]
async fn a_server_that_hangs_up() {
    against(|stream| async move {
        drop(stream);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_server_that_speaks_no_http() {
    against(|mut stream| async move {
        request(&mut stream).await?;
        stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n\x00\xff\xfe").await
    })
    .await;
}

#[tokio::test]
async fn a_server_without_an_end_to_its_headers() {
    against(|stream| endless(stream, b"HTTP/1.1 200 OK\r\n", b"x-more: more and more and more\r\n")).await;
}

#[tokio::test]
async fn a_server_without_an_end_to_its_body() {
    against(|stream| endless(stream, b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n", &[b'['; 65536])).await;
}

#[tokio::test]
async fn a_server_without_an_end_to_its_interim_answers() {
    against(|stream| endless(stream, b"", b"HTTP/1.1 103 Early Hints\r\n\r\n")).await;
}

#[tokio::test]
async fn a_server_that_sends_a_byte_now_and_then() {
    against(|mut stream| async move {
        request(&mut stream).await?;
        stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 1000000\r\n\r\n").await?;
        loop {
            stream.write_all(b" ").await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_that_only_redirects() {
    against(|mut stream| async move {
        request(&mut stream).await?;
        stream
            .write_all(b"HTTP/1.1 307 Go\r\nlocation: /sessions\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            .await
    })
    .await;
}

#[tokio::test]
async fn json_that_is_too_deep_and_text_that_a_terminal_would_obey() {
    for body in ["[".repeat(200_000), "\u{1b}]0;owned\u{7}\u{202e}".repeat(1000)] {
        let twist = move |_: &_, _| Reply { status: 201, body: body.clone().into_bytes(), ..Reply::default() };
        let fake = Fake::start(Rules { twist: Some(std::sync::Arc::new(twist)), ..Rules::default() }).await.unwrap();
        let report = check(fake.url()).await.unwrap();
        assert!(!report.conforming);
        let shown: String = report.checks.iter().map(|row| text::row(row, false)).collect();
        assert!(!shown.contains(['\u{1b}', '\u{7}', '\u{202e}']), "control characters get through");
        assert!(shown.lines().all(|line| line.chars().count() < 4000));
    }
}

#[tokio::test]
async fn what_cannot_be_checked_is_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    assert!(matches!(check(&url).await, Err(CannotRun::Unreachable { .. })));
    assert!(matches!(check("https://127.0.0.1:1").await, Err(CannotRun::Unreachable { .. })));
    assert!(matches!(check("ftp://127.0.0.1:1").await, Err(CannotRun::Address(_))));
    let fake = Fake::start(Rules { token: Some("s3cret".to_owned()), ..Rules::default() }).await.unwrap();
    assert!(matches!(check(fake.url()).await, Err(CannotRun::Credential { status: 401 })));
    let twist = |asked: &ringfence_fake::Asked, reply| {
        if asked.is_lease() { Reply::refusal(503, "no room") } else { reply }
    };
    let full = Fake::start(Rules { twist: Some(std::sync::Arc::new(twist)), ..Rules::default() }).await.unwrap();
    assert!(matches!(check(full.url()).await, Err(CannotRun::NoRoom)));
    let mut options = Options::new(fake.url());
    options.only = vec!["nothing.of.this.name".to_owned()];
    assert!(matches!(run(&options, &mut |_| {}).await, Err(CannotRun::NoSuchCheck(_))));
}

#[tokio::test]
async fn room_for_one_session_is_enough() {
    let fake = Fake::start(Rules { sessions_max: 1, ..Rules::default() }).await.unwrap();
    let report = check(fake.url()).await.unwrap();
    let skipped: Vec<&str> = report.checks.iter().filter(|row| row.word() == "skip").map(|row| row.id).collect();
    assert_eq!(skipped, ["lease.distinct", "state.variables_apart", "state.files_apart", "credential.missing"]);
    let unjudged: Vec<_> = report.checks.iter().filter(|row| row.word() == "unjudged").collect();
    assert!(report.conforming, "{unjudged:?}");
}
