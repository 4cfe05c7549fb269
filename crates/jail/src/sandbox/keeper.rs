//! The keeper's loop where each session is a sandbox; see the theory of operation in `sandbox`.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ringfence_frame::keeper::{FromKeeper, Limiter, ToKeeper};
use ringfence_op::{CellLimits, RootSpec};
use ringfence_sys::process::{self, Single};
use ringfence_sys::signal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::pipe::{PipeFlags, pipe_with};

use super::bundle::Programs;
use super::cells::{Cell, State};
use super::groups::OldGroups;
use super::warden::unmount_below;
use crate::cgroup::{Groups, Layout};
use crate::config::KeeperConfig;
use crate::failure::{At, SetupFailure};
use crate::flat::{Place, Trash, Who, end_children, kill_orphans};
use crate::keeper::outbox::Outbox;
use crate::limits::{DETAIL_BYTES_MAX, SANDBOX_MEMORY_BYTES, SANDBOX_TASKS, SANDBOX_TASKS_EACH, TRASH_STEP_MAX};
use crate::step::StepName;
use crate::template;
use crate::wait::until;

/// An image as the keeper holds it.
pub(super) struct Image {
    pub(super) spec: RootSpec,
    /// Where its root is put together.
    pub(super) root: PathBuf,
    /// Its interpreter, in there.
    pub(super) python: PathBuf,
    /// Of its sessions.
    pub(super) limits: CellLimits,
}

pub(super) struct Keeper {
    pub(super) single: Single,
    pub(super) outbox: Outbox,
    life: OwnedFd,
    children: OwnedFd,
    /// What sandboxes and their guards complain of: read here, written by them. Not our own error output: a file that a
    /// sandbox is handed it would write from its start.
    complaints: (OwnedFd, OwnedFd),
    pub(super) runsc: PathBuf,
    pub(super) images: Vec<Image>,
    pub(super) programs: Programs,
    pub(super) groups: Option<Groups>,
    /// Groups of sandboxes that have ended, whose last process has not quite gone.
    pub(super) old_groups: OldGroups,
    who: Who,
    pub(super) place: Place,
    pub(super) trash: Trash,
    /// Sandboxes ever started, for their names.
    pub(super) started: u64,
    /// Sessions that live, are being made or taken down, by the daemon's number.
    pub(super) cells: HashMap<u64, Cell>,
}

