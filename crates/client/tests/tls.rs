//! Over https: a server that can be believed, and those that cannot.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use ringfence_client::{Client, ClientError, TransportError};
use ringfence_fake::RawServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// A server of this name that says it is well, and its certificate.
async fn server(name: &str) -> (RawServer, String) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let server = RawServer::start(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let mut stream = acceptor.accept(stream).await?;
            let mut seen = Vec::new();
            while !seen.ends_with(b"\r\n\r\n") {
                seen.push(stream.read_u8().await?);
            }
            let body = r#"{"status":"ok","session_count":5}"#;
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await?;
            stream.shutdown().await
        }
    });
    (server.await.unwrap(), cert.pem())
}

fn url(server: &RawServer) -> String {
    server.url().replacen("http://", "https://", 1)
}

#[tokio::test]
async fn a_server_with_a_certificate_that_is_known_is_spoken_to() {
    let (server, certificate) = server("127.0.0.1").await;
    let client = Client::builder(&url(&server)).unwrap().root_certificates(certificate.as_bytes()).unwrap().build();
    assert_eq!(client.health().await.unwrap().session_count, Some(5));
}

#[tokio::test]
async fn a_server_that_cannot_be_believed_hears_nothing() {
    let (unknown, _) = server("127.0.0.1").await;
    let (other, certificate) = server("other.example").await;
    let trusting = |url: &str| Client::builder(url).unwrap().root_certificates(certificate.as_bytes()).unwrap().build();
    for client in [Client::new(&url(&unknown)).unwrap(), trusting(&url(&unknown)), trusting(&url(&other))] {
        let error = client.health().await.unwrap_err();
        let mut said = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            said.push_str(&format!(": {error}"));
            cause = error.source();
        }
        assert!(matches!(error, ClientError::Transport { .. }) && said.contains("certificate"), "{said}");
    }
}

#[tokio::test]
async fn a_url_of_the_other_scheme_is_told_with_the_one_that_may_be_meant() {
    let (secure, _) = server("127.0.0.1").await;
    let plain = RawServer::start(|mut stream| async move {
        let mut request = [0; 4000];
        let _ = stream.read(&mut request).await?;
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await
    });
    let plain = plain.await.unwrap();
    for (url, other) in [(secure.url().to_owned(), "https"), (url(&plain), "http")] {
        let error = Client::new(&url).unwrap().health().await.unwrap_err();
        let ClientError::Transport { source: source @ TransportError::Scheme { .. }, .. } = error else {
            panic!("{url}: {error:?}")
        };
        assert!(source.to_string().ends_with(&format!(" {other}://")), "{url}: {source}");
    }
}

#[tokio::test]
async fn what_is_no_certificate_is_refused() {
    for pem in [&b""[..], b"nothing", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let refused = Client::builder("https://host").unwrap().root_certificates(pem);
        assert!(matches!(refused, Err(ClientError::Certificates { .. })), "{pem:?}");
    }
}
