//! A PostgreSQL of its own: made, started on a socket in its folder, and ended with the test.

use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use ringfence_control::DatabaseUrl;
use tempfile::TempDir;

use super::{Database, PASSWORD};

pub(crate) struct Postgres {
    folder: TempDir,
    programs: PathBuf,
    user: Option<(u32, u32)>,
    child: Child,
    made: AtomicU32,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGINT: connections are cut, and it ends in order.
        if matches!(self.child.try_wait(), Ok(None)) {
            signal(&self.child, rustix::process::Signal::INT);
            let _reaped = self.child.wait();
        }
    }
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _gone = rustix::process::kill_process(pid, signal);
    }
}

impl Postgres {
    pub(crate) fn start() -> Self {
        let programs = programs();
        // Root may not run it: then it is Debian's user for it.
        let user = rustix::process::geteuid().is_root().then(postgres_user);
        // The path of a socket has a hundred bytes.
        let folder = tempfile::Builder::new().prefix("rfpg").tempdir_in("/tmp").unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        if let Some((uid, gid)) = user {
            chown(folder.path(), Some(uid), Some(gid)).unwrap();
        }
        let data = folder.path().join("data");
        let mut make = as_user(&programs.join("initdb"), user, folder.path());
        make.arg("-D").arg(&data).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]);
        let made = make.output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let child = serve(&programs, user, folder.path());
        let mut postgres = Postgres { folder, programs, user, child, made: AtomicU32::new(0) };
        postgres.wait();
        postgres
    }

    /// Ends it; its databases stay.
    pub(crate) fn stop(&mut self) {
        signal(&self.child, rustix::process::Signal::INT);
        assert!(self.child.wait().unwrap().success());
    }

    /// Serves the same databases again.
    pub(crate) fn start_again(&mut self) {
        self.child = serve(&self.programs, self.user, self.folder.path());
        self.wait();
    }

    /// Waits until it says that it is ready.
    fn wait(&mut self) {
        use std::io::BufRead;
        let mut lines = std::io::BufReader::new(self.child.stderr.take().unwrap());
        let mut said = String::new();
        loop {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).unwrap() > 0, "PostgreSQL ended:\n{said}");
            said.push_str(&line);
            if line.contains("ready to accept connections") {
                break;
            }
        }
        // What it says later is read away, or it would wait for room in the pipe.
        std::thread::spawn(move || {
            let mut rest = Vec::new();
            while matches!(lines.by_ref().take(65536).read_to_end(&mut rest), Ok(count) if count > 0) {
                rest.clear();
            }
        });
    }

    /// A database of its own.
    pub(crate) fn database(&self) -> Database {
        let name = format!("case_{}", self.made.fetch_add(1, Ordering::SeqCst));
        let mut create = as_user(&self.programs.join("createdb"), self.user, self.folder.path());
        create.arg("-h").arg(self.folder.path()).args(["-U", "postgres", &name]);
        let made = create.output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let socket = self.folder.path().display().to_string();
        let text = format!("postgres:///{name}?host={socket}&user=postgres&password={PASSWORD}");
        let url = DatabaseUrl::parse(&text).unwrap();
        Database { url, sqlite: None, text, folder: tempfile::tempdir().unwrap() }
    }

    /// Ends it, and says how it ended.
    pub(crate) fn end(mut self) -> ExitStatus {
        signal(&self.child, rustix::process::Signal::INT);
        self.child.wait().unwrap()
    }
}

fn serve(programs: &Path, user: Option<(u32, u32)>, folder: &Path) -> Child {
    let mut serve = as_user(&programs.join("postgres"), user, folder);
    serve.arg("-D").arg(folder.join("data")).arg("-k").arg(folder);
    serve.args(["-h", "", "-F", "-c", "max_connections=100"]);
    serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

fn as_user(program: &Path, user: Option<(u32, u32)>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    // Not the tree: the other user may not be allowed to be there.
    command.current_dir(folder).env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C");
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}

/// The newest of Debian's.
fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").expect("Debian's package `postgresql` is installed");
    let version = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let newest = versions.map(|entry| entry.unwrap().path()).filter(|path| version(path).is_some()).max_by_key(version);
    newest.expect("a version of PostgreSQL").join("bin")
}

/// The ids of Debian's user, which owns this folder.
fn postgres_user() -> (u32, u32) {
    let metadata = std::fs::metadata("/var/lib/postgresql").expect("the home of Debian's user for PostgreSQL");
    assert_ne!(metadata.uid(), 0);
    (metadata.uid(), metadata.gid())
}
