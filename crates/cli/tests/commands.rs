//! `run`, `exec`, `session` and `files`, from outside, against a backend in memory.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ringfence_fake::{Fake, RawServer, Rules};
use serde_json::Value;

/// The program in a folder of its own, with a text on its standard input.
async fn ringfence(folder: &Path, url: &str, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    command.args(arguments).env("RINGFENCE_URL", url).env_remove("RINGFENCE_TOKEN").env_remove("RINGFENCE_TOKEN_FILE");
    command.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let input = input.to_owned();
    let work = move || {
        let mut child = command.spawn().unwrap();
        // A program that does not read it may have ended already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    };
    tokio::task::spawn_blocking(work).await.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The id of a session that is leased.
async fn lease(folder: &Path, url: &str) -> String {
    let handle = json(&ringfence(folder, url, &["session", "create", "--json"], "").await);
    handle.get("session_id").unwrap().as_str().unwrap().to_owned()
}

async fn start() -> (Fake, tempfile::TempDir) {
    (Fake::start(Rules::default()).await.unwrap(), tempfile::tempdir().unwrap())
}

#[tokio::test]
async fn run_carries_inputs_in_and_outputs_out() {
    let (fake, folder) = start().await;
    let at = folder.path();
    std::fs::write(at.join("in.csv"), "a,b\n").unwrap();
    let program =
        "print(open('in.csv').read(), end='')\nopen('sub/out.txt', 'w').write(open('deep/copy.csv').read())\n";
    std::fs::write(at.join("program.py"), program).unwrap();
    let arguments = ["run", "program.py", "--input", "in.csv", "-i", "in.csv=deep/copy.csv", "--output-dir", "results"];
    let output = ringfence(at, fake.url(), &arguments, "").await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stdout), "a,b\n");
    assert_eq!(std::fs::read_to_string(at.join("results/sub/out.txt")).unwrap(), "a,b\n");
    let left: Vec<_> = std::fs::read_dir(at.join("results/sub")).unwrap().collect();
    assert_eq!(left.len(), 1, "no part of a transfer is left");
    assert_eq!(fake.sessions(), 0);
}

#[tokio::test]
async fn outputs_that_a_backend_does_not_name_are_found_in_its_listing() {
    let twist = |asked: &ringfence_fake::Asked, reply: ringfence_fake::Reply| {
        if !asked.is_exec() {
            return reply;
        }
        reply.changed(|envelope| envelope["result_block"]["content"]["content"] = serde_json::json!([]))
    };
    let rules = Rules { twist: Some(std::sync::Arc::new(twist)), ..Rules::default() };
    let fake = Fake::start(rules).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("in.txt"), "in").unwrap();
    let arguments = ["run", "-", "--input", "in.txt", "--output-dir", "out"];
    let output = ringfence(folder.path(), fake.url(), &arguments, "open('new.txt', 'w').write('new')").await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(std::fs::read_to_string(folder.path().join("out/new.txt")).unwrap(), "new");
    assert!(!folder.path().join("out/in.txt").exists(), "an input that did not change is not fetched");
}

#[tokio::test]
async fn run_ends_as_the_program_ended() {
    let (fake, folder) = start().await;
    for (program, arguments, code, err) in [
        ("sys.exit(7)", vec!["run", "-"], 7, ""),
        ("raise ValueError('no')", vec!["run", "-"], 1, "ValueError: no"),
        ("import time\ntime.sleep(50)", vec!["run", "-", "--timeout", "1"], 124, "time was up"),
        ("exit 3", vec!["run", "-", "--bash"], 3, ""),
        ("sys.exit(4000)", vec!["run", "-"], 1, ""),
    ] {
        let output = ringfence(folder.path(), fake.url(), &arguments, program).await;
        assert_eq!(output.status.code(), Some(code), "{program}: {output:?}");
        assert!(text(&output.stderr).contains(err), "{program}: {output:?}");
    }
    std::fs::write(folder.path().join("script.sh"), "echo from a shell; exit 2").unwrap();
    let output = ringfence(folder.path(), fake.url(), &["run", "script.sh", "--json"], "").await;
    assert_eq!(output.status.code(), Some(2));
    let done = json(&output);
    assert_eq!((&done["stdout"], &done["return_code"]), (&Value::from("from a shell\n"), &Value::from(2)));
    assert_eq!(fake.sessions(), 0, "every session is released");
}

