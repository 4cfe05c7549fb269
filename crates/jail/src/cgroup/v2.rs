//! cgroup v2: one hierarchy, with the rule that a group with processes gives no controller to groups below it.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ringfence_op::CellLimits;

use super::discover::{Mount, Own};
use super::{Controller, Folder, Layout, Setting, Version, make_folder, quota_us, remove_subtree};
use crate::limits::CPU_PERIOD_US;

const NEEDED: [&str; 3] = ["memory", "pids", "cpu"];
const ENABLE: &str = "+memory +pids +cpu";

/// Makes our folder in this process's own group, where that is delegated to us, or else at the top of the tree.
pub(super) fn prepare(mounts: &[Mount], own: &[Own], name: &str, owner: Option<u32>) -> Option<Layout> {
    let mount = mounts.iter().find(|mount| mount.version == Version::V2)?;
    let group = own.iter().find(|own| own.controllers.is_empty())?;
    let ours = HashSet::from([std::process::id(), std::os::unix::process::parent_id()]);
    let mut places = vec![mount.folder(&group.path)];
    if !places.contains(&mount.point) {
        places.push(mount.point.clone());
    }
    places.iter().find_map(|place| prepare_in(place, name, owner, &ours).ok())
}

/// `ours` are the processes that may be moved out of the way: the server and this one.
fn prepare_in(place: &Path, name: &str, owner: Option<u32>, ours: &HashSet<u32>) -> io::Result<Layout> {
    if !has_all(&place.join("cgroup.controllers"))? {
        return Err(io::ErrorKind::Unsupported.into());
    }
    if !has_all(&place.join("cgroup.subtree_control"))? {
        enable(place, name, ours)?;
    }
    let path = place.join(name);
    make_folder(&path, owner)?;
    if let Err(error) = fs::write(path.join("cgroup.subtree_control"), ENABLE) {
        remove_subtree(&path);
        return Err(error);
    }
    Ok(Layout { version: Version::V2, folders: vec![Folder { path, controllers: controllers() }] })
}

fn controllers() -> Vec<Controller> {
    vec![Controller::Memory, Controller::Pids, Controller::Cpu]
}

fn has_all(file: &Path) -> io::Result<bool> {
    let text = fs::read_to_string(file)?;
    Ok(NEEDED.iter().all(|needed| text.split_whitespace().any(|name| name == *needed)))
}

/// Gives the controllers to the groups below `place`; where only our own processes stand in the way, they step down.
fn enable(place: &Path, name: &str, ours: &HashSet<u32>) -> io::Result<()> {
    let control = place.join("cgroup.subtree_control");
    let first = fs::write(&control, ENABLE);
    if first.as_ref().err().and_then(io::Error::raw_os_error) != Some(libc::EBUSY) {
        return first;
    }
    let inside = fs::read_to_string(place.join("cgroup.procs"))?;
    let inside: Vec<u32> = inside.lines().filter_map(|line| line.parse().ok()).collect();
    if !inside.iter().all(|pid| ours.contains(pid)) {
        return first;
    }
    let leaf = leaf_of(place, name);
    fs::create_dir(&leaf)?;
    for pid in inside {
        fs::write(leaf.join("cgroup.procs"), pid.to_string())?;
    }
    fs::write(control, ENABLE)
}

/// Where the server itself steps down to; found by the sweep through its name.
fn leaf_of(place: &Path, name: &str) -> PathBuf {
    place.join(format!("{name}-server"))
}

pub(super) fn settings(controller: Controller, limits: &CellLimits) -> Vec<Setting> {
    match controller {
        Controller::Memory => vec![
            Setting::must("memory.max", limits.memory_bytes),
            // Not there without swap accounting.
            Setting::may("memory.swap.max", 0),
        ],
        // Init is one more.
        Controller::Pids => vec![Setting::must("pids.max", limits.processes.saturating_add(1))],
        Controller::Cpu => vec![Setting::must("cpu.max", format!("{} {CPU_PERIOD_US}", quota_us(limits)))],
        Controller::CpuAccounting => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that looks like a group of a v2 tree.
    fn fake(controllers: &str, subtree: &str, procs: &str) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("cgroup.controllers"), controllers).unwrap();
        fs::write(place.path().join("cgroup.subtree_control"), subtree).unwrap();
        fs::write(place.path().join("cgroup.procs"), procs).unwrap();
        place
    }

    #[test]
    fn a_delegated_group_is_taken() {
        let place = fake("cpuset cpu io memory pids", "", "");
        let layout = prepare_in(place.path(), "ringfence-1-2", None, &HashSet::new()).unwrap();
        let ours = place.path().join("ringfence-1-2");
        assert_eq!(layout.folders, [Folder { path: ours.clone(), controllers: controllers() }]);
        assert_eq!(fs::read_to_string(place.path().join("cgroup.subtree_control")).unwrap(), ENABLE);
        assert_eq!(fs::read_to_string(ours.join("cgroup.subtree_control")).unwrap(), ENABLE);
        assert!(ours.join("keeper").is_dir());
    }

    #[test]
    fn a_tree_without_controllers_is_refused() {
        let place = fake("", "", "");
        assert!(prepare_in(place.path(), "ringfence-1-2", None, &HashSet::new()).is_err());
        assert!(!place.path().join("ringfence-1-2").exists());
    }

    #[test]
    fn what_is_enabled_is_left_alone() {
        let place = fake("cpu memory pids", "cpu memory pids", "77\n");
        prepare_in(place.path(), "ringfence-1-2", None, &HashSet::new()).unwrap();
        assert_eq!(fs::read_to_string(place.path().join("cgroup.subtree_control")).unwrap(), "cpu memory pids");
    }

    #[test]
    fn limits_become_values() {
        let limits = CellLimits { memory_bytes: 1 << 20, processes: 9, cpu_millis: 500, ..CellLimits::default() };
        let all: Vec<Setting> = controllers().into_iter().flat_map(|one| settings(one, &limits)).collect();
        assert_eq!(
            all,
            [
                Setting::must("memory.max", 1 << 20),
                Setting::may("memory.swap.max", 0),
                Setting::must("pids.max", 10),
                Setting::must("cpu.max", "10000 20000"),
            ]
        );
    }
}
