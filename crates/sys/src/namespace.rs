//! Kinds of namespaces, entering them, leaving them behind.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::check;

/// A set of namespace kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespaces(u32);

impl Namespaces {
    /// None.
    pub const NONE: Namespaces = Namespaces(0);
    /// User and group ids, capabilities.
    pub const USER: Namespaces = Namespaces(libc::CLONE_NEWUSER.cast_unsigned());
    /// Process ids.
    pub const PID: Namespaces = Namespaces(libc::CLONE_NEWPID.cast_unsigned());
    /// Mounts.
    pub const MOUNT: Namespaces = Namespaces(libc::CLONE_NEWNS.cast_unsigned());
    /// Network.
    pub const NET: Namespaces = Namespaces(libc::CLONE_NEWNET.cast_unsigned());
    /// System V and POSIX message passing.
    pub const IPC: Namespaces = Namespaces(libc::CLONE_NEWIPC.cast_unsigned());
    /// Host name.
    pub const UTS: Namespaces = Namespaces(libc::CLONE_NEWUTS.cast_unsigned());
    /// What `/proc/self/cgroup` shows.
    pub const CGROUP: Namespaces = Namespaces(libc::CLONE_NEWCGROUP.cast_unsigned());

    /// Both sets.
    #[must_use]
    pub const fn and(self, other: Namespaces) -> Namespaces {
        Namespaces(self.0 | other.0)
    }

    /// As the `CLONE_NEW*` bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

/// Leaves the caller's namespaces of these kinds for new ones. Child-safe.
///
/// # Errors
/// As `unshare(2)`: EPERM without the capability, ENOSPC at the limit of namespaces, EINVAL for a user namespace in
/// a process of several threads.
pub fn unshare(kinds: Namespaces) -> io::Result<()> {
    // SAFETY: unshare takes flags only; the kinds that can be named here leave memory and descriptors shared as is.
    let result = unsafe { libc::unshare(kinds.0.cast_signed()) };
    check(result.into()).map(drop)
}

/// Enters the namespaces of these kinds of what `fd` names: a namespace file or a pidfd. Child-safe.
///
/// # Errors
/// As `setns(2)`.
pub fn enter(fd: BorrowedFd<'_>, kinds: Namespaces) -> io::Result<()> {
    // SAFETY: setns takes a live descriptor and flags.
    let result = unsafe { libc::setns(fd.as_raw_fd(), kinds.0.cast_signed()) };
    check(result.into()).map(drop)
}
