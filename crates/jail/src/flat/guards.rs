//! Speaking to guards, and what becomes of what a dead one leaves behind.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use ringfence_frame::keeper::FromKeeper;
use ringfence_sys::{process, signal};

use super::cells::State;
use super::keeper::Keeper;
use crate::init::stat;
use crate::limits::{FLAT_END_WAIT_MAX, ORPHAN_ROUNDS_MAX, PROCESSES_LISTED_MAX};
use crate::wait::readable;

impl Keeper {
    pub(super) fn spawn_worker(&mut self, number: u64, fds: &[OwnedFd]) {
        let cell = self.cells.get_mut(&number).filter(|cell| cell.state == State::Live);
        if let Err(errno) = cell.map_or(Err(0), |cell| cell.guard.ask(number, cell.id, fds)) {
            self.outbox.push(FromKeeper::WorkerFailed { cell: number, errno }, Vec::new());
        }
    }

    /// Takes what a guard says. That it is ready was seen when it was made.
    pub(super) fn hear_guard(&mut self, number: u64) {
        if let Some(cell) = self.cells.get_mut(&number) {
            cell.guard.hear(number, cell.forked_by, &mut self.outbox);
        }
    }

    /// Kills whatever descends from this process by way of a child that it does not know: what a guard that did not end as
    /// it should has left. Not by the session's id, which another server on this machine may have given away as well.
    pub(super) fn kill_orphans(&mut self) {
        let zygotes = self.sets.zygotes().map(|(_, zygote)| zygote.process.child.pid);
        let known: HashSet<u32> = zygotes.chain(self.guards.keys().copied()).collect();
        for _ in 0..ORPHAN_ROUNDS_MAX {
            if !kill_orphans(&known) {
                return;
            }
            let mut ended = Vec::new();
            while let Ok(Some(one)) = process::reap_any() {
                ended.push(one);
            }
            self.early.extend(ended.into_iter().filter(|one| known.contains(&one.pid)));
        }
    }
}

/// Waits, bounded, until every child has ended, and kills what is left.
pub(crate) fn end_children(watch: &OwnedFd) {
    let deadline = Instant::now() + FLAT_END_WAIT_MAX;
    while reap_all() {
        if !readable(watch, deadline).unwrap_or(false) {
            kill_orphans(&HashSet::new());
            return;
        }
        signal::drain(watch);
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

/// Kills whatever descends from this process and is not, nor below, one of `known`; whether there was anything.
pub(crate) fn kill_orphans(known: &HashSet<u32>) -> bool {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for (pid, parent) in processes().unwrap_or_default() {
        children.entry(parent).or_default().push(pid);
    }
    let mut todo = vec![std::process::id()];
    let mut found = Vec::new();
    while let Some(parent) = todo.pop() {
        for pid in children.remove(&parent).unwrap_or_default() {
            if !known.contains(&pid) {
                found.push(pid);
                todo.push(pid);
            }
        }
    }
    for pid in &found {
        let _ = signal::send(pid.cast_signed(), libc::SIGKILL);
    }
    !found.is_empty()
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
        if !found.is_dead() {
            list.push((pid, found.parent));
        }
        if list.len() >= PROCESSES_LISTED_MAX {
            break;
        }
    }
    Ok(list)
}
