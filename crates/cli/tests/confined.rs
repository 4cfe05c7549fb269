//! The tier `confined`, in containers as Docker starts them by default: what it claims is held, what it does not promise
//! is true, the contract is kept, and nothing is left behind.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use ringfence_attack::{Attack, Class, Ids, catalogue, weaknesses};
use ringfence_probe::Address;
use ringfence_testkit::{Container, Server, ServerOptions, User, descendants, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ringfence");
/// The first of the users below.
const SOMEBODY: u32 = 61_234;
/// The first of the ids of sessions below.
const ID_BASE: u32 = 1_100_000_000;
/// How many servers and users there have been.
static SERVERS: AtomicU32 = AtomicU32::new(0);
static USERS: AtomicU32 = AtomicU32::new(0);

/// Some take the machine's processors to their limit, and judge by time that a second session is not kept waiting.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// An ordinary user that nobody else is: the kernel counts the processes of one user over all servers and containers.
fn somebody() -> u32 {
    SOMEBODY + USERS.fetch_add(1, Ordering::Relaxed)
}

/// A server whose sessions, started by root, have ids that no other server's have, for the same reason.
fn options() -> ServerOptions {
    let base = ID_BASE + (SERVERS.fetch_add(1, Ordering::Relaxed) << 16);
    ServerOptions::new(PROGRAM).args(["--id-base".to_owned(), base.to_string()])
}

fn confined() -> ServerOptions {
    options().args(["--tier", "confined"])
}

fn address(server: &Server) -> Address {
    Address::parse(&url(server), None).unwrap()
}

fn url(server: &Server) -> String {
    format!("http://{}", server.address())
}

/// Its own session may be ended by it where all sessions have one id: `processes_together` of the weaknesses.
const NOT_AS_A_USER: &str = "python_fork_bomb";

fn what_is_claimed_is_held(container: Container, attacks: &[(Class, Attack)]) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let server = confined().container(container).start();
    let report = ringfence_attack::run(&address(&server), attacks, |_| ());
    assert_eq!(report.tier, "confined");
    assert!(report.all_held(), "{}", report.to_text());
    assert!(report.findings.len() > 90, "{}", report.to_text());
}

#[test]
fn what_is_claimed_is_held_as_root_of_a_container() {
    what_is_claimed_is_held(Container::new(), &catalogue().unwrap());
}

#[test]
fn what_is_claimed_is_held_as_a_user_of_a_container() {
    let attacks = catalogue().unwrap().into_iter().filter(|(_, attack)| attack.name != NOT_AS_A_USER);
    what_is_claimed_is_held(Container::new().user(somebody()), &attacks.collect::<Vec<_>>());
}

/// A list of weaknesses that are none would be no better than promises that are none.
fn what_is_not_promised_is_true(user: User) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let own = tempfile::tempdir().unwrap();
    fs::set_permissions(own.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (socket, file) = (own.path().join("socket"), own.path().join("file"));
    let listener = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(|mut one| drop(one.write_all(b"hello"))));
    fs::write(&file, b"the user's own").unwrap();
    if let User::Other(id) = user {
        std::os::unix::fs::chown(&file, Some(id), Some(id)).unwrap();
    }
    let limits = ["--python", "/usr/bin/python3", "--cpus", "0.05", "--memory", "512MiB", "--workspace-bytes", "4MiB"];
    let server = confined().args(limits).user(user).start();
    let names = format!("SOCKET = {socket:?}\nFILE = {file:?}\nCPUS = 0.05\nPROCESSES = 256");
    for weakness in weaknesses().unwrap() {
        if weakness.ids == Ids::Any || user != User::Same {
            weakness.show(&address(&server), &names).unwrap();
        }
    }
}

#[test]
fn what_is_not_promised_is_true_as_root() {
    what_is_not_promised_is_true(User::Same);
}

#[test]
fn what_is_not_promised_is_true_as_an_ordinary_user() {
    what_is_not_promised_is_true(User::Other(somebody()));
}

/// What is told to operators is the whole list.
#[test]
fn what_is_not_promised_stands_in_the_document_and_in_doctor() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let flowing = document.split_whitespace().collect::<Vec<_>>().join(" ");
    let doctor = Command::new(PROGRAM).arg("doctor").output().unwrap();
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    for weakness in weaknesses().unwrap() {
        assert!(flowing.contains(&weakness.about), "SECURITY.md does not say: {}", weakness.about);
        let told = weakness.ids == Ids::Any || !rustix::process::geteuid().is_root();
        assert_eq!(doctor.contains(&weakness.about), told, "{}", weakness.name);
    }
}

