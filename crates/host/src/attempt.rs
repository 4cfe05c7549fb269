//! Trying something in a child that then ends.

use std::io::{self, Read};

use ringfence_sys::namespace::Namespaces;
use ringfence_sys::process::{self, Forked, Single, wait_for};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::Serialize;

/// Whether something could be done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tried {
    /// Nobody has tried.
    #[default]
    Untried,
    /// It could.
    Works,
    /// It could not; the kernel's error number.
    Refused(i32),
}

impl Tried {
    /// Whether it could be done.
    #[must_use]
    pub fn works(self) -> bool {
        self == Tried::Works
    }
}

/// Does `work` in a child, which ends with it.
pub(crate) fn attempt(single: &Single, work: impl FnOnce() -> io::Result<()>) -> io::Result<Tried> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    match process::fork(single, Namespaces::NONE)? {
        Forked::Child => {
            let errno = work().map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0);
            // Where nobody hears it, the child counts as killed.
            let _ = rustix::io::write(&write, &errno.to_le_bytes());
            process::exit_now(0)
        }
        Forked::Parent(child) => {
            drop(write);
            let mut errno = [0; 4];
            let heard = std::fs::File::from(read).read_exact(&mut errno);
            wait_for(child.pid)?;
            Ok(match (heard, i32::from_le_bytes(errno)) {
                (Ok(()), 0) => Tried::Works,
                (Ok(()), errno) => Tried::Refused(errno),
                // The kernel ended it, as a filter of seccomp may.
                (Err(_), _) => Tried::Refused(libc::ECHILD),
            })
        }
    }
}
