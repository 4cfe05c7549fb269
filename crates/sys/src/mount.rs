//! The parts of the mount interface that rustix lacks. Child-safe.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::check;

/// Nothing on the mount can be written.
pub const RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;
/// Set-user-id bits are without effect.
pub const NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
/// Device files cannot be opened.
pub const NODEV: u64 = libc::MOUNT_ATTR_NODEV;
/// Nothing can be executed.
pub const NOEXEC: u64 = libc::MOUNT_ATTR_NOEXEC;

/// Adds attributes to the mount that `fd` is the root of and, if asked, to every mount below it.
///
/// # Errors
/// As `mount_setattr(2)`.
pub fn restrict(fd: BorrowedFd<'_>, attributes: u64, recursive: bool) -> io::Result<()> {
    let change = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    let size = size_of::<libc::mount_attr>();
    let here = c"".as_ptr();
    // SAFETY: the path is a live C string, the change a live value of the size given.
    let result =
        unsafe { libc::syscall(libc::SYS_mount_setattr, fd.as_raw_fd(), here, flags, &raw const change, size) };
    check(result).map(drop)
}
