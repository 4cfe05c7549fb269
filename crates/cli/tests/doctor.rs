//! `ringfence doctor`, and the tiers that servers take, on hosts of several kinds.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use ringfence_testkit::{Container, ServerOptions};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ringfence");
/// The id of `nobody`, an ordinary user of every machine.
const NOBODY: u32 = 65_534;

fn facts(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{output:?}"))
}

fn tier<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["tiers"].as_array().unwrap().iter().find(|one| one["tier"] == name).unwrap()
}

#[test]
fn it_says_what_whoever_runs_the_tests_can_have() {
    let output = Command::new(PROGRAM).args(["doctor", "--json", "--tier-min", "cell"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = facts(&output);
    assert_eq!((&report["auto"], &tier(&report, "cell")["available"]), (&json!("cell"), &json!(true)));
    let root = rustix::process::geteuid().is_root();
    assert_eq!(report["facts"]["cell"]["works"]["id_per_session"], json!(root));
    let text = Command::new(PROGRAM).arg("doctor").output().unwrap();
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    for row in report["rows"].as_array().unwrap() {
        assert!(text.contains(row["name"].as_str().unwrap()) && text.contains(row["found"].as_str().unwrap()), "{row}");
    }
    assert!(text.contains("takes: cell"), "{text}");
}

#[test]
fn an_ordinary_user_can_ask_it() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let copy = folder.path().join("ringfence");
    std::fs::copy(PROGRAM, &copy).unwrap();
    let output = Command::new(copy).args(["doctor", "--json"]).uid(NOBODY).gid(NOBODY).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = facts(&output);
    assert_eq!(report["facts"]["user"]["id"], json!(NOBODY));
    assert_eq!(report["facts"]["cell"]["works"]["id_per_session"], json!(false));
}

#[test]
fn without_user_namespaces_the_status_says_so_and_the_text_how_to_have_them() {
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" doctor \"$@\"";
    let doctor = |arguments: &[&str]| {
        let fixed = ["--user", "--map-root-user", "sh", "-c", script, PROGRAM];
        Command::new("unshare").args(fixed).args(arguments).output().unwrap()
    };
    let output = doctor(&["--tier-min", "cell"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(text.contains("sysctl user.max_user_namespaces="), "{text}");
    assert_eq!(doctor(&[]).status.code(), Some(0), "without a minimum it only tells");
    let wrong = Command::new(PROGRAM).args(["doctor", "--tier-min", "iron"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn a_container_is_told_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    for container in [Container::new(), Container::new().user(NOBODY)] {
        let program = PROGRAM.as_ref();
        let output = container.command(folder.path(), program, ["doctor", "--tier-min", "cell"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        assert!(text.contains("--cap-add SYS_ADMIN"), "{text}");
        assert!(text.contains("are covered"), "{text}");
    }
}

/// Its `/proc` is masked, and its filter forbids `pivot_root`: neither is in the way.
#[test]
fn a_container_with_sys_admin_has_cells() {
    let options = ServerOptions::new(PROGRAM).container(Container::new().capability("SYS_ADMIN"));
    let mut server = options.start();
    assert_eq!(server.ready_line("tier"), Some("cell"));
    assert_eq!(server.ready_line("users"), Some("one host id for each session"));
    let mut client = server.client();
    let mut session = client.lease(&json!({}));
    assert_eq!(session.python("import os; print(os.getuid(), sorted(os.listdir('/'))[0])"), "1000 bin\n");
    // Neither the container's root nor its /proc can be seen.
    let look = "ls -d /state /ringfence /etc/shadow /proc/1/root/state 2>/dev/null; cat /proc/1/comm";
    assert_eq!(session.bash(look), "init\n");
    session.release();
    assert!(server.stop().success(), "{}", server.log());
}
