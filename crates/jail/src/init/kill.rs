//! Killing all that started after a moment, faster than it can fork.
//!
//! Plain rounds (list, SIGKILL, wait) end an ordinary tree. What forks between the listing and the killing outruns
//! them; then everything in the cell is stopped by one `kill(-1, SIGSTOP)`, which no fork escapes, for the kernel
//! restarts a fork that a signal is pending for. What stands still can be listed and killed; the rest is let go on.

use std::collections::HashSet;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use ringfence_sys::signal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::stat;
use crate::limits::{KILL_ROUNDS_PLAIN, KILL_ROUNDS_STOPPED, KILL_WAIT_MAX, PROCESSES_LISTED_MAX};
use crate::wait::until;

/// Processes waited for at a time: each takes a descriptor.
const BATCH: usize = 256;
/// Init itself.
const INIT: u32 = 1;

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Killing {
    pub(super) count: u32,
    pub(super) all: bool,
}

/// A process as listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    pid: u32,
    state: u8,
    dead: bool,
    group: u32,
    start_ticks: u64,
}

/// Every process of the cell but init, as far as it stood still to be listed.
#[derive(Debug, Default)]
struct Listing {
    seen: Vec<Seen>,
    /// Whether a process has started since the folder was read. It need not be the child of one that was seen: a
    /// process that forks and ends, again and again, is gone each time by the time that its state is read.
    moving: bool,
}

impl Listing {
    /// Whether there is, or may be, one to kill.
    fn has(&self, aim: Aim) -> bool {
        self.moving || self.seen.iter().any(|seen| aim.takes(seen))
    }
}

/// Whom to kill.
#[derive(Clone, Copy)]
struct Aim {
    since_ticks: u64,
    keep: u32,
}

impl Aim {
    fn takes(self, seen: &Seen) -> bool {
        seen.pid != self.keep && seen.start_ticks >= self.since_ticks && !seen.dead
    }
}

/// Kills every process that started at or after `since_ticks`, but init and `keep`. `proc` is the cell's `/proc`.
pub(super) fn kill_since(proc: BorrowedFd<'_>, since_ticks: u64, keep: u32) -> Killing {
    let aim = Aim { since_ticks, keep };
    let mut killed = HashSet::new();
    for _ in 0..KILL_ROUNDS_PLAIN {
        if kill_listed(proc, aim, &mut killed).is_ok_and(|left| !left) {
            return Killing { count: killed.len() as u32, all: false };
        }
    }
    for _ in 0..KILL_ROUNDS_STOPPED {
        if kill_stopped(proc, aim, &mut killed).is_ok_and(|left| !left) {
            return Killing { count: killed.len() as u32, all: false };
        }
    }
    // Something could not be listed, or does not die. ESRCH: nobody was left.
    let _ = signal::send(-1, libc::SIGKILL);
    Killing { count: killed.len() as u32, all: keep != 0 }
}

/// SIGINT for one process and for those of its group that started at or after `since_ticks`, each once. What it starts
/// meanwhile is missed, as a terminal misses it.
pub(super) fn interrupt(proc: BorrowedFd<'_>, pid: u32, since_ticks: u64) {
    let listed = list(proc).unwrap_or_default().seen;
    let group = listed.iter().find(|seen| seen.pid == pid).map(|seen| seen.group);
    let young = listed.iter().filter(|seen| is_young_of(seen, group, since_ticks)).map(|seen| seen.pid);
    for pid in young.filter(|other| *other != pid).chain([pid]) {
        // ESRCH: it is gone, and needs no interrupt.
        let _ = signal::send(pid.cast_signed(), libc::SIGINT);
    }
}

fn is_young_of(seen: &Seen, group: Option<u32>, since_ticks: u64) -> bool {
    Some(seen.group) == group && seen.start_ticks >= since_ticks
}

/// One round with everything stopped; whether something is left.
fn kill_stopped(proc: BorrowedFd<'_>, aim: Aim, killed: &mut HashSet<(u32, u64)>) -> io::Result<bool> {
    let before = list(proc)?;
    if !before.has(aim) {
        return Ok(false);
    }
    let _ = signal::send(-1, libc::SIGSTOP);
    let result = kill_listed(proc, aim, killed).and_then(|_| Ok(list(proc)?.has(aim)));
    // Those that are spared go on, but for those that their own cell had stopped.
    let stopped: HashSet<u32> = before.seen.iter().filter(|seen| seen.state == b'T').map(|seen| seen.pid).collect();
    for seen in list(proc)?.seen {
        if !aim.takes(&seen) && !stopped.contains(&seen.pid) {
            let _ = signal::send(seen.pid.cast_signed(), libc::SIGCONT);
        }
    }
    result
}

