//! The keeper: makes, holds and unmakes cells.
//!
//! # Theory of operation
//!
//! One process, one thread, one poll loop. It is pid 1 of a pid namespace and root of a user namespace, the fleet's;
//! over the host it has no power. Whatever it does, it does inside the fleet, so root and an ordinary user take the same
//! road: as root the fleet has a range of ids, and each cell one of its own; as an ordinary user it has the one id.
//!
//! **Two starts.** The subcommand runs twice. First outside, as the `warden`, which sweeps what dead keepers left,
//! makes the cgroup subtree, opens the images' folders by the host's rights, clones the fleet's namespaces, maps the ids,
//! and waits. Then inside: the program is executed anew as root of the fleet, because the kernel lets a process look
//! into another (`/proc/PID/root`, `setns` by pidfd) by the user namespace in which its *program* was started; a
//! keeper, and inits forked from it, that had been started outside would be closed even to the fleet's root.
//!
//! **Mounts.** The keeper leaves the host's mounts for a root of its own with `/proc` and `/image/N`, put together once
//! from read-only copies. A cell's mount namespace is a copy of these few, in which it mounts its own folders,
//! makes `/image/N` its root, and lets go of the rest.
//!
//! **Images that come later** (`pulled`) are put together in roots that are there, empty, from the start; what they are
//! made of is copied from the store, which the keeper sees at `/store` for it.
//!
//! **A cell.** `clone3` with new pid, mount, net, ipc and uts namespaces, all of which belong to the fleet's user
//! namespace. The child carries out a plan that was made beforehand (`plan`, `steps`): cgroups, host name, loopback,
//! mounts, root; then it takes the cell's id, which costs it the fleet's capabilities; then it makes a user namespace
//! that maps nothing but that id, and drops all capabilities that came with it. So even a process that regained every
//! capability of the cell's user namespace would own none of the cell's other namespaces. The child stays, as
//! init (`crate::init`). Making is synchronous and bounded: no user code runs yet.
//!
//! **An interpreter** is forked by the zygote of its cell's set (`zygote`), a child of the keeper with the fleet's powers
//! and no user code in it. The keeper sends the descriptors, and goes on; the zygote answers when it has forked, and
//! tells of deaths, since the worker is its child. Forks for a zygote that is being restarted wait in a bounded queue.
//! The first image's zygote is there from the start, as set 0; another set's is started with the first cell of that set, and
//! rests when the daemon says so and no cell of it lives (`sets`).
//!
//! **A zygote is replaced** when the daemon asks for it (`generations`): the next one imports beside the one that forks,
//! takes over when it is ready, and the one before it is told to leave once every fork that was sent to it is answered.
//! What it has forked lives on: a worker belongs to its cell, dies with that cell's init, and when its parent ends it
//! becomes a child of the keeper, the reaper of the fleet, which then sees its end.
//!
//! **Taking down.** SIGKILL for init: the kernel then kills the whole pid namespace, and init's death is seen only
//! once all are gone. Then the cgroups are removed, which is retried, for the kernel takes a moment; then the daemon is
//! told, and only then may another cell have the id.
//!
//! **The end.** When the daemon's end of the link closes, or the warden's pipe, the keeper exits, and as it is pid 1
//! the kernel kills every zygote and cell. The same happens when the keeper is killed. The warden removes the cgroups.

pub(crate) mod cells;
mod forks;
pub(crate) mod outbox;
mod pulled;
mod zygote;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ringfence_frame::keeper::{FromKeeper, Limiter, ToKeeper};
use ringfence_op::{CellLimits, RootSpec};
use ringfence_sys::process::{self, Single};
use ringfence_sys::seccomp::Filter;
use ringfence_sys::signal;
use ringfence_weaken::{Mitigation, holds};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::cgroup::Groups;
use crate::config::Inside;
use crate::failure::{At, SetupFailure};
use crate::ids::Ids;
use crate::init::Program;
use crate::limits::CELL_IDS_MAX;
use crate::plan::Way;
use crate::step::StepName;
use crate::wait::until;
use crate::{confine, seccomp, template};
use cells::{Cell, Removal};
use outbox::Outbox;
use pulled::Pulls;
use zygote::{Starter, Zygotes, interests};

