//! The keeper's loop where sessions have no namespaces; see the theory of operation in `flat`.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use ringfence_frame::keeper::{FromKeeper, Limiter, ToKeeper};
use ringfence_op::{RootSpec, Tier};
use ringfence_sys::process::{self, Ended, Single};
use ringfence_sys::signal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};

use super::cells::{Cell, State};
use super::guards::end_children;
use super::ids::Who;
use super::place::Place;
use super::rules::Rules;
use super::trash::Trash;
use super::view::View;
use super::zygote::{Running, Starter};
use crate::config::KeeperConfig;
use crate::failure::{At, SetupFailure};
use crate::ids::Ids;
use crate::keeper::outbox::Outbox;
use crate::limits::TRASH_STEP_MAX;
use crate::seccomp::{self, Surroundings};
use crate::sets::Sets;
use crate::step::StepName;
use crate::wait::until;

/// An image as the keeper holds it.
pub(super) struct Image {
    pub(super) spec: RootSpec,
    pub(super) view: View,
    /// None in the tier `none`.
    pub(super) rules: Option<Rules>,
}

pub(super) struct Keeper {
    pub(super) single: Single,
    pub(super) outbox: Outbox,
    life: OwnedFd,
    children: OwnedFd,
    pub(super) null: OwnedFd,
    pub(super) images: Vec<Image>,
    /// Sessions that were asked for wait for them, by the daemon's number.
    pub(super) sets: Sets<Running, u64>,
    pub(super) starter: Starter,
    /// Counts zygotes, so that no number comes twice.
    pub(super) zygotes_started: u32,
    pub(super) who: Who,
    pub(super) place: Place,
    pub(super) trash: Trash,
    pub(super) ids: Ids,
    /// Sessions that live or are being taken down, by the daemon's number.
    pub(super) cells: HashMap<u64, Cell>,
    /// Which session's guard a process is.
    pub(super) guards: HashMap<u32, u64>,
    /// Children of ours that were reaped while others were looked for.
    pub(super) early: Vec<Ended>,
    /// Guards whose end was told while another was being forked.
    pub(super) told: Vec<(u32, i32)>,
    pub(super) ready: bool,
}

impl Keeper {
    pub(super) fn new(config: KeeperConfig, who: Who, place: Place, life: OwnedFd) -> Result<Keeper, SetupFailure> {
        let nothing = String::new;
        process::rename(c"ringfence-keep").at(StepName::KeeperSelf, nothing)?;
        rustix::process::umask(Mode::from_raw_mode(0o022));
        process::adopt_orphans().at(StepName::KeeperSelf, nothing)?;
        let single = Single::claim().at(StepName::OneThread, nothing)?;
        let null = File::open("/dev/null").at(StepName::KeeperSelf, || "/dev/null".to_owned())?.into();
        let filter = seccomp::compile(Surroundings::Shared).map_err(io::Error::other);
        let filter = filter.at(StepName::CompileFilter, nothing)?;
        let secured = config.tier == Tier::Confined;
        let own_ids = who.sessions.is_some();
        let starter = Starter::new(&config, &filter, who.keeper, own_ids, secured);
        let mut images = Vec::new();
        for (index, spec) in config.images.into_iter().enumerate() {
            if spec.python.is_none() {
                let detail = format!("{}: sessions without namespaces need its Python", spec.image);
                return Err(SetupFailure { step: StepName::Image, errno: libc::ENOENT, detail });
            }
            let view = View::make(&spec, place.own(&format!("image-{index}")))?;
            let rules = if secured { Some(Rules::new(&view.seen(), own_ids)?) } else { None };
            images.push(Image { spec, view, rules });
        }
        let trash = place.own("trash");
        let trash = Trash::new(trash.clone()).at(StepName::Folders, || trash.display().to_string())?;
        let children = signal::child_watch().at(StepName::KeeperSelf, nothing)?;
        let mut keeper = Keeper {
            single,
            outbox: Outbox::default(),
            life,
            children,
            null,
            images,
            sets: Sets::new(),
            starter,
            zygotes_started: 0,
            who,
            place,
            trash,
            ids: who.ids(),
            cells: HashMap::new(),
            guards: HashMap::new(),
            early: Vec::new(),
            told: Vec::new(),
            ready: false,
        };
        keeper.start_first()?;
        Ok(keeper)
    }

