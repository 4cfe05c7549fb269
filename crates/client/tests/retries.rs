//! What is tried again, what never is, and what happens when nothing comes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringfence_client::{Client, ClientError, LeaseOptions, ToolCall, TransportError};
use ringfence_fake::RawServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A server that hangs up on the first `failures` requests, and answers the others; and a count of all.
async fn flaky(failures: usize, answer: &'static str) -> (RawServer, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let server = RawServer::start(move |mut stream| {
        let seen = Arc::clone(&seen);
        async move {
            let mut request = [0; 4000];
            if stream.read(&mut request).await? > 0 && seen.fetch_add(1, Ordering::SeqCst) >= failures {
                stream.write_all(answer.as_bytes()).await?;
            }
            Ok(())
        }
    });
    (server.await.unwrap(), count)
}

const LIST: &str = "HTTP/1.1 200 OK\r\ncontent-length: 12\r\nconnection: close\r\n\r\n{\"files\":[]}";

#[tokio::test]
async fn a_get_is_tried_again_after_the_connection_broke() {
    let (server, count) = flaky(2, LIST).await;
    let session = Client::new(server.url()).unwrap().attach("s");
    assert!(session.list("").await.unwrap().is_empty());
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn the_number_of_attempts_is_bounded() {
    let (server, count) = flaky(usize::MAX, LIST).await;
    let session = Client::new(server.url()).unwrap().attach("s");
    assert!(session.list("").await.is_err());
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn an_execute_a_lease_and_an_upload_are_sent_once() {
    let (server, count) = flaky(usize::MAX, LIST).await;
    let client = Client::new(server.url()).unwrap();
    let session = client.attach("s");
    let error = session.run(&ToolCall::python("pass")).await.unwrap_err();
    let broken =
        |error: &ClientError| matches!(error, ClientError::Transport { source: TransportError::Broken { .. }, .. });
    assert!(broken(&error), "{error:?}");
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert!(broken(&client.lease(&LeaseOptions::default()).await.unwrap_err()));
    assert_eq!(count.load(Ordering::SeqCst), 2);
    assert!(session.put("x", "y").await.is_err());
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_refused_connection_is_told_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = Client::new(&url).unwrap().attach("s").run(&ToolCall::python("pass")).await.unwrap_err();
    let ClientError::Transport { source: TransportError::Connect { to, .. }, .. } = &error else { panic!("{error:?}") };
    assert!(url.ends_with(to.as_str()), "{to}");
}

#[tokio::test]
async fn a_backend_that_never_answers_is_left_in_time() {
    let server = RawServer::start(|mut stream| async move {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.map(drop)
    })
    .await
    .unwrap();
    let session = Client::new(server.url()).unwrap().attach("s");
    let call = ToolCall::python("pass").patience(Duration::from_millis(50));
    let error = session.run(&call).await.unwrap_err();
    assert!(matches!(error, ClientError::Transport { source: TransportError::Timeout { .. }, .. }), "{error:?}");
}

#[tokio::test]
async fn an_answer_without_an_end_is_left_at_its_bound() {
    let server = RawServer::start(|mut stream| async move {
        let mut request = [0; 4000];
        let _ = stream.read(&mut request).await?;
        stream.write_all(b"HTTP/1.1 500 No\r\nconnection: close\r\n\r\n").await?;
        loop {
            stream.write_all(&[b'x'; 4096]).await?;
        }
    })
    .await
    .unwrap();
    let error = Client::new(server.url()).unwrap().health().await.unwrap_err();
    assert_eq!(error.status(), Some(500));
    assert!(error.to_string().len() < 3000);
}
