//! Speaking to guards, and what becomes of what a dead one leaves behind.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfence_frame::keeper::FromKeeper;
use ringfence_frame::zygote::{FromZygote, ToZygote};
use ringfence_sys::process;
use ringfence_sys::{packet, signal};

use super::cells::State;
use super::keeper::Keeper;
use crate::init::stat;
use crate::limits::{FORKS_QUEUED_MAX, MESSAGES_PER_TURN_MAX, ORPHAN_ROUNDS_MAX, PROCESSES_LISTED_MAX};
use crate::zygote::hear;

/// Descriptors of `SpawnWorker`: frame socket, fd 1, fd 2.
const WORKER_FDS: usize = 3;

impl Keeper {
    pub(super) fn spawn_worker(&mut self, number: u64, fds: &[OwnedFd]) {
        let cell = self.cells.get_mut(&number).filter(|cell| cell.state == State::Live);
        let sent = match cell {
            None => Err(0),
            Some(_) if fds.len() != WORKER_FDS => Err(libc::EINVAL),
            Some(cell) if cell.asked >= FORKS_QUEUED_MAX => Err(libc::EAGAIN),
            Some(cell) => {
                let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
                let order = ToZygote::Fork { cell: number, cgroups: 0, id: cell.id }.encode();
                let link = cell.orders.as_ref().ok_or(0);
                link.and_then(|link| {
                    packet::send(link.as_fd(), &order, &fds).map_err(|error| error.raw_os_error().unwrap_or(0))
                })
                .map(|()| cell.asked += 1)
            }
        };
        if let Err(errno) = sent {
            self.outbox.push(FromKeeper::WorkerFailed { cell: number, errno }, Vec::new());
        }
    }

    /// Takes what a guard says.
    pub(super) fn hear_guard(&mut self, number: u64) {
        for _ in 0..MESSAGES_PER_TURN_MAX {
            let Some(cell) = self.cells.get_mut(&number) else { return };
            let Some(link) = &cell.orders else { return };
            let message = match hear(link) {
                Ok(None) => return,
                Ok(Some(message)) => message,
                Err(_) => {
                    // It is ending; its death is seen by whoever reaps it.
                    cell.orders = None;
                    for _ in 0..std::mem::take(&mut cell.asked) {
                        self.outbox.push(FromKeeper::WorkerFailed { cell: number, errno: 0 }, Vec::new());
                    }
                    return;
                }
            };
            let told = match message {
                FromZygote::Forked { pid, .. } => {
                    let (zygote, forks) = cell.forked_by;
                    FromKeeper::WorkerStarted { cell: number, pid, zygote, forks }
                }
                FromZygote::ForkFailed { errno, .. } => FromKeeper::WorkerFailed { cell: number, errno },
                FromZygote::Died { pid, status } => FromKeeper::WorkerDied { cell: number, pid, status },
                FromZygote::Ready => continue,
            };
            if !matches!(message, FromZygote::Died { .. }) {
                cell.asked = cell.asked.saturating_sub(1);
            }
            self.outbox.push(told, Vec::new());
        }
    }

    /// Kills whatever descends from this process by way of a child that it does not know: what a guard that did not end as
    /// it should has left. Not by the session's id, which another server on this machine may have given away as well.
    pub(super) fn kill_orphans(&mut self) {
        let zygotes = self.images.iter().flat_map(|image| image.zygotes.iter().map(|zygote| zygote.process.child.pid));
        let known: HashSet<u32> = zygotes.chain(self.guards.keys().copied()).collect();
        for _ in 0..ORPHAN_ROUNDS_MAX {
            let left = orphans(std::process::id(), &known);
            if left.is_empty() {
                return;
            }
            for pid in left {
                let _ = signal::send(pid.cast_signed(), libc::SIGKILL);
            }
            let mut ended = Vec::new();
            while let Ok(Some(one)) = process::reap_any() {
                ended.push(one);
            }
            self.early.extend(ended.into_iter().filter(|one| known.contains(&one.pid)));
        }
    }
}

/// Every process below `root` that is not below one of `known`.
pub(crate) fn orphans(root: u32, known: &HashSet<u32>) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for (pid, parent) in processes().unwrap_or_default() {
        children.entry(parent).or_default().push(pid);
    }
    let mut found = Vec::new();
    let mut todo = vec![root];
    while let Some(parent) = todo.pop() {
        for pid in children.remove(&parent).unwrap_or_default() {
            if !known.contains(&pid) {
                found.push(pid);
                todo.push(pid);
            }
        }
    }
    found
}

/// Every process that is alive, and its parent.
fn processes() -> io::Result<Vec<(u32, u32)>> {
    let mut list = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Some(found) = fs::read(format!("/proc/{pid}/stat")).ok().and_then(|text| stat::parse(&text)) else {
            continue;
        };
        if !matches!(found.state, b'Z' | b'X') {
            list.push((pid, found.parent));
        }
        if list.len() >= PROCESSES_LISTED_MAX {
            break;
        }
    }
    Ok(list)
}
