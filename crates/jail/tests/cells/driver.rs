//! The daemon's part, as far as the tests need it.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringfence_frame::init::{FromInit, ToInit};
use ringfence_frame::keeper::{FromKeeper, Meters, ToKeeper};
use ringfence_jail::{KeeperConfig, Launched, StepName, launch, launch_with_puller, recv, recv_init, send, send_init};
use ringfence_op::{Bind, RootFile, RootSpec, RootSymlink};
use ringfence_sys::process::wait_for;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// No single thing takes so long, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The machine's own programs as a root, with Debian's Python where it is.
pub(crate) fn host_root() -> RootSpec {
    let mut spec = RootSpec {
        files: vec![
            RootFile { path: "/etc/passwd".into(), content: "sandbox:x:1000:1000::/workspace:/bin/sh\n".into() },
            RootFile { path: "/etc/hosts".into(), content: "127.0.0.1 localhost sandbox\n".into() },
        ],
        tmp_symlinks: vec![RootSymlink { link: "/tmp/link".into(), target: "/usr/share".into() }],
        environment: vec![("PATH".into(), "/usr/bin:/bin".into()), ("HOME".into(), "/workspace".into())],
        ..RootSpec::empty("host")
    };
    for name in ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache"] {
        match fs::read_link(name) {
            Ok(target) => spec.symlinks.push(RootSymlink { link: name.into(), target }),
            Err(_) if Path::new(name).exists() => {
                spec.binds.push(Bind { source: name.into(), target: name.into() });
            }
            Err(_) => {}
        }
    }
    spec
}

pub(crate) fn with_python(mut spec: RootSpec) -> RootSpec {
    spec.python = Some("/usr/bin/python3".into());
    spec
}

pub(crate) fn config(images: Vec<RootSpec>) -> KeeperConfig {
    let mut config = KeeperConfig::new(
        images,
        include_str!("standin.py").to_owned(),
        "the stand-in has no worker source".to_owned(),
        PathBuf::from("/nonexistent"),
    );
    config.limits.workspace_bytes = 8 << 20;
    config.limits.workspace_inodes = 100;
    config.limits.processes = 100;
    config
}

/// A keeper, with what it said and nobody asked for yet.
pub(crate) struct Keeper {
    pub(crate) launched: Launched,
    heard: VecDeque<(FromKeeper, Vec<OwnedFd>)>,
    next: u64,
}

