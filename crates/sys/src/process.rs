//! Forking with namespaces, exec, waiting, and what a process says of itself.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::{FdFlags, fcntl_setfd};

use crate::check;
use crate::namespace::Namespaces;

/// Witness that the process had one thread when it was looked at. [`fork`] asks for it: in a child of a process with
/// several threads a lock of another thread stays locked for ever.
#[derive(Debug)]
pub struct Single(());

impl Single {
    /// Looks, by `/proc/self/task`.
    ///
    /// # Errors
    /// EBUSY where there are several threads; whatever reading `/proc` gives.
    pub fn claim() -> io::Result<Single> {
        match std::fs::read_dir("/proc/self/task")?.take(2).count() {
            1 => Ok(Single(())),
            _ => Err(io::Error::from_raw_os_error(libc::EBUSY)),
        }
    }
}

/// Strings for exec, with the list of pointers that the kernel wants made ahead.
pub struct Strings {
    // The pointers point into these; CStrings keep their bytes on the heap, so the struct may move.
    _owned: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

impl Strings {
    /// Takes the strings over.
    #[must_use]
    pub fn new(owned: Vec<CString>) -> Strings {
        let pointers = owned.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect();
        Strings { _owned: owned, pointers }
    }

    pub(crate) fn as_ptr(&self) -> *const *const libc::c_char {
        self.pointers.as_ptr()
    }
}

/// A child process, and a descriptor that names it whatever becomes of its number.
#[derive(Debug)]
pub struct Child {
    /// Its process id in the caller's pid namespace.
    pub pid: u32,
    /// Readable once it has ended; `setns(2)` takes it too.
    pub pidfd: OwnedFd,
}

/// Which side of a [`fork`] this is.
#[derive(Debug)]
pub enum Forked {
    /// The new process. Handlers of signals are back at their defaults.
    Child,
    /// The old one.
    Parent(Child),
}

/// Forks into new namespaces of the kinds given. Where `clone3` does not exist, or a container's filter hides it,
/// `clone` does the same.
///
/// # Errors
/// As `clone3(2)` and `clone(2)`.
pub fn fork(_: &Single, kinds: Namespaces) -> io::Result<Forked> {
    const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
    let mut pidfd: libc::c_int = -1;
    // SAFETY: an all-zero clone_args is a valid value of plain numbers.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = u64::from(kinds.bits()) | libc::CLONE_PIDFD as u64 | CLONE_CLEAR_SIGHAND;
    arguments.pidfd = &raw mut pidfd as u64;
    arguments.exit_signal = libc::SIGCHLD as u64;
    // SAFETY: without CLONE_VM this is a fork: the child has a copy of everything, and there is but one thread, so no
    // lock is left held by a thread that the child lacks.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<libc::clone_args>()) });
    let pid = match pid {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            let flags = libc::c_long::from(kinds.bits()) | libc::c_long::from(libc::CLONE_PIDFD | libc::SIGCHLD);
            // SAFETY: as above; the first three arguments are the same on every processor that we run on, and the
            // others are looked at only for flags that are not given.
            let pid = check(unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut pidfd, 0, 0) })?;
            if pid == 0 {
                crate::signal::default_all();
            }
            pid
        }
        other => other?,
    };
    if pid == 0 {
        return Ok(Forked::Child);
    }
    // SAFETY: the kernel has put a new descriptor there, which nobody else holds.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Forked::Parent(Child { pid: pid as u32, pidfd }))
}

/// Becomes another program. Returns only where that fails. Child-safe.
#[must_use]
pub fn exec(path: &CStr, arguments: &Strings, environment: &Strings) -> io::Error {
    // SAFETY: the path and both lists live across the call; the lists end with a null pointer.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// Becomes the program in the file `program`. Returns only where that fails. Child-safe.
#[must_use]
pub fn exec_file(program: BorrowedFd<'_>, arguments: &Strings, environment: &Strings) -> io::Error {
    // SAFETY: the empty path and both lists live across the call; the lists end with a null pointer.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            c"".as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

/// Ends the process at once, without running anything more of it. Child-safe.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes a number and does not return.
    unsafe { libc::_exit(code) }
}

/// A child that ended and is now forgotten by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Its process id.
    pub pid: u32,
    /// Its wait status as `wait(2)` gives it.
    pub status: i32,
    /// CPU time of it and of the children that it waited for, microseconds.
    pub cpu_us: u64,
}

