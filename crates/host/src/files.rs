//! The kernel's files.

use std::fs::File;
use std::io::Read;

use crate::limits::{COVERED_MAX, FILE_BYTES_MAX};

/// The file's text without blanks around it; `None` where it cannot be read.
pub(crate) fn text(path: &str) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned())
}

/// The number that the file holds.
pub(crate) fn number(path: &str) -> Option<u64> {
    text(path)?.parse().ok()
}

/// Parts of `/proc` that something is mounted over.
pub(crate) fn proc_covered() -> Vec<String> {
    covered_in(&text("/proc/self/mountinfo").unwrap_or_default())
}

/// From `proc(5)`'s mountinfo: the fifth field is where.
fn covered_in(mountinfo: &str) -> Vec<String> {
    // Hosts mount this one themselves, on a folder that is there for nothing else.
    const OF_THE_HOST: &str = "/proc/sys/fs/binfmt_misc";
    let places = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    let covered = places.filter(|place| place.starts_with("/proc/") && *place != OF_THE_HOST);
    covered.map(str::to_owned).take(COVERED_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_covers_proc_is_found() {
        let mounts = "22 1 0:20 / /proc rw - proc proc rw\n\
                      23 22 0:21 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n\
                      24 22 0:22 /null /proc/kcore rw - tmpfs tmpfs rw\n\
                      25 1 0:23 / /process rw - tmpfs tmpfs rw\n";
        assert_eq!(covered_in(mounts), ["/proc/kcore"]);
    }
}
