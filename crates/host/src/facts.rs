//! What was found on this host.

use std::io;
use std::path::Path;

use ringfence_sys::process::Single;
use ringfence_sys::{caps, landlock};
use serde::Serialize;

use crate::cell::{self, CellTrial};
use crate::cgroups::{self, Cgroups};
use crate::gvisor::{self, GvisorTrial};
use crate::namespaces::{self, Namespaces};
use crate::runsc::{self, Runsc};
use crate::{container, files, seccomp};

/// What this host offers to the process that looks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// The kernel, and who asks it.
    pub kernel: Kernel,
    /// What this process may do.
    pub user: User,
    /// Signs that this is a container, in words; `None` where there are none.
    pub container: Option<String>,
    /// Which namespaces could be made.
    pub namespaces: Namespaces,
    /// What limits user namespaces here.
    pub user_namespace_limits: UserNamespaceLimits,
    /// Parts of `/proc` over which something else is mounted, as container engines do.
    pub proc_covered: Vec<String>,
    /// Whether a filter could be loaded, and whether one lies on this process already.
    pub seccomp: seccomp::Seccomp,
    /// Version of Landlock's interface; `None` without it.
    pub landlock_abi: Option<u32>,
    /// Control groups.
    pub cgroups: Cgroups,
    /// Whether `/dev/kvm` can be opened.
    pub kvm: bool,
    /// gVisor's program, where `PATH` has it.
    pub runsc: Option<Runsc>,
    /// Whether a cell could be made.
    pub cell: CellTrial,
    /// Whether a sandbox could be made.
    pub gvisor: GvisorTrial,
}

/// The kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Kernel {
    /// Its release, as `uname -r` has it.
    pub release: String,
    /// The machine, as `uname -m` has it.
    pub machine: String,
}

/// The user that looks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct User {
    /// Its id.
    pub id: u32,
    /// Its effective capabilities, by their names without `CAP_`.
    pub capabilities: Vec<&'static str>,
    /// How many capabilities the kernel has that it lacks.
    pub capabilities_missing: usize,
}

/// Settings of the kernel that limit user namespaces; `None` where this kernel has no such setting.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct UserNamespaceLimits {
    /// `user.max_user_namespaces`: 0 forbids them.
    pub max_user_namespaces: Option<u64>,
    /// `kernel.unprivileged_userns_clone` (Debian): 0 forbids them to ordinary users.
    pub unprivileged_userns_clone: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns` (Ubuntu): 1 takes the capabilities in them away.
    pub apparmor_restrict_unprivileged_userns: Option<u64>,
    /// The AppArmor profile of this process, where AppArmor is on.
    pub apparmor_profile: Option<String>,
}

/// How to look.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// A program that hands its subcommand `keeper` to the jail: ringfence itself.
    pub program: &'a Path,
    /// First host id of the range that a server started as root would take.
    pub id_base: u32,
    /// Whether to start `runsc` and ask it what it is.
    pub ask_runsc: bool,
    /// Whether to make a cell, and take it down.
    pub try_cell: bool,
    /// Whether to start a sandbox of gVisor's.
    pub try_gvisor: bool,
}

impl Facts {
    /// Looks, and tries in child processes. The calling process must have one thread.
    ///
    /// # Errors
    /// Where the process has several threads, or not even a pipe or a child can be made.
    pub fn find(look: &Look<'_>) -> io::Result<Facts> {
        let single = Single::claim()?;
        let uname = rustix::system::uname();
        let proc_covered = files::proc_covered();
        let runsc = runsc::find(look.ask_runsc);
        Ok(Facts {
            kernel: Kernel {
                release: uname.release().to_string_lossy().into_owned(),
                machine: uname.machine().to_string_lossy().into_owned(),
            },
            user: user()?,
            container: container::sign(&proc_covered),
            namespaces: namespaces::try_all(&single)?,
            user_namespace_limits: UserNamespaceLimits {
                max_user_namespaces: files::number("/proc/sys/user/max_user_namespaces"),
                unprivileged_userns_clone: files::number("/proc/sys/kernel/unprivileged_userns_clone"),
                apparmor_restrict_unprivileged_userns: files::number(
                    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
                ),
                apparmor_profile: apparmor_profile(),
            },
            proc_covered,
            seccomp: seccomp::try_it(&single)?,
            landlock_abi: landlock::abi().ok(),
            cgroups: cgroups::look(),
            kvm: std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok(),
            gvisor: match &runsc {
                Some(runsc) if look.try_gvisor && rustix::process::geteuid().is_root() => {
                    gvisor::try_it(&runsc.path, look.program)
                }
                _ => GvisorTrial::Untried,
            },
            runsc,
            cell: if look.try_cell { cell::try_it(look.program, look.id_base) } else { CellTrial::Untried },
        })
    }
}

fn user() -> io::Result<User> {
    let effective = caps::effective()?;
    let last = files::number("/proc/sys/kernel/cap_last_cap").and_then(|last| usize::try_from(last).ok());
    let known = last.map_or(CAPABILITIES.len(), |last| CAPABILITIES.len().min(last.saturating_add(1)));
    let has = |index: &usize| effective & 1 << index != 0;
    let names = CAPABILITIES.iter().enumerate().take(known);
    let capabilities: Vec<&str> = names.filter(|(index, _)| has(index)).map(|(_, name)| *name).collect();
    Ok(User { id: rustix::process::geteuid().as_raw(), capabilities_missing: known - capabilities.len(), capabilities })
}

fn apparmor_profile() -> Option<String> {
    (files::text("/sys/module/apparmor/parameters/enabled")? == "Y").then(|| {
        files::text("/proc/self/attr/apparmor/current")
            .or_else(|| files::text("/proc/self/attr/current"))
            .unwrap_or_else(|| "unknown".to_owned())
    })
}

/// Capabilities by their numbers (`capabilities(7)`).
const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_have_their_kernel_numbers() {
        let number = |name| CAPABILITIES.iter().position(|one| *one == name).map(|index| 1u64 << index);
        assert_eq!(number("CHOWN"), Some(caps::CHOWN));
        assert_eq!(number("FOWNER"), Some(caps::FOWNER));
        assert_eq!(number("SETUID"), Some(caps::SETUID));
        assert_eq!(number("SYS_ADMIN"), Some(caps::SYS_ADMIN));
        assert_eq!(number("CHECKPOINT_RESTORE"), Some(1 << 40));
        let user = user().unwrap();
        assert!(user.capabilities.len() + user.capabilities_missing <= CAPABILITIES.len());
    }
}
