//! `ringfence serve` from outside: what it prints, how it ends, whom it refuses.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use ringfence_testkit::{Client, ServerOptions, User, descendants, eventually};
use rustix::process::Signal;
use serde_json::json;

fn options() -> ServerOptions {
    ServerOptions::new(env!("CARGO_BIN_EXE_ringfence"))
}

#[test]
fn the_line_that_it_prints_works_as_pasted() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("a token");
    std::fs::write(&token, "s3cret\n").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    for arguments in [vec![], vec!["--auth-token-file".into(), token.into_os_string()]] {
        let server = options().args(arguments).start();
        let line = server.ready_line("try").unwrap();
        let output = Command::new("sh").args(["-c", line]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(r#""stdout":"42\n""#), "{line}\n{text}{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn it_tells_what_is_in_force() {
    let server = options().start();
    assert_eq!(server.ready_line("tier"), Some("cell"));
    assert!(server.ready_line("image").unwrap().starts_with("bare (Python 3."), "{server:?}");
    assert!(server.ready_line("limits").is_some() && server.ready_line("users").is_some(), "{server:?}");
    let without = options().args(["--no-cgroups"]).start();
    assert!(without.ready_line("limits").unwrap().starts_with("rlimits"), "{without:?}");
    assert_eq!(without.client().lease(&json!({})).python("print(6 * 7)"), "42\n");
}

#[test]
fn the_tier_in_force_is_told_everywhere() {
    for arguments in [vec![], vec!["--tier", "cell"], vec!["--tier-min", "cell"]] {
        let server = options().args(&arguments).start();
        assert_eq!(server.ready_line("tier"), Some("cell"), "{arguments:?}");
        let mut client = server.client();
        assert_eq!(client.call("GET", "/health", None).json()["tier"], "cell", "{arguments:?}");
        assert_eq!(client.call("POST", "/sessions", Some(&json!({}))).json()["tier"], "cell", "{arguments:?}");
    }
}

#[test]
fn below_the_least_tier_it_does_not_start_and_says_what_lifts_it() {
    let state = tempfile::tempdir().unwrap();
    // A user namespace in which no more can be made stands for a host that allows none.
    let script =
        "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" serve --listen 127.0.0.1:0 --state-dir \"$1\"";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", script, env!("CARGO_BIN_EXE_ringfence")])
        .arg(state.path())
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(4), "{stdout}{stderr}");
    assert!(stdout.is_empty() && stderr.contains("`cell`"), "{stdout}{stderr}");
    assert!(stderr.contains("sysctl user.max_user_namespaces="), "{stderr}");
    assert_eq!(std::fs::read_dir(state.path()).unwrap().count(), 0, "no image is built for nothing");
}

#[test]
fn a_token_is_asked_for_and_shown_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "s3cret-token").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut server = options().args(["--log-level", "trace", "--auth-token-file"]).args([&token]).start();
    for wrong in [None, Some("s3cret"), Some("s3cret-token2")] {
        assert_eq!(
            Client::new(server.address(), wrong).call("POST", "/sessions", Some(&json!({}))).status,
            401,
            "{wrong:?}"
        );
    }
    let mut client = Client::new(server.address(), Some("s3cret-token"));
    let mut session = client.lease(&json!({}));
    assert!(!session.bash("cat /proc/*/cmdline /proc/*/environ | tr '\\0' '\\n'").contains("s3cret"));
    session.release();
    for file in ["cmdline", "environ"] {
        let bytes = std::fs::read(format!("/proc/{}/{file}", server.pid())).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&bytes).contains("s3cret"), "{file}");
    }
    server.stop();
    assert!(!server.log().contains("s3cret"));
}

#[test]
fn a_wrong_configuration_is_refused_by_name_before_anything_starts() {
    for (arguments, word) in [
        (vec!["--memory", "none"], "memory"),
        (vec!["--auth-token-file", "/nonexistent/token"], "/nonexistent/token"),
        (vec!["--config", "/nonexistent/config"], "/nonexistent/config"),
        (vec!["--no-such-option"], "--no-such-option"),
        (vec!["--tier", "iron"], "tier"),
        (vec!["--tier-min", "auto"], "tier-min"),
        (vec!["--python", "/nonexistent/python"], "/nonexistent/python"),
    ] {
        let (status, stdout, stderr) = options().args(&arguments).run_to_end();
        assert!(matches!(status.code(), Some(2 | 3)), "{arguments:?}: {status}");
        assert!(stdout.is_empty() && stderr.contains(word), "{arguments:?}: {stdout}{stderr}");
    }
}

#[test]
fn an_address_in_use_is_told() {
    let server = options().start();
    let address = server.address().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(["serve", "--image", "bare", "--listen", &address])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(&address) && stderr.contains("in use"), "{stderr}");
}

