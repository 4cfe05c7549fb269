//! The keeper's loop where sessions have no namespaces; see the theory of operation in `flat`.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use ringfence_frame::keeper::{FromKeeper, Limiter, ToKeeper};
use ringfence_frame::zygote::FromZygote;
use ringfence_op::{RootSpec, Tier};
use ringfence_sys::process::{self, Ended, Single};
use ringfence_sys::signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};

use super::cells::{Cell, State};
use super::guards::orphans;
use super::ids::{Ids, Who};
use super::place::Place;
use super::rules::Rules;
use super::trash::Trash;
use super::view::View;
use super::zygote::{Starter, Zygote};
use crate::config::KeeperConfig;
use crate::failure::{At, SetupFailure};
use crate::keeper::outbox::{Heard, Outbox};
use crate::limits::{
    FLAT_END_WAIT_MAX, MESSAGES_PER_TURN_MAX, TRASH_STEP_MAX, ZYGOTE_FAILURES_MAX, ZYGOTE_READY_WAIT_MAX,
    ZYGOTE_RESTART_PAUSE, ZYGOTE_RESTART_PAUSE_LONG,
};
use crate::seccomp::{self, Surroundings};
use crate::step::StepName;
use crate::steps::Failure;

/// An image as the keeper holds it.
pub(super) struct Image {
    spec: RootSpec,
    pub(super) view: View,
    /// None in the tier `none`.
    pub(super) rules: Option<Rules>,
    pub(super) zygote: ZygoteSlot,
}

/// The place of an image's zygote, through its restarts.
pub(super) struct ZygoteSlot {
    pub(super) process: Option<Zygote>,
    failures: u32,
    started_at: Instant,
    /// It is to run; otherwise it rests until a session of its image is asked for.
    wanted: bool,
    /// It is to rest as soon as no session of its image lives.
    tired: bool,
}

