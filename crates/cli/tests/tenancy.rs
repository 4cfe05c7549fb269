//! A real server that workspaces share, behind a real gate, with certificates both ways; and what becomes of whoever goes
//! round the gate.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test program may panic")]

use std::net::SocketAddr;
use std::path::Path;

use door::{Gate, grant, keys, leased};
use ringfence_client::{Client, LeaseOptions, ToolCall};
use ringfence_testkit::{Authority, ServerOptions};
use ringfence_tls::ClientTls;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

mod door;

fn gate(folder: &Path, authority: &Authority, backend: SocketAddr) -> Gate {
    let (certificate, key) = authority.identity("gate");
    let mut command = door::command(folder);
    command.arg("--backend").arg(format!("b=https://{backend}")).arg("--backend-ca").arg(authority.ca());
    command.arg("--backend-client-cert").arg(certificate).arg("--backend-client-key").arg(key);
    Gate::start(command)
}

/// The whole answer to a request straight to the server; empty where no connection comes about.
async fn straight(server: SocketAddr, tls: &ClientTls, line: &str, fields: &str) -> String {
    let stream = tokio::net::TcpStream::connect(server).await.unwrap();
    let Ok(mut stream) = tls.connect("127.0.0.1", stream).await else { return String::new() };
    let request = format!("{line} HTTP/1.1\r\nhost: b\r\nconnection: close\r\ncontent-length: 0\r\n{fields}\r\n");
    let _refused = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _refused = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_served_across_workspaces_even_round_the_gate() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (ours, others) = (Authority::new(), Authority::new());
    let key = keys(folder);
    let (certificate, private) = ours.identity("127.0.0.1");
    let options = ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).args(["--require-tenancy", "--tls-cert"]);
    let options = options.args([certificate.as_path()]).args(["--tls-key"]).args([private.as_path()]);
    let mut server = options.args(["--tls-client-ca"]).args([ours.ca()]).args(["--max-sessions", "6"]).start();
    let gate = gate(folder, &ours, server.address());

    let client =
        |workspace, ceiling| Client::builder(&gate.url).unwrap().token(grant(&key, workspace, ceiling)).build();
    let (a, b) = (client("team-a", None), client("team-b", Some(1)));
    let (of_a, of_b) = (leased(&a).await, leased(&b).await);
    assert_eq!(of_a.run(&ToolCall::python("print(6 * 7)")).await.unwrap().stdout, "42\n");
    // The ceiling of a grant is the server's to hold.
    assert_eq!(b.lease(&LeaseOptions::default()).await.unwrap_err().status(), Some(503));

    // Round the gate with its own certificate: each workspace sees its own, by the server's ids.
    let (certificate, private) = ours.identity("gate");
    let tls = ClientTls::read(&ours.ca(), Some((&certificate, &private)), None).unwrap();
    let list = async |workspace: &str| {
        let answer =
            straight(server.address(), &tls, "GET /sessions", &format!("x-ringfence-workspace: {workspace}\r\n")).await;
        let body = answer.split_once("\r\n\r\n").unwrap().1.to_owned();
        let list: serde_json::Value = serde_json::from_str(&body).unwrap();
        let ids = list["sessions"].as_array().unwrap().iter();
        ids.map(|handle| handle["session_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let id = list("team-a").await.pop().unwrap();
    assert_eq!((list("team-a").await.len(), list("team-b").await.len(), list("team-c").await.len()), (1, 1, 0));
    for (fields, status) in [
        ("x-ringfence-workspace: team-a\r\n", "200"),
        ("x-ringfence-workspace: team-b\r\n", "404"),
        ("", "400"),
        ("x-ringfence-workspace: team-a\r\nx-ringfence-workspace: team-b\r\n", "400"),
    ] {
        let answer = straight(server.address(), &tls, &format!("GET /sessions/{id}"), fields).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{fields}: {answer}");
    }
    // Without a certificate, or with a stranger's, nobody is served anything.
    let (certificate, private) = others.identity("gate");
    let none = ClientTls::read(&ours.ca(), None, None).unwrap();
    let strangers = ClientTls::read(&ours.ca(), Some((&certificate, &private)), None).unwrap();
    for tls in [&none, &strangers] {
        let told = "x-ringfence-workspace: team-a\r\n";
        assert_eq!(straight(server.address(), tls, &format!("GET /sessions/{id}"), told).await, "");
        assert_eq!(straight(server.address(), tls, "GET /health", "").await, "");
    }
    of_a.release().await.unwrap();
    of_b.release().await.unwrap();
    drop(gate);
    assert!(server.stop().success());
    assert!(server.ready_line("address").unwrap().starts_with("https://"));
}
