//! The keeper's side of the zygotes: starting, restarting, forks, deaths.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ringfence_frame::keeper::FromKeeper;
use ringfence_frame::zygote::{FromZygote, ToZygote};
use ringfence_op::{CellLimits, RootSpec};
use ringfence_sys::namespace::Namespaces;
use ringfence_sys::process::Child;
use ringfence_sys::{packet, signal};
use rustix::event::PollFlags;
use serde::Serialize;

use super::cells::{self, State};
use super::{Image, Keeper};
use crate::config::memfd;
use crate::failure::SetupFailure;
use crate::limits::{
    FORKS_QUEUED_MAX, MESSAGES_PER_TURN_MAX, ZYGOTE_FAILURES_MAX, ZYGOTE_READY_WAIT_MAX, ZYGOTE_RESTART_PAUSE,
    ZYGOTE_RESTART_PAUSE_LONG,
};
use crate::plan::{self, CELL_ID, HOST_NAME};
use crate::step::StepName;
use crate::steps::Failure;
use crate::zygote;

/// Descriptors of `SpawnWorker`: frame socket, fd 1, fd 2.
const WORKER_FDS: usize = 3;

/// An image's zygote, through its restarts.
pub(super) struct Zygote {
    process: Option<Running>,
    /// Forks that were not sent yet.
    queue: VecDeque<Fork>,
    /// Cells whose fork was sent and not answered.
    in_flight: Vec<u64>,
    /// Starts since the last `Ready`.
    failures: u32,
    started_at: Instant,
    /// It is to run; otherwise it rests until a cell of its image is asked for.
    wanted: bool,
    /// It is to rest as soon as no cell of its image lives.
    tired: bool,
    /// It has been ready since it was last wanted.
    proven: bool,
}

struct Running {
    child: Child,
    link: OwnedFd,
    ready: bool,
}

struct Fork {
    cell: u64,
    fds: Vec<OwnedFd>,
}

impl Zygote {
    pub(super) fn resting() -> Zygote {
        Zygote {
            process: None,
            queue: VecDeque::new(),
            in_flight: Vec::new(),
            failures: 0,
            started_at: Instant::now(),
            wanted: false,
            tired: false,
            proven: false,
        }
    }

    /// Ready, or at rest.
    pub(super) fn is_settled(&self) -> bool {
        self.is_ready() || !self.wanted
    }

    pub(super) fn is_ready(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.ready)
    }

    /// What to wait for on its link.
    pub(super) fn interest(&self) -> Option<(&OwnedFd, PollFlags)> {
        let process = self.process.as_ref()?;
        let writing = process.ready && !self.queue.is_empty();
        Some((&process.link, if writing { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }))
    }

    /// When it must be ready, or may be started again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.process {
            Some(process) if process.ready => None,
            Some(_) => Some(self.started_at + ZYGOTE_READY_WAIT_MAX),
            None if !self.wanted => None,
            None => Some(self.started_at + self.pause()),
        }
    }

    fn pause(&self) -> Duration {
        if self.failures >= ZYGOTE_FAILURES_MAX { ZYGOTE_RESTART_PAUSE_LONG } else { ZYGOTE_RESTART_PAUSE }
    }
}

/// What every zygote is started with.
pub(super) struct Starter {
    zygote_source: String,
    worker_source: String,
    seccomp_hex: String,
    rlimits: Vec<(u32, u64, u64)>,
}

/// The zygote's configuration, as it reads it from fd 5.
#[derive(Serialize)]
struct ZygoteConfig<'a> {
    worker_source: &'a str,
    preloads: &'a [String],
    environment: std::collections::BTreeMap<&'a str, &'a str>,
    /// The filter's `sock_filter` array, native endian.
    seccomp_hex: &'a str,
    /// Number of the resource, soft, hard.
    rlimits: &'a [(u32, u64, u64)],
    /// Supplementary groups cannot be changed inside a cell: its user namespace denies it. The keeper has left them
    /// before, where it may.
    uid_count_single: bool,
    hostname: &'a str,
    cwd: &'a str,
}

