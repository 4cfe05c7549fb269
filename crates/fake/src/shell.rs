//! The few shell commands that the fake knows.

use crate::programs::{End, Run, finish, statements};
use crate::workspace::{Disk, ROOT, is_inside, relative};

/// Runs commands that are divided by newlines or semicolons.
pub(crate) fn run(command: &str, timeout: u64, disk: &mut Disk) -> Run {
    let mut run = Run::default();
    for command in statements(command) {
        if let Err(end) = take(command.trim(), timeout, &mut run, disk) {
            finish(&mut run, end);
            break;
        }
    }
    run
}

fn take(command: &str, timeout: u64, run: &mut Run, disk: &mut Disk) -> Result<(), End> {
    run.return_code = 0;
    let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
    match name {
        "" | "true" => Ok(()),
        "exit" => Err(End::Exit(rest.parse().unwrap_or(2))),
        "sleep" if rest.parse().unwrap_or(0) > timeout => Err(End::Timeout),
        "sleep" => Ok(()),
        "echo" => {
            echo(rest, run, disk);
            Ok(())
        }
        "pwd" => {
            run.stdout.push_str(&format!("{ROOT}\n"));
            Ok(())
        }
        "cat" => {
            let file = disk.resolve(rest).and_then(|absolute| disk.file(&absolute));
            match file {
                Some(file) => run.stdout.push_str(&String::from_utf8_lossy(&file.content)),
                None => fail(run, 1, &format!("cat: {rest}: No such file or directory")),
            }
            Ok(())
        }
        _ => {
            fail(run, 127, &format!("bash: {name}: command not found"));
            Ok(())
        }
    }
}

fn echo(rest: &str, run: &mut Run, disk: &mut Disk) {
    let plain = |text: &str| format!("{}\n", text.trim().trim_matches('\''));
    if let Some(text) = rest.strip_suffix(" >&2") {
        run.stderr.push_str(&plain(text));
    } else if let Some((text, path)) = rest.split_once(" > ") {
        let Some(absolute) = disk.resolve(path) else { return fail(run, 1, "bash: a loop of links") };
        if is_inside(&absolute) {
            run.produced.push(relative(&absolute).to_owned());
        }
        disk.write(&absolute, plain(text).into_bytes());
    } else {
        run.stdout.push_str(&plain(rest));
    }
}

fn fail(run: &mut Run, code: i64, line: &str) {
    run.return_code = code;
    run.stderr.push_str(&format!("{line}\n"));
}
