//! Making sessions and taking them down.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

use ringfence_frame::keeper::{FromKeeper, Meters};
use ringfence_op::CellLimits;
use ringfence_sys::signal;
use ringfence_weaken::{Mitigation, holds};
use rustix::pipe::{PipeFlags, pipe_with};

use super::keeper::Keeper;
use super::remains;
use super::zygote::Running;
use crate::guard::GuardLink;
use crate::keeper::cells::wait_report;
use crate::limits::{CELL_STEPS_WAIT_MAX, GUARD_END_WAIT_MAX, MESSAGES_PER_TURN_MAX, PROCESSES_OF_OTHERS};
use crate::plan;
use crate::sets::Set;
use crate::step::StepName;
use crate::steps::Failure;
use crate::zygote::blocking_pair;

/// A session that lives, or is being taken down.
pub(super) struct Cell {
    /// The set of zygotes that it is of.
    pub(super) set: u32,
    pub(super) id: u32,
    /// The guard.
    pub(super) pid: u32,
    /// Our link to it.
    pub(super) guard: GuardLink,
    /// The zygote that forked the guard, and how often it had forked then.
    pub(super) forked_by: (u32, u32),
    pub(super) folder: PathBuf,
    pub(super) state: State,
    /// When a guard that was let go must have ended.
    pub(super) end_until: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Live,
    /// The guard is told; its end is awaited.
    Dying,
    /// The guard ended without being asked to; the daemon has yet to say that it lets go.
    Dead,
    /// It never came to live, and nobody is to be told of its end.
    Unborn,
}

struct Made {
    cell: Cell,
    control: OwnedFd,
    workspace: OwnedFd,
}

/// Limits of every process of a session.
pub(super) fn resource_limits(limits: &CellLimits, own_ids: bool) -> Vec<(u32, u64, u64)> {
    let mut list = plan::resource_limits(limits, false);
    for limit in list.iter_mut().filter(|limit| !own_ids && limit.resource == libc::RLIMIT_NPROC) {
        limit.soft = limit.soft.saturating_add(PROCESSES_OF_OTHERS);
        limit.hard = limit.soft;
    }
    let mut list: Vec<_> = list.into_iter().map(|limit| (limit.resource, limit.soft, limit.hard)).collect();
    if holds(Mitigation::SessionsFileSize) {
        list.push((libc::RLIMIT_FSIZE, limits.workspace_bytes, limits.workspace_bytes));
    }
    list
}

impl Keeper {
    /// A session is made as soon as a zygote of its set forks.
    pub(super) fn ask_for_cell(&mut self, number: u64, image: usize, set: u32) {
        if let Err(failure) = self.try_ask_for_cell(number, image, set) {
            self.refuse_cell(number, failure);
        }
    }

    fn try_ask_for_cell(&mut self, number: u64, image: usize, set: u32) -> Result<(), Failure> {
        let failure = |step, errno| Failure { step, errno };
        let waits = |set: &Set<Running, u64>| set.zygotes.waiting().any(|one| *one == number);
        if self.cells.contains_key(&number) || self.sets.iter().any(|(_, set)| waits(set)) {
            return Err(failure(StepName::Number, libc::EEXIST));
        }
        if image >= self.images.len() {
            return Err(failure(StepName::Image, libc::ENOENT));
        }
        self.wake_zygote(set, image)?;
        let full = failure(StepName::ZygoteReady, libc::EAGAIN);
        self.sets.get_mut(set).ok_or(full)?.wait(number).map_err(|_| full)
    }

    /// Makes sessions of sets whose zygote forks, so many that the others are looked at in between.
    pub(super) fn make_waiting_cells(&mut self) {
        for set in self.sets.numbers() {
            for _ in 0..MESSAGES_PER_TURN_MAX {
                let next = self.sets.get_mut(set).and_then(|zygotes| zygotes.next_waiting());
                let Some((_, number)) = next else { break };
                if !self.make_cell(number, set) {
                    break;
                }
            }
        }
    }

