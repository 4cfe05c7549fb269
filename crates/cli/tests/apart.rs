//! Workspaces that do not share zygotes: a real server behind a front door, which this test plays.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;

use ringfence_testkit::{Server, ServerOptions, descendants, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const TOKEN: &str = "the-front-door-and-the-server-know-it";
/// Where the C library and the first objects lie, and a hash: the same in all sessions of one zygote.
const LAYOUT: &str = "import builtins, ctypes\n\
    print(ctypes.cast(ctypes.CDLL('libc.so.6').malloc, ctypes.c_void_p).value, id(builtins), hash('a'))";

/// A request for a workspace: head and body.
fn answer(server: SocketAddr, workspace: &str, line: &str, body: &Value) -> (String, String) {
    let body = body.to_string();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: b\r\nconnection: close\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n\
         x-ringfence-workspace: {workspace}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(server).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

/// The same: status, head and body.
fn request(server: SocketAddr, workspace: &str, line: &str, body: &Value) -> (u16, String, Value) {
    let (head, body) = answer(server, workspace, line, body);
    (head[9..12].parse().unwrap(), head, serde_json::from_str(&body).unwrap_or_default())
}

/// A workspace's session.
struct Session {
    server: SocketAddr,
    workspace: &'static str,
    id: String,
}

impl Session {
    fn lease(server: SocketAddr, workspace: &'static str) -> Session {
        let (status, _, handle) = request(server, workspace, "POST /sessions", &json!({}));
        assert_eq!(status, 201, "{workspace}: {handle}");
        Session { server, workspace, id: handle["session_id"].as_str().unwrap().to_owned() }
    }

    fn python(&self, code: &str) -> String {
        let body = json!({"tool": "code_execution", "input": {"code": code}});
        let line = format!("POST /sessions/{}/exec", self.id);
        let (status, _, answer) = request(self.server, self.workspace, &line, &body);
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["result_block"]["content"]["return_code"], 0, "{answer}");
        answer["result_block"]["content"]["stdout"].as_str().unwrap().to_owned()
    }

    /// Each part of its layout.
    fn layout(&self) -> Vec<String> {
        let parts: Vec<String> = self.python(LAYOUT).split_whitespace().map(str::to_owned).collect();
        assert_eq!(parts.len(), 3, "{parts:?}");
        parts
    }

    fn release(self) {
        let (status, _, _) = request(self.server, self.workspace, &format!("DELETE /sessions/{}", self.id), &json!({}));
        assert_eq!(status, 204);
    }
}

/// Fails where two of these sessions, which are of different workspaces, have a part of their layout in common.
fn nothing_in_common(sessions: &[&Session]) {
    let mut seen = HashSet::new();
    for session in sessions {
        for (place, part) in session.layout().into_iter().enumerate() {
            assert!(
                seen.insert((place, part.clone())),
                "{}: {part} at {place} is another's as well",
                session.workspace
            );
        }
    }
}

fn retry_after(head: &str) -> u32 {
    head.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap().parse().unwrap()
}

/// The zygotes: interpreters whose parent is the keeper.
fn zygotes(server: u32) -> Vec<u32> {
    let stat = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let all = descendants(server);
    let keepers: Vec<u32> = all.iter().copied().filter(|pid| stat(*pid).contains("(ringfence-keep)")).collect();
    let parent = |pid: u32| stat(pid).rsplit_once(") ").and_then(|(_, rest)| rest[2..].split(' ').next()?.parse().ok());
    let interpreters = all.into_iter().filter(|pid| stat(*pid).contains("(python"));
    interpreters.filter(|pid| parent(*pid).is_some_and(|parent: u32| keepers.contains(&parent))).collect()
}

/// A server on which workspaces have so many zygotes.
fn shared(options: ServerOptions, zygotes: &str, tier: &str) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, TOKEN).unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let options = options.args(["--require-tenancy", "--tenant-zygotes", zygotes, "--auth-token-file"]);
    let server = options.args([&token]).start();
    assert_eq!(server.ready_line("tier"), Some(tier));
    server
}

fn options() -> ServerOptions {
    ServerOptions::new(env!("CARGO_BIN_EXE_ringfence"))
}