#[test]
fn the_settings_are_shown_with_where_they_come_from() {
    let (status, stdout, stderr) =
        options().env("RINGFENCE_POOL_SIZE", "7").args(["--print-config", "--max-sessions", "5"]).run_to_end();
    assert!(status.success(), "{stderr}");
    for line in
        ["max-sessions = \"5\"  # command line", "pool-size = \"7\"  # RINGFENCE_POOL_SIZE", "cpus = \"1\"  # default"]
    {
        assert!(stdout.lines().any(|shown| shown == line), "{line} in\n{stdout}");
    }
}

#[test]
fn offline_without_an_image_names_both_ways_out_and_leaves_none() {
    let state = tempfile::tempdir().unwrap();
    // No index, and none of the folders that pip may have been told of: what an unconnected machine has.
    let offline = options().env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", state.path()).state_dir(state.path());
    let (status, stdout, stderr) = offline.args(["--image", "scientific"]).run_to_end();
    assert_eq!(status.code(), Some(3), "{stderr}");
    assert!(stdout.is_empty(), "{stdout}");
    for words in ["could not fetch", "No matching distribution", "connect", "start again", "--image bare"] {
        assert!(stderr.contains(words), "{words} in\n{stderr}");
    }
    let images: Vec<_> =
        std::fs::read_dir(state.path().join("images")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(images.iter().all(|name| name.to_string_lossy().starts_with(['.'])), "{images:?}");
    assert!(!images.iter().any(|name| name.to_string_lossy().starts_with(".building")), "{images:?}");
}

#[test]
fn an_ordinary_user_can_run_it() {
    // Where the tests are run by an ordinary user, every other one in here shows the same.
    let user = if rustix::process::geteuid().is_root() { User::Other(43_210) } else { User::Same };
    let server = options().user(user).start();
    let mut client = server.client();
    let mut session = client.lease(&json!({}));
    assert_eq!(session.python("import os; x = os.getuid(); print(x)"), "1000\n");
    assert_eq!(session.python("print(x + 1)"), "1001\n");
    assert_eq!(session.put("a/b.txt", b"hello").status, 201);
    assert_eq!(session.bash("cat a/b.txt; echo; stat -c %u a/b.txt"), "hello\n1000\n");
    session.release();
}

#[test]
fn a_dead_keeper_ends_the_server_with_a_line_that_says_so() {
    let mut server = options().start();
    let keeper = descendants(server.pid())[0];
    rustix::process::kill_process(rustix::process::Pid::from_raw(keeper as i32).unwrap(), Signal::KILL).unwrap();
    let status = server.wait();
    assert_eq!(status.code(), Some(5));
    eventually("a line about the keeper", || server.log().contains("keeper").then_some(()));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut server = options().args(["--shutdown-grace", "600"]).start();
    let id = server.client().lease(&json!({})).id;
    let (address, session) = (server.address(), id.clone());
    let busy = std::thread::spawn(move || {
        let code = "open('running', 'w').close()\nimport time\ntime.sleep(500)";
        let body = json!({"tool": "code_execution", "input": {"code": code}, "timeout_seconds": 550}).to_string();
        let path = format!("/sessions/{session}/exec");
        Client::new(address, None).try_call("POST", &path, "application/json", body.as_bytes())
    });
    eventually("a call that runs", || {
        let file = server.client().call("GET", &format!("/sessions/{id}/files?path=running"), None);
        (file.status == 200).then_some(())
    });
    server.signal(Signal::TERM);
    eventually("new leases are refused", || {
        let answer = server.client().try_call("POST", "/sessions", "application/json", b"{}");
        answer.is_some_and(|answer| answer.status == 503).then_some(())
    });
    server.signal(Signal::TERM);
    assert!(server.wait().success());
    // Whether the call still got an answer is no matter; it got an end.
    drop(busy.join().unwrap());
}

#[test]
fn short_of_memory_it_refuses_leases_and_says_when_to_ask_again() {
    // No machine has so much to spare: the pool's first cells are made before anything is looked at.
    let server = options().args(["--memory-reserve", "1024TiB"]).start();
    let mut client = server.client();
    let answer = client.call("POST", "/sessions", Some(&json!({})));
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.json()["detail"].as_str().unwrap().contains("short of memory"), "{answer:?}");
    assert_eq!(client.call("GET", "/health", None).status, 200);
    let answer = client.call("GET", "/ready", None);
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.json()["detail"].as_str().unwrap().contains("short of memory"), "{answer:?}");

    // Without a pool there is not one cell that could be made ahead of time.
    let server = options().args(["--memory-reserve", "1024TiB", "--pool-size", "0"]).start();
    let mut client = server.client();
    assert_eq!(client.call("GET", "/ready", None).status, 503);
    assert_eq!(client.call("POST", "/sessions", Some(&json!({}))).status, 503);
}
