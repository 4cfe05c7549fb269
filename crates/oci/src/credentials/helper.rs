//! Credential helpers: `docker-credential-NAME get`, the registry on its input, JSON on its output.

use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde::Deserialize;
use zeroize::Zeroizing;

use super::Login;
use crate::OciError;
use crate::error::shown;
use crate::limits::{HELPER_BYTES_MAX, HELPER_MAX, POLL};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: Zeroizing<String>,
}

/// What the helper of that name in PATH knows of this registry; `None` where it knows nothing.
pub(super) fn get(name: &str, registry: &str) -> Result<Option<Login>, OciError> {
    get_from(&std::env::var_os("PATH").unwrap_or_default(), name, registry)
}

fn get_from(path: &OsStr, name: &str, registry: &str) -> Result<Option<Login>, OciError> {
    let failed = |why: String| OciError::Helper {
        program: format!("docker-credential-{}", shown(name.as_bytes())),
        host: registry.to_owned(),
        why,
    };
    // The name is part of a file name that is looked for in PATH: it must not lead elsewhere.
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) {
        return Err(failed("its name is not well formed".to_owned()));
    }
    let program =
        in_path(path, &format!("docker-credential-{name}")).ok_or_else(|| failed("it is not in PATH".to_owned()))?;
    let mut child = Command::new(program)
        .arg("get")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| failed(format!("it cannot be started: {error}")))?;
    let answered = converse(&mut child, registry);
    if answered.is_err() {
        // With what it has started: that may hold its output open. All may have ended by themselves meanwhile.
        let group = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let _ = group.map(|group| rustix::process::kill_process_group(group, rustix::process::Signal::KILL));
        let _ = child.wait();
    }
    let (status, output) = answered.map_err(&failed)?;
    if !status {
        // How helpers say that they have nothing, on their output (docker-credential-helpers).
        let text = String::from_utf8_lossy(&output).to_lowercase();
        if text.contains("credentials not found") {
            return Ok(None);
        }
        return Err(failed("it ended with an error".to_owned()));
    }
    let answer: Answer =
        serde_json::from_slice(&output).map_err(|_| failed("its answer is not understood".to_owned()))?;
    Ok(Some(match answer.username.as_str() {
        "<token>" => Login::Identity(answer.secret),
        _ => Login::Password { user: answer.username, secret: answer.secret },
    }))
}

/// An absolute path, so that no folder that programs are started in counts.
fn in_path(path: &OsStr, program: &str) -> Option<PathBuf> {
    std::env::split_paths(path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Asks, and waits for the end; whether it went well, and what it printed.
fn converse(child: &mut Child, registry: &str) -> Result<(bool, Zeroizing<Vec<u8>>), String> {
    let deadline = Instant::now() + HELPER_MAX;
    let mut stdin = child.stdin.take().ok_or("it has no input")?;
    match stdin.write_all(registry.as_bytes()) {
        // It may answer without reading.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(format!("it cannot be asked: {error}")),
        _ => drop(stdin),
    }
    let stdout = child.stdout.take().ok_or("it has no output")?;
    // Read apart, since a helper may neither end nor close its output.
    let reader = std::thread::Builder::new().name("credential-helper".to_owned()).spawn(move || {
        let mut output = Zeroizing::new(Vec::new());
        stdout.take(HELPER_BYTES_MAX + 1).read_to_end(&mut output).map(|_| output)
    });
    let reader = reader.map_err(|error| format!("its output cannot be read: {error}"))?;
    loop {
        let ended = child.try_wait().map_err(|error| format!("it cannot be waited for: {error}"))?;
        if let (Some(status), true) = (ended, reader.is_finished()) {
            let output = reader.join().map_err(|_| "its output cannot be read")?;
            let output = output.map_err(|error| format!("its output cannot be read: {error}"))?;
            if output.len() as u64 > HELPER_BYTES_MAX {
                return Err(format!("it printed more than {HELPER_BYTES_MAX} bytes"));
            }
            return Ok((status.success(), output));
        }
        if Instant::now() >= deadline {
            return Err(format!("it took longer than {} s", HELPER_MAX.as_secs()));
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// What a helper of that script answers.
    fn asked(script: &str) -> Result<Option<Login>, OciError> {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("docker-credential-mine");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        get_from(folder.path().as_os_str(), "mine", "r.example")
    }

    #[test]
    fn a_helper_is_asked_and_understood() {
        let given = asked(r#"read host; echo "{\"ServerURL\": \"x\", \"Username\": \"$1 $host\", \"Secret\": \"s\"}""#);
        assert!(
            matches!(given.unwrap(), Some(Login::Password { user, secret }) if user == "get r.example" && *secret == "s")
        );
        let token = asked(r#"echo '{"Username": "<token>", "Secret": "t"}'"#);
        assert!(matches!(token.unwrap(), Some(Login::Identity(secret)) if *secret == "t"));
        let unknown = asked("echo credentials not found in native keychain; exit 1");
        assert!(unknown.unwrap().is_none());
    }

    #[test]
    fn a_helper_that_fails_is_told_without_its_words() {
        let flood = format!("exec head -c {} /dev/zero", HELPER_BYTES_MAX + 1);
        for script in ["echo geheim; exit 3", "echo geheim", "kill -9 $$", flood.as_str()] {
            let Err(error) = asked(script) else { panic!("believed: {script}") };
            assert!(!format!("{error} {error:?}").contains("geheim"), "{error}");
        }
        for name in ["", "../x", "a/b", "a b", "a;b", "missing"] {
            assert!(get_from(OsStr::new("/usr/bin"), name, "r.example").is_err(), "{name}");
        }
    }
}