fn workspaces_share_no_zygote(options: ServerOptions, tier: &str) {
    let server = shared(options, "2", tier);
    let address = server.address();

    let [a, again, b] = ["a", "a", "b"].map(|workspace| Session::lease(address, workspace));
    assert_eq!(a.layout(), again.layout(), "of one workspace");
    nothing_in_common(&[&a, &b]);
    assert_eq!(zygotes(server.pid()).len(), 2);
    let (_, told) = answer(address, "a", "GET /metrics", &json!({}));
    assert!(told.contains("\nringfence_workspace_zygotes 2\n"), "{told}");

    // A third has to wait until one of the two has no session any more.
    let (status, head, refused) = request(address, "c", "POST /sessions", &json!({}));
    assert_eq!(status, 503, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("as many workspaces"), "{refused}");
    assert!((1..=60).contains(&retry_after(&head)), "{head}");
    b.python("kept = 'kept'");
    a.release();
    assert_eq!(request(address, "c", "POST /sessions", &json!({})).0, 503, "a has another one");

    // Zygotes that are killed come again, each for its own workspace; what they have forked lives on.
    let before = zygotes(server.pid());
    for pid in &before {
        let _gone_already = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL);
    }
    eventually("the end of the zygotes", || {
        zygotes(server.pid()).iter().all(|pid| !before.contains(pid)).then_some(())
    });
    let mut of_a = vec![again];
    let mut of_b = vec![b];
    // What was ready of the one before is handed out first.
    while of_a.last().unwrap().layout() == of_a[0].layout() || of_b.last().unwrap().layout() == of_b[0].layout() {
        of_a.push(Session::lease(address, "a"));
        of_b.push(Session::lease(address, "b"));
        assert!(of_a.len() < 8, "no other zygote has come");
    }
    nothing_in_common(&[&of_a[0], &of_b[0], of_a.last().unwrap(), of_b.last().unwrap()]);

    // The one that is idle ends for a workspace that comes new, and the other's sessions go on.
    of_a.into_iter().for_each(Session::release);
    let c = eventually("room for another workspace", || {
        let (status, _, handle) = request(address, "c", "POST /sessions", &json!({}));
        let id = handle["session_id"].as_str().filter(|_| status == 201)?.to_owned();
        Some(Session { server: address, workspace: "c", id })
    });
    nothing_in_common(&[&of_b[0], of_b.last().unwrap(), &c]);
    assert_eq!(of_b[0].python("print(kept)"), "kept\n");
    assert_eq!(request(address, "a", "POST /sessions", &json!({})).0, 503, "now it is a that waits");
    // What the zygotes that were killed had forked is the keeper's own since then.
    let last = of_b.pop().unwrap();
    of_b.into_iter().for_each(Session::release);
    eventually("no zygote but those of the two", || (zygotes(server.pid()).len() == 2).then_some(()));
    nothing_in_common(&[&last, &c]);
}

#[test]
fn workspaces_share_no_zygote_of_cells() {
    workspaces_share_no_zygote(options(), "cell");
}

/// No namespaces, and a guard for each session.
#[test]
fn workspaces_share_no_zygote_without_namespaces() {
    let options = options().args(["--tier", "confined"]);
    workspaces_share_no_zygote(options.args(["--python", "/usr/bin/python3", "--id-base", "1070000000"]), "confined");
}

/// Nothing is kept ready, and nothing is kept for whoever comes new.
#[test]
fn without_a_pool_each_workspace_waits_for_its_own() {
    let server = shared(options().args(["--pool-size", "0"]), "4", "cell");
    let sessions = ["a", "b", "c"].map(|workspace| Session::lease(server.address(), workspace));
    nothing_in_common(&sessions.each_ref()[..]);
    let again = Session::lease(server.address(), "a");
    assert_eq!(again.layout(), sessions[0].layout());
}

/// What is told is when the sessions of the workspace that is free first have ended, if nobody uses them.
#[test]
fn a_workspace_that_is_refused_is_told_when_to_come_again() {
    let server = shared(options(), "1", "cell");
    let lease = |workspace| {
        let hints = json!({"idle_timeout_seconds": 50});
        request(server.address(), workspace, "POST /sessions", &hints)
    };
    assert_eq!(lease("a").0, 201);
    let (status, head, _) = lease("b");
    // Neither what is told where nothing is known, nor the most that is told.
    assert!(status == 503 && (3..=51).contains(&retry_after(&head)), "{head}");
}

/// Each sandbox has a zygote of its own: the setting counts for nothing, and bounds nothing.
#[test]
fn in_sandboxes_no_two_sessions_share_anything() {
    let server = shared(options().args(["--tier", "gvisor", "--pool-size", "1"]), "1", "gvisor");
    let sessions = ["a", "a", "b"].map(|workspace| Session::lease(server.address(), workspace));
    nothing_in_common(&sessions.each_ref()[..]);
}
