//! Which control groups there are. Whether they can be used for cells is seen by the trial of a cell.

use serde::Serialize;

use crate::files;

/// What the kernel shows of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cgroups {
    /// Controllers that version 2 has, at the top of what is seen.
    pub v2_controllers: Vec<String>,
    /// Controllers that hierarchies of version 1 have.
    pub v1_controllers: Vec<String>,
    /// Whether what is mounted of them can be written at all.
    pub writable: bool,
}

pub(crate) fn look() -> Cgroups {
    let mounts = files::text("/proc/self/mountinfo").unwrap_or_default();
    let mut found = from_mountinfo(&mounts);
    for place in v2_places(&mounts) {
        let names = files::text(&format!("{place}/cgroup.controllers")).unwrap_or_default();
        found.v2_controllers.extend(names.split_whitespace().map(str::to_owned));
    }
    found
}

/// Everything but the controllers of version 2, which are in a file.
fn from_mountinfo(mounts: &str) -> Cgroups {
    let mut found = Cgroups::default();
    for (place, kind) in mounts.lines().filter_map(|line| line.split_once(" - ")) {
        let mut kind = kind.split(' ');
        let name = kind.next();
        if !matches!(name, Some("cgroup" | "cgroup2")) {
            continue;
        }
        found.writable |= place.split(' ').nth(5).is_some_and(|options| options.split(',').any(|one| one == "rw"));
        if name == Some("cgroup") {
            let controllers = kind.nth(1).unwrap_or_default().split(',');
            let named = controllers.filter(|one| *one != "rw" && *one != "ro" && !one.contains('='));
            found.v1_controllers.extend(named.map(str::to_owned));
        }
    }
    found
}

fn v2_places(mounts: &str) -> impl Iterator<Item = &str> {
    mounts.lines().filter_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        if kind.starts_with("cgroup2 ") { place.split(' ').nth(4) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_told_apart() {
        let mounts = "30 25 0:26 / /sys/fs/cgroup/cpu ro,relatime - cgroup cgroup rw,cpu,cpuacct\n\
                      31 25 0:27 / /sys/fs/cgroup/systemd ro - cgroup cgroup rw,xattr,name=systemd\n\
                      32 25 0:28 / /sys/fs/cgroup/unified ro,nosuid - cgroup2 cgroup2 rw\n";
        let found = from_mountinfo(mounts);
        assert_eq!(found.v1_controllers, ["cpu", "cpuacct", "xattr"]);
        assert!(!found.writable);
        assert_eq!(v2_places(mounts).collect::<Vec<_>>(), ["/sys/fs/cgroup/unified"]);
        assert!(from_mountinfo("32 25 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n").writable);
    }
}
