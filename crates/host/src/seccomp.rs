//! Whether a seccomp filter can be loaded.

use std::io;

use ringfence_sys::process::{Single, no_new_privileges};
use ringfence_sys::seccomp::Filter;
use serde::Serialize;

use crate::attempt::{Tried, attempt};
use crate::files;

/// Filters of system calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Seccomp {
    /// Whether a filter could be loaded.
    pub filter: Tried,
    /// Whether one lies on this process already, as a container engine's does.
    pub filtered: bool,
}

/// `BPF_RET | BPF_K`.
const RETURN: u16 = 0x06;
/// `SECCOMP_RET_ALLOW`.
const ALLOW: u32 = 0x7fff_0000;

pub(crate) fn try_it(single: &Single) -> io::Result<Seccomp> {
    let filter = attempt(single, || {
        let [c0, c1] = RETURN.to_ne_bytes();
        let [k0, k1, k2, k3] = ALLOW.to_ne_bytes();
        let filter = Filter::from_bytes(&[c0, c1, 0, 0, k0, k1, k2, k3]).ok_or(io::ErrorKind::InvalidInput)?;
        no_new_privileges()?;
        filter.load()
    })?;
    let status = files::text("/proc/self/status").unwrap_or_default();
    let filtered = status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"));
    Ok(Seccomp { filter, filtered })
}
