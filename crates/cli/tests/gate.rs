//! `ringfence gate` as a process, between the client and a backend in memory.

#![expect(clippy::unwrap_used, reason = "a test program may panic")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringfence_client::{BearerToken, Client, LeaseOptions, ToolCall};
use ringfence_fake::{Fake, Rules};
use ringfence_grant::{Algorithm, Ceilings, Grant, GrantId, KeySet, SigningKey, Tools};
use ringfence_op::WorkspaceId;

const BACKEND_TOKEN: &str = "backend-secret";

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

fn private(folder: &Path, name: &str, content: &str) {
    fs::write(folder.join(name), content).unwrap();
    fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o600)).unwrap();
}

fn command(folder: &Path, backend: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    command.current_dir(folder).args(["gate", "--listen", "127.0.0.1:0", "--issuer", "cp", "--audience", "door"]);
    command.args(["--keys", "keys.json", "--id-keys-file", "id-keys", "--backend-token-file", "token"]);
    command.args(["--backend", &format!("b={backend}")]);
    command
}

fn start(folder: &Path, backend: &str) -> Gate {
    let mut child = command(folder, backend).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().rsplit(' ').next().unwrap().to_owned();
    Gate { child, url }
}

fn grant(key: &SigningKey, workspace: &str) -> BearerToken {
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
        ceilings: Ceilings::default(),
    };
    BearerToken::new(grant.sign(key).unwrap().expose()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_works_through_the_gate() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let key = SigningKey::generate(Algorithm::EdDsa).unwrap();
    fs::write(folder.join("keys.json"), KeySet::new(vec![key.public().clone()]).unwrap().to_json()).unwrap();
    private(folder, "id-keys", &format!("{}\n", "A".repeat(43)));
    private(folder, "token", BACKEND_TOKEN);
    let fake = Fake::start(Rules { token: Some(BACKEND_TOKEN.to_owned()), ..Rules::default() }).await.unwrap();
    let mut gate = start(folder, fake.url());
    let client = |token| Client::builder(&gate.url).unwrap().token(token).build();
    let a = client(grant(&key, "team-a"));
    // The gate listens before it has seen its backend's health.
    let leased = async {
        loop {
            match a.lease(&LeaseOptions::default()).await {
                Ok(lease) => break lease,
                Err(error) if error.status() == Some(503) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let lease = tokio::time::timeout(Duration::from_secs(60), leased).await.expect("a lease in time");
    assert_eq!(lease.run(&ToolCall::python("print(6 * 7)")).await.unwrap().stdout, "42\n");
    assert_eq!(lease.run(&ToolCall::bash("true")).await.unwrap_err().status(), Some(400));
    let stranger = client(grant(&SigningKey::generate(Algorithm::EdDsa).unwrap(), "team-a"));
    assert_eq!(stranger.lease(&LeaseOptions::default()).await.unwrap_err().status(), Some(401));
    lease.release().await.unwrap();
    let id = i32::try_from(gate.child.id()).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(id).unwrap(), rustix::process::Signal::TERM).unwrap();
    let ended = tokio::task::spawn_blocking(move || gate.child.wait().unwrap()).await.unwrap();
    assert_eq!(ended.code(), Some(0));
}

#[test]
fn a_wrong_configuration_is_told_by_its_file_and_never_by_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let ended = |command: &mut Command| -> (Option<i32>, String) {
        let Output { status, stdout, stderr } = command.output().unwrap();
        assert!(stdout.is_empty());
        (status.code(), String::from_utf8(stderr).unwrap())
    };
    let (code, said) = ended(&mut command(folder, "http://127.0.0.1:1"));
    assert!(code == Some(2) && said.contains("keys.json"), "{code:?} {said}");
    let key = SigningKey::generate(Algorithm::EdDsa).unwrap();
    fs::write(folder.join("keys.json"), KeySet::new(vec![key.public().clone()]).unwrap().to_json()).unwrap();
    fs::write(folder.join("token"), "hush-hush").unwrap();
    fs::set_permissions(folder.join("token"), fs::Permissions::from_mode(0o644)).unwrap();
    let (code, said) = ended(&mut command(folder, "http://127.0.0.1:1"));
    assert!(code == Some(2) && said.contains("token") && said.contains("chmod 600"), "{code:?} {said}");
    assert!(!said.contains("hush"), "{said}");
    let (code, said) = ended(command(folder, "http://127.0.0.1:1").args(["--usage-url", "http://h/u"]));
    assert!(code == Some(2) && said.contains("--usage-spool"), "{code:?} {said}");
}
