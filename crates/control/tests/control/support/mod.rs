//! What every case uses: databases, control planes, a client.

mod client;
pub(crate) mod watch;

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use ringfence_control::{Config, Control, ControlError, DatabaseUrl, Keep, Pruned};
use ringfence_testkit::Postgres;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) use client::{Answer, ask, raw};

pub(crate) const ADMIN: &str = "admin-0123456789abcdef";
/// PostgreSQL trusts its socket and does not ask for it; it is in the URL to be looked for.
pub(crate) const PASSWORD: &str = "password-canary";
pub(crate) const ISSUER: &str = "https://control.test";
pub(crate) const AUDIENCE: &str = "https://door.test";
/// Noon of 2027-01-15.
pub(crate) const NOON_MS: u64 = 1_800_014_400_000;

/// A database, empty at first; a folder of its own goes with it.
pub(crate) struct Database {
    pub(crate) url: DatabaseUrl,
    pub(crate) sqlite: Option<PathBuf>,
    pub(crate) text: String,
    folder: TempDir,
}

impl Database {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.db");
        let text = format!("sqlite:{}", path.display());
        Database { url: DatabaseUrl::sqlite(&path), sqlite: Some(path), text, folder }
    }

    pub(crate) fn postgres(postgres: &Postgres) -> Self {
        let text = postgres.database(PASSWORD);
        let url = DatabaseUrl::parse(&text).unwrap();
        Database { url, sqlite: None, text, folder: tempfile::tempdir().unwrap() }
    }
}

/// A control plane on a port of its own.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

/// A control plane with its database and its clock.
pub(crate) struct Setup {
    pub(crate) database: Database,
    clock: Arc<AtomicU64>,
    running: Running,
}

impl Setup {
    pub(crate) fn new(database: Database) -> Self {
        let folder = database.folder.path();
        fs::create_dir(folder.join("keys")).unwrap();
        fs::write(folder.join("admin-token"), format!("{ADMIN}\n")).unwrap();
        fs::set_permissions(folder.join("admin-token"), fs::Permissions::from_mode(0o600)).unwrap();
        let clock = Arc::new(AtomicU64::new(NOON_MS));
        let running = start(config(&database, &clock)).unwrap();
        let setup = Setup { database, clock, running };
        setup.admin("POST /v1/keys", json!({})).is(201);
        setup
    }

    pub(crate) fn config(&self) -> Config {
        config(&self.database, &self.clock)
    }

    /// Another control plane on the same database.
    pub(crate) fn replica(&self) -> Running {
        start(self.config()).unwrap()
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.database.folder.path().join("keys")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.database.folder.path()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.running.address
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    pub(crate) fn pass(&self, seconds: u64) {
        self.clock.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    /// The clock is set back.
    pub(crate) fn back(&self, seconds: u64) {
        self.clock.fetch_sub(seconds * 1000, Ordering::SeqCst);
    }

    /// A request of the admin's; a null body is none.
    pub(crate) fn admin(&self, line: &str, body: Value) -> Answer {
        self.with(ADMIN, line, body)
    }

    /// A request with that token.
    pub(crate) fn with(&self, token: &str, line: &str, body: Value) -> Answer {
        with(self.address(), token, line, body)
    }

    /// Makes a workspace with that policy.
    pub(crate) fn workspace(&self, id: &str, policy: Value) {
        self.admin("POST /v1/workspaces", json!({"id": id, "policy": policy})).is(201);
    }

    /// Makes a token.
    pub(crate) fn token(&self, kind: &str, workspaces: Value) -> String {
        let asked = json!({"kind": kind, "name": "of a test", "workspaces": workspaces});
        let made = self.admin("POST /v1/tokens", asked).is(201);
        made["token"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn with(address: SocketAddr, token: &str, line: &str, body: Value) -> Answer {
    let authorization = format!("Bearer {token}");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    ask(address, line, &[("Authorization", &authorization), ("Content-Type", "application/json")], body.as_bytes())
}

fn config(database: &Database, clock: &Arc<AtomicU64>) -> Config {
    let clock = Arc::clone(clock);
    Config {
        database: database.url.clone(),
        keys_folder: database.folder.path().join("keys"),
        admin_token_file: database.folder.path().join("admin-token"),
        issuer: ISSUER.to_owned(),
        audiences: vec![AUDIENCE.to_owned(), "https://other-door.test".to_owned()],
        grant_seconds_max: 900,
        key_lead_seconds: 300,
        keep: Keep::default(),
        tls: None,
        clock: Some(Arc::new(move || clock.load(Ordering::SeqCst))),
    }
}

/// Starts a control plane on a runtime of its own.
pub(crate) fn start(config: Config) -> Result<Running, ControlError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let control = runtime.block_on(Control::start(config))?;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serve = async move {
        let until = async { drop(stopped.await) };
        control.serve(listener, until).await.unwrap();
    };
    let thread = std::thread::spawn(move || runtime.block_on(serve));
    Ok(Running { address, stop: Some(stop), thread: Some(thread) })
}

/// Prunes once, as the command does.
pub(crate) fn prune(config: Config, keep: Keep) -> Result<Pruned, ControlError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let control = Control::start(Config { keep, ..config }).await?;
        let pruned = control.prune().await;
        control.close().await;
        pruned
    })
}

/// What was written is there after a restart, and a database of a newer program is left alone.
pub(crate) fn start_again(setup: &Setup) {
    setup.workspace("team-a", json!({"enabled": true, "tools": ["code_execution"]}));
    let replica = setup.replica();
    assert_eq!(with(replica.address, ADMIN, "GET /v1/workspaces/team-a", Value::Null).is(200)["version"], 1);
    drop(replica);
    setup.database.execute("UPDATE schema_version SET version = 1000000");
    let error = start(setup.config()).err().expect("it is refused");
    assert!(matches!(error, ControlError::Newer { found: 1_000_000, .. }), "{error:?}");
    setup.database.execute("UPDATE schema_version SET version = 2");
}

impl Database {
    /// Changes the database behind the control plane's back.
    pub(crate) fn execute(&self, statement: &str) {
        self.connected(async |connection| {
            sqlx::raw_sql(statement).execute(connection).await.unwrap();
        });
    }

    /// The rows of a table.
    pub(crate) fn count(&self, table: &str) -> i64 {
        let query = format!("SELECT COUNT(*) FROM {table}");
        self.connected(async |connection| sqlx::query_scalar(&query).fetch_one(connection).await.unwrap())
    }

    fn connected<T>(&self, work: impl AsyncFnOnce(&mut sqlx::AnyConnection) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            sqlx::any::install_default_drivers();
            let mut connection = <sqlx::AnyConnection as sqlx::Connection>::connect(&self.text).await.unwrap();
            let done = work(&mut connection).await;
            sqlx::Connection::close(connection).await.unwrap();
            done
        })
    }
}