#[tokio::test]
async fn what_cannot_be_run_is_told_apart_from_what_failed() {
    let (fake, folder) = start().await;
    for (url, arguments, part) in [
        ("http://127.0.0.1:1", vec!["run", "-"], "cannot connect to 127.0.0.1:1"),
        (fake.url(), vec!["run", "none.py"], "none.py"),
        (fake.url(), vec!["run", "-", "--input", "none.csv"], "none.csv"),
        (fake.url(), vec!["exec", "no-such-session", "pass"], "not found"),
        ("https://127.0.0.1:1", vec!["exec", "s", "pass"], "cannot connect to 127.0.0.1:1"),
    ] {
        let output = ringfence(folder.path(), url, &arguments, "pass").await;
        assert_eq!(output.status.code(), Some(125), "{arguments:?}: {output:?}");
        assert!(text(&output.stderr).contains(part), "{arguments:?}: {output:?}");
    }
    assert_eq!(fake.sessions(), 0, "a session whose upload failed is released");
}

#[tokio::test]
async fn files_that_a_hostile_backend_names_stay_in_their_folder() {
    let twist = |asked: &ringfence_fake::Asked, reply: ringfence_fake::Reply| {
        if !asked.is_exec() {
            return reply;
        }
        reply.changed(|envelope| {
            envelope["result_block"]["content"]["content"] =
                serde_json::json!([{"file_id": "1", "filename": "../planted"}]);
        })
    };
    let rules = Rules { twist: Some(std::sync::Arc::new(twist)), ..Rules::default() };
    let fake = Fake::start(rules).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let output = ringfence(folder.path(), fake.url(), &["run", "-", "--output-dir", "out"], "pass").await;
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(text(&output.stderr).contains("outside of the folder"), "{output:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(std::fs::read_dir(folder.path().join("out")).unwrap().count(), 0);
    assert_eq!(fake.sessions(), 0);
}

#[tokio::test]
async fn what_is_no_regular_file_is_not_replaced() {
    let (fake, folder) = start().await;
    let (at, url) = (folder.path(), fake.url());
    let id = text(&ringfence(at, url, &["session", "create"], "").await.stdout).trim().to_owned();
    ringfence(at, url, &["exec", &id, "open('f', 'w').write('new')"], "").await;
    std::fs::write(at.join("kept"), "old").unwrap();
    std::os::unix::fs::symlink("kept", at.join("link")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(at.join("socket")).unwrap();
    for local in ["link", "socket"] {
        let output = ringfence(at, url, &["files", "get", &id, "f", local], "").await;
        assert_eq!(output.status.code(), Some(1), "{local}: {output:?}");
        assert!(text(&output.stderr).contains("is no regular file"), "{local}: {output:?}");
    }
    drop(socket);
    // Nor is a link written through that lies where a transfer would begin.
    let sly = "ln -s kept .ringfence-$$-0.part; echo $$; exec \"$0\" files get \"$1\" f new";
    let mut command = Command::new("sh");
    command.args(["-c", sly, env!("CARGO_BIN_EXE_ringfence"), &id]).env("RINGFENCE_URL", url).current_dir(at);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    // It begins in another file: what one of the same process id has left does not stop it.
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(std::fs::read_to_string(at.join("new")).unwrap(), "new");
    let left = at.join(format!(".ringfence-{}-0.part", text(&output.stdout).trim()));
    assert!(left.symlink_metadata().unwrap().is_symlink());
    assert!(at.join("link").symlink_metadata().unwrap().is_symlink());
    assert_eq!(std::fs::read_to_string(at.join("kept")).unwrap(), "old");
    let long = "n".repeat(255);
    let output = ringfence(at, url, &["files", "get", &id, "f", &long], "").await;
    assert_eq!(output.status.code(), Some(0), "a name may be as long as names may be: {output:?}");
    let output = ringfence(at, url, &["files", "get", &id, "f", "kept"], "").await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(std::fs::read_to_string(at.join("kept")).unwrap(), "new");
}

#[test]
fn lost_output_is_no_success() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (fake, _folder) = runtime.block_on(start());
    for (arguments, code) in [(vec!["session", "create"], 1), (vec!["run", "/dev/stdin"], 125)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
        command.args(&arguments).env("RINGFENCE_URL", fake.url()).stderr(Stdio::piped()).stdin(Stdio::piped());
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut child = command.stdout(full).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"print(1)").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert_eq!(text(&output.stderr).matches("output is lost").count(), 1, "{arguments:?}: {output:?}");
    }
}