/// The daemon's id inside a fleet that has a range.
pub(crate) const DAEMON_ID: u32 = 65_533;

/// An image as the keeper holds it.
struct Image {
    spec: RootSpec,
    root: PathBuf,
    /// What its cells may use: never more than the server's.
    limits: CellLimits,
    /// What init starts in a cell of it.
    program: Program,
}

struct Keeper {
    single: Single,
    outbox: Outbox,
    life: OwnedFd,
    children: OwnedFd,
    null: OwnedFd,
    images: Vec<Image>,
    /// The zygotes of images that have a Python.
    sets: Zygotes,
    /// Where images may come later.
    pulls: Option<Pulls>,
    groups: Option<Groups>,
    /// What cells may use of which the image says nothing.
    limits: CellLimits,
    single_id: bool,
    filter: Filter,
    masks: Vec<String>,
    way: Way,
    starter: Starter,
    ids: Ids,
    /// Cells that live or are being taken down, by the daemon's number.
    cells: HashMap<u64, Cell>,
    /// Which cell's init a process is.
    inits: HashMap<u32, u64>,
    /// Which cell's worker a process is, by its zygote's number and its process id.
    workers: HashMap<(u32, u32), u64>,
    /// Counts zygotes, so that no number comes twice.
    zygotes_started: u32,
    removals: Vec<Removal>,
    /// Counts cgroups, so that no name comes twice.
    groups_made: u64,
    /// `Ready` was sent.
    ready: bool,
}

/// The inner start. Runs until the daemon or the warden is gone.
pub(crate) fn run(socket: OwnedFd, inside: Inside) -> Result<ExitCode, SetupFailure> {
    match Keeper::new(&socket, inside) {
        Ok(mut keeper) => {
            keeper.outbox.connect(socket);
            Ok(keeper.serve())
        }
        Err(failure) => {
            failure.send(socket.as_fd());
            Err(failure)
        }
    }
}

impl Keeper {
    fn new(socket: &OwnedFd, inside: Inside) -> Result<Keeper, SetupFailure> {
        let nothing = String::new;
        process::rename(c"ringfence-keep").at(StepName::KeeperSelf, nothing)?;
        // Rust ignores SIGPIPE, which shell commands would inherit.
        signal::default_all();
        signal::block_all().at(StepName::KeeperSelf, nothing)?;
        rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::CLOEXEC).at(StepName::KeeperSelf, nothing)?;
        rustix::process::umask(Mode::from_raw_mode(0o022));
        let single = Single::claim().at(StepName::OneThread, nothing)?;
        let life = adopt(Inside::LIFE)?;
        let mut numbers = Inside::FDS_FIRST..;
        let mut take = |count: usize| numbers.by_ref().take(count).map(adopt).collect::<Result<Vec<_>, _>>();

        let config = inside.config;
        let groups = match &inside.layout {
            Some(layout) => Some(Groups::new(layout, take(layout.folders.len())?)),
            None => None,
        };
        let mut trees = Vec::new();
        match &inside.trees {
            Some(counts) => {
                for count in counts {
                    trees.push(take(*count)?);
                }
            }
            None => {
                for spec in &config.images {
                    trees.push(template::open_trees(spec)?);
                }
            }
        }
        let (mut store, mut puller) = (None, None);
        if let Some(pulled) = &config.pulled {
            store = match &inside.trees {
                Some(_) => take(1)?.pop(),
                None => Some(template::open_store(&pulled.store)?),
            };
            puller = take(1)?.pop();
        }
        let null = File::open("/dev/null").at(StepName::KeeperSelf, || "/dev/null".to_owned())?.into();
        let filter_bytes = seccomp::compile(seccomp::Surroundings::Own)
            .map_err(io::Error::other)
            .at(StepName::CompileFilter, nothing)?;
        let filter = Filter::from_bytes(&filter_bytes).ok_or(Errno::INVAL).at(StepName::CompileFilter, nothing)?;