impl Keeper {
    pub(crate) fn start(config: &KeeperConfig) -> Keeper {
        let launched =
            launch(config).unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(&error)));
        Keeper { launched, heard: VecDeque::new(), next: 1 }
    }

    pub(crate) fn start_with_puller(config: &KeeperConfig, puller: OwnedFd) -> Keeper {
        let launched = launch_with_puller(config, puller)
            .unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(&error)));
        Keeper { launched, heard: VecDeque::new(), next: 1 }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.launched.socket.as_fd()
    }

    /// The next message that `wanted` takes; others are kept.
    pub(crate) fn hear<T>(&mut self, mut wanted: impl FnMut(&FromKeeper) -> Option<T>) -> (T, Vec<OwnedFd>) {
        for index in 0..self.heard.len() {
            if let Some(found) = wanted(&self.heard[index].0) {
                return (found, self.heard.remove(index).unwrap().1);
            }
        }
        loop {
            let (message, fds) = wait(self.socket(), recv).unwrap().expect("the keeper lives");
            if let Some(found) = wanted(&message) {
                return (found, fds);
            }
            self.heard.push_back((message, fds));
        }
    }

    /// Of the set that has the image's number.
    pub(crate) fn ask_for_cell(&mut self, image: u32) -> u64 {
        self.ask_for_cell_of(image, image)
    }

    pub(crate) fn ask_for_cell_of(&mut self, image: u32, set: u32) -> u64 {
        let number = self.next;
        self.next += 1;
        send(self.socket(), ToKeeper::MakeCell { cell: number, image, set }, &[]).unwrap();
        number
    }

    pub(crate) fn cell(&mut self, image: u32) -> Cell {
        self.cell_of(image, image)
    }

    pub(crate) fn cell_of(&mut self, image: u32, set: u32) -> Cell {
        let number = self.ask_for_cell_of(image, set);
        let ((owner_id, meters), fds) = self.hear(|message| match *message {
            FromKeeper::CellMade { cell, owner_id, meters } if cell == number => Some((owner_id, meters)),
            FromKeeper::CellFailed { cell, step, errno } if cell == number => {
                panic!("{:?}: {}", StepName::from_number(step), io::Error::from_raw_os_error(errno))
            }
            _ => None,
        });
        let mut fds = fds.into_iter();
        let control = fds.next().unwrap();
        let workspace = fds.next().unwrap();
        Cell { number, owner_id, control, workspace, meters, meter_files: fds.map(File::from).collect(), next: 1 }
    }

    pub(crate) fn destroy(&mut self, number: u64) {
        send(self.socket(), ToKeeper::DestroyCell { cell: number }, &[]).unwrap();
        self.hear(|message| (*message == FromKeeper::CellGone { cell: number }).then_some(()));
    }

    /// A worker of the stand-in zygote.
    pub(crate) fn worker(&mut self, cell: u64) -> Worker {
        self.try_worker(cell).unwrap_or_else(|errno| panic!("no worker: {}", io::Error::from_raw_os_error(errno)))
    }

    pub(crate) fn try_worker(&mut self, cell: u64) -> Result<Worker, i32> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (out, out_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let (err, err_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        send(self.socket(), ToKeeper::SpawnWorker { cell }, &[theirs.as_fd(), out_write.as_fd(), err_write.as_fd()])
            .unwrap();
        let (started, _) = self.hear(|message| match *message {
            FromKeeper::WorkerStarted { cell: one, pid, zygote, forks } if one == cell => {
                Some(Ok((pid, zygote, forks)))
            }
            FromKeeper::WorkerFailed { cell: one, errno } if one == cell => Some(Err(errno)),
            _ => None,
        });
        let (pid, zygote, forks) = started?;
        Ok(Worker { pid, zygote, forks, frames: ours, out: out.into(), err: err.into() })
    }

    /// The keeper itself: the one child of the process that was started.
    pub(crate) fn inner_pid(&self) -> u32 {
        let children = children(self.launched.pid);
        assert_eq!(children.len(), 1, "{children:?}");
        children[0]
    }

    pub(crate) fn cgroups(&self) -> Vec<PathBuf> {
        cgroups_of(self.launched.pid)
    }

    /// Whether the link ends; what else is heard is dropped.
    pub(crate) fn hear_end(&mut self) -> bool {
        while wait(self.socket(), recv).unwrap().is_some() {}
        true
    }

    /// Closes the link, and waits until the keeper is gone; gives its wait status.
    pub(crate) fn end(self) -> i32 {
        let pid = self.launched.pid;
        drop(self.launched);
        wait_for(pid).unwrap().status
    }
}

pub(crate) struct Worker {
    pub(crate) pid: u32,
    /// The zygote that forked it, and how often that had forked by then.
    pub(crate) zygote: u32,
    pub(crate) forks: u32,
    pub(crate) frames: UnixStream,
    out: File,
    err: File,
}

impl Worker {
    /// Runs the text, and gives what it wrote on fd 1; panics if it wrote on fd 2.
    pub(crate) fn run(&mut self, text: &str) -> String {
        self.frames.write_all(text.as_bytes()).unwrap();
        let mut answer = [0];
        self.frames.set_read_timeout(Some(PATIENCE)).unwrap();
        let answered = self.frames.read(&mut answer);
        let err = take_now(&self.err);
        assert!(matches!(answered, Ok(1)), "the worker did not answer: {answered:?} {err}");
        assert_eq!(err, "", "fd 2");
        take_now(&self.out)
    }
}

/// What is in a pipe, without waiting for its end.
fn take_now(mut pipe: &File) -> String {
    rustix::fs::fcntl_setfl(pipe, rustix::fs::OFlags::NONBLOCK).unwrap();
    let mut bytes = Vec::new();
    let mut buffer = [0; 65536];
    while let Ok(length @ 1..) = pipe.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..length]);
    }
    String::from_utf8(bytes).unwrap()
}

pub(crate) struct Cell {
    pub(crate) number: u64,
    pub(crate) owner_id: u32,
    pub(crate) control: OwnedFd,
    pub(crate) workspace: OwnedFd,
    pub(crate) meters: Meters,
    pub(crate) meter_files: Vec<File>,
    next: u64,
}

pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) cpu_us: u64,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) struct Started {
    pub(crate) token: u64,
    pub(crate) pid: u32,
    pub(crate) out: File,
    pub(crate) err: File,
}

impl Started {
    /// The next line of its output.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while self.out.read(&mut byte).unwrap() == 1 {
            line.push(byte[0]);
            if byte == *b"\n" {
                break;
            }
        }
        String::from_utf8(line).unwrap()
    }
}

impl Cell {
    pub(crate) fn hear(&self) -> FromInit {
        wait(self.control.as_fd(), recv_init).unwrap().expect("init lives")
    }