    /// A zygote has ended, or could not be started.
    pub(super) fn refuse_who_waits_in_vain(&mut self, set: u32) {
        let waited = self.sets.get_mut(set).map(|zygotes| zygotes.give_up()).unwrap_or_default();
        for number in waited {
            self.refuse_cell(number, Failure { step: StepName::ZygoteReady, errno: libc::ECHILD });
        }
        self.rest_zygote(set);
    }

    fn refuse_cell(&mut self, number: u64, Failure { step, errno }: Failure) {
        self.outbox.push(FromKeeper::CellFailed { cell: number, step: step.number(), errno }, Vec::new());
    }

    /// Whether the zygote took the order; if not, it is about to be seen to be dead, and the session waits for another.
    fn make_cell(&mut self, number: u64, set: u32) -> bool {
        match self.try_make_cell(number, set) {
            Ok(made) => {
                let message = FromKeeper::CellMade { cell: number, owner_id: made.cell.id, meters: Meters::default() };
                self.guards.insert(made.cell.pid, number);
                self.cells.insert(number, made.cell);
                self.outbox.push(message, vec![made.control, made.workspace]);
            }
            // The link was closed, or closed with the order unread.
            Err(Failure { step: StepName::Guard, errno: libc::EPIPE | libc::ECONNRESET }) => {
                if let Some(zygotes) = self.sets.get_mut(set) {
                    zygotes.wait_on(number);
                }
                return false;
            }
            Err(failure) => self.refuse_cell(number, failure),
        }
        true
    }

    fn try_make_cell(&mut self, number: u64, set: u32) -> Result<Made, Failure> {
        let failure = |step, errno| Failure { step, errno };
        let id = self.ids.take().ok_or(failure(StepName::Id, libc::EAGAIN))?;
        if self.who.sessions.is_some() {
            // Of a server that had no time to remove it: whoever gets the id could read it.
            remains::remove_shared_memory(id);
        }
        let mut folder = None;
        let made = self.populate(number, set, id, &mut folder);
        if made.is_err() && !self.cells.contains_key(&number) {
            // Nothing runs under it.
            self.ids.give_back(id);
            if let Some(folder) = folder {
                self.trash.take(&folder);
            }
        }
        made
    }

