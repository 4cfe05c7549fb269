//! The zygotes of the images through their lives: started, restarted, renewed, ended.

use std::time::Instant;

use ringfence_frame::keeper::FromKeeper;
use ringfence_frame::zygote::FromZygote;
use ringfence_sys::signal;

use super::keeper::{Image, Keeper};
use super::zygote::Running;
use crate::failure::SetupFailure;
use crate::generations::Renewal;
use crate::limits::MESSAGES_PER_TURN_MAX;
use crate::step::StepName;
use crate::steps::Failure;

/// The set whose zygote is there from the start.
const FIRST_SET: u32 = 0;

impl Keeper {
    /// Starts the zygote of the first image.
    pub(super) fn start_first(&mut self) -> Result<(), SetupFailure> {
        let started = self.sets.wake(FIRST_SET, 0).and_then(|_| self.start_zygote(FIRST_SET));
        let process = started.map_err(|failure| SetupFailure {
            step: StepName::StartZygote,
            errno: failure.errno,
            detail: format!("image {}: {}", self.image_name(FIRST_SET), failure.step),
        })?;
        self.zygote_started(FIRST_SET, Some(process));
        Ok(())
    }

    /// A session of the set is asked for: its zygote is started if it does not run.
    pub(super) fn wake_zygote(&mut self, set: u32, image: usize) -> Result<(), Failure> {
        if self.sets.wake(set, image)? {
            self.start_current(set);
        }
        Ok(())
    }

    /// Nobody has wanted the set for a while: its zygote gives its memory back.
    pub(super) fn tire_zygote(&mut self, set: u32) {
        self.sets.tire(set);
        self.rest_zygote(set);
    }

    /// Ends the zygotes of a set that is tired, unless a session of it lives or is waited for.
    pub(super) fn rest_zygote(&mut self, set: u32) {
        let waited_for = self.sets.get(set).is_some_and(|zygotes| zygotes.waiting().next().is_some());
        if waited_for || self.cells.values().any(|cell| cell.set == set) {
            return;
        }
        let Some((ended, _)) = self.sets.rest(set) else { return };
        for zygote in ended {
            // It ends with its link, and is reaped as a child that nobody knows any more.
            self.trash.take(&zygote.process.folder);
        }
    }

    /// Another zygote of the set is asked for.
    pub(super) fn renew_zygote(&mut self, set: u32) {
        let renewal = self.sets.get_mut(set).map_or(Renewal::Refuse, |zygotes| zygotes.renew());
        let started = match renewal {
            Renewal::Wait => return,
            Renewal::Start => self.start_zygote(set),
            Renewal::Refuse => Err(Failure { step: StepName::StartZygote, errno: libc::ESRCH }),
        };
        let serial = self.next_serial();
        let zygotes = self.sets.get_mut(set);
        match started {
            Ok(process) => {
                if let Some(zygotes) = zygotes {
                    zygotes.followed(serial, process, Instant::now());
                }
            }
            Err(Failure { errno, .. }) => {
                if let Some(zygotes) = zygotes {
                    zygotes.not_followed();
                }
                self.outbox.push(FromKeeper::ZygoteNotRenewed { set, errno }, Vec::new());
            }
        }
    }

    fn start_zygote(&mut self, set: u32) -> Result<Running, Failure> {
        let nowhere = Failure { step: StepName::Image, errno: libc::ENOENT };
        let image = self.sets.image_of(set).and_then(|image| self.images.get(image));
        let Image { spec, view, .. } = image.ok_or(nowhere)?;
        let own = self.place.session(self.who.keeper, &view.tmp_links);
        let own = own.map_err(|error| Failure::new(StepName::Folders, &error))?;
        let started = Running::start(&self.single, &self.null, &self.starter, view, spec, &own);
        started.inspect_err(|_| self.trash.take(&own.root))
    }

    /// A start that fails is tried again by `tend_zygotes`; who has waited for it may be refused.
    fn start_current(&mut self, set: u32) {
        let process = self.start_zygote(set).ok();
        self.zygote_started(set, process);
    }

    fn zygote_started(&mut self, set: u32, process: Option<Running>) {
        let serial = self.next_serial();
        if let Some(zygotes) = self.sets.get_mut(set) {
            zygotes.started(serial, process, Instant::now());
        }
        self.refuse_who_waits_in_vain(set);
    }

    fn next_serial(&mut self) -> u32 {
        self.zygotes_started += 1;
        self.zygotes_started
    }

    /// Takes what a zygote says.
    pub(super) fn hear_zygote(&mut self, set: u32, serial: u32) {
        for _ in 0..MESSAGES_PER_TURN_MAX {
            let Some(zygotes) = self.sets.get_mut(set) else { return };
            let Some(zygote) = zygotes.find(serial) else { return };
            match zygote.process.hear() {
                Ok(None) => return,
                Ok(Some(FromZygote::Ready)) => {
                    if zygotes.ready(serial, Instant::now()) && self.ready {
                        let message = FromKeeper::ZygoteReady { set, zygote: serial };
                        self.outbox.push(message, Vec::new());
                    }
                }
                Ok(Some(FromZygote::Died { pid, status })) => self.guard_ended(pid, status),
                // Of a session that was not waited for.
                Ok(Some(_)) => {}
                // Its end, or nonsense: it is of no more use. Its death is seen by `reap`.
                Err(_) => {
                    let _ = signal::send(zygote.process.child.pid.cast_signed(), libc::SIGKILL);
                    return;
                }
            }
        }
    }

    /// A zygote has been reaped; the guards that it has forked come to this process. Before the first `Ready` that is
    /// the end of the keeper.
    pub(super) fn zygote_ended(&mut self, set: u32, serial: u32) -> Result<(), SetupFailure> {
        if !self.ready {
            let detail = self.image_name(set);
            return Err(SetupFailure { step: StepName::ZygoteReady, errno: libc::ECHILD, detail });
        }
        // What it still said: a guard whose end is not heard of would never be forgotten.
        while let Some(zygote) = self.sets.get_mut(set).and_then(|zygotes| zygotes.find(serial)) {
            match zygote.process.hear() {
                Ok(Some(FromZygote::Died { pid, status })) => self.guard_ended(pid, status),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        let Some(zygotes) = self.sets.get_mut(set) else { return Ok(()) };
        let ended = zygotes.ended(serial);
        if zygotes.take_refusal() {
            self.outbox.push(FromKeeper::ZygoteNotRenewed { set, errno: 0 }, Vec::new());
        }
        if let Some(zygote) = ended {
            self.trash.take(&zygote.process.folder);
        }
        self.refuse_who_waits_in_vain(set);
        Ok(())
    }

    /// Restarts zygotes whose pause is over, ends those that import or leave for too long, and tells those that are not
    /// needed any more to leave.
    pub(super) fn tend_zygotes(&mut self) -> Result<(), SetupFailure> {
        let due = self.sets.tend(Instant::now(), self.ready).map_err(|set| {
            let detail = self.image_name(set);
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

    fn image_name(&self, set: u32) -> String {
        self.sets
            .image_of(set)
            .and_then(|image| self.images.get(image))
            .map(|image| image.spec.image.clone())
            .unwrap_or_default()
    }
}
