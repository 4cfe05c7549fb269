//! Help texts, completions and the manual.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::process::{Command, Output};

fn ringfence(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringfence")).args(arguments).env("NO_COLOR", "1").output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The commands that a help text lists.
fn commands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed =
        listed.take_while(|line| !line.is_empty()).filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    listed
        .filter_map(|line| line.split_ascii_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_shows_an_example_and_its_exit_status() {
    let names = commands(&text(&ringfence(&["--help"])));
    let own = [
        "serve",
        "run",
        "exec",
        "shell",
        "session",
        "files",
        "mcp",
        "doctor",
        "check",
        "bench",
        "attack",
        "gate",
        "control",
        "completions",
        "man",
    ];
    for name in own {
        assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
        let help = text(&ringfence(&[name, "--help"]));
        for part in ["Example", "xit status"] {
            assert!(help.contains(part), "`ringfence {name} --help` has no {part:?}:\n{help}");
        }
        assert!(!help.contains('\x1b'), "{name}");
    }
    let documented = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md")).unwrap();
    for name in &names {
        assert!(documented.contains(&format!("`{name}`")), "{name} is not in docs/cli.md");
    }
}

#[test]
fn each_shell_has_completions_that_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let completions = text(&ringfence(&["completions", shell]));
        for word in ["completions", "base-url", "max-sessions"] {
            assert!(completions.contains(word), "{shell}: {word}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ringfence.bash");
    std::fs::write(&file, text(&ringfence(&["completions", "bash"]))).unwrap();
    let asked = format!(
        "source {}; COMP_WORDS=(ringfence sess); COMP_CWORD=1; _ringfence ringfence sess ringfence; echo \"${{COMPREPLY[*]}}\"",
        file.display()
    );
    let completed = Command::new("bash").args(["-c", &asked]).output().unwrap();
    assert_eq!(text(&completed), "session\n");
    assert_eq!(ringfence(&["completions", "tcsh"]).status.code(), Some(2));
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("man/man1");
    assert!(ringfence(&["man", "--out", out.to_str().unwrap()]).status.success());
    let pages: BTreeSet<String> =
        std::fs::read_dir(&out).unwrap().map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    for page in ["ringfence.1", "ringfence-serve.1", "ringfence-session-create.1", "ringfence-mcp.1"] {
        assert!(pages.contains(page), "{page}: {pages:?}");
    }
    assert!(!pages.contains("ringfence-keeper.1"), "what is hidden has no page");
    let serve = std::fs::read_to_string(out.join("ringfence-serve.1")).unwrap();
    assert!(serve.starts_with(".") && serve.contains("max\\-sessions") && !serve.contains("until\\-stdin"), "{serve}");
    assert!(text(&ringfence(&["man"])).contains(".TH ringfence 1"));
}