impl Starter {
    pub(super) fn new(
        zygote_source: String,
        worker_source: String,
        filter: &[u8],
        limits: &CellLimits,
        cgroups: bool,
    ) -> Starter {
        let seccomp_hex = filter.iter().map(|byte| format!("{byte:02x}")).collect();
        let rlimits = plan::resource_limits(limits, cgroups);
        let rlimits = rlimits.into_iter().map(|limit| (limit.resource, limit.soft, limit.hard)).collect();
        Starter { zygote_source, worker_source, seccomp_hex, rlimits }
    }

    fn config(&self, spec: &RootSpec) -> io::Result<OwnedFd> {
        let config = ZygoteConfig {
            worker_source: &self.worker_source,
            preloads: &spec.preloads,
            environment: spec.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            seccomp_hex: &self.seccomp_hex,
            rlimits: &self.rlimits,
            uid_count_single: true,
            hostname: HOST_NAME,
            cwd: "/workspace",
        };
        memfd("zygote-config", &serde_json::to_vec(&config)?)
    }
}

impl Keeper {
    /// Gives each image that has a Python its zygote: the first image's is started, those of the others rest.
    pub(super) fn start_zygotes(&mut self) -> Result<(), SetupFailure> {
        for image in self.images.iter_mut().filter(|image| image.spec.python.is_some()) {
            image.zygote = Some(Zygote::resting());
        }
        let Some(image) = self.images.first().filter(|image| image.zygote.is_some()) else { return Ok(()) };
        let process = self.start_zygote(image).map_err(|failure| start_failed(image, failure))?;
        if let Some(zygote) = self.zygote_mut(0) {
            *zygote = Zygote { process: Some(process), failures: 1, wanted: true, ..Zygote::resting() };
        }
        Ok(())
    }

    /// A cell of the image is asked for: its zygote is started if it rests.
    pub(super) fn wake_zygote(&mut self, index: usize) {
        let Some(zygote) = self.zygote_mut(index) else { return };
        zygote.tired = false;
        if zygote.wanted {
            return;
        }
        let Some(image) = self.images.get(index) else { return };
        // A start that fails is tried again by `tend_zygotes`.
        let process = self.start_zygote(image).ok();
        if let Some(zygote) = self.zygote_mut(index) {
            *zygote = Zygote { process, failures: 1, wanted: true, ..Zygote::resting() };
        }
    }

    /// Nobody has wanted the image for a while: its zygote gives its memory back.
    pub(super) fn tire_zygote(&mut self, index: usize) {
        if let Some(zygote) = self.zygote_mut(index) {
            zygote.tired = true;
        }
        self.rest_zygote(index);
    }

    /// Ends a zygote that is tired, unless a cell of its image lives.
    pub(super) fn rest_zygote(&mut self, index: usize) {
        if self.cells.values().any(|cell| cell.image == index) {
            return;
        }
        let Some(zygote) = self.zygote_mut(index).filter(|zygote| zygote.tired) else { return };
        let Zygote { process, queue, in_flight, .. } = std::mem::replace(zygote, Zygote::resting());
        if let Some(process) = process {
            // It is reaped as a child that nobody knows any more.
            let _ = signal::send(process.child.pid.cast_signed(), libc::SIGKILL);
        }
        for cell in queue.into_iter().map(|fork| fork.cell).chain(in_flight) {
            self.outbox.push(FromKeeper::WorkerFailed { cell, errno: 0 }, Vec::new());
        }
    }

    fn start_zygote(&self, image: &Image) -> Result<Running, Failure> {
        let at = |error: io::Error| Failure::new(StepName::StartZygote, &error);
        let plan = plan::zygote(&image.root, &image.spec, self.way).map_err(|error| at(error.into()))?;
        let start = zygote::Start {
            python: image.spec.python.as_deref(),
            environment: cells::environment(&image.spec).map_err(|error| at(error.into()))?,
            source: &self.starter.zygote_source,
            config: self.starter.config(&image.spec).map_err(at)?,
            namespaces: Namespaces::MOUNT,
            plan: &plan,
        };
        let (child, link) = zygote::start(&self.single, &self.null, start)?;
        Ok(Running { child, link, ready: false })
    }

