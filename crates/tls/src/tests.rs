//! Handshakes over memory, with certificates made for each test.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use ringfence_testkit::Authority;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Whether a word gets through.
async fn talk(server: &ServerTls, client: &ClientTls, host: &str) -> bool {
    let (theirs, ours) = tokio::io::duplex(64 << 10);
    let serving = async {
        let mut stream = server.accept(theirs).await?;
        let mut word = [0; 4];
        stream.read_exact(&mut word).await?;
        stream.write_all(&word).await?;
        stream.shutdown().await
    };
    let asking = async {
        let mut stream = client.connect(host, ours).await?;
        stream.write_all(b"word").await?;
        let mut word = [0; 4];
        stream.read_exact(&mut word).await?;
        io::Result::Ok(word)
    };
    let (served, asked) = tokio::join!(serving, asking);
    served.is_ok() && asked.is_ok_and(|word| &word == b"word")
}

#[tokio::test]
async fn only_who_has_a_certificate_of_the_right_authority_gets_through() {
    let (inner, other) = (Authority::new(), Authority::new());
    let (certificate, key) = inner.identity("backend.example");
    let gate = inner.identity("gate.example");
    let stranger = other.identity("gate.example");
    let ca = inner.path("ca.pem");
    let client = |ca: &Path, identity: Option<&(PathBuf, PathBuf)>, name| {
        ClientTls::read(ca, identity.map(|(file, key)| (file.as_path(), key.as_path())), name).unwrap()
    };

    let open = ServerTls::read(&certificate, &key, None).unwrap();
    assert!(!open.proves_peers());
    assert!(talk(&open, &client(&ca, None, None), "backend.example").await);
    assert!(!talk(&open, &client(&ca, None, None), "other.example").await, "another name");
    assert!(talk(&open, &client(&ca, None, Some("backend.example")), "10.0.0.1").await, "one name for all");
    assert!(!talk(&open, &client(&other.path("ca.pem"), None, None), "backend.example").await, "another authority");

    let closed = ServerTls::read(&certificate, &key, Some(&ca)).unwrap();
    assert!(closed.proves_peers());
    assert!(talk(&closed, &client(&ca, Some(&gate), None), "backend.example").await);
    assert!(!talk(&closed, &client(&ca, None, None), "backend.example").await, "no certificate");
    assert!(!talk(&closed, &client(&ca, Some(&stranger), None), "backend.example").await, "a stranger's");
}

#[tokio::test]
async fn what_is_no_tls_is_refused() {
    let authority = Authority::new();
    let (certificate, key) = authority.identity("backend.example");
    let server = ServerTls::read(&certificate, &key, None).unwrap();
    let (theirs, mut ours) = tokio::io::duplex(1024);
    ours.write_all(b"GET /health HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(server.accept(theirs).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_stands_still_ends() {
    let authority = Authority::new();
    let (certificate, key) = authority.identity("backend.example");
    let server = ServerTls::read(&certificate, &key, None).unwrap();
    let client = ClientTls::read(&authority.path("ca.pem"), None, None).unwrap();
    let (theirs, ours) = tokio::io::duplex(1024);
    assert_eq!(server.accept(theirs).await.err().map(|error| error.kind()), Some(io::ErrorKind::TimedOut));
    let (_silent, ours_too) = tokio::io::duplex(1024);
    assert_eq!(
        client.connect("x.example", ours_too).await.err().map(|error| error.kind()),
        Some(io::ErrorKind::TimedOut)
    );
    drop(ours);
}

#[test]
fn files_that_cannot_be_used_are_named_and_keys_shown_nowhere() {
    let authority = Authority::new();
    let (certificate, key) = authority.identity("backend.example");
    let (_, other) = authority.identity("other.example");
    let empty = authority.path("empty");
    fs::write(&empty, "nothing").unwrap();
    let open = authority.path("open.key");
    fs::copy(&key, &open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let secret = fs::read_to_string(&key).unwrap().lines().nth(1).unwrap().to_owned();
    for (certificate, key, ca, named) in [
        (&empty, &key, None, "empty"),
        (&certificate, &empty, None, "empty"),
        (&certificate, &open, None, "open.key"),
        (&certificate, &other, None, "backend.example.pem"),
        (&certificate, &key, Some(&empty), "empty"),
        (&authority.path("none"), &key, None, "none"),
        (&authority.path(""), &key, None, "it is no regular file"),
    ] {
        let error = ServerTls::read(certificate, key, ca.map(PathBuf::as_path)).err().unwrap();
        assert!(error.to_string().contains(named), "{error}");
        assert!(!format!("{error:?}").contains(&secret), "{error:?}");
    }
    assert!(matches!(ClientTls::read(&authority.path("ca.pem"), None, Some("not a name")), Err(TlsError::Name(_))));
}
