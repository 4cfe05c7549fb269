//! Starting a program without copying the caller's memory.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::check;
use crate::process::Strings;
use crate::signal;

/// The most descriptors that a program starts with.
pub const START_FDS_MAX: usize = 8;
const STACK_BYTES: usize = 64 * 1024;

/// What to start.
pub struct Spawn<'a> {
    /// The program.
    pub path: &'a CStr,
    /// Its arguments, the program's own name first.
    pub arguments: &'a Strings,
    /// Its whole environment.
    pub environment: &'a Strings,
    /// Its descriptors, from 0 on; every other is closed.
    pub fds: &'a [BorrowedFd<'a>],
    /// Its working directory; the caller's where there is none.
    pub directory: Option<BorrowedFd<'a>>,
}

struct Shared<'a> {
    spawn: &'a Spawn<'a>,
    fds: [i32; START_FDS_MAX],
    errno: i32,
}

/// Starts the program in a session of its own, with no signal blocked, and gives its process id. By `vfork`: the
/// caller's thread waits until the program runs, so that a failed exec is an error of this call.
///
/// # Errors
/// Of clone (EAGAIN where no process may be made), of laying out the descriptors, of exec; E2BIG for more than
/// [`START_FDS_MAX`] descriptors.
pub fn spawn(spawn: &Spawn<'_>) -> io::Result<u32> {
    if spawn.fds.len() > START_FDS_MAX {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    let mut shared = Shared { spawn, fds: [-1; START_FDS_MAX], errno: 0 };
    for (place, fd) in shared.fds.iter_mut().zip(spawn.fds) {
        *place = fd.as_raw_fd();
    }
    let mut stack = vec![0u128; STACK_BYTES / size_of::<u128>()];
    let top = stack.as_mut_ptr_range().end;
    let all = signal::full_set();
    let mut old = signal::full_set();
    // No handler may run in the child while it lives in our memory.
    // SAFETY: two live sets.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old) };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child runs on a stack of its own, which like `shared` outlives it: CLONE_VFORK holds this thread
    // until the child has exec'd or exited. `child` calls nothing that allocates, locks or unwinds.
    let pid = unsafe { libc::clone(child, top.cast(), flags, (&raw mut shared).cast()) };
    let result = check(pid.into());
    // SAFETY: a live set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, std::ptr::null_mut()) };
    drop(stack);
    let pid = result? as u32;
    // SAFETY: the child is done with `shared`; the volatile read keeps the compiler from assuming that it never wrote.
    match unsafe { (&raw const shared.errno).read_volatile() } {
        0 => Ok(pid),
        errno => {
            // It has exited already; the error that counts is the one that it left.
            let _ = crate::process::wait_for(pid);
            Err(io::Error::from_raw_os_error(errno))
        }
    }
}

extern "C" fn child(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the caller passes its `Shared`, and waits, so this is the one reference in use.
    let shared = unsafe { &mut *argument.cast::<Shared<'_>>() };
    let error = match lay_out(shared) {
        Ok(()) => crate::process::exec(shared.spawn.path, shared.spawn.arguments, shared.spawn.environment),
        Err(error) => error,
    };
    shared.errno = error.raw_os_error().unwrap_or(libc::EIO);
    crate::process::exit_now(127)
}

fn lay_out(shared: &mut Shared<'_>) -> io::Result<()> {
    if let Some(directory) = shared.spawn.directory {
        // SAFETY: a live descriptor.
        check(unsafe { libc::fchdir(directory.as_raw_fd()) }.into())?;
    }
    let count = shared.spawn.fds.len() as i32;
    // First all out of the way, so that placing one never closes another.
    for fd in shared.fds.iter_mut().take(shared.spawn.fds.len()) {
        // SAFETY: a live descriptor and a number.
        *fd = check(unsafe { libc::fcntl(*fd, libc::F_DUPFD_CLOEXEC, count) }.into())? as i32;
    }
    for (number, fd) in (0..count).zip(shared.fds) {
        // SAFETY: two numbers of this process's own table; nothing of it is owned by anyone any more.
        check(unsafe { libc::dup2(fd, number) }.into())?;
    }
    crate::process::close_from(count.cast_unsigned())?;
    // SAFETY: setsid takes nothing.
    check(unsafe { libc::setsid() }.into())?;
    let mut none = signal::full_set();
    // SAFETY: a live set.
    unsafe { libc::sigemptyset(&raw mut none) };
    // SAFETY: a live set; the old one is not asked for.
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) }.into()).map(drop)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::fd::AsFd;

    use super::*;

    fn strings(parts: &[&str]) -> Strings {
        Strings::new(parts.iter().map(|part| CString::new(*part).unwrap()).collect())
    }

    #[test]
    fn a_program_gets_its_descriptors_and_nothing_else() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        let arguments = strings(&["sh", "-c", "echo $A; ls -1 /proc/$$/fd; :"]);
        let environment = strings(&["A=b"]);
        let pid = spawn(&Spawn {
            path: c"/bin/sh",
            arguments: &arguments,
            environment: &environment,
            fds: &[null.as_fd(), write.as_fd(), write.as_fd()],
            directory: None,
        })
        .unwrap();
        drop(write);
        let output = std::io::read_to_string(std::fs::File::from(read)).unwrap();
        assert_eq!(output, "b\n0\n1\n2\n");
        assert_eq!(crate::process::wait_for(pid).unwrap().status, 0);
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_of_the_call() {
        let nothing = strings(&[]);
        let missing = Spawn {
            path: c"/nonexistent/program",
            arguments: &nothing,
            environment: &nothing,
            fds: &[],
            directory: None,
        };
        assert_eq!(spawn(&missing).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }
}
