//! Pid 1 of a cell: starts shell commands, sends signals, kills, reaps.
//!
//! It has the ids, the lack of capabilities and the filter of every process of the cell, but no program of the cell can
//! signal it (the kernel drops what pid 1 has no handler for, and it blocks all), trace it or look into it (it is not
//! dumpable), or name its descriptors. It ends when it is killed from outside, and with it everything in the cell.

mod kill;
pub(crate) mod stat;

use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use ringfence_frame::PACKET_BYTES;
use ringfence_frame::init::{COMMAND_BYTES_MAX, FromInit, ToInit};
use ringfence_sys::process::{self, Strings};
use ringfence_sys::spawn::{Spawn, spawn};
use ringfence_sys::{packet, signal};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::limits::{ANSWERS_MAX, COMMANDS_MAX, MESSAGES_PER_TURN_MAX};

/// Where init finds its control socket.
pub(crate) const CONTROL: i32 = 3;
/// Where the report pipe of the steps is.
pub(crate) const REPORT: i32 = 4;
/// Where init finds a `/proc` of its own.
const PROC: i32 = 5;
/// Added to the badness of commands, so that the kernel, out of the cell's memory, does not choose init.
const COMMAND_OOM_SCORE: &[u8] = b"500";
/// Pause after a wait that failed, so that init never spins.
const PAUSE: Duration = Duration::from_millis(10);

/// What init starts.
pub(crate) struct Program {
    pub(crate) shell: CString,
    pub(crate) environment: Strings,
}

/// Serves until killed. Called once the steps are done, in a process with one thread.
pub(crate) fn run(program: &Program) -> ! {
    // Cosmetic: a process without a name of its own still works.
    let _ = process::rename(c"init");
    match Init::new(program) {
        Ok(mut init) => loop {
            init.turn();
        },
        // The keeper sees the death and says so.
        Err(_) => process::exit_now(1),
    }
}

struct Init<'a> {
    program: &'a Program,
    /// None once the daemon's end is closed.
    control: Option<OwnedFd>,
    proc: OwnedFd,
    null: OwnedFd,
    workspace: OwnedFd,
    children: OwnedFd,
    /// Commands that run: process id to token.
    commands: HashMap<u32, u64>,
    answers: VecDeque<FromInit>,
    buffer: Vec<u8>,
}