pub(super) struct Keeper {
    pub(super) single: Single,
    pub(super) outbox: Outbox,
    life: OwnedFd,
    children: OwnedFd,
    pub(super) null: OwnedFd,
    pub(super) images: Vec<Image>,
    starter: Starter,
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
    ready: bool,
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
            images.push(Image { spec, view, rules, zygote: ZygoteSlot::resting() });
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
            starter,
            who,
            place,
            trash,
            ids: Ids::new(who),
            cells: HashMap::new(),
            guards: HashMap::new(),
            early: Vec::new(),
            ready: false,
        };
        keeper.start_zygote(0).map_err(|failure| keeper.start_failed(0, failure))?;
        Ok(keeper)
    }

    /// Runs until the daemon or the warden is gone; then ends every session.
    pub(super) fn serve(&mut self) -> Result<(), SetupFailure> {
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
        for index in events.zygotes {
            self.hear_zygote(index);
        }
        self.take_early_deaths();
        for number in events.guards {
            self.hear_guard(number);
        }
        if events.daemon && !self.take_requests() {
            return Ok(false);
        }
        self.take_early_deaths();
        self.press_guards();
        self.trash.step(TRASH_STEP_MAX);
        self.tend_zygotes()?;
        self.say_ready_when_it_is()?;
        Ok(self.outbox.flush())
    }

    fn wait(&self) -> Option<Events> {
        let mut fds = vec![PollFd::new(&self.life, PollFlags::IN), PollFd::new(&self.children, PollFlags::IN)];
        let daemon = self.outbox.socket().map(|socket| {
            let writing = if self.outbox.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            fds.push(PollFd::new(socket, PollFlags::IN | writing));
            fds.len() - 1
        });
        let mut zygotes = Vec::new();
        for (index, image) in self.images.iter().enumerate() {
            if let Some(process) = &image.zygote.process {
                fds.push(PollFd::new(&process.link, PollFlags::IN));
                zygotes.push((fds.len() - 1, index));
            }
        }
        let mut guards = Vec::new();
        for (number, cell) in &self.cells {
            if let Some(orders) = &cell.orders {
                fds.push(PollFd::new(orders, PollFlags::IN));
                guards.push((fds.len() - 1, *number));
            }
        }
        let timeout = self.next_deadline().map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        // EINTR and the like: the next round looks again.
        poll(&mut fds, timeout.as_ref()).ok()?;
        let ready = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
        Some(Events {
            life: ready(0),
            children: ready(1),
            daemon: daemon.is_some_and(ready),
            zygotes: zygotes.into_iter().filter(|(place, _)| ready(*place)).map(|(_, index)| index).collect(),
            guards: guards.into_iter().filter(|(place, _)| ready(*place)).map(|(_, number)| number).collect(),
        })
    }

    /// When the loop must run again even if nothing happens.
    fn next_deadline(&self) -> Option<Instant> {
        let margin = Duration::from_millis(1);
        let trash = (!self.trash.is_empty()).then(Instant::now);
        let guards = self.cells.values().filter(|cell| cell.state != State::Dead).filter_map(|cell| cell.end_until);
        let zygotes = self.images.iter().filter_map(|image| image.zygote.deadline());
        trash.into_iter().chain(guards.chain(zygotes).map(|at| at + margin)).min()
    }

    /// Takes what the daemon asks; `false` once its end is closed.
    fn take_requests(&mut self) -> bool {
        for _ in 0..MESSAGES_PER_TURN_MAX {
            match self.outbox.hear() {
                Heard::Request(message, fds) => self.request(message, &fds),
                Heard::Nonsense => {}
                Heard::Nothing => return true,
                Heard::Gone => return false,
            }
        }
        true
    }

    fn request(&mut self, message: ToKeeper, fds: &[OwnedFd]) {
        match message {
            ToKeeper::MakeCell { cell, image } => {
                self.wake_zygote(image as usize);
                self.make_cell(cell, image);
            }
            ToKeeper::SpawnWorker { cell } => self.spawn_worker(cell, fds),
            ToKeeper::DestroyCell { cell } => self.destroy_cell(cell),
            ToKeeper::RestZygote { image } => {
                if let Some(image) = self.images.get_mut(image as usize) {
                    image.zygote.tired = true;
                }
                self.rest_zygote(image as usize);
            }
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
        let is = |image: &Image| image.zygote.process.as_ref().is_some_and(|zygote| zygote.child.pid == ended.pid);
        if let Some(index) = self.images.iter().position(is) {
            if !self.ready {
                let detail = self.images.get(index).map(|image| image.spec.image.clone()).unwrap_or_default();
                return Err(SetupFailure { step: StepName::ZygoteReady, errno: libc::ECHILD, detail });
            }
            if let Some(image) = self.images.get_mut(index) {
                image.zygote.process = None;
            }
        } else if self.guards.contains_key(&ended.pid) {
            self.guard_ended(ended.pid, ended.status);
        } else {
            self.kill_orphans();
        }
        Ok(())
    }

    fn hear_zygote(&mut self, index: usize) {
        for _ in 0..MESSAGES_PER_TURN_MAX {
            let Some(slot) = self.images.get_mut(index).map(|image| &mut image.zygote) else { return };
            let Some(process) = &mut slot.process else { return };
            match process.hear() {
                Ok(None) => return,
                Ok(Some(FromZygote::Ready)) => {
                    process.ready = true;
                    slot.failures = 0;
                }
                Ok(Some(FromZygote::Died { pid, status })) => self.guard_ended(pid, status),
                // Of a session that was not waited for.
                Ok(Some(_)) => {}
                // Its end, or nonsense: it is of no more use. Its death is seen by `reap`.
                Err(_) => {
                    let _ = signal::send(process.child.pid.cast_signed(), libc::SIGKILL);
                    return;
                }
            }
        }
    }

    /// Guards whose end was told while another was being forked.
    fn take_early_deaths(&mut self) {
        for index in 0..self.images.len() {
            let process = self.images.get_mut(index).and_then(|image| image.zygote.process.as_mut());
            let deaths = process.map(|process| std::mem::take(&mut process.deaths)).unwrap_or_default();
            for (pid, status) in deaths {
                self.guard_ended(pid, status);
            }
        }
    }

    fn start_zygote(&mut self, index: usize) -> Result<(), Failure> {
        let Some(image) = self.images.get_mut(index) else { return Ok(()) };
        image.zygote.wanted = true;
        image.zygote.tired = false;
        image.zygote.failures = image.zygote.failures.saturating_add(1);
        image.zygote.started_at = Instant::now();
        let own = self.place.session(self.who.keeper, &image.view.tmp_links);
        let own = own.map_err(|error| Failure::new(StepName::Folders, &error))?;
        let process = Zygote::start(&self.single, &self.null, &self.starter, &image.view, &image.spec.preloads, own)?;
        image.zygote.process = Some(process);
        Ok(())
    }

    fn wake_zygote(&mut self, index: usize) {
        let Some(slot) = self.images.get_mut(index).map(|image| &mut image.zygote) else { return };
        slot.tired = false;
        if !slot.wanted {
            // A start that fails is tried again by `tend_zygotes`.
            let _ = self.start_zygote(index);
        }
    }

    /// Ends a zygote that is tired, unless a session of its image lives.
    pub(super) fn rest_zygote(&mut self, index: usize) {
        if self.cells.values().any(|cell| cell.image == index) {
            return;
        }
        let Some(slot) = self.images.get_mut(index).map(|image| &mut image.zygote) else { return };
        if slot.tired {
            // It ends with its link, and is reaped as a child that nobody knows any more.
            *slot = ZygoteSlot::resting();
        }
    }

    /// Restarts zygotes whose pause is over; ends those that import for too long.
    fn tend_zygotes(&mut self) -> Result<(), SetupFailure> {
        let now = Instant::now();
        for index in 0..self.images.len() {
            let Some(image) = self.images.get(index) else { continue };
            if image.zygote.deadline().is_none_or(|deadline| deadline > now) {
                continue;
            }
            if let Some(process) = &image.zygote.process {
                if !self.ready {
                    let detail = image.spec.image.clone();
                    return Err(SetupFailure { step: StepName::ZygoteReady, errno: libc::ETIMEDOUT, detail });
                }
                let _ = signal::send(process.child.pid.cast_signed(), libc::SIGKILL);
                continue;
            }
            let _ = self.start_zygote(index);
        }
        Ok(())
    }

    fn start_failed(&self, index: usize, failure: Failure) -> SetupFailure {
        let name = self.images.get(index).map(|image| image.spec.image.clone()).unwrap_or_default();
        SetupFailure {
            step: StepName::StartZygote,
            errno: failure.errno,
            detail: format!("image {name}: {}", failure.step),
        }
    }

    fn say_ready_when_it_is(&mut self) -> Result<(), SetupFailure> {
        let settled = |slot: &ZygoteSlot| !slot.wanted || slot.process.as_ref().is_some_and(|zygote| zygote.ready);
        if self.ready || !self.images.iter().all(|image| settled(&image.zygote)) {
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
        self.outbox.flush();
        Ok(())
    }

    /// Lets go of every session, waits, bounded, until the guards have ended, and kills what is left.
    fn end(&mut self) {
        for cell in self.cells.values_mut() {
            cell.orders = None;
        }
        for image in &mut self.images {
            // Guards outlive their zygote, and come to us.
            image.zygote.process = None;
        }
        let deadline = Instant::now() + FLAT_END_WAIT_MAX;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            signal::drain(&self.children);
            match reap_all() {
                false => break,
                true if left.is_zero() => {
                    for pid in orphans(std::process::id(), &Default::default()) {
                        let _ = signal::send(pid.cast_signed(), libc::SIGKILL);
                    }
                    break;
                }
                true => {
                    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
                    let _ = poll(&mut [PollFd::new(&self.children, PollFlags::IN)], Some(&timeout));
                }
            }
        }
        self.place.remove();
    }
}

/// Reaps what has ended; whether children are left.
fn reap_all() -> bool {
    loop {
        match process::reap_any() {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

impl ZygoteSlot {
    fn resting() -> ZygoteSlot {
        ZygoteSlot { process: None, failures: 0, started_at: Instant::now(), wanted: false, tired: false }
    }

    /// When it must be ready, or may be started again.
    fn deadline(&self) -> Option<Instant> {
        match &self.process {
            Some(process) if process.ready => None,
            Some(_) => Some(self.started_at + ZYGOTE_READY_WAIT_MAX),
            None if !self.wanted => None,
            None => {
                let slow = self.failures >= ZYGOTE_FAILURES_MAX;
                Some(self.started_at + if slow { ZYGOTE_RESTART_PAUSE_LONG } else { ZYGOTE_RESTART_PAUSE })
            }
        }
    }
}

/// What the loop woke up for.
struct Events {
    life: bool,
    children: bool,
    daemon: bool,
    zygotes: Vec<usize>,
    guards: Vec<u64>,
}