#[test]
fn the_contract_is_kept_in_a_container() {
    for container in [Container::new(), Container::new().user(somebody())] {
        let server = confined().container(container).start();
        let output = Command::new(PROGRAM).args(["check", "--base-url", &url(&server)]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn by_itself_a_container_does_not_get_the_weaker_tier() {
    let (status, _, said) = ServerOptions::new(PROGRAM).container(Container::new()).run_to_end();
    assert_eq!(status.code(), Some(4), "{said}");
    let server = options().container(Container::new()).args(["--tier-min", "confined"]).start();
    assert_eq!(server.ready_line("tier"), Some("confined"));
    let mut client = server.client();
    assert_eq!(client.call("GET", "/health", None).json()["tier"], "confined");
    assert_eq!(client.call("POST", "/sessions", Some(&json!({}))).json()["tier"], "confined");
}

#[test]
fn nothing_holds_a_session_only_where_that_is_said_twice() {
    let (status, _, said) = ServerOptions::new(PROGRAM).args(["--tier", "none"]).run_to_end();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("--dangerously-without-isolation"), "{said}");
    for user in [User::Same, User::Other(somebody())] {
        let options = options().user(user).args(["--python", "/usr/bin/python3"]);
        let mut server = options.args(["--tier", "none", "--dangerously-without-isolation"]).start();
        assert_eq!(server.ready_line("tier"), Some("none"));
        assert!(server.log().contains("nothing holds what sessions run"));
        assert_eq!(server.client().call("GET", "/health", None).json()["tier"], "none");
        let output = Command::new(PROGRAM).args(["check", "--base-url", &url(&server)]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

/// A session with a daemon of its own in it, which left its session, its group and its parent.
fn busy_session(server: &Server) -> String {
    let mut client = server.client();
    let handle = client.call("POST", "/sessions", Some(&json!({}))).json();
    let id = handle["session_id"].as_str().unwrap().to_owned();
    let code = "import os, subprocess\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        \
                os.execvp('sleep', ['sleep', '31556'])\n    os._exit(0)\nos.wait()\nprint(os.getcwd())";
    let body = json!({"tool": "code_execution", "input": {"code": code}});
    let answer = client.call("POST", &format!("/sessions/{id}/exec"), Some(&body)).json();
    let folder = answer["result_block"]["content"]["stdout"].as_str().unwrap().trim().to_owned();
    assert!(Path::new(&folder).is_dir(), "{answer}");
    folder
}

/// What lives below `root` once a daemon of [`busy_session`] is among it.
fn busy_below(root: u32) -> Vec<(u32, String)> {
    loop {
        let processes = below(root);
        if processes.iter().any(|(_, name)| name == "sleep") {
            return processes;
        }
        std::thread::yield_now();
    }
}

/// Waits until the folder is removed.
fn removed(folder: &str) {
    while Path::new(folder).exists() {
        std::thread::yield_now();
    }
}

/// Every process below `root`: id and name.
fn below(root: u32) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    let mut known = HashSet::from([root]);
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let (head, tail) = stat.rsplit_once(") ").unwrap();
        let parent: u32 = tail.split(' ').nth(1).unwrap().parse().unwrap();
        all.push((pid, parent, head.split_once('(').unwrap().1.to_owned()));
    }
    loop {
        let before = known.len();
        for (pid, parent, name) in &all {
            if known.contains(parent) && known.insert(*pid) {
                found.push((*pid, name.clone()));
            }
        }
        if known.len() == before {
            return found;
        }
    }
}

/// Waits until none of them lives.
fn gone(pids: &[(u32, String)]) {
    for (pid, _) in pids {
        while fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            std::thread::yield_now();
        }
    }
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

/// One process at a time, each the child of the one before; and threads whose first one has ended, which the kernel shows as
/// a dead process.
const HIDING: [(&str, usize); 2] = [
    ("while os.fork() == 0: pass\nos._exit(0)", 4),
    ("threading.Thread(target=time.sleep, args=(1000,)).start()\nleave()", 1),
];

/// Whatever a command has started ends with the command's time, however it hides from a list of processes.
#[test]
fn what_hides_from_a_list_of_processes_ends_with_its_command() {
    for user in [User::Same, User::Other(somebody())] {
        let server = confined().user(user).args(["--python", "/usr/bin/python3", "--pool-size", "1"]).start();
        let mut client = server.client();
        let handle = client.call("POST", "/sessions", Some(&json!({}))).json();
        let line = format!("/sessions/{}/exec", handle["session_id"].as_str().unwrap());
        for (program, rounds) in HIDING {
            let program = format!(
                "import ctypes, os, threading, time\nlibc = ctypes.CDLL(None)\n\
                 leave = lambda: libc.syscall(60 if os.uname().machine == 'x86_64' else 93, 0)\n\
                 libc.prctl(15, b'hides')\nprint('off', flush=True)\n{program}"
            );
            for _ in 0..rounds {
                let command = format!("python3 -c \"{program}\" & sleep 1000");
                let body = json!({"tool": "bash_code_execution", "input": {"command": command}, "timeout_seconds": 3});
                let answer = client.call("POST", &line, Some(&body)).json();
                assert_eq!(answer["result_block"]["content"]["stdout"], "off\n", "{answer}");
                assert_eq!(answer["limit_exceeded"], "wall_clock", "{answer}");
                // A list may miss it here as well.
                let seen = (0..50).flat_map(|_| below(server.pid())).filter(|(_, name)| name == "hides").count();
                assert_eq!(seen, 0, "{program}");
            }
        }
    }
}

/// Whoever is killed: no process stays, and no folder.
#[test]
fn nothing_is_left_of_whatever_is_killed() {
    for user in [User::Same, User::Other(somebody())] {
        let mut server = confined().user(user).args(["--python", "/usr/bin/python3", "--pool-size", "1"]).start();
        let folder = busy_session(&server);
        let processes = busy_below(server.pid());
        let keeper = processes.iter().find(|(_, name)| name == "ringfence-keep").unwrap().0;
        kill(keeper);
        assert!(!server.wait().success());
        gone(&processes);
        removed(&folder);
    }
}

/// The guard is the first process of a session: its death is the session's, and nobody else's.
#[test]
fn a_killed_guard_takes_its_session_along_and_no_other() {
    for user in [User::Same, User::Other(somebody())] {
        let server = confined().user(user).args(["--python", "/usr/bin/python3", "--pool-size", "0"]).start();
        let folder = busy_session(&server);
        let other = busy_session(&server);
        let processes = below(server.pid());
        let keeper = processes.iter().find(|(_, name)| name == "ringfence-keep").unwrap().0;
        // The guard of the first session is who has its folder as its own, below the keeper's zygote.
        let guard = below(keeper).into_iter().find(|(pid, name)| {
            name.starts_with("python")
                && fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == Path::new(&folder))
        });
        let guard = guard.unwrap().0;
        let session = busy_below(guard);
        kill(guard);
        gone(&session);
        removed(&folder);
        assert!(Path::new(&other).exists());
        drop(busy_below(keeper));
    }
}

/// A server that is told to end waits for no zygote that imports.
#[test]
fn told_to_end_while_a_lease_waits_for_its_image_it_ends_without_it() {
    // Not below /tmp, in whose place a session has its own.
    let modules = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(modules.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(modules.path().join("slow.py"), "import time; time.sleep(600)").unwrap();
    let state = tempfile::tempdir().unwrap();
    let slow = state.path().join("slow.toml");
    let text = "base = 'host'\npreloads = ['slow']\n[environment]\nPYTHONPATH = ";
    fs::write(&slow, format!("{text}'{}'\n", modules.path().display())).unwrap();
    let arguments = ["--tier-min", "confined", "--python", "/usr/bin/python3", "--pool-size", "1", "--images"];
    let mut server = confined().state_dir(state.path()).args(arguments).args([&slow]).start();
    assert_eq!(server.ready_line("tier"), Some("confined"));
    let before = descendants(server.pid()).len();
    let mut client = server.client();
    let lease = std::thread::spawn(move || client.call("POST", "/sessions", Some(&json!({"image": "slow"}))).status);
    eventually("its zygote", || (descendants(server.pid()).len() > before).then_some(()));
    assert!(server.stop().success());
    assert_eq!(lease.join().unwrap(), 503);
    let log = server.log();
    assert!(!log.contains("still") && !log.contains("the default one"), "{log}");
}

/// The first lease of an image waits for the image's zygote, and one that comes up in vain leaves the default image.
#[test]
fn a_lease_gets_the_image_that_it_names_from_the_first_on() {
    let state = tempfile::tempdir().unwrap();
    let images = [("two", "WHICH = 'two'"), ("broken", "PYTHONHOME = '/nonexistent'")].map(|(name, environment)| {
        let path = state.path().join(format!("{name}.toml"));
        fs::write(&path, format!("base = 'host'\n[environment]\n{environment}\n")).unwrap();
        path.display().to_string()
    });
    let arguments = ["--tier-min", "confined", "--python", "/usr/bin/python3", "--images", &images.join(",")];
    let server = confined().state_dir(state.path()).args(arguments).start();
    assert_eq!(server.ready_line("tier"), Some("confined"));
    let mut client = server.client();
    for (name, image) in [("two", "two"), ("two", "two"), ("broken", "bare"), ("two", "two")] {
        let answer = client.call("POST", "/sessions", Some(&json!({"image": name})));
        assert_eq!((answer.status, answer.json()["image"].as_str()), (201, Some(image)), "{name}: {answer:?}");
    }
    let mut session = client.lease(&json!({"image": "two"}));
    assert_eq!(session.python("import os; print(os.environ.get('WHICH'))"), "two\n");
}
