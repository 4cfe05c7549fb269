//! Interpreters, forked by zygotes: what is asked of them, what they answer, whose end they tell.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use ringfence_frame::keeper::FromKeeper;
use ringfence_frame::zygote::{FromZygote, ToZygote};
use ringfence_sys::{packet, signal};

use super::Keeper;
use super::cells::State;
use super::zygote::{ORPHANS, find};
use crate::limits::MESSAGES_PER_TURN_MAX;
use crate::plan::CELL_ID;
use crate::zygote::{self, WORKER_FDS};

/// One fork that waits.
pub(super) struct Fork {
    pub(super) cell: u64,
    fds: Vec<OwnedFd>,
}

impl Keeper {
    pub(super) fn spawn_worker(&mut self, cell: u64, fds: Vec<OwnedFd>) {
        let set = self.cells.get(&cell).filter(|cell| cell.state == State::Live).map(|cell| cell.set);
        let zygotes = set.and_then(|set| self.sets.get_mut(set));
        let errno = match zygotes {
            None => 0,
            Some(_) if fds.len() != WORKER_FDS => libc::EINVAL,
            Some(zygotes) => match zygotes.wait(Fork { cell, fds }) {
                Ok(()) => {
                    if let Some(set) = set {
                        self.send_forks(set);
                    }
                    return;
                }
                Err(_) => libc::EAGAIN,
            },
        };
        self.outbox.push(FromKeeper::WorkerFailed { cell, errno }, Vec::new());
    }

    /// Sends what is queued, as far as a zygote is ready and its socket has room.
    fn send_forks(&mut self, set: u32) {
        while let Some((serial, fork)) = self.sets.get_mut(set).and_then(|zygotes| zygotes.next_waiting()) {
            match self.send_fork(set, serial, &fork) {
                Ok(()) => {
                    if let Some(zygote) = find(self.sets.get_mut(set), serial) {
                        zygote.in_flight.push(fork.cell);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Some(zygotes) = self.sets.get_mut(set) {
                        zygotes.wait_on(fork);
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

    fn send_fork(&self, set: u32, serial: u32, fork: &Fork) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let cell = self.cells.get(&fork.cell).filter(|cell| cell.state == State::Live).ok_or_else(gone)?;
        let zygotes = self.sets.get(set).ok_or_else(gone)?;
        let zygote = zygotes.iter().find(|zygote| zygote.serial == serial).ok_or_else(gone)?;
        let doors = match (&self.groups, &cell.group) {
            (Some(groups), Some(name)) => groups.doors(name)?,
            _ => Vec::new(),
        };
        let fds: Vec<BorrowedFd<'_>> =
            [&cell.init.pidfd].into_iter().chain(&fork.fds).chain(&doors).map(AsFd::as_fd).collect();
        let message = ToZygote::Fork { cell: fork.cell, cgroups: doors.len() as u32, id: CELL_ID };
        packet::send(zygote.process.link.as_fd(), &message.encode(), &fds)
    }

    /// Takes what a zygote says, and sends what waits for room.
    pub(super) fn hear_zygote(&mut self, set: u32, serial: u32) {
        for _ in 0..MESSAGES_PER_TURN_MAX {
            let Some(zygote) = find(self.sets.get_mut(set), serial) else { break };
            match zygote::hear(&zygote.process.link) {
                Ok(Some(message)) => self.zygote_said(set, serial, message),
                Ok(None) => break,
                // Its end, or nonsense: it is of no more use. Its death is seen by `reap`.
                Err(_) => {
                    let _ = signal::send(zygote.process.child.pid.cast_signed(), libc::SIGKILL);
                    break;
                }
            }
        }
        self.send_forks(set);
    }

    /// Takes all that a zygote which is dead has said.
    pub(super) fn hear_out(&mut self, set: u32, serial: u32) {
        while let Some(zygote) = find(self.sets.get_mut(set), serial) {
            let Ok(Some(message)) = zygote::hear(&zygote.process.link) else { return };
            // One that is dead is not ready any more.
            if message != FromZygote::Ready {
                self.zygote_said(set, serial, message);
            }
        }
    }

    fn zygote_said(&mut self, set: u32, serial: u32, message: FromZygote) {
        match message {
            FromZygote::Ready => {
                let took_over = self.sets.get_mut(set).is_some_and(|all| all.ready(serial, Instant::now()));
                if took_over && self.ready {
                    self.outbox.push(FromKeeper::ZygoteReady { set, zygote: serial }, Vec::new());
                }
            }
            FromZygote::Forked { cell, pid } => {
                if let Some(forks) = self.answered(set, serial, cell, true) {
                    self.workers.insert((serial, pid), cell);
                    self.outbox.push(FromKeeper::WorkerStarted { cell, pid, zygote: serial, forks }, Vec::new());
                }
            }
            FromZygote::ForkFailed { cell, errno } => {
                if self.answered(set, serial, cell, false).is_some() {
                    self.outbox.push(FromKeeper::WorkerFailed { cell, errno }, Vec::new());
                }
            }
            FromZygote::Died { pid, status } => self.worker_ended(serial, pid, status),
        }
    }

    /// Takes the cell's fork off those in flight: how often the zygote has forked, where it was one.
    fn answered(&mut self, set: u32, serial: u32, cell: u64, forked: bool) -> Option<u32> {
        let zygote = find(self.sets.get_mut(set), serial)?;
        let place = zygote.in_flight.iter().position(|one| *one == cell)?;
        zygote.in_flight.remove(place);
        zygote.forks = zygote.forks.saturating_add(u32::from(forked));
        Some(zygote.forks)
    }

    /// A child of a zygote has ended.
    fn worker_ended(&mut self, serial: u32, pid: u32, status: i32) {
        if let Some(cell) = self.workers.remove(&(serial, pid))
            && self.cells.contains_key(&cell)
        {
            self.outbox.push(FromKeeper::WorkerDied { cell, pid, status }, Vec::new());
        }
    }

    /// A child of ours has ended that is neither init nor zygote: a worker whose zygote has ended, or is about to be
    /// seen to have.
    pub(super) fn orphan_ended(&mut self, pid: u32, status: i32) {
        let serials: Vec<u32> = self.sets.zygotes().map(|(_, zygote)| zygote.serial).chain([ORPHANS]).collect();
        for serial in serials {
            self.worker_ended(serial, pid, status);
        }
    }
}
