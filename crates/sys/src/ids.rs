//! User and group ids of the calling thread. All child-safe.
//!
//! The raw calls are used, not libc's, which would make every thread of the process follow: callers have one thread.

use std::io;

use crate::check;

/// Becomes `id` in all three user ids.
///
/// # Errors
/// As `setresuid(2)`.
pub fn become_user(id: u32) -> io::Result<()> {
    // SAFETY: three plain numbers.
    check(unsafe { libc::syscall(libc::SYS_setresuid, id, id, id) }).map(drop)
}

/// As [`become_user`], keeping the permitted capabilities, which a change away from root takes otherwise. The effective
/// ones are empty after it.
///
/// # Errors
/// As `prctl(2)` and `setresuid(2)`.
pub fn become_user_keeping(id: u32) -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) })?;
    become_user(id)?;
    // SAFETY: plain numbers.
    check(unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_KEEPCAPS, 0, 0, 0, 0) }).map(drop)
}

/// Becomes `id` in all three group ids.
///
/// # Errors
/// As `setresgid(2)`.
pub fn become_group(id: u32) -> io::Result<()> {
    // SAFETY: three plain numbers.
    check(unsafe { libc::syscall(libc::SYS_setresgid, id, id, id) }).map(drop)
}

/// Leaves all supplementary groups.
///
/// # Errors
/// As `setgroups(2)`: EPERM where the user namespace denies it.
pub fn leave_groups() -> io::Result<()> {
    // SAFETY: a length of zero makes the kernel look at no list.
    check(unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()) }).map(drop)
}
