//! What it costs to ask which files a call changed: nothing written, one file written, many files.
//!
//! `cargo run --release -p ringfence-workspace --example changes_gate [folder]`
//!
//! The folder (by default the one for temporary files) says on which file system; a tmpfs is what cells have.

#![expect(clippy::print_stdout, reason = "its figures are what it is for")]

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ringfence_workspace::Workspace;

const ROUNDS: usize = 200;
const FILES_PER_FOLDER: usize = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let base = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, Into::into);
    println!("{:>8} {:>22} {:>22} {:>22}", "files", "nothing written us", "one written us", "no watches us");
    for files in [0, 1_000, 50_000] {
        let dir = tempfile::tempdir_in(&base)?;
        fill(dir.path(), files)?;
        let idle = measure(dir.path(), |_| Ok(()))?;
        let busy = measure(dir.path(), |at| Ok(fs::write(at.join("out.csv"), "1")?))?;
        // More folders than are watched: the fallback, a look at everything each time.
        for folder in 0..=ringfence_workspace::limits::WATCHED_FOLDERS_MAX {
            fs::create_dir(dir.path().join(format!("w{folder}")))?;
        }
        let blind = measure(dir.path(), |_| Ok(()))?;
        println!("{files:>8} {:>22} {:>22} {:>22}", shown(idle), shown(busy), shown(blind));
    }
    println!(
        "(median, 95th percentile of {ROUNDS}; the last column has {} empty folders more)",
        ringfence_workspace::limits::WATCHED_FOLDERS_MAX + 1
    );
    Ok(())
}

fn fill(dir: &Path, files: usize) -> Result<(), Box<dyn Error>> {
    for n in 0..files {
        let folder = dir.join(format!("d{}", n / FILES_PER_FOLDER));
        if n % FILES_PER_FOLDER == 0 {
            fs::create_dir(&folder)?;
        }
        fs::write(folder.join(format!("f{n}")), "x")?;
    }
    Ok(())
}

/// Median and 95th percentile of the time that the question takes after `call`.
fn measure(
    dir: &Path,
    call: impl Fn(&Path) -> Result<(), Box<dyn Error>>,
) -> Result<(Duration, Duration), Box<dyn Error>> {
    let workspace = Workspace::new(fs::File::open(dir)?.into(), rustix::process::geteuid().as_raw(), 1 << 20);
    let mut taken = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        call(dir)?;
        let begun = Instant::now();
        let changed = workspace.changed_since_last(50);
        taken.push(begun.elapsed());
        drop(changed);
    }
    taken.sort_unstable();
    let at = |share: usize| taken.get(ROUNDS * share / 100).copied().unwrap_or_default();
    Ok((at(50), at(95)))
}

fn shown((median, high): (Duration, Duration)) -> String {
    format!("{:.1}, {:.1}", median.as_secs_f64() * 1e6, high.as_secs_f64() * 1e6)
}
