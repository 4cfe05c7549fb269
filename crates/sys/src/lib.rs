//! Everything that needs `unsafe`: namespaces, capabilities, seccomp, Landlock, descriptor passing, starting
//! processes.
//!
//! May know: the kernel, `rustix`, `libc`. Never knows: policy. What a cell may do is decided elsewhere; in here is
//! how the kernel is told.
//!
//! **Invariants.** No descriptor leaves or enters as a bare number where an owned or borrowed one can say it. What is
//! documented as *child-safe* neither allocates nor locks nor formats, so it may run between clone and exec. Every
//! function that fails gives the kernel's error number, untouched.

pub mod caps;
pub mod ids;
pub mod landlock;
pub mod limit;
pub mod mount;
pub mod namespace;
pub mod net;
pub mod packet;
pub mod process;
pub mod seccomp;
pub mod signal;
pub mod spawn;

use std::io;

/// The result of a raw system call: its value, or the error number it left.
fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