    pub(crate) fn token(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(crate) fn start(&mut self, command: &str) -> Result<Started, i32> {
        let token = self.token();
        let (out, out_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let (err, err_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let message = ToInit::Spawn { token, command: command.as_bytes() };
        send_init(self.control.as_fd(), message, &[out_write.as_fd(), err_write.as_fd()]).unwrap();
        match self.hear() {
            FromInit::Spawned { token: one, pid } if one == token => {
                Ok(Started { token, pid, out: out.into(), err: err.into() })
            }
            FromInit::SpawnFailed { token: one, errno } if one == token => Err(errno),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn run(&mut self, command: &str) -> Ran {
        let started = self.start(command).unwrap_or_else(|errno| panic!("{}", io::Error::from_raw_os_error(errno)));
        self.finish(started)
    }

    fn finish(&mut self, started: Started) -> Ran {
        let out = io::read_to_string(started.out).unwrap();
        let err = io::read_to_string(started.err).unwrap();
        match self.hear() {
            FromInit::Exited { token, status, cpu_us } if token == started.token => Ran { status, cpu_us, out, err },
            other => panic!("{other:?}"),
        }
    }

    /// What the command prints; it must succeed and write nothing on fd 2.
    pub(crate) fn print(&mut self, command: &str) -> String {
        let ran = self.run(command);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{command}");
        ran.out
    }

    /// Starts Python with the text as its program, from a script in memory.
    pub(crate) fn start_python(&mut self, text: &str) -> Started {
        let token = self.token();
        let script = format!("exec python3 -c \"$(cat <<'END_OF_PROGRAM'\n{text}\nEND_OF_PROGRAM\n)\"\n");
        let mut memory = File::from(rustix::fs::memfd_create("script", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        memory.write_all(script.as_bytes()).unwrap();
        let (out, out_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let (err, err_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let message = ToInit::Spawn { token, command: b"" };
        send_init(self.control.as_fd(), message, &[out_write.as_fd(), err_write.as_fd(), memory.as_fd()]).unwrap();
        match self.hear() {
            FromInit::Spawned { token: one, pid } if one == token => {
                Started { token, pid, out: out.into(), err: err.into() }
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn run_python(&mut self, text: &str) -> Ran {
        let started = self.start_python(text);
        self.finish(started)
    }

    /// What the program prints; it must succeed and write nothing on fd 2.
    pub(crate) fn python(&mut self, text: &str) -> String {
        let ran = self.run_python(text);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{}", ran.out);
        ran.out
    }

    /// What a meter says.
    pub(crate) fn meter(&mut self, bit: u8) -> String {
        assert!(self.meters.0 & bit != 0, "{:?} lacks {bit}", self.meters);
        let place = (self.meters.0 & (bit - 1)).count_ones() as usize;
        let mut file = &self.meter_files[place];
        file.rewind().unwrap();
        io::read_to_string(file).unwrap()
    }

    pub(crate) fn kill_since(&mut self, since_ticks: u64, keep: u32) -> (u32, bool) {
        let token = self.token();
        send_init(self.control.as_fd(), ToInit::KillSince { token, since_ticks, keep }, &[]).unwrap();
        loop {
            match self.hear() {
                FromInit::Killed { token: one, count, all } if one == token => return (count, all),
                FromInit::Exited { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Takes one message, waiting for it.
fn wait<T>(socket: BorrowedFd<'_>, take: impl Fn(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match take(socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: 0 };
        assert!(!left.is_zero(), "nothing heard for {PATIENCE:?}");
        poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], Some(&timeout))?;
    }
}

/// Waits until `over` holds; for what has no event to wait for.
pub(crate) fn until(what: &str, mut over: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !over() {
        assert!(Instant::now() < deadline, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Fields of `/proc/PID/stat` after the name.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// Whether it is there and no zombie.
pub(crate) fn lives(pid: u32) -> bool {
    stat(pid).is_some_and(|fields| fields[0] != "Z")
}

pub(crate) fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

pub(crate) fn children(of: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|fields| fields[1] == of.to_string())).collect()
}

/// Every process below this one.
pub(crate) fn descendants(of: u32) -> Vec<u32> {
    let mut all = children(of);
    let mut next = 0;
    while next < all.len() {
        all.extend(children(all[next]));
        next += 1;
    }
    all
}

/// The subtrees of the warden with this process id, in every hierarchy.
pub(crate) fn cgroups_of(warden: u32) -> Vec<PathBuf> {
    fn walk(folder: &Path, depth: usize, prefix: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)) {
                found.push(entry.path());
            } else if depth > 0 {
                walk(&entry.path(), depth - 1, prefix, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(Path::new("/sys/fs/cgroup"), 6, &format!("ringfence-{warden}-"), &mut found);
    found
}
