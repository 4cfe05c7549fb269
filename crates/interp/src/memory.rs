//! Whether the machine, or the control group that we are in, is short of memory.
//!
//! Looked at before a cell is leased or made: a refusal that can be repeated is better than a kill by the kernel, which
//! may take any session. The files are opened once, at the start.
//!
//! The kernel's memory pressure is not looked at: it counts whoever waits at a limit of his own as well, so that one
//! session that fills its memory would close the door to all.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use crate::limits::{MEMORY_FILE_BYTES_MAX, MEMORY_GROUPS_MAX, MEMORY_LOOK_AGE_MAX};
use crate::pipes::lock;

/// What is looked at, and the last look.
#[derive(Debug)]
pub struct Memory {
    reserve_bytes: u64,
    machine: Option<File>,
    groups: Vec<Group>,
    last: Mutex<Option<(Instant, bool)>>,
}

/// One control group with a limit.
#[derive(Debug)]
struct Group {
    limit: File,
    usage: File,
    stat: Option<File>,
}

impl Memory {
    /// Opens what is to be looked at. `reserve_bytes` are to stay free; 0 looks at nothing. What cannot be opened is not
    /// looked at.
    #[must_use]
    pub fn new(reserve_bytes: u64) -> Self {
        let groups = std::fs::read_to_string("/proc/self/cgroup").map(|text| groups(&text)).unwrap_or_default();
        Memory {
            reserve_bytes,
            machine: File::open("/proc/meminfo").ok(),
            groups: groups.iter().filter_map(|(folder, names)| Group::open(folder, names)).collect(),
            last: Mutex::new(None),
        }
    }

    /// Whether less than the reserve is free. A look that is younger than [`MEMORY_LOOK_AGE_MAX`] counts.
    pub(crate) fn is_short(&self) -> bool {
        if self.reserve_bytes == 0 {
            return false;
        }
        let mut last = lock(&self.last);
        match *last {
            Some((at, short)) if at.elapsed() < MEMORY_LOOK_AGE_MAX => short,
            _ => {
                let short = self.look();
                *last = Some((Instant::now(), short));
                short
            }
        }
    }

    fn look(&self) -> bool {
        let machine = self.machine.as_ref().and_then(|file| machine_free(&text(file)?));
        let free = self.groups.iter().filter_map(Group::free).chain(machine).min();
        free.is_some_and(|free| free < self.reserve_bytes)
    }
}

impl Group {
    fn open(folder: &Path, names: &Names) -> Option<Self> {
        let open = |name: &str| File::open(folder.join(name)).ok();
        Some(Group { limit: open(names.limit)?, usage: open(names.usage)?, stat: open("memory.stat") })
    }

    /// Bytes that the group may still take; `None` where it has no limit. Pages of files that nobody uses go first.
    fn free(&self) -> Option<u64> {
        // v2 says `max`, v1 a number beyond every memory.
        let limit: u64 = text(&self.limit)?.trim().parse().ok()?;
        let usage: u64 = text(&self.usage)?.trim().parse().ok()?;
        let stat = self.stat.as_ref().and_then(text).unwrap_or_default();
        let files = field(&stat, "total_inactive_file ").or_else(|| field(&stat, "inactive_file ")).unwrap_or(0);
        Some(limit.saturating_sub(usage.saturating_sub(files)))
    }
}

/// How a generation of control groups names its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Names {
    limit: &'static str,
    usage: &'static str,
}

const V1: Names = Names { limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes" };
const V2: Names = Names { limit: "memory.max", usage: "memory.current" };

/// The folders of the group that `/proc/self/cgroup` names, and of those above it, innermost first.
fn groups(text: &str) -> Vec<(PathBuf, Names)> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, names) = match controllers {
            "" => ("/sys/fs/cgroup", V2),
            _ if controllers.split(',').any(|controller| controller == "memory") => ("/sys/fs/cgroup/memory", V1),
            _ => continue,
        };
        let inner = Path::new(path.trim_start_matches('/'));
        found.extend(inner.ancestors().take(MEMORY_GROUPS_MAX).map(|inner| (Path::new(root).join(inner), names)));
    }
    found
}

fn text(file: &File) -> Option<String> {
    let mut buffer = vec![0; MEMORY_FILE_BYTES_MAX];
    let length = rustix::io::pread(file, &mut buffer, 0).ok()?;
    buffer.truncate(length);
    String::from_utf8(buffer).ok()
}

/// The number behind `name` at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

/// `MemAvailable` of `/proc/meminfo`, which is in KiB.
fn machine_free(text: &str) -> Option<u64> {
    field(text, "MemAvailable:").map(|kib| kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_the_kernel_says_is_read() {
        let meminfo = "MemTotal:       24736172 kB\nMemFree:  100 kB\nMemAvailable:    1024 kB\n";
        assert_eq!(machine_free(meminfo), Some(1 << 20));
        assert_eq!(machine_free("rubbish"), None);
    }

    #[test]
    fn a_group_and_those_above_it_are_found() {
        let folder = |path: &str| PathBuf::from(path);
        assert_eq!(
            groups("5:memory:/a/b\n3:cpu,cpuacct:/x\n0::/c\nrubbish\n"),
            [
                (folder("/sys/fs/cgroup/memory/a/b"), V1),
                (folder("/sys/fs/cgroup/memory/a"), V1),
                (folder("/sys/fs/cgroup/memory/"), V1),
                (folder("/sys/fs/cgroup/c"), V2),
                (folder("/sys/fs/cgroup/"), V2),
            ]
        );
    }

    #[test]
    fn files_that_nobody_uses_count_as_free() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("memory.max", "1000\n");
        write("memory.current", "900\n");
        write("memory.stat", "anon 500\ninactive_file 300\n");
        let free = || Group::open(folder.path(), &V2).unwrap().free();
        assert_eq!(free(), Some(400));
        write("memory.max", "max\n");
        assert_eq!(free(), None);
        assert!(Group::open(folder.path(), &V1).is_none());
    }

    #[test]
    fn short_is_less_than_the_reserve() {
        assert!(Memory::new(u64::MAX).is_short(), "no machine has as much");
        assert!(!Memory::new(0).is_short(), "0 looks at nothing");
    }
}
