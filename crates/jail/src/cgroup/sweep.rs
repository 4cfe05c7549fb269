//! Removing subtrees: our own at the end, those of dead keepers at the start. Groups with processes in them are never
//! removed, for the kernel refuses; nothing is killed here.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;

use super::discover;
use crate::limits::{CGROUP_REMOVE_PAUSE, CGROUP_REMOVE_TRIES_MAX, SWEEP_DEPTH_MAX, SWEEP_FOLDERS_MAX};

const PREFIX: &str = "ringfence-";

/// The name of the subtree of the process that calls.
pub(crate) fn subtree_name() -> std::io::Result<String> {
    let pid = std::process::id();
    let start = start_ticks(pid).ok_or(std::io::ErrorKind::NotFound)?;
    Ok(format!("{PREFIX}{pid}-{start}"))
}

/// Removes the subtrees of keepers that are no more, in all hierarchies.
pub(crate) fn sweep() {
    let Ok(mountinfo) = fs::read_to_string("/proc/self/mountinfo") else { return };
    let mut budget = SWEEP_FOLDERS_MAX;
    for mount in discover::mounts(&mountinfo) {
        walk(&mount.point, SWEEP_DEPTH_MAX, &mut budget, &|pid, start| start_ticks(pid) == Some(start));
    }
}

fn walk(folder: &Path, depth: usize, budget: &mut usize, alive: &dyn Fn(u32, u64) -> bool) {
    for child in folders(folder) {
        if *budget == 0 || depth == 0 {
            return;
        }
        *budget -= 1;
        match child.file_name().and_then(|name| name.to_str()).and_then(owner) {
            Some((pid, start)) if alive(pid, start) => {}
            Some(_) => {
                remove_once(&child);
            }
            None => walk(&child, depth - 1, budget, alive),
        }
    }
}

/// Whose subtree this is: process id and start time of its outer process.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
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
        for folder in ["a/ringfence-5-6/cell-1", "a/b/ringfence-7-8/keeper", "ringfence-x", "other/keeper"] {
            fs::create_dir_all(tree.path().join(folder)).unwrap();
        }
        walk(tree.path(), SWEEP_DEPTH_MAX, &mut 1000, &|pid, start| (pid, start) == (7, 8));
        assert!(!tree.path().join("a/ringfence-5-6").exists());
        assert!(tree.path().join("a/b/ringfence-7-8/keeper").exists());
        assert!(tree.path().join("ringfence-x").exists());
        assert!(tree.path().join("other/keeper").exists());
    }

    #[test]
    fn names_say_whose_they_are() {
        assert_eq!(owner("ringfence-12-345"), Some((12, 345)));
        assert_eq!(owner("ringfence-12-345-server"), Some((12, 345)));
        assert_eq!(owner("ringfence-"), None);
        assert_eq!(owner("docker-1-2"), None);
        let name = subtree_name().unwrap();
        let (pid, start) = owner(&name).unwrap();
        assert_eq!(start_ticks(pid), Some(start));
    }
}
