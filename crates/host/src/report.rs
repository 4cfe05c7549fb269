//! The facts as a table for a person: what is there, and what lifts what is not. Pure.

use serde::Serialize;

use crate::attempt::Tried;
use crate::cell::{CellTrial, Limits};
use crate::facts::{Facts, User, UserNamespaceLimits};
use crate::tier::Missing;

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What it is about.
    pub name: &'static str,
    /// What was found.
    pub found: String,
    /// What lifts it, where something is missing that would be of use.
    pub lift: Option<String>,
}

/// The rows, in the order in which they are read.
#[must_use]
pub fn rows(facts: &Facts) -> Vec<Row> {
    let row = |name, found: String| Row { name, found, lift: None };
    vec![
        row("kernel", format!("Linux {}, {}", facts.kernel.release, facts.kernel.machine)),
        row("user", user(&facts.user)),
        row("container", facts.container.clone().unwrap_or_else(|| "no sign of one".to_owned())),
        user_namespaces(facts),
        other_namespaces(facts),
        row("limits on them", limits(&facts.user_namespace_limits)),
        proc(facts),
        seccomp(facts),
        landlock(facts),
        cgroups(facts),
        row("KVM", if facts.kvm { "/dev/kvm can be opened" } else { "none" }.to_owned()),
        runsc(facts),
    ]
}

fn user(user: &User) -> String {
    let who = if user.id == 0 { "root".to_owned() } else { format!("user {}", user.id) };
    match (user.capabilities.as_slice(), user.capabilities_missing) {
        ([], _) => format!("{who} without capabilities"),
        (_, 0) => format!("{who} with every capability"),
        (some, _) if some.contains(&"SYS_ADMIN") => {
            format!("{who} with {} capabilities, CAP_SYS_ADMIN too", some.len())
        }
        (some, _) => format!("{who} with {} capabilities, without CAP_SYS_ADMIN", some.len()),
    }
}

fn user_namespaces(facts: &Facts) -> Row {
    let (found, lift) = match facts.namespaces.user {
        Tried::Works => ("can be made".to_owned(), None),
        Tried::Untried => ("not tried".to_owned(), None),
        Tried::Refused(errno) => (refused(errno), Some(lift_user_namespaces(facts, errno))),
    };
    Row { name: "user namespaces", found, lift }
}

/// Whichever setting stands in the way.
pub(crate) fn lift_user_namespaces(facts: &Facts, errno: i32) -> String {
    let limits = &facts.user_namespace_limits;
    let privileged = facts.user.capabilities.contains(&"SYS_ADMIN");
    if limits.max_user_namespaces == Some(0) || errno == libc::ENOSPC {
        "sysctl user.max_user_namespaces=15000".to_owned()
    } else if limits.unprivileged_userns_clone == Some(0) && !privileged {
        "sysctl kernel.unprivileged_userns_clone=1".to_owned()
    } else if facts.container.is_some() && facts.seccomp.filtered {
        "start the container with `--cap-add SYS_ADMIN` (and on hosts with AppArmor `--security-opt \
         apparmor=unconfined`)"
            .to_owned()
    } else if limits.apparmor_restrict_unprivileged_userns == Some(1) && !privileged {
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0".to_owned()
    } else {
        "run as root, or let whatever filters system calls here allow unshare and clone with CLONE_NEWUSER".to_owned()
    }
}

fn other_namespaces(facts: &Facts) -> Row {
    let others = facts.namespaces.all().into_iter().filter(|(name, _)| *name != "user");
    let (made, refused): (Vec<_>, Vec<_>) = others.partition(|(_, tried)| tried.works());
    let names = |list: &[(&str, Tried)]| list.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let found = match (made.as_slice(), refused.as_slice()) {
        (made, []) => format!("can be made: {}", names(made)),
        ([], _) => "none can be made".to_owned(),
        (made, refused) => format!("can be made: {}; not: {}", names(made), names(refused)),
    };
    let user_too = !facts.namespaces.user.works();
    let lift = (!refused.is_empty()).then(|| match user_too {
        true => "with user namespaces, or CAP_SYS_ADMIN, they come".to_owned(),
        false => {
            "sysctl user.max_pid_namespaces, user.max_mnt_namespaces and the like; or a seccomp profile".to_owned()
        }
    });
    Row { name: "other namespaces", found, lift }
}