    pub(super) fn zygote_of(&self, pid: u32) -> Option<usize> {
        let is = |image: &Image| {
            image
                .zygote
                .as_ref()
                .and_then(|zygote| zygote.process.as_ref())
                .is_some_and(|process| process.child.pid == pid)
        };
        self.images.iter().position(is)
    }

    pub(super) fn spawn_worker(&mut self, cell: u64, fds: Vec<OwnedFd>) {
        let image = self.cells.get(&cell).filter(|cell| cell.state == State::Live).map(|cell| cell.image);
        let zygote = image.and_then(|index| self.images.get_mut(index)).and_then(|image| image.zygote.as_mut());
        let errno = match zygote {
            None => 0,
            Some(_) if fds.len() != WORKER_FDS => libc::EINVAL,
            Some(zygote) if zygote.queue.len() >= FORKS_QUEUED_MAX => libc::EAGAIN,
            Some(zygote) => {
                zygote.queue.push_back(Fork { cell, fds });
                if let Some(index) = image {
                    self.send_forks(index);
                }
                return;
            }
        };
        self.outbox.push(FromKeeper::WorkerFailed { cell, errno }, Vec::new());
    }

    /// Sends what is queued, as far as the zygote is ready and its socket has room.
    fn send_forks(&mut self, index: usize) {
        while let Some(fork) = self.next_fork(index) {
            match self.send_fork(index, &fork) {
                Ok(()) => {
                    if let Some(zygote) = self.zygote_mut(index) {
                        zygote.in_flight.push(fork.cell);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Some(zygote) = self.zygote_mut(index) {
                        zygote.queue.push_front(fork);
                    }
                    return;
                }
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(0);
                    self.outbox.push(FromKeeper::WorkerFailed { cell: fork.cell, errno }, Vec::new());
                }
            }
        }
    }

    fn next_fork(&mut self, index: usize) -> Option<Fork> {
        let zygote = self.zygote_mut(index)?;
        if zygote.is_ready() { zygote.queue.pop_front() } else { None }
    }

