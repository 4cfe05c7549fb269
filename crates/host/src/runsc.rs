//! gVisor's program.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::Serialize;

use crate::limits::{RUNSC_BYTES_MAX, RUNSC_WAIT_MAX};

/// What is known of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Runsc {
    /// Where it is.
    pub path: PathBuf,
    /// Its version, in its own words; `None` where it was not asked, or did not say.
    pub version: Option<String>,
    /// The platforms that it can run sandboxes on, in its own words; `None` likewise.
    pub platforms: Option<String>,
}

/// Looks for `runsc` in `PATH`, and asks it if wanted.
pub(crate) fn find(ask: bool) -> Option<Runsc> {
    let folders = std::env::var_os("PATH")?;
    let path = std::env::split_paths(&folders).map(|folder| folder.join("runsc")).find(|path| executable(path))?;
    let said = |word: &str| if ask { said(&path, word) } else { None };
    let version = said("--version").and_then(|text| version_in(&text));
    let platforms = said("flags").and_then(|text| platforms_in(&text));
    Some(Runsc { path, version, platforms })
}

fn executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

fn version_in(text: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix("runsc version ")).map(|version| version.trim().to_owned())
}

/// Of the line that describes the flag: `specifies which platform to use: ptrace (default), kvm.`
fn platforms_in(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("which platform to use: ")?;
    let list = rest.lines().next()?.split('.').next()?;
    Some(list.replace(" (default)", ""))
}

/// What it prints when started with that one word, both streams; `None` where it takes too long.
fn said(path: &Path, word: &str) -> Option<String> {
    let (read, write) = std::io::pipe().ok()?;
    let errors = write.try_clone().ok()?;
    let mut command = Command::new(path);
    let mut child = command.arg(word).stdin(Stdio::null()).stdout(write).stderr(errors).spawn().ok()?;
    drop(command);
    let begun = Instant::now();
    // Its output is small, and fits a pipe: it is read once the program has ended.
    while child.try_wait().ok()?.is_none() {
        if begun.elapsed() > RUNSC_WAIT_MAX {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let mut bytes = Vec::new();
    read.take(RUNSC_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_words_are_understood() {
        assert_eq!(version_in("runsc version release-2022.0\nspec: 1.0.2\n").as_deref(), Some("release-2022.0"));
        let flags =
            "  -platform value\n\tspecifies which platform to use: ptrace (default), kvm. (default \"ptrace\")\n  -x\n";
        assert_eq!(platforms_in(flags).as_deref(), Some("ptrace, kvm"));
        assert_eq!(platforms_in("nothing"), None);
    }
}