/// The program with the signals as they are at first, whatever the tests' own parent ignores; it keeps its process id.
fn with_signals(ignored: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", ignored, env!("CARGO_BIN_EXE_ringfence")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

const NOT_IGNORED: &str = "TESTED=1";

fn tell(child: &std::process::Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

async fn end_of(child: std::process::Child) -> Output {
    tokio::task::spawn_blocking(move || child.wait_with_output()).await.unwrap().unwrap()
}

#[tokio::test]
async fn run_releases_its_session_when_it_is_told_to_end() {
    let (fake, folder) = start().await;
    // The upload waits for as long as nobody writes.
    let made = Command::new("mkfifo").arg(folder.path().join("fifo")).status().unwrap();
    assert!(made.success());
    for (ignored, signals, code) in [
        (NOT_IGNORED, vec!["-TERM"], 143),
        (NOT_IGNORED, vec!["-INT"], 130),
        (NOT_IGNORED, vec!["-HUP"], 129),
        // Of whoever must not hear that its terminal is gone, as below `nohup`.
        ("--ignore-signal=HUP", vec!["-HUP", "-TERM"], 143),
    ] {
        let mut command = with_signals(ignored);
        command.args(["run", "-", "--input", "fifo"]).env("RINGFENCE_URL", fake.url()).current_dir(folder.path());
        let mut child = command.spawn().unwrap();
        while fake.sessions() == 0 {
            assert_eq!(child.try_wait().unwrap(), None, "it has ended before it was told to");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        signals.iter().for_each(|signal| tell(&child, signal));
        let output = end_of(child).await;
        assert_eq!(output.status.code(), Some(code), "{signals:?}: {output:?}");
        assert_eq!(fake.sessions(), 0, "{signals:?}");
    }
}

/// A backend that hears one request and never answers; it says when that came.
async fn silent() -> (RawServer, tokio::sync::mpsc::UnboundedReceiver<()>) {
    use tokio::io::AsyncReadExt;
    let (came, comes) = tokio::sync::mpsc::unbounded_channel();
    let server = RawServer::start(move |mut stream| {
        let came = came.clone();
        async move {
            let _ = stream.read(&mut [0; 4000]).await?;
            let _ = came.send(());
            std::future::pending().await
        }
    });
    (server.await.unwrap(), comes)
}

#[tokio::test]
async fn a_backend_that_never_answers_holds_nobody_who_wants_to_end() {
    let (server, mut comes) = silent().await;
    for (arguments, signal, code) in [
        (vec!["run", "-"], "-TERM", 143),
        (vec!["run", "-"], "-INT", 130),
        (vec!["shell"], "-INT", 130),
        (vec!["shell"], "-HUP", 129),
    ] {
        let mut child = with_signals(NOT_IGNORED).args(&arguments).env("RINGFENCE_URL", server.url()).spawn().unwrap();
        comes.recv().await.unwrap();
        // Whoever is told once waits a little for the session, to release it.
        while child.try_wait().unwrap().is_none() {
            tell(&child, signal);
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let output = end_of(child).await;
        assert_eq!(output.status.code(), Some(code), "{arguments:?} {signal}: {output:?}");
    }
}

#[tokio::test]
async fn ctrl_c_pressed_twice_leaves_a_call_whose_backend_is_silent() {
    let (server, mut comes) = silent().await;
    let mut command = with_signals(NOT_IGNORED);
    let child = command.args(["exec", "s", "pass"]).env("RINGFENCE_URL", server.url()).spawn().unwrap();
    comes.recv().await.unwrap();
    tell(&child, "-INT");
    // The interrupt.
    comes.recv().await.unwrap();
    tell(&child, "-INT");
    let output = end_of(child).await;
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(text(&output.stderr).contains("pressed again"), "{output:?}");
}

#[tokio::test]
async fn a_session_is_held_from_one_command_to_the_next() {
    let (fake, folder) = start().await;
    let (at, url) = (folder.path(), fake.url());
    let created = ringfence(at, url, &["session", "create", "--idle-timeout", "60"], "").await;
    assert_eq!(created.status.code(), Some(0), "{created:?}");
    let id = text(&created.stdout).trim().to_owned();
    assert_eq!(fake.sessions(), 1);
    ringfence(at, url, &["exec", &id, "x = 41"], "").await;
    assert_eq!(text(&ringfence(at, url, &["exec", &id, "print(x + 1)"], "").await.stdout), "42\n");
    assert_eq!(text(&ringfence(at, url, &["exec", &id, "-"], "print(x)").await.stdout), "41\n");
    std::fs::write(at.join("code.py"), "print(x * 2)").unwrap();
    assert_eq!(text(&ringfence(at, url, &["exec", &id, "--file", "code.py"], "").await.stdout), "82\n");
    let done = json(&ringfence(at, url, &["exec", &id, "exit 9", "--bash", "--json"], "").await);
    assert_eq!((&done["return_code"], &done["session_id"]), (&Value::from(9), &Value::from(id.as_str())));
    assert_eq!(json(&ringfence(at, url, &["session", "show", &id, "--json"], "").await)["image"], "fake");
    assert!(text(&ringfence(at, url, &["session", "show", &id], "").await.stdout).contains("image: fake\n"));
    for _ in 0..2 {
        let destroyed = ringfence(at, url, &["session", "destroy", &id], "").await;
        assert_eq!(destroyed.status.code(), Some(0), "{destroyed:?}");
    }
    assert_eq!(fake.sessions(), 0);
    assert_eq!(ringfence(at, url, &["session", "show", &id], "").await.status.code(), Some(1));
}

#[tokio::test]
async fn files_go_there_and_back() {
    let (fake, folder) = start().await;
    let (at, url) = (folder.path(), fake.url());
    let id = lease(at, url).await;
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    std::fs::write(at.join("data.bin"), &bytes).unwrap();
    let stored = json(&ringfence(at, url, &["files", "put", &id, "data.bin", "deep/data.bin", "--json"], "").await);
    assert_eq!((&stored["path"], &stored["size_bytes"]), (&Value::from("deep/data.bin"), &Value::from(100_000)));
    ringfence(at, url, &["files", "put", &id, "-", "typed.txt"], "typed").await;
    let listed = text(&ringfence(at, url, &["files", "ls", &id, "--recursive"], "").await.stdout);
    assert_eq!(listed, "      100000  deep/data.bin\n           5  typed.txt\n");
    let listed = json(&ringfence(at, url, &["files", "ls", &id, "deep", "--json"], "").await);
    assert_eq!(listed["files"][0]["path"], "deep/data.bin");
    assert_eq!(ringfence(at, url, &["files", "get", &id, "typed.txt", "-"], "").await.stdout, b"typed");
    ringfence(at, url, &["files", "get", &id, "deep/data.bin", "back.bin"], "").await;
    assert_eq!(std::fs::read(at.join("back.bin")).unwrap(), bytes);
    std::fs::create_dir(at.join("folder")).unwrap();
    ringfence(at, url, &["files", "get", &id, "deep/data.bin", "folder"], "").await;
    assert_eq!(std::fs::read(at.join("folder/data.bin")).unwrap(), bytes);
    assert_eq!(ringfence(at, url, &["files", "rm", &id, "typed.txt"], "").await.status.code(), Some(0));
    for arguments in [["files", "get", &id, "typed.txt"], ["files", "rm", &id, "typed.txt"], ["files", "put", &id, "/"]]
    {
        assert_eq!(ringfence(at, url, &arguments, "").await.status.code(), Some(1), "{arguments:?}");
    }
    assert!(!at.join("typed.txt").exists());
}

#[tokio::test]
async fn a_broken_transfer_leaves_what_was_there() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = RawServer::start(|mut stream| async move {
        let mut request = [0; 4000];
        let _ = stream.read(&mut request).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nnot all of it").await
    })
    .await
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("kept.txt"), "as it was").unwrap();
    let output = ringfence(folder.path(), server.url(), &["files", "get", "s", "kept.txt"], "").await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(std::fs::read_to_string(folder.path().join("kept.txt")).unwrap(), "as it was");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no part of the transfer is left");
}

#[tokio::test]
async fn a_file_that_standard_output_does_not_take_is_told_with_the_reason() {
    let (fake, folder) = start().await;
    let id = lease(folder.path(), fake.url()).await;
    ringfence(folder.path(), fake.url(), &["files", "put", &id, "-", "typed.txt"], "typed").await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    command.args(["files", "get", &id, "typed.txt", "-"]).env("RINGFENCE_URL", fake.url());
    command.env_remove("RINGFENCE_TOKEN").env_remove("RINGFENCE_TOKEN_FILE");
    command.stdout(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write what was fetched: No space left on device"), "{said}");
}

#[tokio::test]
async fn names_do_not_speak_to_the_terminal() {
    let (fake, folder) = start().await;
    let (at, url) = (folder.path(), fake.url());
    let id = lease(at, url).await;
    ringfence(at, url, &["exec", &id, "open('a\u{1b}[31m', 'w').write('x')"], "").await;
    let listed = text(&ringfence(at, url, &["files", "ls", &id], "").await.stdout);
    assert!(listed.contains("a\\u{1b}[31m") && !listed.contains('\u{1b}'), "{listed:?}");
}

#[tokio::test]
async fn every_command_helps_with_an_example() {
    let folder = tempfile::tempdir().unwrap();
    for command in [
        vec!["run"],
        vec!["exec"],
        vec!["session", "create"],
        vec!["session", "show"],
        vec!["session", "destroy"],
        vec!["files", "ls"],
        vec!["files", "get"],
        vec!["files", "put"],
        vec!["files", "rm"],
        vec!["check"],
    ] {
        let arguments: Vec<&str> = command.iter().copied().chain(["--help"]).collect();
        let help = text(&ringfence(folder.path(), "http://127.0.0.1:1", &arguments, "").await.stdout);
        assert!(
            help.contains("Example: ") && help.contains("Exit status: ") && help.contains("--json"),
            "{command:?}: {help}"
        );
        assert!(help.contains("--base-url") && help.contains("RINGFENCE_URL"), "{command:?}: {help}");
    }
}

#[tokio::test]
async fn sessions_are_listed_and_interrupted() {
    let (fake, folder) = start().await;
    let (at, url) = (folder.path(), fake.url());
    let session = text(&ringfence(at, url, &["session", "create"], "").await.stdout).trim().to_owned();
    let output = ringfence(at, url, &["session", "interrupt", &session], "").await;
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "no call was running\n"));
    let output = ringfence(at, url, &["session", "interrupt", &session, "--json"], "").await;
    assert_eq!(json(&output)["interrupted"], false);
    let refused = ringfence(at, url, &["session", "list"], "").await;
    assert!(refused.status.code() == Some(1) && text(&refused.stderr).contains("token"), "{refused:?}");

    let fake = Fake::start(Rules { token: Some("t0ken".to_owned()), ..Rules::default() }).await.unwrap();
    std::fs::write(at.join("token"), "t0ken").unwrap();
    let asked = |rest: &[&str]| [&["session"], rest, &["--token-file", "token"]].concat().join(" ");
    let created = asked(&["create"]);
    let session = text(&ringfence(at, fake.url(), &words(&created), "").await.stdout).trim().to_owned();
    let (listed, as_json) = (asked(&["list"]), asked(&["list", "--json"]));
    let output = ringfence(at, fake.url(), &words(&listed), "").await;
    assert_eq!(text(&output.stdout), format!("{session}\t-\t-\tfake\t-\n"));
    let output = ringfence(at, fake.url(), &words(&as_json), "").await;
    assert_eq!(json(&output)["sessions"][0]["session_id"], session.as_str());
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

#[tokio::test]
async fn a_call_that_no_backend_interrupts_is_left() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    // It says when a call came, never answers it, and knows nothing of interrupts.
    let (came, mut comes) = tokio::sync::mpsc::unbounded_channel();
    let server = RawServer::start(move |mut stream| {
        let came = came.clone();
        async move {
            let mut request = [0; 4000];
            let length = stream.read(&mut request).await?;
            if request[..length].starts_with(b"POST /sessions/s/exec ") {
                let _ = came.send(());
                return std::future::pending().await;
            }
            stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await
        }
    })
    .await
    .unwrap();
    let mut command = with_signals(NOT_IGNORED);
    let child = command.args(["exec", "s", "pass"]).env("RINGFENCE_URL", server.url()).spawn().unwrap();
    comes.recv().await.unwrap();
    tell(&child, "-INT");
    let output = end_of(child).await;
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(text(&output.stderr).contains("cannot be interrupted"), "{output:?}");
}
