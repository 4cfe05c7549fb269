//! `ringfence check`, from outside: what it prints, what it writes, and how it ends.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::process::{Command, Output};

use ringfence_fake::{Fake, Quirks, Rules};
use serde_json::Value;

async fn check(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    command.arg("check").args(arguments).env_remove("RINGFENCE_URL").env_remove("RINGFENCE_TOKEN");
    command.env_remove("RINGFENCE_TOKEN_FILE");
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn a_correct_backend_ends_with_0() {
    let fake = Fake::start(Rules::default()).await.unwrap();
    let output = check(&["--base-url", fake.url()]).await;
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}");
    assert!(out.contains("pass      exec.echo") && out.contains(&format!("{} conforms", fake.url())), "{out}");
    assert!(!out.contains('\u{1b}'), "colours in a pipe");
    assert_eq!(fake.sessions(), 0);
}

#[tokio::test]
async fn a_broken_backend_ends_with_1_and_names_the_clause() {
    let quirks = Quirks { reads_outside: true, ..Quirks::default() };
    let fake = Fake::start(Rules { quirks, ..Rules::default() }).await.unwrap();
    let output = check(&["--base-url", fake.url(), "--only", "confine,exec.echo", "--json"]).await;
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["conforming"], &report["contract_version"]), (&Value::from(false), &Value::from(1)));
    let checks = report["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 6);
    let failed: Vec<&Value> = checks.iter().filter(|check| check["outcome"] == "fail").collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0]["id"], "confine.read");
    assert_eq!(failed[0]["clause"]["section"], "ListFiles, GetFile, and PutFile");
    for part in ["sent", "came", "wanted"] {
        assert!(!failed[0]["because"][part].as_str().unwrap().is_empty(), "{part}");
    }
}

#[tokio::test]
async fn a_report_can_be_written_to_a_file_beside_the_table() {
    let quirks = Quirks { forgets_variables: true, ..Quirks::default() };
    let fake = Fake::start(Rules { quirks, ..Rules::default() }).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("junit.xml");
    let path_text = path.to_str().unwrap();
    let output =
        check(&["--base-url", fake.url(), "--only", "state", "--format", "junit", "--output", path_text]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("FAIL      state.variables"));
    let xml = std::fs::read_to_string(path).unwrap();
    assert!(xml.contains("tests=\"5\" failures=\"1\" errors=\"0\" skipped=\"0\""), "{xml}");
    assert!(xml.contains("<testcase classname=\"state\" name=\"variables\"><failure"), "{xml}");
}

#[tokio::test]
async fn advice_changes_nothing_about_the_verdict() {
    let fake = Fake::start(Rules::default()).await.unwrap();
    // The backend in memory knows none of these programs: its advice is long.
    let output = check(&["--base-url", fake.url(), "--strict", "--only", "interpreter,lease"]).await;
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}");
    assert!(out.contains("advice    interpreter.traceback"), "{out}");
}

#[tokio::test]
async fn what_cannot_be_checked_ends_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "wrong\n").unwrap();
    let fake = Fake::start(Rules { token: Some("right".to_owned()), ..Rules::default() }).await.unwrap();
    for (arguments, part) in [
        (vec!["--base-url", "http://127.0.0.1:1"], "there is no backend at http://127.0.0.1:1"),
        (vec!["--base-url", "https://127.0.0.1:1"], "there is no backend at https://127.0.0.1:1"),
        (vec!["--base-url", fake.url()], "401"),
        (vec!["--base-url", fake.url(), "--token-file", token.to_str().unwrap()], "401"),
        (vec!["--base-url", fake.url(), "--token-file", "/no/such/file"], "/no/such/file"),
        (vec!["--only", "nothing"], "no check"),
        (vec!["--format", "yaml"], "yaml"),
    ] {
        let output = check(&arguments).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(part), "{arguments:?}: {said}");
        assert!(!said.contains("wrong"), "the token is shown: {said}");
    }
    std::fs::write(&token, "right\n").unwrap();
    let output =
        check(&["--base-url", fake.url(), "--token-file", token.to_str().unwrap(), "--only", "credential"]).await;
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("pass      credential.missing"));
}

#[tokio::test]
async fn the_list_and_the_help_need_no_backend() {
    let list: Value = serde_json::from_slice(&check(&["--list", "--json"]).await.stdout).unwrap();
    assert!(list.as_array().unwrap().iter().any(|check| check["id"] == "exec.envelope"));
    assert!(text(&check(&["--list"]).await.stdout).contains("exec.envelope"));
    let help = text(&check(&["--help"]).await.stdout);
    assert!(help.contains("Example: ringfence check") && help.contains("Exit status: 0"), "{help}");
}
