//! What is left behind, as the kernel tells it.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long something that is on its way out may take.
const SETTLE_MAX: Duration = Duration::from_secs(30);
/// How often it is looked at.
const POLL: Duration = Duration::from_millis(10);

/// What one server holds of the machine beyond its own process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footprint {
    /// Processes below the server, by name.
    pub processes: Vec<String>,
    /// Mounts in the machine's own mount namespace that name `ringfence`.
    pub mounts: Vec<String>,
    /// How many cgroup folders it has; those of cells come and go under new names.
    pub cgroups: usize,
}

impl Footprint {
    /// Of the server with this process id.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let pids = descendants(pid);
        let mut processes: Vec<_> = pids.iter().copied().filter_map(name_of).collect();
        processes.sort();
        Footprint { processes, mounts: mounts(), cgroups: cgroups_of(&pids).len() }
    }
}

/// Waits until `look` answers; `None` in the end panics with what was waited for.
///
/// # Panics
/// When it does not come true in time.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < SETTLE_MAX, "not within {SETTLE_MAX:?}: {what}");
        std::thread::sleep(POLL);
    }
}

/// The processes below a process, in whatever pid namespace: children first, then theirs.
#[must_use]
pub fn descendants(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, parent_of(pid)?)))
        .collect();
    let mut found = vec![root];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.remove(0);
    found
}

/// How many descriptors a process holds.
#[must_use]
pub fn daemon_descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; the state and the parent follow the last one.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

fn name_of(pid: u32) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned())
}

/// The mounts of the machine's own mount namespace that name `ringfence`.
#[must_use]
pub fn mounts() -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let is_ours = |line: &&str| line.split(' ').nth(4).is_some_and(|target| target.contains("ringfence"));
    table.lines().filter(is_ours).map(str::to_owned).collect()
}

/// Every cgroup folder in any hierarchy that is, or lies in, one that a keeper with one of these process ids made:
/// `ringfence-PID-STARTTIME`. Other servers may run on the machine meanwhile.
#[must_use]
pub fn cgroups_of(keepers: &[u32]) -> BTreeSet<PathBuf> {
    let is_theirs = |name: &str| {
        let owner = name.strip_prefix("ringfence-").and_then(|rest| rest.split('-').next()?.parse().ok());
        owner.is_some_and(|pid: u32| keepers.contains(&pid))
    };
    let mut found = BTreeSet::new();
    let mut waiting = vec![(PathBuf::from("/sys/fs/cgroup"), false)];
    while let Some((folder, inside)) = waiting.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let theirs = inside || is_theirs(&entry.file_name().to_string_lossy());
                if theirs {
                    found.insert(entry.path());
                }
                waiting.push((entry.path(), theirs));
            }
        }
    }
    found
}
