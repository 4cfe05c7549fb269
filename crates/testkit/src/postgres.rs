//! A PostgreSQL of its own: made, started on a socket in its folder, and ended with the test.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

/// A server of databases, from Debian's package `postgresql`.
pub struct Postgres {
    folder: TempDir,
    programs: PathBuf,
    user: Option<(u32, u32)>,
    child: Child,
    made: AtomicU32,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // Connections are cut, and it ends in order.
            self.signal(Signal::INT);
            let _reaped = self.child.wait();
        }
    }
}

impl Postgres {
    /// Makes and starts one.
    ///
    /// # Panics
    /// When the package is not installed, or the server does not come up.
    #[must_use]
    pub fn start() -> Self {
        let programs = programs();
        // Root may not run it: then it is Debian's user for it.
        let user = geteuid().is_root().then(postgres_user);
        // The path of a socket has a hundred bytes.
        let folder = tempfile::Builder::new().prefix("rfpg").tempdir_in("/tmp").expect("a folder");
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).expect("our own folder");
        if let Some((uid, gid)) = user {
            chown(folder.path(), Some(uid), Some(gid)).expect("root gives away what is its own");
        }
        let data = folder.path().join("data");
        let mut make = as_user(&programs.join("initdb"), user, folder.path());
        make.arg("-D").arg(&data).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]);
        succeed(&mut make);
        let child = serve(&programs, user, folder.path());
        let mut postgres = Postgres { folder, programs, user, child, made: AtomicU32::new(0) };
        postgres.wait();
        postgres
    }

    /// The URL of a new and empty database. Its socket trusts everyone in it and does not ask for the password, which
    /// is there to be looked for.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn database(&self, password: &str) -> String {
        let name = format!("case_{}", self.made.fetch_add(1, Ordering::SeqCst));
        let mut create = as_user(&self.programs.join("createdb"), self.user, self.folder.path());
        succeed(create.arg("-h").arg(self.folder.path()).args(["-U", "postgres", &name]));
        let socket = self.folder.path().display();
        format!("postgres:///{name}?host={socket}&user=postgres&password={password}")
    }

    /// The folder of everything that it keeps.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Ends it in order; its databases stay.
    ///
    /// # Panics
    /// When it did not end well.
    pub fn stop(&mut self) {
        self.signal(Signal::INT);
        assert!(self.child.wait().expect("our own child").success(), "PostgreSQL ended well");
    }

    /// Ends it without a word, as a crash does: what was not committed is gone, and it recovers at its next start.
    ///
    /// # Panics
    /// When it is not there to be ended.
    pub fn crash(&mut self) {
        self.signal(Signal::QUIT);
        self.child.wait().expect("our own child");
    }

    /// Serves the same databases again.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn start_again(&mut self) {
        self.child = serve(&self.programs, self.user, self.folder.path());
        self.wait();
    }

    /// Ends it in order, and says how it ended.
    ///
    /// # Panics
    /// When it is not there to be ended.
    #[must_use]
    pub fn end(mut self) -> ExitStatus {
        self.signal(Signal::INT);
        self.child.wait().expect("our own child")
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _gone = kill_process(pid, signal);
        }
    }

    /// Waits until it says that it is ready.
    fn wait(&mut self) {
        let mut lines = BufReader::new(self.child.stderr.take().expect("a pipe"));
        let mut said = String::new();
        loop {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).expect("a line") > 0, "PostgreSQL ended:\n{said}");
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
}

fn succeed(command: &mut Command) {
    let output = command.output().expect("a program of PostgreSQL");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn serve(programs: &Path, user: Option<(u32, u32)>, folder: &Path) -> Child {
    let mut serve = as_user(&programs.join("postgres"), user, folder);
    serve.arg("-D").arg(folder.join("data")).arg("-k").arg(folder);
    serve.args(["-h", "", "-F", "-c", "max_connections=100"]);
    serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("PostgreSQL")
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
    let newest = versions.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| version(path).is_some());
    newest.max_by_key(version).expect("a version of PostgreSQL").join("bin")
}

/// The ids of Debian's user, which owns this folder.
fn postgres_user() -> (u32, u32) {
    let metadata = std::fs::metadata("/var/lib/postgresql").expect("the home of Debian's user for PostgreSQL");
    assert_ne!(metadata.uid(), 0, "Debian's user for PostgreSQL is not root");
    (metadata.uid(), metadata.gid())
}
