//! Signals: blocked as a whole, read from a descriptor, sent.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use crate::check;

/// Blocks every signal of the calling thread that can be blocked. Child-safe.
///
/// # Errors
/// As `sigprocmask(2)`.
pub fn block_all() -> io::Result<()> {
    let all = full_set();
    // SAFETY: the new mask is a live set, the old one is not asked for.
    let result = unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut()) };
    check(result.into()).map(drop)
}

/// Unblocks every signal of the calling thread. Child-safe.
///
/// # Errors
/// As `sigprocmask(2)`.
pub fn unblock_all() -> io::Result<()> {
    let all = full_set();
    // SAFETY: the mask is a live set, the old one is not asked for.
    let result = unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, &raw const all, std::ptr::null_mut()) };
    check(result.into()).map(drop)
}

/// Sets every signal's disposition to its default. Child-safe.
pub fn default_all() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: SIG_DFL installs no handler; numbers that cannot be changed are refused by the kernel.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// A non-blocking descriptor that is readable once a child has ended. SIGCHLD must be blocked.
///
/// # Errors
/// As `signalfd(2)`.
pub fn child_watch() -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sigemptyset initializes the set it is given.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the set was initialized just above.
    let mut set = unsafe { set.assume_init() };
    // SAFETY: a live set and a valid signal number.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGCHLD) };
    // SAFETY: -1 asks for a new descriptor; the set is live.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    check(fd.into())?;
    // SAFETY: the descriptor was made just above and nobody else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Empties what [`child_watch`] made, so that it is readable again at the next child's end.
pub fn drain(watch: impl AsFd) {
    let mut buffer = [0; 1024];
    while rustix::io::read(&watch, &mut buffer).is_ok_and(|count| count == buffer.len()) {}
}

/// Sends `signal` to `pid`, or as `kill(2)` says for -1: to every process of the pid namespace but the caller and
/// pid 1. Child-safe.
///
/// # Errors
/// As `kill(2)`.
pub fn send(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: two plain numbers.
    let result = unsafe { libc::kill(pid, signal) };
    check(result.into()).map(drop)
}

pub(crate) fn full_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sigfillset initializes the set it is given.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: the set was initialized just above.
    unsafe { set.assume_init() }
}
