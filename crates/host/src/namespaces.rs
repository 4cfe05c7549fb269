//! Which namespaces can be made, each by a child of its own.

use std::io;

use ringfence_sys::namespace::{Namespaces as Kinds, unshare};
use ringfence_sys::process::Single;
use serde::Serialize;

use crate::attempt::{Tried, attempt};

/// A namespace of each kind, made by this process's own right or together with a user namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Namespaces {
    /// A user namespace.
    pub user: Tried,
    /// Process ids.
    pub pid: Tried,
    /// Mounts.
    pub mount: Tried,
    /// Network.
    pub net: Tried,
    /// System V and POSIX message passing.
    pub ipc: Tried,
    /// Host name.
    pub uts: Tried,
    /// What is seen of control groups.
    pub cgroup: Tried,
}

impl Namespaces {
    /// Each with its name.
    #[must_use]
    pub fn all(&self) -> [(&'static str, Tried); 7] {
        [
            ("user", self.user),
            ("pid", self.pid),
            ("mount", self.mount),
            ("net", self.net),
            ("ipc", self.ipc),
            ("uts", self.uts),
            ("cgroup", self.cgroup),
        ]
    }
}

pub(crate) fn try_all(single: &Single) -> io::Result<Namespaces> {
    let one = |kind: Kinds| {
        attempt(single, || match unshare(kind) {
            Err(_) if kind != Kinds::USER => unshare(Kinds::USER.and(kind)),
            other => other,
        })
    };
    Ok(Namespaces {
        user: one(Kinds::USER)?,
        pid: one(Kinds::PID)?,
        mount: one(Kinds::MOUNT)?,
        net: one(Kinds::NET)?,
        ipc: one(Kinds::IPC)?,
        uts: one(Kinds::UTS)?,
        cgroup: one(Kinds::CGROUP)?,
    })
}