        let way = template::make_keeper_root()?;
        let mut images = Vec::new();
        for (index, (spec, trees)) in config.images.into_iter().zip(trees).enumerate() {
            let root = template::make_image_root(index, &spec, trees)?;
            let program = cells::program(&spec).at(StepName::ImageRoot, || spec.image.clone())?;
            let limits = spec.limits.within(&config.limits);
            images.push(Image { spec, root, limits, program });
        }
        let pulls = match (config.pulled, store, puller) {
            (Some(pulled), Some(tree), Some(link)) => {
                Some(Pulls::prepare(link, tree, pulled.store, images.len(), pulled.most)?)
            }
            _ => None,
        };
        let starter = Starter::new(config.zygote_source, config.worker_source, &filter_bytes, groups.is_some());
        let mut keeper = Keeper {
            single,
            outbox: Outbox::default(),
            life,
            children: signal::child_watch().at(StepName::KeeperSelf, nothing)?,
            null,
            images,
            sets: Zygotes::new(),
            pulls,
            groups,
            limits: config.limits,
            single_id: inside.single_id,
            filter,
            masks: template::masks(),
            way,
            starter,
            ids: ids_of_cells(inside.single_id),
            cells: HashMap::new(),
            inits: HashMap::new(),
            workers: HashMap::new(),
            zygotes_started: 0,
            removals: Vec::new(),
            groups_made: 0,
            ready: false,
        };
        confine::keeper().at(StepName::LoadFilter, || "the keeper's".to_owned())?;
        keeper.start_first()?;
        Ok(keeper)
    }

    fn serve(&mut self) -> ExitCode {
        if let Err(failure) = self.say_ready_when_it_is() {
            return self.give_up(&failure);
        }
        loop {
            match self.turn() {
                Ok(true) => {}
                // All else dies with this process.
                Ok(false) => return ExitCode::SUCCESS,
                Err(failure) => return self.give_up(&failure),
            }
        }
    }

    fn give_up(&self, failure: &SetupFailure) -> ExitCode {
        if let Some(socket) = self.outbox.socket() {
            failure.send(socket.as_fd());
        }
        ExitCode::FAILURE
    }

    /// One round of the loop; `false` once the daemon or the warden is gone.
    fn turn(&mut self) -> Result<bool, SetupFailure> {
        let Some(events) = self.wait() else { return Ok(true) };
        if events.life && holds(Mitigation::KeeperDiesWithTheWarden) {
            return Ok(false);
        }
        if events.children {
            signal::drain(&self.children);
            self.reap()?;
        }
        for (set, serial) in events.zygotes {
            self.hear_zygote(set, serial);
        }
        if events.puller {
            self.hear_puller();
        }
        if events.daemon && !self.take_requests() {
            return Ok(false);
        }
        self.retry_removals();
        self.tend_zygotes()?;
        self.say_ready_when_it_is()?;
        Ok(self.outbox.flush())
    }

    fn wait(&self) -> Option<Events> {
        let mut fds = vec![PollFd::new(&self.life, PollFlags::IN), PollFd::new(&self.children, PollFlags::IN)];
        let daemon = self.outbox.interest().map(|daemon| {
            fds.push(daemon);
            fds.len() - 1
        });
        let puller = self.pulls.as_ref().map(|pulls| {
            fds.push(PollFd::new(pulls.link(), PollFlags::IN));
            fds.len() - 1
        });
        let mut zygotes = Vec::new();
        for (number, set) in self.sets.iter() {
            for (serial, link, flags) in interests(&set.zygotes) {
                fds.push(PollFd::new(link, flags));
                zygotes.push((fds.len() - 1, (number, serial)));
            }
        }
        let timeout = self.next_deadline().map(|deadline| until(deadline + Duration::from_millis(1)));
        // EINTR and the like: the next round looks again.
        poll(&mut fds, timeout.as_ref()).ok()?;
        let ready = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
        Some(Events {
            life: ready(0),
            children: ready(1),
            daemon: daemon.is_some_and(ready),
            puller: puller.is_some_and(ready),
            zygotes: zygotes.into_iter().filter(|(place, _)| ready(*place)).map(|(_, which)| which).collect(),
        })
    }

    /// When the loop must run again even if nothing happens.
    fn next_deadline(&self) -> Option<Instant> {
        let removals = self.removals.iter().map(|removal| removal.again_at);
        let zygotes = self.sets.iter().filter_map(|(_, set)| set.zygotes.deadline());
        removals.chain(zygotes).min()
    }

    /// Takes what the daemon asks; `false` once its end is closed.
    fn take_requests(&mut self) -> bool {
        let (requests, open) = self.outbox.requests();
        for (message, fds) in requests {
            self.request(message, fds);
        }
        open
    }

    fn request(&mut self, message: ToKeeper, fds: Vec<OwnedFd>) {
        match message {
            ToKeeper::MakeCell { cell, image, set } => self.make_cell(cell, image, set),
            ToKeeper::SpawnWorker { cell } => self.spawn_worker(cell, fds),
            ToKeeper::DestroyCell { cell } => self.destroy_cell(cell),
            ToKeeper::RestZygote { set } => self.tire_zygote(set),
            ToKeeper::RenewZygote { set } => self.renew_zygote(set),
        }
    }

    /// Takes every child that has ended: inits, zygotes, and workers whose zygote died before them.
    fn reap(&mut self) -> Result<(), SetupFailure> {
        while let Ok(Some(ended)) = process::reap_any() {
            if let Some(cell) = self.inits.remove(&ended.pid) {
                self.init_ended(cell, ended.status);
            } else if let Some((set, serial)) = self.sets.of_process(ended.pid) {
                self.zygote_ended(set, serial)?;
            } else {
                self.orphan_ended(ended.pid, ended.status);
            }
        }
        Ok(())
    }

    fn say_ready_when_it_is(&mut self) -> Result<(), SetupFailure> {
        if self.ready || !self.sets.iter().all(|(_, set)| set.zygotes.is_settled()) {
            return Ok(());
        }
        self.ready = true;
        let fleet = File::open("/proc/self/ns/user").at(StepName::KeeperSelf, || "/proc/self/ns/user".to_owned())?;
        let message = FromKeeper::Ready {
            daemon_id: if self.single_id { 0 } else { DAEMON_ID },
            limiter: self.groups.as_ref().map_or(Limiter::Rlimits, Groups::limiter),
            id_per_cell: !self.single_id,
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let roots = open(template::ROOTS, flags, Mode::empty());
        let roots = roots.at(StepName::KeeperSelf, || template::ROOTS.to_owned())?;
        self.outbox.push(message, vec![fleet.into(), roots]);
        self.say_which_zygotes_fork();
        self.outbox.flush();
        Ok(())
    }
}

/// The fleet has one id, which all cells share, or a range.
fn ids_of_cells(single_id: bool) -> Ids {
    match single_id {
        true => Ids::shared(0),
        false if !holds(Mitigation::HostIdPerSession) => Ids::shared(1),
        false => Ids::own(1, CELL_IDS_MAX),
    }
}

/// What the loop woke up for.
struct Events {
    life: bool,
    children: bool,
    daemon: bool,
    puller: bool,
    /// The set, and the zygote's number.
    zygotes: Vec<(u32, u32)>,
}

fn adopt(number: i32) -> Result<OwnedFd, SetupFailure> {
    let detail = || format!("descriptor {number}");
    let fd = process::adopt(number).at(StepName::KeeperSelf, detail)?;
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC).at(StepName::KeeperSelf, detail)?;
    Ok(fd)
}
