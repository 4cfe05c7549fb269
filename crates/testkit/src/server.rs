//! The real program, started on a port of its own and stopped again.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::SocketAddr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::container::STATE;
use crate::{Client, Container};

/// How long a start may take; the scientific image may have to be built in it.
const START_MAX: Duration = Duration::from_secs(900);
/// How long a stop may take.
const STOP_MAX: Duration = Duration::from_secs(60);
/// How often a process is looked at that is about to end.
const POLL: Duration = Duration::from_millis(5);

/// As whom the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// As whoever runs the tests.
    Same,
    /// As this user and group id; only root may ask for it.
    Other(u32),
}

/// How a server is started.
#[derive(Debug)]
pub struct ServerOptions {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    state_dir: Option<PathBuf>,
    user: User,
    container: Option<Container>,
}

impl ServerOptions {
    /// `program serve` on a free port with the bare image and a state folder of its own.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let (arguments, environment) = (Vec::new(), Vec::new());
        let (state_dir, container) = (None, None);
        ServerOptions { program: program.into(), arguments, environment, state_dir, user: User::Same, container }
    }

    /// Further arguments.
    #[must_use]
    pub fn args<T: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// A variable of its environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// The scientific image, from the folder that all tests share, so that it is built once.
    #[must_use]
    pub fn scientific(self) -> Self {
        self.beside_scientific("scientific")
    }

    /// An image that may stand on the scientific one: a name or a declaration's file.
    #[must_use]
    pub fn beside_scientific(mut self, image: impl Into<OsString>) -> Self {
        self.state_dir = Some(shared_state_dir(&self.program));
        self.args([OsString::from("--image"), image.into()])
    }

    /// This state folder.
    #[must_use]
    pub fn state_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(folder.into());
        self
    }

    /// As another user.
    #[must_use]
    pub fn user(mut self, user: User) -> Self {
        self.user = user;
        self
    }

    /// In a container, with an image on `/usr/bin/python3` and a state folder that goes with it.
    #[must_use]
    pub fn container(mut self, container: Container) -> Self {
        self.container = Some(container);
        self
    }

    /// Runs it to its end, for a start that must fail: status, standard output, standard error.
    ///
    /// # Panics
    /// When it cannot be run.
    #[must_use]
    pub fn run_to_end(self) -> (ExitStatus, String, String) {
        let own = tempfile::tempdir().expect("a folder");
        let output = spawn(&mut self.command(own.path())).wait_with_output().expect("the program runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status, text(&output.stdout), text(&output.stderr))
    }

    /// Starts it and waits until it is ready.
    ///
    /// # Panics
    /// When it does not come up; the message has what it said.
    #[must_use]
    pub fn start(self) -> Server {
        let own = tempfile::tempdir().expect("a folder");
        let mut child = spawn(&mut self.command(own.path()));
        let log = lines(child.stderr.take().expect("piped"));
        let ready = lines(child.stdout.take().expect("piped"));
        let mut server = Server {
            child,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            ready: Vec::new(),
            log,
            said: Vec::new(),
            stopped: None,
            _own: own,
        };
        server.wait_until_ready(&ready);
        server
    }

    fn command(&self, own: &Path) -> Command {
        if let Some(container) = &self.container {
            let fixed = ["serve", "--listen", "127.0.0.1:0", "--image", "bare", "--python", "/usr/bin/python3"];
            let fixed = fixed.into_iter().chain(["--state-dir", STATE]).map(OsString::from);
            let mut command = container.command(own, &self.program, fixed.chain(self.arguments.iter().cloned()));
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            return command;
        }
        let mut command = match self.user {
            User::Same => Command::new(&self.program),
            // The build folder may lie where other users cannot look.
            User::Other(_) => {
                let copy = own.join("ringfence");
                std::fs::copy(&self.program, &copy).expect("the program can be copied");
                Command::new(copy)
            }
        };
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(&self.arguments);
        if !self.arguments.iter().any(|argument| argument == "--image") {
            command.args(["--image", "bare"]);
        }
        command.arg("--state-dir").arg(self.state_dir.as_deref().unwrap_or(own));
        // Settings of whoever runs the tests are none of the test's.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("RINGFENCE_")) {
            command.env_remove(name);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let User::Other(id) = self.user {
            std::os::unix::fs::chown(own, Some(id), Some(id)).expect("root may give a folder away");
            command.uid(id).gid(id).env("HOME", own).current_dir(own);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Starts a program that may just have been copied: another test that forks at that moment holds the copy open for
/// writing until its own program runs, and a program that is open for writing is busy.
fn spawn(command: &mut Command) -> Child {
    let end = Instant::now() + STOP_MAX;
    loop {
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < end => {
                std::thread::sleep(POLL)
            }
            started => return started.expect("the program runs"),
        }
    }
}

/// The state folder that tests with the scientific image share: beside the program under test.
#[must_use]
pub fn shared_state_dir(program: &Path) -> PathBuf {
    let target = program.ancestors().find(|folder| folder.ends_with("target")).unwrap_or(Path::new("target"));
    target.join("ringfence-test-state")
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: SocketAddr,
    ready: Vec<String>,
    log: Receiver<String>,
    said: Vec<String>,
    stopped: Option<ExitStatus>,
    _own: tempfile::TempDir,
}

impl Server {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A client with a connection of its own.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(self.address, None)
    }

    /// The value of a ready line.
    #[must_use]
    pub fn ready_line(&self, name: &str) -> Option<&str> {
        self.ready.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When that is refused.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("our own child can be signalled");
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn wait(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("our own child can be waited for") {
                self.stopped = Some(status);
                return status;
            }
            assert!(begun.elapsed() < STOP_MAX, "the server does not end; it said:\n{}", self.log());
            std::thread::sleep(POLL);
        }
    }

    /// SIGTERM, and its end.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// What it has written to standard error so far.
    pub fn log(&mut self) -> String {
        self.said.extend(self.log.try_iter());
        self.said.join("\n")
    }

    fn wait_until_ready(&mut self, ready: &Receiver<String>) {
        let begun = Instant::now();
        loop {
            let left = START_MAX.saturating_sub(begun.elapsed());
            match ready.recv_timeout(left) {
                Ok(line) if line == "ready" => break,
                Ok(line) => self.ready.push(line),
                Err(_) => {
                    let ended = self.child.try_wait();
                    panic!("the server did not come up ({ended:?}); it said:\n{}", self.log());
                }
            }
        }
        let url = self.ready_line("address").expect("an address line");
        self.address = url.split_once("://").and_then(|(_, text)| text.parse().ok()).expect("an address");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.stopped.is_none() && matches!(self.child.try_wait(), Ok(None)) {
            let status = self.stop();
            if !std::thread::panicking() {
                assert!(status.success(), "the server ended with {status} ({:?})", status.signal());
            }
        }
    }
}

/// The lines of a stream, as they come; a thread reads so that the program never waits for its reader.
fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}
