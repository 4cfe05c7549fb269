//! A gate's process, and grants for it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringfence_client::{BearerToken, Client, Lease, LeaseOptions};
use ringfence_grant::{Algorithm, Ceilings, Grant, GrantId, KeySet, SigningKey, Tools};
use ringfence_op::WorkspaceId;

/// A gate's process, ended with the test.
pub(crate) struct Gate {
    pub(crate) child: Child,
    pub(crate) url: String,
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Gate {
    /// Starts it, and waits until it listens.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().rsplit(' ').next().unwrap().to_owned();
        Gate { child, url }
    }
}

/// A file of mode 0600.
pub(crate) fn private(folder: &Path, name: &str, content: &str) {
    fs::write(folder.join(name), content).unwrap();
    fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o600)).unwrap();
}

/// A new signing key, whose public part is in the folder's `keys.json`; and a key for ids.
pub(crate) fn keys(folder: &Path) -> SigningKey {
    let key = SigningKey::generate(Algorithm::EdDsa).unwrap();
    fs::write(folder.join("keys.json"), KeySet::new(vec![key.public().clone()]).unwrap().to_json()).unwrap();
    private(folder, "id-keys", &format!("{}\n", "A".repeat(43)));
    key
}

/// The command line of a gate with these keys; its backends are still to be named.
pub(crate) fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    command.current_dir(folder).args(["gate", "--listen", "127.0.0.1:0", "--issuer", "cp", "--audience", "door"]);
    command.args(["--keys", "keys.json", "--id-keys-file", "id-keys"]);
    command
}

/// A grant for Python.
pub(crate) fn grant(key: &SigningKey, workspace: &str, sessions_max: Option<u32>) -> BearerToken {
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

/// A lease, once the gate has seen its backend's health.
pub(crate) async fn leased(client: &Client) -> Lease {
    let leasing = async {
        loop {
            match client.lease(&LeaseOptions::default()).await {
                Ok(lease) => return lease,
                Err(error) if error.status() == Some(503) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), leasing).await.expect("a lease in time")
}
