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
use crate::zygote;

impl Keeper {
    /// Starts the zygote of the first image; those of the others rest.
    pub(super) fn start_first(&mut self) -> Result<(), SetupFailure> {
        let process = self.start_zygote(0).map_err(|failure| SetupFailure {
            step: StepName::StartZygote,
            errno: failure.errno,
            detail: format!("image {}: {}", self.image_name(0), failure.step),
        })?;
        self.zygote_started(0, Some(process));
        Ok(())
    }

    /// A session of the image is asked for: its zygote is started if it rests.
    pub(super) fn wake_zygote(&mut self, index: usize) {
        if self.images.get_mut(index).is_some_and(|image| image.zygotes.wake()) {
            self.start_current(index);
        }
    }

    /// Nobody has wanted the image for a while: its zygote gives its memory back.
    pub(super) fn tire_zygote(&mut self, index: usize) {
        if let Some(image) = self.images.get_mut(index) {
            image.zygotes.tire();
        }
        self.rest_zygote(index);
    }

    /// Ends the zygotes of an image that is tired, unless a session of it lives or is waited for.
    pub(super) fn rest_zygote(&mut self, index: usize) {
        let Some(image) = self.images.get_mut(index) else { return };
        if self.cells.values().any(|cell| cell.image == index) || image.zygotes.waiting().next().is_some() {
            return;
        }
        let Some((ended, _)) = image.zygotes.rest() else { return };
        for zygote in ended {
            // It ends with its link, and is reaped as a child that nobody knows any more.
            self.trash.take(&zygote.process.folder);
        }
    }

    /// Another zygote of the image is asked for.
    pub(super) fn renew_zygote(&mut self, number: u32) {
        let index = number as usize;
        let renewal = self.images.get_mut(index).map_or(Renewal::Refuse, |image| image.zygotes.renew());
        let started = match renewal {
            Renewal::Wait => return,
            Renewal::Start => self.start_zygote(index),
            Renewal::Refuse => Err(Failure { step: StepName::StartZygote, errno: libc::ESRCH }),
        };
        let serial = self.next_serial();
        let Some(image) = self.images.get_mut(index) else { return };
        match started {
            Ok(process) => image.zygotes.followed(serial, process, Instant::now()),
            Err(Failure { errno, .. }) => {
                image.zygotes.not_followed();
                self.outbox.push(FromKeeper::ZygoteNotRenewed { image: number, errno }, Vec::new());
            }
        }
    }

    fn start_zygote(&mut self, index: usize) -> Result<Running, Failure> {
        let nowhere = Failure { step: StepName::Image, errno: libc::ENOENT };
        let Image { spec, view, .. } = self.images.get(index).ok_or(nowhere)?;
        let own = self.place.session(self.who.keeper, &view.tmp_links);
        let own = own.map_err(|error| Failure::new(StepName::Folders, &error))?;
        let started = Running::start(&self.single, &self.null, &self.starter, view, spec, &own);
        started.inspect_err(|_| self.trash.take(&own.root))
    }

    /// A start that fails is tried again by `tend_zygotes`; who has waited for it may be refused.
    fn start_current(&mut self, index: usize) {
        let process = self.start_zygote(index).ok();
        self.zygote_started(index, process);
    }

    fn zygote_started(&mut self, index: usize, process: Option<Running>) {
        let serial = self.next_serial();
        if let Some(image) = self.images.get_mut(index) {
            image.zygotes.started(serial, process, Instant::now());
        }
        self.refuse_who_waits_in_vain(index);
    }

    fn next_serial(&mut self) -> u32 {
        self.zygotes_started += 1;
        self.zygotes_started
    }

    /// Whose zygote a process is: the image, and its number.
    pub(super) fn zygote_of(&self, pid: u32) -> Option<(usize, u32)> {
        self.images.iter().enumerate().find_map(|(index, image)| {
            let found = image.zygotes.iter().find(|zygote| zygote.process.child.pid == pid);
            found.map(|zygote| (index, zygote.serial))
        })
    }

    /// Takes what a zygote says.
    pub(super) fn hear_zygote(&mut self, index: usize, serial: u32) {
        for _ in 0..MESSAGES_PER_TURN_MAX {
            let Some(image) = self.images.get_mut(index) else { return };
            let Some(zygote) = image.zygotes.find(serial) else { return };
            match zygote.process.hear() {
                Ok(None) => return,
                Ok(Some(FromZygote::Ready)) => {
                    if image.zygotes.ready(serial, Instant::now()) && self.ready {
                        let message = FromKeeper::ZygoteReady { image: index as u32, zygote: serial };
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
    pub(super) fn zygote_ended(&mut self, index: usize, serial: u32) -> Result<(), SetupFailure> {
        if !self.ready {
            let detail = self.image_name(index);
            return Err(SetupFailure { step: StepName::ZygoteReady, errno: libc::ECHILD, detail });
        }
        // What it still said: a guard whose end is not heard of would never be forgotten.
        while let Some(zygote) = self.images.get_mut(index).and_then(|image| image.zygotes.find(serial)) {
            match zygote.process.hear() {
                Ok(Some(FromZygote::Died { pid, status })) => self.guard_ended(pid, status),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        let Some(image) = self.images.get_mut(index) else { return Ok(()) };
        let ended = image.zygotes.ended(serial);
        if image.zygotes.take_refusal() {
            self.outbox.push(FromKeeper::ZygoteNotRenewed { image: index as u32, errno: 0 }, Vec::new());
        }
        if let Some(zygote) = ended {
            self.trash.take(&zygote.process.folder);
        }
        self.refuse_who_waits_in_vain(index);
        Ok(())
    }

    /// Restarts zygotes whose pause is over, ends those that import or leave for too long, and tells those that are not
    /// needed any more to leave.
    pub(super) fn tend_zygotes(&mut self) -> Result<(), SetupFailure> {
        let now = Instant::now();
        for index in 0..self.images.len() {
            let Some(image) = self.images.get_mut(index) else { continue };
            for process in image.zygotes.dismiss() {
                zygote::dismiss(&process.link);
            }
            for zygote in image.zygotes.overdue(now) {
                if !self.ready {
                    let detail = image.spec.image.clone();
                    return Err(SetupFailure { step: StepName::ZygoteReady, errno: libc::ETIMEDOUT, detail });
                }
                let _ = signal::send(zygote.process.child.pid.cast_signed(), libc::SIGKILL);
            }
            if image.zygotes.is_due(now) {
                self.start_current(index);
            }
        }
        Ok(())
    }

    /// Tells the daemon which zygotes fork, once it hears.
    pub(super) fn say_which_zygotes_fork(&mut self) {
        for (index, image) in self.images.iter().enumerate() {
            if let Some(zygote) = image.zygotes.forking_serial() {
                self.outbox.push(FromKeeper::ZygoteReady { image: index as u32, zygote }, Vec::new());
            }
        }
    }

    fn image_name(&self, index: usize) -> String {
        self.images.get(index).map(|image| image.spec.image.clone()).unwrap_or_default()
    }
}
