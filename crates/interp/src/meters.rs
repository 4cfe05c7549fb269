//! What the kernel counts of a cell, read from descriptors that the keeper handed over.

use std::os::fd::OwnedFd;

use ringfence_frame::keeper::Meters;

/// The meter files of one cell; each is there only where its cgroup is.
#[derive(Debug, Default)]
pub(crate) struct MeterFiles {
    cpu: Option<OwnedFd>,
    memory_peak: Option<OwnedFd>,
    memory_events: Option<OwnedFd>,
    process_events: Option<OwnedFd>,
}

/// Counters at one moment. They only grow; what a call did is the difference.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reading {
    pub(crate) cpu_us: Option<u64>,
    pub(crate) oom_kills: u64,
    pub(crate) forks_refused: u64,
}

/// A meter holds a few lines; the longest (v2's `cpu.stat`) is well below this.
const METER_BYTES: usize = 1024;

impl MeterFiles {
    /// Sorts the descriptors by the bits that say which they are; `None` when their number does not match.
    pub(crate) fn new(bits: Meters, files: Vec<OwnedFd>) -> Option<Self> {
        let mut meters = MeterFiles::default();
        let mut files = files.into_iter();
        for bit in (0..8).map(|shift| 1u8 << shift).filter(|bit| bits.0 & bit != 0) {
            let file = files.next()?;
            match bit {
                Meters::CPU => meters.cpu = Some(file),
                Meters::MEMORY_PEAK => meters.memory_peak = Some(file),
                Meters::MEMORY_EVENTS => meters.memory_events = Some(file),
                Meters::PROCESS_EVENTS => meters.process_events = Some(file),
                _ => drop(file),
            }
        }
        files.next().is_none().then_some(meters)
    }

    /// The counters now. A file that cannot be read counts nothing.
    pub(crate) fn read(&self) -> Reading {
        let value =
            |file: &Option<OwnedFd>, parse: fn(&str) -> Option<u64>| file.as_ref().and_then(|file| take(file, parse));
        Reading {
            cpu_us: self.cpu_us(),
            oom_kills: value(&self.memory_events, |text| field(text, "oom_kill")).unwrap_or(0),
            forks_refused: value(&self.process_events, |text| field(text, "max")).unwrap_or(0),
        }
    }

    /// Whether the kernel counts the CPU time.
    pub(crate) fn count_cpu(&self) -> bool {
        self.cpu.is_some()
    }

    /// CPU time used so far, microseconds.
    pub(crate) fn cpu_us(&self) -> Option<u64> {
        take(self.cpu.as_ref()?, cpu_us)
    }

    /// The cell's highest memory so far, bytes.
    pub(crate) fn memory_peak(&self) -> Option<u64> {
        take(self.memory_peak.as_ref()?, lone)
    }
}

impl Reading {
    /// CPU time from this reading until `after`, milliseconds, rounded up.
    pub(crate) fn cpu_ms_until(&self, after: Option<u64>) -> Option<u64> {
        Some(after?.saturating_sub(self.cpu_us?).div_ceil(1000))
    }
}

fn take(file: &OwnedFd, parse: fn(&str) -> Option<u64>) -> Option<u64> {
    let mut buffer = [0u8; METER_BYTES];
    let length = rustix::io::pread(file, &mut buffer, 0).ok()?;
    parse(std::str::from_utf8(buffer.get(..length)?).ok()?)
}

fn lone(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// `key value` on a line of its own.
fn field(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')).and_then(lone)
}

/// v1's `cpuacct.usage` is one number of nanoseconds, v2's `cpu.stat` has `usage_usec`.
fn cpu_us(text: &str) -> Option<u64> {
    field(text, "usage_usec").or_else(|| lone(text).map(|ns| ns / 1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(content: &str) -> OwnedFd {
        let fd = rustix::fs::memfd_create("meter", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(fd);
        file.write_all(content.as_bytes()).unwrap();
        file.into()
    }

    #[test]
    fn both_generations_are_read() {
        assert_eq!(cpu_us("1234567\n"), Some(1234));
        assert_eq!(cpu_us("usage_usec 42\nuser_usec 40\nsystem_usec 2\n"), Some(42));
        let v1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        let v2 = "low 0\nhigh 0\nmax 7\noom 1\noom_kill 3\noom_group_kill 0\n";
        assert_eq!((field(v1, "oom_kill"), field(v2, "oom_kill")), (Some(3), Some(3)));
        assert_eq!(field("max 5\n", "max"), Some(5));
        assert_eq!((lone("rubbish"), field("", "max")), (None, None));
    }

    #[test]
    fn files_are_matched_to_their_bits() {
        let bits = Meters(Meters::CPU | Meters::MEMORY_EVENTS | Meters::PROCESS_COUNT);
        let files = vec![file("5000"), file("oom_kill 2\n"), file("9")];
        let meters = MeterFiles::new(bits, files).unwrap();
        let reading = meters.read();
        assert_eq!((reading.cpu_us, reading.oom_kills, reading.forks_refused), (Some(5), 2, 0));
        assert_eq!(meters.memory_peak(), None);
        assert!(MeterFiles::new(bits, vec![file("1")]).is_none());
        assert!(MeterFiles::new(Meters(0), vec![file("1")]).is_none());
    }
}
