//! Removing subtrees: our own at the end, those of dead keepers at the start. Groups with processes in them are never
//! removed, for the kernel refuses; nothing is killed here.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;

use super::discover;
use crate::limits::{CGROUP_REMOVE_PAUSE, CGROUP_REMOVE_TRIES_MAX, SWEEP_DEPTH_MAX, SWEEP_FOLDERS_MAX};

const PREFIX: &str = "ringfence-";

/// Whose subtree one is: its keeper's outer process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    pid: u32,
    /// In clock ticks since boot.
    start: u64,
    /// The process ids' namespace, by its inode: in another one the same id is another process, or none.
    namespace: u64,
}

impl Owner {
    fn name(self) -> String {
        format!("{PREFIX}{}-{}-{}", self.pid, self.start, self.namespace)
    }
}

/// The name of the subtree of the process that calls.
pub(crate) fn subtree_name() -> std::io::Result<String> {
    let pid = std::process::id();
    let start = start_ticks(pid).ok_or(std::io::ErrorKind::NotFound)?;
    Ok(Owner { pid, start, namespace: pid_namespace()? }.name())
}

/// Removes the subtrees of keepers that are no more, in all hierarchies. Those of another namespace of process ids, as of
/// a container that shares our cgroups, are left: who lives there cannot be told from here.
pub(crate) fn sweep() {
    let Ok(mountinfo) = fs::read_to_string("/proc/self/mountinfo") else { return };
    let Ok(here) = pid_namespace() else { return };
    let mut budget = SWEEP_FOLDERS_MAX;
    for mount in discover::mounts(&mountinfo) {
        walk(&mount.point, SWEEP_DEPTH_MAX, &mut budget, &|owner| {
            owner.namespace != here || start_ticks(owner.pid) == Some(owner.start)
        });
    }
}

fn walk(folder: &Path, depth: usize, budget: &mut usize, may_live: &dyn Fn(Owner) -> bool) {
    for child in folders(folder) {
        if *budget == 0 || depth == 0 {
            return;
        }
        *budget -= 1;
        match child.file_name().and_then(|name| name.to_str()).and_then(owner) {
            Some(owner) if may_live(owner) => {}
            Some(_) => {
                remove_once(&child);
            }
            None => walk(&child, depth - 1, budget, may_live),
        }
    }
}

/// Whose subtree this is.
fn owner(name: &str) -> Option<Owner> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let (pid, start, namespace) = (parts.next()?, parts.next()?, parts.next()?);
    Some(Owner { pid: pid.parse().ok()?, start: start.parse().ok()?, namespace: namespace.parse().ok()? })
}

/// The inode of this process's namespace of process ids.
fn pid_namespace() -> std::io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

/// When the process started, in clock ticks since boot; `None` where there is none.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    crate::init::stat::parse(&stat).map(|stat| stat.start_ticks)
}

/// Removes a subtree whose processes are dead or dying, with patience.
pub(crate) fn remove_subtree(folder: &Path) {
    for _ in 0..CGROUP_REMOVE_TRIES_MAX {
        if remove_once(folder) {
            return;
        }
        sleep(CGROUP_REMOVE_PAUSE);
    }
}

/// Whether nothing is left of it.
fn remove_once(folder: &Path) -> bool {
    for child in folders(folder) {
        remove_once(&child);
    }
    match fs::remove_dir(folder) {
        Ok(()) => true,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .take(SWEEP_FOLDERS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_dead_are_swept() {
        let tree = tempfile::tempdir().unwrap();
        for folder in ["a/ringfence-5-6-9/cell-1", "a/b/ringfence-7-8-9/keeper", "ringfence-x", "other/keeper"] {
            fs::create_dir_all(tree.path().join(folder)).unwrap();
        }
        walk(tree.path(), SWEEP_DEPTH_MAX, &mut 1000, &|owner| owner == Owner { pid: 7, start: 8, namespace: 9 });
        assert!(!tree.path().join("a/ringfence-5-6-9").exists());
        assert!(tree.path().join("a/b/ringfence-7-8-9/keeper").exists());
        assert!(tree.path().join("ringfence-x").exists());
        assert!(tree.path().join("other/keeper").exists());
    }

    #[test]
    fn names_say_whose_they_are() {
        let there = Owner { pid: 12, start: 345, namespace: 6 };
        assert_eq!(owner("ringfence-12-345-6"), Some(there));
        assert_eq!(owner("ringfence-12-345-6-server"), Some(there));
        assert_eq!(owner(&there.name()), Some(there));
        assert_eq!(owner("ringfence-12-345"), None);
        assert_eq!(owner("ringfence-"), None);
        assert_eq!(owner("docker-1-2"), None);
        let name = subtree_name().unwrap();
        let ours = owner(&name).unwrap();
        assert_eq!((start_ticks(ours.pid), ours.namespace), (Some(ours.start), pid_namespace().unwrap()));
    }
}