impl Keeper {
    pub(super) fn new(
        config: KeeperConfig,
        who: Who,
        place: Place,
        layout: Option<&Layout>,
        life: OwnedFd,
    ) -> Result<Keeper, SetupFailure> {
        let nothing = String::new;
        process::rename(c"ringfence-keep").at(StepName::KeeperSelf, nothing)?;
        rustix::process::umask(Mode::from_raw_mode(0o022));
        process::adopt_orphans().at(StepName::KeeperSelf, nothing)?;
        let single = Single::claim().at(StepName::OneThread, nothing)?;
        File::open(&config.runsc).at(StepName::StartSandbox, || config.runsc.display().to_string())?;
        let programs = Programs::new(&config);
        let groups = layout.map(open_groups).transpose()?;
        let mut images = Vec::new();
        for (index, spec) in config.images.into_iter().enumerate() {
            let Some(python) = spec.python.clone() else {
                let detail = format!("{}: sessions in sandboxes need its Python", spec.image);
                return Err(SetupFailure { step: StepName::Image, errno: libc::ENOENT, detail });
            };
            let root = place.own(&format!("image-{index}"));
            let trees = template::open_trees(&spec)?;
            template::make_room_at(&root)?;
            template::fill_room(&root, &spec, trees)?;
            let limits = spec.limits.within(&config.limits);
            images.push(Image { spec, root, python, limits });
        }
        let trash = place.own("trash");
        let trash = Trash::new(trash.clone()).at(StepName::Folders, || trash.display().to_string())?;
        let children = signal::child_watch().at(StepName::KeeperSelf, nothing)?;
        let complaints = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).at(StepName::KeeperSelf, nothing)?;
        Ok(Keeper {
            single,
            outbox: Outbox::default(),
            life,
            children,
            complaints,
            runsc: config.runsc,
            images,
            programs,
            groups,
            old_groups: OldGroups::default(),
            who,
            place,
            trash,
            started: 0,
            cells: HashMap::new(),
        })
    }

    /// Runs until the daemon, at the other end of `socket`, or the warden is gone; then ends every session.
    pub(super) fn serve(&mut self, socket: OwnedFd) -> Result<(), SetupFailure> {
        self.outbox.connect(socket);
        let result = self.say_ready();
        if let (Err(failure), Some(socket)) = (&result, self.outbox.socket()) {
            failure.send(socket.as_fd());
        }
        if result.is_ok() {
            while self.turn() {}
        }
        self.end();
        result
    }

    fn say_ready(&mut self) -> Result<(), SetupFailure> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folders = open(&self.place.root, flags, Mode::empty());
        let folders = folders.at(StepName::Folders, || self.place.root.display().to_string())?;
        let limiter = self.groups.as_ref().map_or(Limiter::Rlimits, Groups::limiter);
        self.outbox.push(FromKeeper::Ready { daemon_id: self.who.daemon, limiter, id_per_cell: true }, vec![folders]);
        self.outbox.flush();
        Ok(())
    }

    /// One round of the loop; `false` once the daemon or the warden is gone.
    fn turn(&mut self) -> bool {
        let Some(events) = self.wait() else { return true };
        if events.life {
            return false;
        }
        if events.complaints {
            self.pass_complaints_on();
        }
        if events.children {
            signal::drain(&self.children);
            while let Ok(Some(ended)) = process::reap_any() {
                self.child_ended(ended);
            }
        }
        for number in events.guards {
            self.hear_guard(number);
        }
        if events.daemon && !self.take_requests() {
            return false;
        }
        self.press();
        self.remove_old_groups();
        self.trash.step(TRASH_STEP_MAX);
        self.outbox.flush()
    }

    fn wait(&self) -> Option<Events> {
        let standing = [&self.life, &self.children, &self.complaints.0];
        let mut fds: Vec<_> = standing.into_iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let daemon = self.outbox.interest().map(|daemon| {
            fds.push(daemon);
            fds.len() - 1
        });
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
            complaints: ready(2),
            daemon: daemon.is_some_and(ready),
            guards: guards.into_iter().filter(|(place, _)| ready(*place)).map(|(_, number)| number).collect(),
        })
    }

    /// Where sandboxes and guards are to complain.
    pub(super) fn complaints(&self) -> BorrowedFd<'_> {
        self.complaints.1.as_fd()
    }

    fn pass_complaints_on(&self) {
        let mut bytes = [0; DETAIL_BYTES_MAX];
        if let Ok(length) = rustix::io::read(&self.complaints.0, &mut bytes) {
            // Nobody is left to hear of a failure to complain.
            let _ = rustix::io::write(rustix::stdio::stderr(), bytes.get(..length).unwrap_or_default());
        }
    }

    /// When the loop must run again even if nothing happens.
    fn next_deadline(&self) -> Option<Instant> {
        let margin = Duration::from_millis(1);
        let soon = (!self.trash.is_empty()).then(Instant::now);
        let cells = self.cells.values().filter(|cell| cell.state != State::Dead).filter_map(|cell| cell.until);
        soon.into_iter().chain(cells.chain(self.old_groups.again_at()).map(|at| at + margin)).min()
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
            ToKeeper::MakeCell { cell, image, .. } => self.make_cell(cell, image as usize),
            ToKeeper::SpawnWorker { cell } => self.spawn_worker(cell, fds),
            ToKeeper::DestroyCell { cell } => self.destroy_cell(cell),
            // Each sandbox has a zygote of its own: nothing runs beside them.
            ToKeeper::RestZygote { .. } => {}
            ToKeeper::RenewZygote { set } => {
                self.outbox.push(FromKeeper::ZygoteNotRenewed { set, errno: libc::ENOSYS }, Vec::new());
            }
        }
    }

    /// Lets go of every session, waits, bounded, until the sandboxes have ended, and kills what is left.
    fn end(&mut self) {
        for cell in self.cells.values_mut() {
            cell.guard.close();
        }
        // A guard that is not ready hears nothing yet: nobody waits for it.
        let ready = self.cells.values().filter(|cell| cell.state != State::Starting);
        kill_orphans(&ready.filter_map(|cell| cell.runsc).collect());
        end_children(&self.children);
        unmount_below(&self.place.root);
        self.place.remove();
    }
}

fn open_groups(layout: &Layout) -> Result<Groups, SetupFailure> {
    let mut fds = Vec::new();
    for folder in &layout.folders {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let detail = || folder.path.display().to_string();
        fds.push(open(&folder.path, flags, Mode::empty()).at(StepName::MakeCgroup, detail)?);
    }
    Ok(Groups::new(layout, fds))
}

/// With room for the sandbox's own kernel beside what the session may have.
pub(super) fn around(limits: &CellLimits) -> CellLimits {
    CellLimits {
        memory_bytes: limits.memory_bytes.saturating_add(SANDBOX_MEMORY_BYTES),
        processes: limits.processes.saturating_mul(SANDBOX_TASKS_EACH).saturating_add(SANDBOX_TASKS),
        ..limits.clone()
    }
}

/// What the loop woke up for.
struct Events {
    life: bool,
    children: bool,
    complaints: bool,
    daemon: bool,
    guards: Vec<u64>,
}

/// For the errors of this room.
pub(super) fn io_at(step: StepName) -> impl Fn(io::Error) -> crate::steps::Failure {
    move |error| crate::steps::Failure::new(step, &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_floods_of_processes_leave_half_of_a_small_host() {
        let inside = CellLimits::default();
        let outside = around(&inside);
        assert_eq!((inside.processes, outside.processes), (256, 256 * 14 + 512));
        assert!(4 * outside.processes <= 32_768 / 2);
    }
}
