//! Resource limits. Child-safe.

use std::io;

use crate::check;

/// One resource limit, as `setrlimit(2)` takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimit {
    /// The resource's number (`RLIMIT_*`).
    pub resource: u32,
    /// The limit in force.
    pub soft: u64,
    /// How far it may be raised again.
    pub hard: u64,
}

/// Sets a limit of the calling process.
///
/// # Errors
/// As `setrlimit(2)`.
pub fn set(limit: ResourceLimit) -> io::Result<()> {
    let value = libc::rlimit64 { rlim_cur: limit.soft, rlim_max: limit.hard };
    let none = std::ptr::null_mut::<libc::rlimit64>();
    // SAFETY: the new limit is a live value, the old one is not asked for.
    check(unsafe { libc::syscall(libc::SYS_prlimit64, 0, limit.resource, &raw const value, none) }).map(drop)
}

/// The limit of the calling process.
///
/// # Errors
/// As `getrlimit(2)`.
pub fn of(resource: u32) -> io::Result<ResourceLimit> {
    let mut value = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let none = std::ptr::null::<libc::rlimit64>();
    // SAFETY: no new limit is given, the old one goes to a live value.
    check(unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, none, &raw mut value) })?;
    Ok(ResourceLimit { resource, soft: value.rlim_cur, hard: value.rlim_max })
}