    /// Runs until the daemon, at the other end of `socket`, or the warden is gone; then ends every session.
    pub(super) fn serve(&mut self, socket: OwnedFd) -> Result<(), SetupFailure> {
        self.outbox.connect(socket);
        let result = loop {
            match self.turn() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(failure) => break Err(failure),
            }
        };
        if let (Err(failure), Some(socket)) = (&result, self.outbox.socket()) {
            failure.send(socket.as_fd());
        }
        self.end();
        result
    }

    /// One round of the loop; `false` once the daemon or the warden is gone.
    fn turn(&mut self) -> Result<bool, SetupFailure> {
        let Some(events) = self.wait() else { return Ok(true) };
        if events.life {
            return Ok(false);
        }
        if events.children {
            signal::drain(&self.children);
            self.reap()?;
        }
        for (set, serial) in events.zygotes {
            self.hear_zygote(set, serial);
        }
        self.take_early_deaths();
        for number in events.guards {
            self.hear_guard(number);
        }
        if events.daemon && !self.take_requests() {
            return Ok(false);
        }
        self.make_waiting_cells();
        self.take_early_deaths();
        self.press_guards();
        self.trash.step(TRASH_STEP_MAX);
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
        let mut zygotes = Vec::new();
        for (set, zygote) in self.sets.zygotes() {
            fds.push(PollFd::new(&zygote.process.link, PollFlags::IN));
            zygotes.push((fds.len() - 1, (set, zygote.serial)));
        }
        let mut guards = Vec::new();
        for (number, cell) in &self.cells {
            if let Some(socket) = cell.guard.socket() {
                fds.push(PollFd::new(socket, PollFlags::IN));
                guards.push((fds.len() - 1, *number));
            }
        }
        let timeout = self.next_deadline().map(until);
        // EINTR and the like: the next round looks again.
        poll(&mut fds, timeout.as_ref()).ok()?;
        let ready = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
        Some(Events {
            life: ready(0),
            children: ready(1),
            daemon: daemon.is_some_and(ready),
            zygotes: zygotes.into_iter().filter(|(place, _)| ready(*place)).map(|(_, which)| which).collect(),
            guards: guards.into_iter().filter(|(place, _)| ready(*place)).map(|(_, number)| number).collect(),
        })
    }

    /// When the loop must run again even if nothing happens.
    fn next_deadline(&self) -> Option<Instant> {
        let margin = Duration::from_millis(1);
        let work = !self.trash.is_empty() || self.sets.iter().any(|(_, set)| set.zygotes.has_work());
        let work = work.then(Instant::now);
        let guards = self.cells.values().filter(|cell| cell.state != State::Dead).filter_map(|cell| cell.end_until);
        let zygotes = self.sets.iter().filter_map(|(_, set)| set.zygotes.deadline());
        work.into_iter().chain(guards.chain(zygotes).map(|at| at + margin)).min()
    }

    /// Takes what the daemon asks; `false` once its end is closed.
    fn take_requests(&mut self) -> bool {
        let (requests, open) = self.outbox.requests();
        for (message, fds) in requests {
            self.request(message, &fds);
        }
        open
    }

    fn request(&mut self, message: ToKeeper, fds: &[OwnedFd]) {
        match message {
            ToKeeper::MakeCell { cell, image, set } => self.ask_for_cell(cell, image as usize, set),
            ToKeeper::SpawnWorker { cell } => self.spawn_worker(cell, fds),
            ToKeeper::DestroyCell { cell } => self.destroy_cell(cell),
            ToKeeper::RestZygote { set } => self.tire_zygote(set),
            ToKeeper::RenewZygote { set } => self.renew_zygote(set),
        }
    }

    /// Takes every child that has ended: zygotes, guards whose zygote died before them, and what came to us of a guard
    /// that was killed.
    fn reap(&mut self) -> Result<(), SetupFailure> {
        while let Ok(Some(ended)) = process::reap_any() {
            self.child_ended(ended)?;
        }
        for ended in std::mem::take(&mut self.early) {
            self.child_ended(ended)?;
        }
        Ok(())
    }

    fn child_ended(&mut self, ended: Ended) -> Result<(), SetupFailure> {
        if let Some((set, serial)) = self.sets.of_process(ended.pid) {
            self.zygote_ended(set, serial)?;
        } else if self.guards.contains_key(&ended.pid) {
            self.guard_ended(ended.pid, ended.status);
        } else {
            self.kill_orphans();
        }
        Ok(())
    }

    /// Guards whose end was told while another was being forked.
    fn take_early_deaths(&mut self) {
        for (pid, status) in std::mem::take(&mut self.told) {
            self.guard_ended(pid, status);
        }
    }

    fn say_ready_when_it_is(&mut self) -> Result<(), SetupFailure> {
        if self.ready || !self.sets.iter().all(|(_, set)| set.zygotes.is_settled()) {
            return Ok(());
        }
        self.ready = true;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folders = open(&self.place.root, flags, Mode::empty());
        let folders = folders.at(StepName::Folders, || self.place.root.display().to_string())?;
        let message = FromKeeper::Ready {
            daemon_id: self.who.daemon,
            limiter: Limiter::Rlimits,
            id_per_cell: self.who.sessions.is_some(),
        };
        self.outbox.push(message, vec![folders]);
        self.say_which_zygotes_fork();
        self.outbox.flush();
        Ok(())
    }

    /// Lets go of every session, waits, bounded, until the guards have ended, and kills what is left.
    fn end(&mut self) {
        for cell in self.cells.values_mut() {
            cell.guard.close();
        }
        // Guards outlive their zygote, and come to us.
        self.sets = Sets::new();
        end_children(&self.children);
        self.place.remove();
    }
}

/// What the loop woke up for.
struct Events {
    life: bool,
    children: bool,
    daemon: bool,
    /// The set, and the zygote's number.
    zygotes: Vec<(u32, u32)>,
    guards: Vec<u64>,
}
