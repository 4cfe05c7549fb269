//! The soak: leases and calls in great numbers, and whether anything grows meanwhile.
//!
//! What grows is looked at on the whole machine, since any backend may be measured: its memory, its processes and its
//! open files, after the first tenth and at the end. So it tells something only where nothing else runs.

use std::fs;
use std::time::{Duration, Instant};

use ringfence_probe::Address;

use crate::BenchError;
use crate::backend::Backend;
use crate::machine::memory_used_bytes;
use crate::report::Figure;
use crate::work::Effort;

/// What is counted of the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sample {
    memory_bytes: u64,
    processes: u64,
    open_files: u64,
}

impl Sample {
    fn take() -> Result<Self, BenchError> {
        let unknown = BenchError::Answer("this machine does not tell its memory, processes and open files");
        let memory_bytes = memory_used_bytes();
        let entries = fs::read_dir("/proc").ok();
        let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
        let processes = entries.map(|entries| {
            entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_process)).count() as u64
        });
        let files = fs::read_to_string("/proc/sys/fs/file-nr").ok();
        let open_files = files.and_then(|text| text.split_whitespace().next()?.parse().ok());
        match (memory_bytes, processes, open_files) {
            (Some(memory_bytes), Some(processes), Some(open_files)) => {
                Ok(Sample { memory_bytes, processes, open_files })
            }
            _ => Err(unknown),
        }
    }

    /// The growth until `later`: MiB, processes, open files.
    fn until(self, later: Sample) -> (f64, i64, i64) {
        let grown = |before: u64, after: u64| after.cast_signed().saturating_sub(before.cast_signed());
        (
            grown(self.memory_bytes, later.memory_bytes) as f64 / f64::from(1 << 20),
            grown(self.processes, later.processes),
            grown(self.open_files, later.open_files),
        )
    }
}

/// Leases sessions one after another and runs calls in each, until both numbers or the time are reached.
pub(crate) fn soak(address: &Address, effort: &Effort) -> Result<Figure, BenchError> {
    let (leases, execs) = (effort.soak.leases.max(1), effort.soak.execs.max(1));
    let begun = Instant::now();
    let over = |done: u64| {
        done >= leases || effort.soak.seconds > 0 && begun.elapsed() >= Duration::from_secs(effort.soak.seconds)
    };
    let mut backend = Backend::new(address);
    let (mut leased, mut ran, mut first) = (0u64, 0u64, None);
    while !over(leased) {
        let session = backend.lease()?;
        leased += 1;
        // So many by now that both numbers are reached together.
        let due = (u128::from(execs) * u128::from(leased) / u128::from(leases)) as u64;
        let outcome = (ran..due).try_for_each(|number| one(&mut backend, &session, number));
        let released = backend.destroy(&session);
        outcome?;
        released?;
        ran = due;
        if first.is_none() && leased >= leases.div_ceil(10) {
            first = Some(settled(&mut backend)?);
        }
    }
    let last = settled(&mut backend)?;
    let (memory_mib, processes, open_files) = first.unwrap_or(last).until(last);
    Ok(Figure::Soak {
        execs: ran,
        leases: leased,
        seconds: begun.elapsed().as_secs(),
        memory_mib,
        processes,
        open_files,
    })
}

/// A call of one of several kinds, whose answer is known.
fn one(backend: &mut Backend, session: &str, number: u64) -> Result<(), BenchError> {
    match number % 20 {
        3 => backend.bash(session, "echo soaked", "soaked"),
        7 => backend.put(session, "soak.txt", b"soaked\n"),
        11 => backend.python(session, "_ = open('soaked.txt', 'w').write('x')\nprint('written')", "written"),
        13 => backend.python(session, "x = 'y' * 1_000_000\nprint(len(x))", "1000000"),
        _ => backend.python(session, &format!("print({number})"), &number.to_string()),
    }
}

/// A sample once what goes on behind the last answers is over: two that agree, or the last of many.
fn settled(backend: &mut Backend) -> Result<Sample, BenchError> {
    const LOOKS_MAX: usize = 50;
    const PAUSE: Duration = Duration::from_millis(100);
    let mut before = Sample::take()?;
    for _ in 0..LOOKS_MAX {
        std::thread::sleep(PAUSE);
        backend.health()?;
        let now = Sample::take()?;
        if (now.processes, now.open_files) == (before.processes, before.open_files) {
            return Ok(now);
        }
        before = now;
    }
    Ok(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_told_with_its_sign() {
        let before = Sample { memory_bytes: 3 << 20, processes: 10, open_files: 100 };
        let after = Sample { memory_bytes: 2 << 20, processes: 12, open_files: 90 };
        assert_eq!(before.until(after), (-1.0, 2, -10));
    }

    #[test]
    fn this_machine_tells_what_is_counted() {
        let sample = Sample::take().unwrap();
        assert!(sample.memory_bytes > 0 && sample.processes > 0 && sample.open_files > 0, "{sample:?}");
    }
}