fn limits(limits: &UserNamespaceLimits) -> String {
    let numbers = [
        ("user.max_user_namespaces", limits.max_user_namespaces),
        ("kernel.unprivileged_userns_clone", limits.unprivileged_userns_clone),
        ("kernel.apparmor_restrict_unprivileged_userns", limits.apparmor_restrict_unprivileged_userns),
    ];
    let mut list: Vec<String> =
        numbers.iter().filter_map(|(name, number)| Some(format!("{name}={}", (*number)?))).collect();
    list.extend(limits.apparmor_profile.as_ref().map(|profile| format!("AppArmor profile {profile}")));
    if list.is_empty() { "none".to_owned() } else { list.join(", ") }
}

fn proc(facts: &Facts) -> Row {
    let count = facts.proc_covered.len();
    let found = match count {
        0 => "whole".to_owned(),
        _ => format!("{count} parts of it are covered"),
    };
    // With its own right to mount, ringfence mounts a whole one where it needs it.
    let lift = (count > 0 && !facts.user.capabilities.contains(&"SYS_ADMIN")).then(|| {
        "for user namespaces to be of use: `--security-opt systempaths=unconfined` (Docker), `--security-opt \
         unmask=ALL` (Podman), `procMount: Unmasked` (Kubernetes)"
            .to_owned()
    });
    Row { name: "/proc", found, lift }
}

fn seccomp(facts: &Facts) -> Row {
    let already = if facts.seccomp.filtered { "; one lies on this process already" } else { "" };
    let (found, lift) = match facts.seccomp.filter {
        Tried::Refused(errno) => (refused(errno), Some("a kernel with CONFIG_SECCOMP_FILTER".to_owned())),
        _ => (format!("filters can be loaded{already}"), None),
    };
    Row { name: "seccomp", found, lift }
}

fn landlock(facts: &Facts) -> Row {
    match facts.landlock_abi {
        Some(abi) => Row { name: "Landlock", found: format!("version {abi}"), lift: None },
        None => Row {
            name: "Landlock",
            found: "none".to_owned(),
            lift: Some(
                "Linux 5.13 or later, with `landlock` among the security modules (`lsm=landlock,...`)".to_owned(),
            ),
        },
    }
}

fn cgroups(facts: &Facts) -> Row {
    let groups = &facts.cgroups;
    let has = |list: &[String]| ["memory", "pids", "cpu"].iter().all(|name| list.iter().any(|one| one == name));
    let version = match (has(&groups.v2_controllers), has(&groups.v1_controllers)) {
        (true, _) => "version 2",
        (false, true) => "version 1",
        (false, false) => "none with memory, pids and cpu",
    };
    let (found, lift) = match &facts.cell {
        CellTrial::Works { limits: Limits::Rlimits, .. } => {
            (format!("{version}; none can be written"), Some(lift_cgroups(facts)))
        }
        CellTrial::Works { .. } => (format!("{version}; used for cells"), None),
        _ if groups.writable => (format!("{version}; mounted to be written"), None),
        _ => (format!("{version}; none can be written"), None),
    };
    Row { name: "cgroups", found, lift }
}

fn lift_cgroups(facts: &Facts) -> String {
    if facts.container.is_some() {
        "mount the container's cgroups to be written (`--security-opt writable-cgroups=true` with Docker 28 or later, \
         `--security-opt unmask=/sys/fs/cgroup` with Podman)"
            .to_owned()
    } else if facts.user.id != 0 && !facts.cgroups.v2_controllers.is_empty() {
        "a delegated group: `systemd-run --user --scope -p Delegate=yes ringfence serve`".to_owned()
    } else if facts.user.id != 0 {
        "run as root, or boot with cgroup version 2 (`systemd.unified_cgroup_hierarchy=1`) and a delegated group"
            .to_owned()
    } else {
        "mount -t cgroup2 none /sys/fs/cgroup".to_owned()
    }
}

