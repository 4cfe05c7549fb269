//! Files up and down, and the two additions beside them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use ringfence_client::{Client, ClientError, Lease, LeaseOptions};
use ringfence_fake::{Fake, RawServer, Rules};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn leased(fake: &Fake) -> Lease {
    Client::new(fake.url()).unwrap().lease(&LeaseOptions::default()).await.unwrap()
}

#[tokio::test]
async fn files_of_any_bytes_and_names_go_there_and_back() {
    let fake = Fake::start(Rules::default()).await.unwrap();
    let lease = leased(&fake).await;
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    for path in ["plain.bin", "deep/er/x.bin", "caf\u{e9} \u{2603}.csv", "a&b=c?d#e%2e.txt", "--file"] {
        let stored = lease.put(path, bytes.clone()).await.unwrap();
        assert_eq!((stored.path.as_str(), stored.size_bytes), (path, 300_000));
        assert_eq!(lease.read(path).await.unwrap(), bytes, "{path}");
    }
    let listed: Vec<String> = lease.list("deep/er").await.unwrap().into_iter().map(|file| file.path).collect();
    assert_eq!(listed, ["deep/er/x.bin"]);
    assert_eq!(lease.list("").await.unwrap().len(), 4);
    assert_eq!(lease.list_recursive("").await.unwrap().len(), 5);
    lease.remove("plain.bin").await.unwrap();
    assert!(matches!(lease.read("plain.bin").await, Err(ClientError::NotFound { .. })));
    assert_eq!(lease.put("../out", "x").await.unwrap_err().status(), Some(403));
}

#[tokio::test]
async fn readers_and_local_files_are_streamed() {
    let fake = Fake::start(Rules::default()).await.unwrap();
    let lease = leased(&fake).await;
    let (mut far, near) = tokio::io::duplex(1000);
    let feeding = tokio::spawn(async move {
        for _ in 0..1000 {
            far.write_all(&[7; 1000]).await.unwrap();
        }
    });
    assert_eq!(lease.put_reader("piped", near, None).await.unwrap().size_bytes, 1_000_000);
    feeding.await.unwrap();

    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("local");
    std::fs::write(&local, vec![9; 200_000]).unwrap();
    lease.put_local("copied", &local).await.unwrap();
    let download = lease.open("copied").await.unwrap();
    assert_eq!(download.length(), Some(200_000));
    assert_eq!(download.media_type(), Some("application/octet-stream"));
    let mut back = Vec::new();
    assert_eq!(download.write_to(&mut back).await.unwrap(), 200_000);
    assert_eq!(back, vec![9; 200_000]);
    let missing = lease.put_local("x", &folder.path().join("none")).await.unwrap_err();
    assert!(matches!(missing, ClientError::Local { .. }), "{missing:?}");
}

#[tokio::test]
async fn a_reader_that_ends_early_fails_the_upload() {
    let fake = Fake::start(Rules::default()).await.unwrap();
    let lease = leased(&fake).await;
    let error = lease.put_reader("short", &b"abc"[..], Some(10)).await.unwrap_err();
    assert!(matches!(error, ClientError::Transport { operation: "PutFile", .. }), "{error:?}");
    assert!(lease.list("").await.unwrap().is_empty());
}

#[tokio::test]
async fn bounds_of_a_download_hold() {
    let fake = Fake::start(Rules::default()).await.unwrap();
    let lease = leased(&fake).await;
    lease.put("big", vec![0; 10_000]).await.unwrap();
    assert!(lease.open("big").await.unwrap().bytes(9_999).await.is_err());
    assert_eq!(lease.open("big").await.unwrap().bytes(10_000).await.unwrap().len(), 10_000);
}

#[tokio::test]
async fn a_file_that_ends_before_its_length_is_an_error() {
    let server = RawServer::start(|mut stream| async move {
        let mut request = [0; 1000];
        let _ = stream.read(&mut request).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf").await
    })
    .await
    .unwrap();
    let session = Client::new(server.url()).unwrap().attach("s");
    let error = session.read("x").await.unwrap_err();
    assert!(matches!(error, ClientError::Transport { operation: "GetFile", .. }), "{error:?}");
}