    fn send_fork(&self, index: usize, fork: &Fork) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let cell = self.cells.get(&fork.cell).filter(|cell| cell.state == State::Live).ok_or_else(gone)?;
        let process = self.images.get(index).and_then(|image| image.zygote.as_ref()?.process.as_ref());
        let process = process.ok_or_else(gone)?;
        let doors = match (&self.groups, &cell.group) {
            (Some(groups), Some(name)) => groups.doors(name)?,
            _ => Vec::new(),
        };
        let fds: Vec<BorrowedFd<'_>> =
            [&cell.init.pidfd].into_iter().chain(&fork.fds).chain(&doors).map(AsFd::as_fd).collect();
        let message = ToZygote::Fork { cell: fork.cell, cgroups: doors.len() as u32, id: CELL_ID };
        packet::send(process.link.as_fd(), &message.encode(), &fds)
    }

    /// Takes what a zygote says, and sends what waits for room.
    pub(super) fn hear_zygote(&mut self, index: usize) -> Result<(), SetupFailure> {
        for _ in 0..MESSAGES_PER_TURN_MAX {
            let Some(zygote) = self.zygote_mut(index) else { return Ok(()) };
            let Some(process) = &zygote.process else { return Ok(()) };
            match zygote::hear(&process.link) {
                Ok(Some(message)) => self.zygote_said(index, message),
                Ok(None) => break,
                // Its end, or nonsense: it is of no more use. Its death is seen by `reap`.
                Err(_) => {
                    let _ = signal::send(process.child.pid.cast_signed(), libc::SIGKILL);
                    break;
                }
            }
        }
        self.send_forks(index);
        Ok(())
    }

    fn zygote_said(&mut self, index: usize, message: FromZygote) {
        match message {
            FromZygote::Ready => {
                if let Some(zygote) = self.zygote_mut(index) {
                    zygote.failures = 0;
                    zygote.proven = true;
                    if let Some(process) = &mut zygote.process {
                        process.ready = true;
                    }
                }
            }
            FromZygote::Forked { cell, pid } => {
                if self.answered(index, cell) {
                    self.workers.insert((index, pid), cell);
                    self.outbox.push(FromKeeper::WorkerStarted { cell, pid }, Vec::new());
                }
            }
            FromZygote::ForkFailed { cell, errno } => {
                if self.answered(index, cell) {
                    self.outbox.push(FromKeeper::WorkerFailed { cell, errno }, Vec::new());
                }
            }
            FromZygote::Died { pid, status } => self.worker_ended(index, pid, status),
        }
    }

    /// Takes the cell's fork off those in flight; whether it was one.
    fn answered(&mut self, index: usize, cell: u64) -> bool {
        let Some(zygote) = self.zygote_mut(index) else { return false };
        let place = zygote.in_flight.iter().position(|one| *one == cell);
        place.map(|place| zygote.in_flight.remove(place)).is_some()
    }

    pub(super) fn worker_ended(&mut self, index: usize, pid: u32, status: i32) {
        if let Some(cell) = self.workers.remove(&(index, pid))
            && self.cells.contains_key(&cell)
        {
            self.outbox.push(FromKeeper::WorkerDied { cell, pid, status }, Vec::new());
        }
    }

    /// A zygote has been reaped. Before the first `Ready` that is the end of the keeper.
    pub(super) fn zygote_ended(&mut self, index: usize) -> Result<(), SetupFailure> {
        if !self.ready {
            let detail = self.images.get(index).map(|image| image.spec.image.clone()).unwrap_or_default();
            return Err(SetupFailure { step: StepName::ZygoteReady, errno: libc::ECHILD, detail });
        }
        let Some(zygote) = self.zygote_mut(index) else { return Ok(()) };
        zygote.process = None;
        let mut lost = std::mem::take(&mut zygote.in_flight);
        if !zygote.proven || zygote.failures >= ZYGOTE_FAILURES_MAX {
            // It does not come up, or its Python never did: what waits for it has waited for nothing.
            lost.extend(zygote.queue.drain(..).map(|fork| fork.cell));
        }
        for cell in lost {
            self.outbox.push(FromKeeper::WorkerFailed { cell, errno: 0 }, Vec::new());
        }
        Ok(())
    }

    /// Restarts zygotes whose pause is over; ends those that import for too long.
    pub(super) fn tend_zygotes(&mut self) -> Result<(), SetupFailure> {
        let now = Instant::now();
        for index in 0..self.images.len() {
            let Some(image) = self.images.get(index) else { continue };
            let Some(zygote) = &image.zygote else { continue };
            if zygote.deadline().is_none_or(|deadline| deadline > now) {
                continue;
            }
            if let Some(process) = &zygote.process {
                if !self.ready {
                    let detail = image.spec.image.clone();
                    return Err(SetupFailure { step: StepName::ZygoteReady, errno: libc::ETIMEDOUT, detail });
                }
                let _ = signal::send(process.child.pid.cast_signed(), libc::SIGKILL);
                continue;
            }
            let started = self.start_zygote(image).ok();
            if let Some(zygote) = self.zygote_mut(index) {
                zygote.process = started;
                zygote.failures = zygote.failures.saturating_add(1);
                zygote.started_at = Instant::now();
            }
        }
        Ok(())
    }

    fn zygote_mut(&mut self, index: usize) -> Option<&mut Zygote> {
        self.images.get_mut(index)?.zygote.as_mut()
    }
}

fn start_failed(image: &Image, failure: Failure) -> SetupFailure {
    let python = image.spec.python.as_deref().map(|path| path.display().to_string()).unwrap_or_default();
    let detail = format!("image {}, {python}: {}", image.spec.image, failure.step);
    SetupFailure { step: StepName::StartZygote, errno: failure.errno, detail }
}
