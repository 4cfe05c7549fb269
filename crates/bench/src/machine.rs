//! What the machine's memory is, before and after.

use std::fs;

/// Memory in use on the whole machine (`MemTotal` less `MemAvailable`), bytes; `None` where it cannot be read.
pub(crate) fn memory_used_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    Some((field("MemTotal:")?.checked_sub(field("MemAvailable:")?)?) * 1024)
}