fn runsc(facts: &Facts) -> Row {
    let (found, lift) = match &facts.runsc {
        Some(runsc) => {
            let mut found = runsc.path.display().to_string();
            if let Some(version) = &runsc.version {
                found.push_str(&format!(", version {version}"));
            }
            if let Some(platforms) = &runsc.platforms {
                found.push_str(&format!(", platforms {platforms}"));
            }
            (found, None)
        }
        None => {
            ("not in PATH".to_owned(), Some("install gVisor's `runsc` (Debian: `apt-get install runsc`)".to_owned()))
        }
    };
    Row { name: "runsc", found, lift }
}

fn refused(errno: i32) -> String {
    format!("refused ({})", std::io::Error::from_raw_os_error(errno))
}

/// What the tier `cell` holds here beside what it always holds, and what would make it better.
#[must_use]
pub fn of_cell(trial: &CellTrial) -> Option<String> {
    match trial {
        CellTrial::Works { limits, id_per_session } => {
            let ids = if *id_per_session { "a user id for each session" } else { "one user id for all sessions" };
            Some(format!("limits by {}, {ids}", limits.as_str()))
        }
        CellTrial::Failed(Missing { .. }) | CellTrial::Untried => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seccomp::Seccomp;

    fn lift(facts: &Facts, name: &str) -> String {
        rows(facts).into_iter().find(|row| row.name == name).unwrap().lift.unwrap_or_default()
    }

    fn refusing(limits: UserNamespaceLimits) -> Facts {
        let mut facts = Facts { user_namespace_limits: limits, ..Facts::default() };
        facts.namespaces.user = Tried::Refused(libc::EPERM);
        facts
    }

    #[test]
    fn the_advice_names_the_setting_that_stands_in_the_way() {
        let debian = UserNamespaceLimits { unprivileged_userns_clone: Some(0), ..Default::default() };
        assert!(lift(&refusing(debian), "user namespaces").contains("kernel.unprivileged_userns_clone=1"));
        let ubuntu = UserNamespaceLimits { apparmor_restrict_unprivileged_userns: Some(1), ..Default::default() };
        assert!(lift(&refusing(ubuntu.clone()), "user namespaces").contains("apparmor_restrict"));
        let none = UserNamespaceLimits { max_user_namespaces: Some(0), ..ubuntu.clone() };
        assert!(lift(&refusing(none), "user namespaces").contains("user.max_user_namespaces="));
        let mut container = refusing(ubuntu);
        container.container = Some("Docker".to_owned());
        container.seccomp = Seccomp { filter: Tried::Works, filtered: true };
        assert!(lift(&container, "user namespaces").contains("--cap-add SYS_ADMIN"));
    }

    #[test]
    fn rlimits_are_told_with_what_gives_cgroups() {
        let mut facts =
            Facts { cell: CellTrial::Works { limits: Limits::Rlimits, id_per_session: false }, ..Facts::default() };
        facts.user.id = 1000;
        facts.cgroups.v2_controllers = ["cpu", "memory", "pids"].map(str::to_owned).to_vec();
        assert!(lift(&facts, "cgroups").contains("Delegate=yes"));
        facts.container = Some("Docker".to_owned());
        assert!(lift(&facts, "cgroups").contains("writable-cgroups"));
    }

    #[test]
    fn what_is_there_needs_no_lift() {
        let mut facts = Facts { landlock_abi: Some(7), ..Facts::default() };
        facts.namespaces.user = Tried::Works;
        for name in ["user namespaces", "Landlock", "/proc", "kernel"] {
            assert_eq!(lift(&facts, name), "", "{name}");
        }
    }
}
