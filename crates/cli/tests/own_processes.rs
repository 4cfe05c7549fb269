//! The server's own processes, as the kernel describes them while it serves: what holds each, and that none carries a
//! secret where others can look.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ringfence_testkit::{Client, Server, ServerOptions, User, descendants};
use serde_json::json;

const TOKEN: &str = "a-token-that-nobody-may-see-0123456789";

/// A server with a token and a busy session, and who runs it.
fn servers() -> Vec<(&'static str, Server)> {
    let mut users = vec![("whoever runs the tests", User::Same)];
    if rustix::process::geteuid().is_root() {
        users.push(("an ordinary user", User::Other(43_211)));
    }
    let started = users.into_iter().map(|(who, user)| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        fs::write(&file, TOKEN).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        if let User::Other(id) = user {
            std::os::unix::fs::chown(folder.path(), Some(id), Some(id)).unwrap();
            std::os::unix::fs::chown(&file, Some(id), Some(id)).unwrap();
        }
        let arguments = ["--auth-token-file".into(), file.into_os_string()];
        let server = ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).user(user).args(arguments).start();
        let mut client = Client::new(server.address(), Some(TOKEN));
        let mut session = client.lease(&json!({}));
        session.bash("sleep 1000 > /dev/null 2>&1 &");
        assert_eq!(session.python("print(1)"), "1\n");
        (who, server)
    });
    started.collect()
}

fn field<'s>(status: &'s str, name: &str) -> &'s str {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in\n{status}")).trim()
}

#[test]
fn every_thread_of_every_process_is_held() {
    for (who, server) in servers() {
        let mut threads = 0;
        for pid in [vec![server.pid()], descendants(server.pid())].concat() {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
            for task in tasks {
                let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
                let name = field(&status, "Name");
                assert_eq!(field(&status, "Seccomp"), "2", "{name}, run by {who}");
                assert_eq!(field(&status, "NoNewPrivs"), "1", "{name}, run by {who}");
                assert_eq!(field(&status, "CapInh"), "0000000000000000", "{name}, run by {who}");
                threads += usize::from(pid == server.pid());
            }
        }
        // The first, and those of the runtime.
        assert!(threads >= 2, "{threads} threads of the daemon");
    }
}

#[test]
fn the_daemon_has_three_capabilities_in_the_fleet_and_nobody_may_look_into_it() {
    for (who, server) in servers() {
        let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            assert_eq!(field(&status, set), "000000000000000b", "{set}, run by {who}");
        }
        let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        // The soft limit and the hard one.
        assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
        // What may not be looked into belongs to root, whoever runs it.
        let maps = fs::metadata(format!("/proc/{}/maps", server.pid())).unwrap();
        let ordinary = who == "an ordinary user";
        assert!(!ordinary || std::os::unix::fs::MetadataExt::uid(&maps) != 43_211, "it belongs to its user");
    }
}

#[test]
fn no_environment_and_no_title_holds_a_secret() {
    for (who, server) in servers() {
        let mut seen = 0;
        for pid in [vec![server.pid()], descendants(server.pid())].concat() {
            for file in ["environ", "cmdline", "comm"] {
                let Ok(bytes) = fs::read(format!("/proc/{pid}/{file}")) else { continue };
                let text = String::from_utf8_lossy(&bytes);
                assert!(!text.contains(TOKEN), "{file} of {pid}, run by {who}: {text}");
                seen += 1;
            }
        }
        assert!(seen > 10, "{seen} files were looked at");
        // What is started with the keeper's rights gets no variable of whoever started the server.
        for pid in descendants(server.pid()).into_iter().take(2) {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
            assert!(environment.is_empty(), "{pid}: {}", String::from_utf8_lossy(&environment));
        }
    }
}

/// What the daemon's filter has to let through for links: they are made, and given to the session's user.
#[test]
fn an_archive_with_links_is_unpacked_by_the_held_daemon() {
    for (who, server) in servers() {
        let mut client = Client::new(server.address(), Some(TOKEN));
        let mut session = client.lease(&json!({}));
        session.bash("mkdir -p a/b && echo text > a/b/file && ln -s b/file a/soft && ln a/b/file a/hard");
        session.python("import tarfile\nwith tarfile.open('a.tar', 'w') as made: made.add('a')");
        let tar = session.get("a.tar");
        assert_eq!(tar.status, 200, "run by {who}");
        let folder = format!("/sessions/{}/archive?path=c", session.id);
        let put = Client::new(server.address(), Some(TOKEN)).try_call("PUT", &folder, "application/x-tar", &tar.body);
        let put = put.unwrap();
        assert_eq!(put.status, 201, "run by {who}: {}", String::from_utf8_lossy(&put.body));
        let seen = session.bash("cd c/a; cat soft hard; readlink soft; rm soft hard && echo removed");
        assert_eq!(seen, "text\ntext\nb/file\nremoved\n", "run by {who}");
    }
}
