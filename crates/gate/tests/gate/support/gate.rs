//! A gate with its files, and the one who issues grants for it.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringfence_gate::{Gate, GateConfig, Pace, Policy, TlsConfig};
use ringfence_grant::{Algorithm, Ceilings, Grant, GrantId, KeySet, SigningKey, Tools};
use ringfence_op::WorkspaceId;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Backend;
use super::client::{Answer, call};

pub(crate) const ISSUER: &str = "https://control.example";
pub(crate) const AUDIENCE: &str = "https://gate.example";
pub(crate) const PROOF: &str = "proof-canary-8d1f";

/// A control plane, as far as it signs.
pub(crate) struct Issuer {
    pub(crate) key: SigningKey,
}

impl Issuer {
    pub(crate) fn new() -> Self {
        Issuer { key: SigningKey::generate(Algorithm::EdDsa).unwrap() }
    }

    pub(crate) fn key_set(&self) -> String {
        KeySet::new(vec![self.key.public().clone()]).unwrap().to_json()
    }

    pub(crate) fn claims(workspace: &str) -> Grant {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        Grant {
            issuer: ISSUER.to_owned(),
            audience: AUDIENCE.to_owned(),
            workspace: WorkspaceId::parse(workspace).unwrap(),
            id: GrantId::random().unwrap(),
            issued_at: now,
            not_before: now,
            expires_at: now + 900,
            tools: Tools::new(["code_execution"]).unwrap(),
            image: None,
            ceilings: Ceilings::default(),
        }
    }

    pub(crate) fn bearer(&self, grant: &Grant) -> String {
        format!("Bearer {}", grant.sign(&self.key).unwrap().expose())
    }

    pub(crate) fn grant(&self, workspace: &str) -> String {
        self.bearer(&Self::claims(workspace))
    }
}

/// The files that gates of one deployment share.
pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) issuer: Issuer,
}

impl World {
    pub(crate) fn new() -> Self {
        let world = World { folder: tempfile::tempdir().unwrap(), issuer: Issuer::new() };
        world.file("keys.json", &world.issuer.key_set());
        world.file("id-keys", "c2Vzc2lvbi1pZC1rZXktb2YtMzItYnl0ZXMtaW4taXQ\n");
        world.file("proof", &format!("{PROOF}\n"));
        world
    }

    /// Writes a private file.
    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn config(&self, backends: &[&Backend]) -> GateConfig {
        let list = backends.iter().enumerate().map(|(index, backend)| format!("b{index}={}", backend.url())).collect();
        config(self.folder.path(), list)
    }

    /// A gate in front of these, ready.
    pub(crate) async fn gate(&self, backends: &[&Backend]) -> TestGate {
        TestGate::start(self.config(backends)).await
    }
}

pub(crate) fn config(folder: &Path, backends: Vec<String>) -> GateConfig {
    GateConfig {
        issuer: ISSUER.to_owned(),
        audience: AUDIENCE.to_owned(),
        skew_seconds: 5,
        keys: folder.join("keys.json").to_str().unwrap().to_owned(),
        id_keys_file: folder.join("id-keys"),
        backends,
        backends_file: None,
        tls: TlsConfig::default(),
        backend_token_file: Some(folder.join("proof")),
        usage: None,
        policy: Policy { call_headroom: Duration::from_secs(1), ..Policy::default() },
        pace: pace(),
        clock: None,
    }
}

pub(crate) fn pace() -> Pace {
    let short = Duration::from_millis(20);
    Pace {
        health_every: short,
        resolve_every: short,
        keys_every: short,
        usage_gather: short,
        usage_pause_first: short,
        usage_pause_max: Duration::from_millis(100),
        ..Pace::default()
    }
}

/// A running gate.
pub(crate) struct TestGate {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl TestGate {
    /// Starts one and waits until it is ready.
    pub(crate) async fn start(config: GateConfig) -> Self {
        let gate = Self::unready(config);
        gate.until_ready().await;
        gate
    }

    pub(crate) fn unready(config: GateConfig) -> Self {
        Self::unready_with(config, None)
    }

    pub(crate) fn unready_with(config: GateConfig, metrics: Option<std::net::TcpListener>) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut gate = Gate::start(config).unwrap();
        if let Some(metrics) = metrics {
            gate.serve_metrics(metrics);
        }
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            gate.serve(listener, async { stopped.await.unwrap_or(()) }).await.unwrap();
        });
        TestGate { address, stop: Some(stop), task }
    }

    pub(crate) async fn until_ready(&self) {
        self.until(|ready| ready.status == 200, "/ready").await;
    }

    /// Asks again until the answer is as wanted.
    pub(crate) async fn until(&self, wanted: impl Fn(&Answer) -> bool, path: &str) -> Answer {
        let asking = async {
            loop {
                let answer = call(self.address, &format!("GET {path}"), &[], b"").await;
                if wanted(&answer) {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(super::client::PATIENCE, asking).await.expect("in time")
    }

    pub(crate) async fn call(&self, line: &str, grant: &str, body: &str) -> Answer {
        let headers = [("authorization", grant), ("content-type", "application/json")];
        call(self.address, line, &headers, body.as_bytes()).await
    }

    /// Leases a session; its id.
    pub(crate) async fn lease(&self, grant: &str) -> String {
        let leased = self.call("POST /sessions", grant, "{}").await;
        assert_eq!(leased.status, 201, "{}", leased.text());
        leased.json()["session_id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn execute(&self, grant: &str, id: &str, code: &str) -> Answer {
        let body = serde_json::json!({"tool": "code_execution", "input": {"code": code}, "timeout_seconds": 5});
        self.call(&format!("POST /sessions/{id}/exec"), grant, &body.to_string()).await
    }

    /// Tells it to end, and waits until it did.
    pub(crate) async fn end(mut self) {
        if let Some(stop) = self.stop.take() {
            let _gone = stop.send(());
        }
        (&mut self.task).await.unwrap();
    }
}

impl Drop for TestGate {
    fn drop(&mut self) {
        self.task.abort();
    }
}