/// Kills what a list shows, and waits for it; whether there was anything.
fn kill_listed(proc: BorrowedFd<'_>, aim: Aim, killed: &mut HashSet<(u32, u64)>) -> io::Result<bool> {
    let listed = list(proc)?;
    let victims: Vec<&Seen> = listed.seen.iter().filter(|seen| aim.takes(seen)).collect();
    let deadline = Instant::now() + KILL_WAIT_MAX;
    for batch in victims.chunks(BATCH) {
        let mut handles = Vec::new();
        for seen in batch {
            // Should the number belong to another by now, that one is younger still, and meant as well.
            if let Some(handle) = handle(seen.pid) {
                let _ = pidfd_send_signal(&handle, Signal::KILL);
                killed.insert((seen.pid, seen.start_ticks));
                handles.push(handle);
            }
        }
        wait_for_all(&handles, deadline);
    }
    Ok(listed.has(aim))
}

fn handle(pid: u32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid.cast_signed())?, PidfdFlags::empty()).ok()
}

fn wait_for_all(handles: &[OwnedFd], deadline: Instant) {
    let mut left: Vec<&OwnedFd> = handles.iter().collect();
    while !left.is_empty() {
        let mut fds: Vec<PollFd<'_>> = left.iter().map(|handle| PollFd::new(*handle, PollFlags::IN)).collect();
        if !poll(&mut fds, Some(&until(deadline))).is_ok_and(|ended| ended > 0) {
            return;
        }
        let over: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        left = left.into_iter().zip(over).filter(|(_, over)| !over).map(|(handle, _)| handle).collect();
    }
}

fn list(proc: BorrowedFd<'_>) -> io::Result<Listing> {
    let pids = pids(proc)?;
    let state = |pid| read_stat(proc, pid).map(|stat| (pid, stat));
    let seen = pids.iter().copied().filter_map(state).map(|(pid, stat)| Seen {
        pid,
        state: stat.state,
        dead: stat.is_dead(),
        group: stat.group,
        start_ticks: stat.start_ticks,
    });
    let seen = seen.collect();
    let known: HashSet<u32> = pids.into_iter().collect();
    Ok(Listing { seen, moving: self::pids(proc)?.iter().any(|pid| !known.contains(pid)) })
}

/// The numbers of the cell's processes, init's left out.
fn pids(proc: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let folder = openat(proc, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut pids = Vec::new();
    for entry in Dir::new(folder)? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().ok().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if pid != INIT {
            pids.push(pid);
        }
        if pids.len() >= PROCESSES_LISTED_MAX {
            break;
        }
    }
    Ok(pids)
}

fn read_stat(proc: BorrowedFd<'_>, pid: u32) -> Option<stat::Stat> {
    let file = openat(proc, format!("{pid}/stat"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut buffer = [0; 1024];
    let length = rustix::io::read(&file, &mut buffer).ok()?;
    stat::parse(buffer.get(..length)?)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_aim_spares_the_older_the_kept_and_the_dead() {
        let aim = Aim { since_ticks: 100, keep: 5 };
        let seen = |pid, state, start_ticks| Seen { pid, state, dead: state == b'Z', group: 5, start_ticks };
        assert!(aim.takes(&seen(7, b'S', 100)));
        assert!(aim.takes(&seen(7, b'T', 101)));
        assert!(!aim.takes(&seen(7, b'S', 99)));
        assert!(!aim.takes(&seen(5, b'S', 200)));
        assert!(!aim.takes(&seen(7, b'Z', 200)));
    }

    #[test]
    fn an_interrupt_means_the_young_of_the_group() {
        let meant = |group, start_ticks| {
            is_young_of(&Seen { pid: 7, state: b'S', dead: false, group, start_ticks }, Some(3), 100)
        };
        assert!(meant(3, 100));
        assert!(!meant(3, 99), "an earlier call started it");
        assert!(!meant(7, 100), "a group of its own");
        assert!(!is_young_of(&Seen { pid: 7, state: b'S', dead: false, group: 3, start_ticks: 100 }, None, 100));
    }

    #[test]
    fn what_starts_while_a_list_is_made_is_not_missed() {
        let proc = tempfile::tempdir().unwrap();
        std::fs::create_dir(proc.path().join("7")).unwrap();
        // Whoever reads this state waits for it.
        let state = proc.path().join("7/stat");
        rustix::fs::mknodat(rustix::fs::CWD, &state, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        let folder = std::fs::File::open(proc.path()).unwrap();
        let listing = std::thread::scope(|scope| {
            let listing = scope.spawn(|| list(folder.as_fd()).unwrap());
            // Opened once the list is being made; the process has a child and ends.
            let state = std::fs::OpenOptions::new().write(true).open(state).unwrap();
            std::fs::create_dir(proc.path().join("8")).unwrap();
            drop(state);
            listing.join().unwrap()
        });
        assert!(listing.seen.is_empty());
        assert!(listing.has(Aim { since_ticks: 0, keep: 5 }));
        std::fs::remove_dir_all(proc.path().join("7")).unwrap();
        let again = list(folder.as_fd()).unwrap();
        assert!(!again.moving, "nothing starts any more");
    }
}
