//! Whether `runsc` can hold sandboxes here: one is started as for sessions, and ends.

use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;

use super::bundle;
use crate::limits::{DETAIL_BYTES_MAX, SANDBOX_TRIAL_WAIT_MAX};

/// Pause between two looks at whether it has ended.
const PAUSE: Duration = Duration::from_millis(5);

/// Runs `program --version` in a sandbox whose root is the machine's, read-only.
///
/// # Errors
/// What `runsc` says last, or what is in the way of starting it.
pub fn try_sandbox(runsc: &Path, program: &Path) -> Result<(), String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let folder = std::env::temp_dir().join(format!("ringfence-trial-{}-{now}", std::process::id()));
    let mut new = DirBuilder::new();
    new.mode(0o700);
    new.create(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let result = try_in(&folder, runsc, program);
    // Nobody else can have put anything into it; should a file of it stay, it is of a few bytes.
    let _ = fs::remove_dir_all(&folder);
    result
}

fn try_in(folder: &Path, runsc: &Path, program: &Path) -> Result<(), String> {
    let (mut child, mut said) = start(folder, runsc, program).map_err(|error| error.to_string())?;
    let deadline = Instant::now() + SANDBOX_TRIAL_WAIT_MAX;
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            _ => break None,
        }
    };
    let Some(status) = ended else {
        end(&mut child);
        return Err(format!("its sandbox did not end within {} seconds", SANDBOX_TRIAL_WAIT_MAX.as_secs()));
    };
    if status.success() {
        return Ok(());
    }
    end(&mut child);
    let mut text = Vec::new();
    // What it said fits a pipe. Nothing more is waited for: what it left running may have left its group, and hold the pipe.
    rustix::io::ioctl_fionbio(&said, true).map_err(|error| error.to_string())?;
    let _ = said.by_ref().take(DETAIL_BYTES_MAX as u64).read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    Err(text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it failed without a word").trim().to_owned())
}

fn start(folder: &Path, runsc: &Path, program: &Path) -> io::Result<(Child, io::PipeReader)> {
    fs::create_dir(folder.join("state"))?;
    let program = fs::canonicalize(program)?;
    let config = json!({
        "ociVersion": "1.0.0",
        "process": {
            "user": { "uid": 0, "gid": 0 },
            "args": [program, "--version"],
            "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
            "cwd": "/",
            "noNewPrivileges": true,
        },
        "root": { "path": "/", "readonly": true },
        "mounts": [{ "destination": "/proc", "type": "proc", "source": "proc" }],
        "linux": { "namespaces": [{ "type": "pid" }, { "type": "network" }, { "type": "mount" }] },
    });
    fs::write(folder.join("config.json"), config.to_string())?;
    let (said, errors) = io::pipe()?;
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let arguments: Vec<PathBuf> = bundle::arguments(folder, &name);
    let mut command = Command::new(runsc);
    command.args(arguments.iter().skip(1)).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    // A group of its own, to be ended together.
    let child = command.process_group(0).spawn()?;
    Ok((child, said))
}

fn end(child: &mut Child) {
    let group = rustix::process::Pid::from_child(child);
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_outlives_runsc_outside_its_group_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (text, runsc) = (folder.path().join("text"), folder.path().join("runsc"));
        let script = "#!/bin/sh\n\
                      setsid sh -c 'echo $$ > \"$0.pid\"; sleep 47; : > \"$0.ended\"' \"$0\" &\n\
                      until [ -s \"$0.pid\" ]; do :; done\n\
                      echo 'runsc: foo failed' >&2\n\
                      exit 1\n";
        fs::write(&text, script).unwrap();
        // By another program: one that this process has open for writing could not be started.
        let installed = Command::new("install").args(["-m", "755"]).args([&text, &runsc]).status().unwrap();
        assert!(installed.success());
        let new = folder.path().join("trial");
        fs::create_dir(&new).unwrap();
        assert_eq!(try_in(&new, &runsc, Path::new("/bin/sh")), Err("runsc: foo failed".to_owned()));
        assert!(!folder.path().join("runsc.ended").exists(), "it was waited for");
        let pid = fs::read_to_string(folder.path().join("runsc.pid")).unwrap().trim().parse().unwrap();
        let group = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    }
}
