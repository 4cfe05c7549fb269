//! The keeper's side of the zygotes: starting, restarting, renewing, ending them. `forks` has what they do.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use ringfence_frame::keeper::FromKeeper;
use ringfence_op::{CellLimits, RootSpec};
use ringfence_sys::namespace::Namespaces;
use ringfence_sys::process::Child;
use ringfence_sys::signal;
use ringfence_weaken::kept_source;
use rustix::event::PollFlags;
use serde::Serialize;

use super::cells;
use super::forks::Fork;
use super::{Image, Keeper};
use crate::config::memfd;
use crate::failure::SetupFailure;
use crate::generations::{Generations, Renewal, Zygote};
use crate::plan::{self, HOST_NAME};
use crate::sets::{Process, Sets};
use crate::step::StepName;
use crate::steps::Failure;
use crate::zygote;

/// All zygotes, and the forks that were not sent to them yet.
pub(super) type Zygotes = Sets<Running, Fork>;
/// Those of one set.
type OfSet = Generations<Running, Fork>;

/// What is held of each.
pub(super) struct Running {
    pub(super) child: Child,
    pub(super) link: OwnedFd,
}

impl Process for Running {
    fn pid(&self) -> u32 {
        self.child.pid
    }

    fn link(&self) -> &OwnedFd {
        &self.link
    }
}

/// What to wait for on the links of those that run, each with its number.
pub(super) fn interests(zygotes: &OfSet) -> impl Iterator<Item = (u32, &OwnedFd, PollFlags)> {
    let writes = zygotes.forking_serial().filter(|_| zygotes.has_work());
    zygotes.iter().map(move |zygote| {
        let writing = if writes == Some(zygote.serial) { PollFlags::OUT } else { PollFlags::empty() };
        (zygote.serial, &zygote.process.link, PollFlags::IN | writing)
    })
}

/// What every zygote is started with.
pub(super) struct Starter {
    zygote_source: String,
    worker_source: String,
    seccomp_hex: String,
    cgroups: bool,
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
    pub(super) fn new(zygote_source: String, worker_source: String, filter: &[u8], cgroups: bool) -> Starter {
        let seccomp_hex = filter.iter().map(|byte| format!("{byte:02x}")).collect();
        Starter { zygote_source: kept_source(zygote_source), worker_source, seccomp_hex, cgroups }
    }

    fn config(&self, spec: &RootSpec, limits: &CellLimits) -> io::Result<OwnedFd> {
        let rlimits = plan::resource_limits(limits, self.cgroups);
        let rlimits: Vec<_> = rlimits.into_iter().map(|limit| (limit.resource, limit.soft, limit.hard)).collect();
        let config = ZygoteConfig {
            worker_source: &self.worker_source,
            preloads: &spec.preloads,
            environment: spec.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            seccomp_hex: &self.seccomp_hex,
            rlimits: &rlimits,
            uid_count_single: true,
            hostname: HOST_NAME,
            cwd: "/workspace",
        };
        memfd("zygote-config", &serde_json::to_vec(&config)?)
    }
}

impl Keeper {
    /// Starts the zygote of the first image, where it has a Python.
    pub(super) fn start_first(&mut self) -> Result<(), SetupFailure> {
        let Some(image) = self.images.first().filter(|image| image.spec.python.is_some()) else { return Ok(()) };
        let started = self.sets.wake(FIRST_SET, 0).and_then(|_| self.start_zygote(image));
        let process = started.map_err(|failure| start_failed(image, failure))?;
        self.zygote_started(FIRST_SET, Some(process));
        Ok(())
    }

    /// A cell of the set is asked for: its zygote is started if it does not run.
    pub(super) fn wake_zygote(&mut self, set: u32, image: usize) -> Result<(), Failure> {
        let has_python = self.images.get(image).is_some_and(|image| image.spec.python.is_some());
        if has_python && self.sets.wake(set, image)? {
            self.start_current(set);
        }
        Ok(())
    }

    /// Nobody has wanted the set for a while: its zygote gives its memory back.
    pub(super) fn tire_zygote(&mut self, set: u32) {
        self.sets.tire(set);
        self.rest_zygote(set);
    }

    /// Ends the zygotes of a set that is tired, unless a cell of it lives.
    pub(super) fn rest_zygote(&mut self, set: u32) {
        if self.cells.values().any(|cell| cell.set == set) {
            return;
        }
        let Some((ended, waited)) = self.sets.rest(set) else { return };
        self.lose_forks(waited.into_iter().map(|fork| fork.cell));
        for zygote in ended {
            // It is reaped as a child that nobody knows any more; of what it forked nothing lives.
            let _ = signal::send(zygote.process.child.pid.cast_signed(), libc::SIGKILL);
            self.workers.retain(|(serial, _), _| *serial != zygote.serial);
            self.lose_forks(zygote.in_flight);
        }
    }

    /// Another zygote of the set is asked for.
    pub(super) fn renew_zygote(&mut self, set: u32) {
        let renewal = self.sets.get_mut(set).map_or(Renewal::Refuse, |zygotes| zygotes.renew());
        let started = match (renewal, self.image_of(set)) {
            (Renewal::Wait, _) => return,
            (Renewal::Start, Some(image)) => self.start_zygote(image),
            _ => Err(Failure { step: StepName::StartZygote, errno: libc::ESRCH }),
        };
        match started {
            Ok(process) => {
                let serial = self.next_serial();
                if let Some(zygotes) = self.sets.get_mut(set) {
                    zygotes.followed(serial, process, Instant::now());
                }
            }
            Err(failure) => {
                if let Some(zygotes) = self.sets.get_mut(set) {
                    zygotes.not_followed();
                }
                self.say_not_renewed(set, failure.errno);
            }
        }
    }

