//! A real server that workspaces share, behind a real gate, with certificates both ways; and what becomes of whoever goes
//! round the gate.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test program may panic")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringfence_client::{BearerToken, Client, LeaseOptions, ToolCall};
use ringfence_grant::{Algorithm, Ceilings, Grant, GrantId, KeySet, SigningKey, Tools};
use ringfence_op::WorkspaceId;
use ringfence_testkit::{Authority, ServerOptions};
use ringfence_tls::ClientTls;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A gate's process, ended with the test.
struct Gate {
    child: Child,
    url: String,
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn gate(folder: &Path, authority: &Authority, backend: SocketAddr) -> Gate {
    let private = |name: &str, content: &str| {
        fs::write(folder.join(name), content).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o600)).unwrap();
    };
    private("id-keys", &format!("{}\n", "A".repeat(43)));
    let (certificate, key) = authority.identity("gate");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    command.current_dir(folder).args(["gate", "--listen", "127.0.0.1:0", "--issuer", "cp", "--audience", "door"]);
    command.args(["--keys", "keys.json", "--id-keys-file", "id-keys"]);
    command.arg("--backend").arg(format!("b=https://{backend}")).arg("--backend-ca").arg(authority.ca());
    command.arg("--backend-client-cert").arg(certificate).arg("--backend-client-key").arg(key);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().rsplit(' ').next().unwrap().to_owned();
    Gate { child, url }
}

fn grant(key: &SigningKey, workspace: &str, sessions_max: Option<u32>) -> BearerToken {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let grant = Grant {
        issuer: "cp".to_owned(),
        audience: "door".to_owned(),
        workspace: WorkspaceId::parse(workspace).unwrap(),
        id: GrantId::random().unwrap(),
        issued_at: now,
        not_before: now,
        expires_at: now + 600,
        tools: Tools::new(["code_execution"]).unwrap(),
        image: None,
        ceilings: Ceilings { sessions_max, ..Ceilings::default() },
    };
    BearerToken::new(grant.sign(key).unwrap().expose()).unwrap()
}

/// Waits for the gate to have seen its backend.
async fn leased(client: &Client) -> ringfence_client::Lease {
    let leasing = async {
        loop {
            match client.lease(&LeaseOptions::default()).await {
                Ok(lease) => return lease,
                Err(error) if error.status() == Some(503) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), leasing).await.unwrap()
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
    let key = SigningKey::generate(Algorithm::EdDsa).unwrap();
    fs::write(folder.join("keys.json"), KeySet::new(vec![key.public().clone()]).unwrap().to_json()).unwrap();
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
