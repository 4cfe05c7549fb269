//! `ringfence gate` as a process, between the client and a backend in memory.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test program may panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use door::{Gate, grant, keys, leased, private};
use ringfence_client::{Client, LeaseOptions, ToolCall};
use ringfence_fake::{Fake, Rules};
use ringfence_grant::{Algorithm, SigningKey};

mod door;

const BACKEND_TOKEN: &str = "backend-secret";

fn command(folder: &Path, backend: &str) -> Command {
    let mut command = door::command(folder);
    command.args(["--backend-token-file", "token", "--backend", &format!("b={backend}")]);
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_works_through_the_gate() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let key = keys(folder);
    private(folder, "token", BACKEND_TOKEN);
    let fake = Fake::start(Rules { token: Some(BACKEND_TOKEN.to_owned()), ..Rules::default() }).await.unwrap();
    let mut gate = Gate::start(command(folder, fake.url()));
    let client = |token| Client::builder(&gate.url).unwrap().token(token).build();
    let a = client(grant(&key, "team-a", None));
    let lease = leased(&a).await;
    assert_eq!(lease.run(&ToolCall::python("print(6 * 7)")).await.unwrap().stdout, "42\n");
    assert_eq!(lease.run(&ToolCall::bash("true")).await.unwrap_err().status(), Some(400));
    let stranger = client(grant(&SigningKey::generate(Algorithm::EdDsa).unwrap(), "team-a", None));
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
    keys(folder);
    fs::write(folder.join("token"), "hush-hush").unwrap();
    fs::set_permissions(folder.join("token"), fs::Permissions::from_mode(0o644)).unwrap();
    let (code, said) = ended(&mut command(folder, "http://127.0.0.1:1"));
    assert!(code == Some(2) && said.contains("token") && said.contains("chmod 600"), "{code:?} {said}");
    assert!(!said.contains("hush"), "{said}");
    let (code, said) = ended(command(folder, "http://127.0.0.1:1").args(["--usage-url", "http://h/u"]));
    assert!(code == Some(2) && said.contains("--usage-spool"), "{code:?} {said}");
}