    fn start_zygote(&self, image: &Image) -> Result<Running, Failure> {
        let at = |error: io::Error| Failure::new(StepName::StartZygote, &error);
        let plan = plan::zygote(&image.root, &image.spec, self.way).map_err(|error| at(error.into()))?;
        let start = zygote::Start {
            python: image.spec.python.as_deref(),
            environment: cells::environment(&image.spec).map_err(|error| at(error.into()))?,
            source: &self.starter.zygote_source,
            config: self.starter.config(&image.spec, &image.limits).map_err(at)?,
            namespaces: Namespaces::MOUNT,
            plan: &plan,
        };
        let (child, link) = zygote::start(&self.single, &self.null, start)?;
        Ok(Running { child, link })
    }

    /// A start that fails is tried again by `tend_zygotes`; what has waited for it may be given up.
    fn start_current(&mut self, set: u32) {
        let process = self.image_of(set).and_then(|image| self.start_zygote(image).ok());
        self.zygote_started(set, process);
    }

    fn zygote_started(&mut self, set: u32, process: Option<Running>) {
        let serial = self.next_serial();
        if let Some(zygotes) = self.sets.get_mut(set) {
            zygotes.started(serial, process, Instant::now());
            let waited = zygotes.give_up();
            self.lose_forks(waited.into_iter().map(|fork| fork.cell));
        }
    }

    fn next_serial(&mut self) -> u32 {
        self.zygotes_started += 1;
        self.zygotes_started
    }

    /// A zygote has been reaped. Before the first `Ready` that is the end of the keeper.
    pub(super) fn zygote_ended(&mut self, set: u32, serial: u32) -> Result<(), SetupFailure> {
        if !self.ready {
            let detail = self.image_of(set).map(|image| image.spec.image.clone()).unwrap_or_default();
            return Err(SetupFailure { step: StepName::ZygoteReady, errno: libc::ECHILD, detail });
        }
        self.hear_out(set, serial);
        // What it has forked comes to this process.
        let orphans: Vec<_> = self.workers.keys().filter(|(of, _)| *of == serial).copied().collect();
        for key in orphans {
            if let Some(cell) = self.workers.remove(&key) {
                self.workers.insert((ORPHANS, key.1), cell);
            }
        }
        let Some(zygotes) = self.sets.get_mut(set) else { return Ok(()) };
        let mut lost = zygotes.ended(serial).map(|zygote| zygote.in_flight).unwrap_or_default();
        lost.extend(zygotes.give_up().into_iter().map(|fork| fork.cell));
        let refused = zygotes.take_refusal();
        self.lose_forks(lost);
        if refused {
            self.say_not_renewed(set, 0);
        }
        Ok(())
    }

    /// Restarts zygotes whose pause is over, ends those that import or leave for too long, and tells those that are not
    /// needed any more to leave.
    pub(super) fn tend_zygotes(&mut self) -> Result<(), SetupFailure> {
        let due = self.sets.tend(Instant::now(), self.ready).map_err(|set| {
            let detail = self.image_of(set).map(|image| image.spec.image.clone()).unwrap_or_default();
            SetupFailure { step: StepName::ZygoteReady, errno: libc::ETIMEDOUT, detail }
        })?;
        for set in due {
            self.start_current(set);
        }
        Ok(())
    }

    /// Tells the daemon which zygotes fork, once it hears.
    pub(super) fn say_which_zygotes_fork(&mut self) {
        for (set, zygote) in self.sets.forking() {
            self.outbox.push(FromKeeper::ZygoteReady { set, zygote }, Vec::new());
        }
    }

    fn say_not_renewed(&mut self, set: u32, errno: i32) {
        self.outbox.push(FromKeeper::ZygoteNotRenewed { set, errno }, Vec::new());
    }

    fn lose_forks(&mut self, cells: impl IntoIterator<Item = u64>) {
        for cell in cells {
            self.outbox.push(FromKeeper::WorkerFailed { cell, errno: 0 }, Vec::new());
        }
    }

    fn image_of(&self, set: u32) -> Option<&Image> {
        self.images.get(self.sets.image_of(set)?)
    }
}

/// The set whose zygote is there from the start.
const FIRST_SET: u32 = 0;
/// In the place of a zygote's number: of workers whose zygote has ended.
pub(super) const ORPHANS: u32 = 0;

/// The zygote with this number, if it still runs.
pub(super) fn find(zygotes: Option<&mut OfSet>, serial: u32) -> Option<&mut Zygote<Running>> {
    zygotes?.find(serial)
}

fn start_failed(image: &Image, failure: Failure) -> SetupFailure {
    let python = image.spec.python.as_deref().map(|path| path.display().to_string()).unwrap_or_default();
    let detail = format!("image {}, {python}: {}", image.spec.image, failure.step);
    SetupFailure { step: StepName::StartZygote, errno: failure.errno, detail }
}