    fn populate(&mut self, number: u64, set: u32, id: u32, folder: &mut Option<PathBuf>) -> Result<Made, Failure> {
        let at = |step| move |error: io::Error| Failure::new(step, &error);
        let image = self.sets.image_of(set).and_then(|image| self.images.get(image));
        let image = image.ok_or(Failure { step: StepName::Image, errno: libc::ENOENT })?;
        let folders = self.place.session(id, &image.view.tmp_links).map_err(at(StepName::Folders))?;
        *folder = Some(folders.root.clone());
        let domains = match &image.rules {
            Some(rules) => {
                let domains = rules.domains(&[folders.workspace.as_fd(), folders.tmp.as_fd()]);
                let domains = domains.map_err(at(StepName::Rules))?;
                (domains.outer, domains.inner)
            }
            // In the tier none their places are taken by something that nobody looks at.
            None => (copy(&self.null)?, copy(&self.null)?),
        };
        let (control, control_of_guard) = blocking_pair().map_err(at(StepName::Guard))?;
        let (orders, orders_of_guard) = blocking_pair().map_err(at(StepName::Guard))?;
        let (report, report_of_guard) =
            pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from).map_err(at(StepName::Guard))?;
        let fds: [BorrowedFd<'_>; 7] = [
            control_of_guard.as_fd(),
            orders_of_guard.as_fd(),
            report_of_guard.as_fd(),
            folders.workspace.as_fd(),
            folders.tmp.as_fd(),
            domains.0.as_fd(),
            domains.1.as_fd(),
        ];
        let zygote = self.sets.get_mut(set).and_then(|zygotes| zygotes.forking());
        let zygote = zygote.ok_or(Failure { step: StepName::Guard, errno: libc::EAGAIN })?;
        let pid = zygote.process.fork(number, id, &fds, &mut self.told).map_err(at(StepName::Guard))?;
        zygote.forks = zygote.forks.saturating_add(1);
        let forked_by = (zygote.serial, zygote.forks);
        drop(report_of_guard);
        let mut cell = Cell {
            set,
            id,
            pid,
            guard: GuardLink::new(orders),
            forked_by,
            folder: folders.root,
            state: State::Live,
            end_until: None,
        };
        match wait_report(&report, CELL_STEPS_WAIT_MAX) {
            Ok(()) => Ok(Made { cell, control, workspace: folders.workspace }),
            Err(failure) => {
                // It ends by itself, and is then forgotten.
                cell.guard.close();
                cell.state = State::Unborn;
                cell.end_until = Some(Instant::now() + GUARD_END_WAIT_MAX);
                self.guards.insert(pid, number);
                self.cells.insert(number, cell);
                Err(failure)
            }
        }
    }

    pub(super) fn destroy_cell(&mut self, number: u64) {
        let Some(cell) = self.cells.get_mut(&number).filter(|cell| cell.state != State::Unborn) else {
            self.withdraw(number);
            self.outbox.push(FromKeeper::CellGone { cell: number }, Vec::new());
            return;
        };
        match cell.state {
            State::Live => {
                cell.state = State::Dying;
                cell.guard.close();
                cell.end_until = Some(Instant::now() + GUARD_END_WAIT_MAX);
            }
            State::Dead => self.forget(number),
            State::Dying | State::Unborn => {}
        }
    }

    /// A session that may still wait is not wanted any more.
    fn withdraw(&mut self, number: u64) {
        for set in self.sets.numbers() {
            if self.sets.get_mut(set).is_some_and(|zygotes| zygotes.withdraw(&number)) {
                self.rest_zygote(set);
            }
        }
    }

    /// A guard has ended. One that ended as it should has left nothing behind.
    pub(super) fn guard_ended(&mut self, pid: u32, status: i32) {
        let Some(number) = self.guards.remove(&pid) else { return };
        let Some(cell) = self.cells.get_mut(&number) else { return };
        cell.guard.close();
        if status != 0 {
            self.kill_orphans();
        }
        let Some(cell) = self.cells.get_mut(&number) else { return };
        if cell.state == State::Live {
            cell.state = State::Dead;
            // Its workspace goes with it, as a cell's does.
            self.trash.take(&cell.folder);
            self.outbox.push(FromKeeper::CellDied { cell: number, status }, Vec::new());
        } else {
            self.forget(number);
        }
    }

    fn forget(&mut self, number: u64) {
        let Some(cell) = self.cells.remove(&number) else { return };
        if cell.state != State::Dead {
            self.trash.take(&cell.folder);
        }
        if self.who.sessions.is_some() {
            remains::remove_shared_memory(cell.id);
        }
        self.ids.give_back(cell.id);
        if cell.state != State::Unborn {
            self.outbox.push(FromKeeper::CellGone { cell: number }, Vec::new());
        }
        self.rest_zygote(cell.set);
    }

    /// Kills guards that have not ended in time.
    pub(super) fn press_guards(&mut self) {
        let now = Instant::now();
        for cell in self.cells.values_mut() {
            if cell.state != State::Dead && cell.end_until.is_some_and(|until| until <= now) {
                cell.end_until = Some(now + GUARD_END_WAIT_MAX);
                let _ = signal::send(cell.pid.cast_signed(), libc::SIGKILL);
            }
        }
    }
}

fn copy(fd: &OwnedFd) -> Result<OwnedFd, Failure> {
    fd.try_clone().map_err(|error| Failure::new(StepName::Guard, &error))
}