impl<'a> Init<'a> {
    fn new(program: &'a Program) -> io::Result<Init<'a>> {
        signal::block_all()?;
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Init {
            program,
            control: Some(process::adopt(CONTROL)?),
            proc: process::adopt(PROC)?,
            null: openat(CWD, c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?,
            workspace: openat(CWD, c"/workspace", folder, Mode::empty())?,
            children: signal::child_watch()?,
            commands: HashMap::new(),
            answers: VecDeque::new(),
            buffer: vec![0; PACKET_BYTES + COMMAND_BYTES_MAX],
        })
    }

    fn turn(&mut self) {
        let (from_daemon, from_children) = self.wait();
        if from_children {
            signal::drain(&self.children);
            self.reap();
        }
        if from_daemon {
            self.take_requests();
        }
        self.answer();
    }

    /// Waits for something to do: (the daemon's socket, a child's end).
    fn wait(&self) -> (bool, bool) {
        let mut wanted = PollFlags::empty();
        if self.answers.len() < ANSWERS_MAX {
            wanted |= PollFlags::IN;
        }
        if !self.answers.is_empty() {
            wanted |= PollFlags::OUT;
        }
        let mut fds = vec![PollFd::new(&self.children, PollFlags::IN)];
        if let Some(control) = &self.control {
            fds.push(PollFd::new(control, wanted));
        }
        match poll(&mut fds, None) {
            Ok(_) => {
                let ready = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
                (ready(1), ready(0))
            }
            Err(Errno::INTR) => (false, false),
            Err(_) => {
                std::thread::sleep(PAUSE);
                (false, true)
            }
        }
    }

    fn take_requests(&mut self) {
        for _ in 0..MESSAGES_PER_TURN_MAX {
            if self.answers.len() >= ANSWERS_MAX {
                return;
            }
            let Some(control) = &self.control else { return };
            match packet::receive(control.as_fd(), &mut self.buffer) {
                // The daemon's end is closed: nobody asks any more, but the children go on.
                Ok((0, _)) => self.control = None,
                Ok((length, fds)) => self.request(length, fds),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // A message that is too long is nobody's.
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {}
                Err(_) => self.control = None,
            }
        }
    }

    fn request(&mut self, length: usize, fds: Vec<OwnedFd>) {
        let bytes = self.buffer.get(..length).unwrap_or_default();
        match ToInit::decode(bytes) {
            Ok(ToInit::Spawn { token, command }) => {
                let started = self.start(command, &fds);
                self.answers.push_back(match started {
                    Ok(pid) => {
                        self.commands.insert(pid, token);
                        FromInit::Spawned { token, pid }
                    }
                    Err(error) => FromInit::SpawnFailed { token, errno: error.raw_os_error().unwrap_or(libc::EINVAL) },
                });
            }
            Ok(ToInit::Signal { pid, signal }) => {
                // One that is gone is no error. The decoder refuses 0 and 1; negative numbers would be groups.
                if let Some(pid) = i32::try_from(pid).ok().filter(|pid| *pid > 1) {
                    let _ = signal::send(pid, signal);
                }
            }
            Ok(ToInit::Interrupt { pid, since_ticks }) => kill::interrupt(self.proc.as_fd(), pid, since_ticks),
            Ok(ToInit::KillSince { token, since_ticks, keep }) => {
                let killing = kill::kill_since(self.proc.as_fd(), since_ticks, keep);
                // Their ends are told before the end of the killing.
                self.reap();
                self.answers.push_back(FromInit::Killed { token, count: killing.count, all: killing.all });
            }
            // The daemon speaks this protocol or none; there is nobody to tell.
            Err(_) => {}
        }
    }

    fn start(&self, command: &[u8], fds: &[OwnedFd]) -> io::Result<u32> {
        if self.commands.len() >= COMMANDS_MAX {
            return Err(Errno::AGAIN.into());
        }
        let (out, err, script) = match fds {
            [out, err] if !command.is_empty() => (out, err, None),
            [out, err, script] if command.is_empty() => (out, err, Some(script)),
            _ => return Err(Errno::INVAL.into()),
        };
        let shell = self.program.shell.clone();
        let arguments = match script {
            Some(_) => vec![shell, c"/proc/self/fd/3".to_owned()],
            None => vec![shell, c"-c".to_owned(), CString::new(command)?],
        };
        let mut stay = vec![self.null.as_fd(), out.as_fd(), err.as_fd()];
        stay.extend(script.map(AsFd::as_fd));
        let pid = spawn(&Spawn {
            path: &self.program.shell,
            arguments: &Strings::new(arguments),
            environment: &self.program.environment,
            fds: &stay,
            directory: Some(self.workspace.as_fd()),
        })?;
        self.prefer_to_kill(pid);
        Ok(pid)
    }

    /// Best effort: it decides only whom the kernel takes first when the cell's memory is used up.
    fn prefer_to_kill(&self, pid: u32) {
        let path = format!("{pid}/oom_score_adj");
        if let Ok(file) = openat(&self.proc, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
            let _ = rustix::io::write(File::from(file), COMMAND_OOM_SCORE);
        }
    }

    /// Takes every child that has ended, orphans included.
    fn reap(&mut self) {
        while let Ok(Some(ended)) = process::reap_any() {
            if let Some(token) = self.commands.remove(&ended.pid) {
                self.answers.push_back(FromInit::Exited { token, status: ended.status, cpu_us: ended.cpu_us });
            }
        }
    }

    fn answer(&mut self) {
        while let (Some(control), Some(answer)) = (&self.control, self.answers.front()) {
            match packet::send(control.as_fd(), &answer.encode(), &[]) {
                Ok(()) => {
                    self.answers.pop_front();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.control = None,
            }
        }
        if self.control.is_none() {
            self.answers.clear();
        }
    }
}