/// Takes one child that has ended; `None` where there is none now.
///
/// # Errors
/// As `wait4(2)`: ECHILD without children.
pub fn reap_any() -> io::Result<Option<Ended>> {
    reap(-1, libc::WNOHANG)
}

/// Waits until the child `pid` has ended.
///
/// # Errors
/// As `wait4(2)`: ECHILD where it is no child.
pub fn wait_for(pid: u32) -> io::Result<Ended> {
    loop {
        match reap(pid.cast_signed(), 0) {
            Ok(Some(ended)) => return Ok(ended),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn reap(pid: i32, options: i32) -> io::Result<Option<Ended>> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is a valid value of plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live, writable values.
    let pid = check(unsafe { libc::wait4(pid, &raw mut status, options, &raw mut usage) }.into())?;
    if pid == 0 {
        return Ok(None);
    }
    let micros =
        |time: libc::timeval| (time.tv_sec as u64).saturating_mul(1_000_000).saturating_add(time.tv_usec as u64);
    let cpu_us = micros(usage.ru_utime).saturating_add(micros(usage.ru_stime));
    Ok(Some(Ended { pid: pid as u32, status, cpu_us }))
}

/// Makes `fd` be descriptor `number` as well, close-on-exec or not; whatever was there is closed. Child-safe.
///
/// For a process that lays its descriptors out before exec or before it becomes something else: nothing may own
/// `number`.
///
/// # Errors
/// As `dup3(2)`.
pub fn place(fd: BorrowedFd<'_>, number: i32, close_on_exec: bool) -> io::Result<()> {
    if fd.as_raw_fd() == number {
        let flags = if close_on_exec { FdFlags::CLOEXEC } else { FdFlags::empty() };
        return Ok(fcntl_setfd(fd, flags)?);
    }
    let flags = if close_on_exec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: a live descriptor; what becomes of `number` is the caller's layout, said in the documentation.
    let result = unsafe { libc::dup3(fd.as_raw_fd(), number, flags) };
    check(result.into()).map(drop)
}

/// Takes over descriptor `number`, which was inherited or [`place`]d there; EBADF where there is none.
///
/// # Errors
/// As `fcntl(2)`.
pub fn adopt(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD looks at a number and changes nothing.
    check(unsafe { libc::fcntl(number, libc::F_GETFD) }.into())?;
    // SAFETY: it is open, and by the caller's layout nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Closes every descriptor from `first` on, whoever owned them: for a process that is about to exec, or that has
/// forgotten all but what it [`place`]d below. Child-safe.
///
/// # Errors
/// As `close_range(2)`.
pub fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: plain numbers; that owners are left with closed descriptors is said in the documentation.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) }).map(drop)
}

/// No exec will ever give this process more privilege. Child-safe.
///
/// # Errors
/// As `prctl(2)`.
pub fn no_new_privileges() -> io::Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
}

/// Whether processes of the same user may trace this one and own its files in `/proc`. Child-safe.
///
/// # Errors
/// As `prctl(2)`.
pub fn dumpable(yes: bool) -> io::Result<()> {
    prctl(libc::PR_SET_DUMPABLE, yes.into())
}

/// Orphans among this process's descendants become its own children, whatever they do. Not inherited. Child-safe.
///
/// # Errors
/// As `prctl(2)`.
pub fn adopt_orphans() -> io::Result<()> {
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1)
}

/// SIGKILL for this process as soon as its parent ends. Cleared by a change of ids. Child-safe.
///
/// # Errors
/// As `prctl(2)`.
pub fn die_with_parent() -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)
}

/// The name that `ps` shows. Child-safe.
///
/// # Errors
/// As `prctl(2)`.
pub fn rename(name: &CStr) -> io::Result<()> {
    prctl(libc::PR_SET_NAME, name.as_ptr() as libc::c_ulong)
}

fn prctl(option: i32, value: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the options used here take one number, or a pointer to a C string that lives across the call.
    check(unsafe { libc::syscall(libc::SYS_prctl, option, value, 0, 0, 0) }).map(drop)
}
