//! The tier `gvisor`, by an installed `runsc`: all operations, sessions apart, limits, what is not promised, and nothing
//! left behind.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use ringfence_attack::sandbox_weaknesses;
use ringfence_probe::Address;
use ringfence_testkit::{Server, ServerOptions, User, cgroups_of, descendants, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ringfence");

fn options() -> ServerOptions {
    without_pool().args(["--pool-size", "1", "--pool-max", "1"])
}

fn without_pool() -> ServerOptions {
    ServerOptions::new(PROGRAM).args(["--tier", "gvisor"])
}

fn python(code: &str) -> Value {
    json!({"tool": "code_execution", "input": {"code": code}})
}

fn content(envelope: &Value) -> &Value {
    &envelope["result_block"]["content"]
}

fn url(server: &Server) -> String {
    format!("http://{}", server.address())
}

#[test]
fn all_operations_work_in_a_sandbox_of_the_sessions_own() {
    let mut server = options().start();
    assert_eq!(server.ready_line("tier"), Some("gvisor"));
    let mut client = server.client();
    assert_eq!(client.call("GET", "/health", None).json()["tier"], "gvisor");
    let mut session = client.lease(&json!({}));
    assert_eq!(session.handle["tier"], "gvisor");
    // The kernel that answers is the sandbox's.
    let host = std::fs::read_to_string("/proc/version").unwrap();
    let version = session.python("x = 41; print(open('/proc/version').read(), end='')");
    assert!(version.contains("Linux version 4.4.0") && version != host, "{version}");
    assert_eq!(session.python("print(x + 1)"), "42\n");
    assert_eq!(session.bash("id -u; pwd; echo made > by-bash"), "1000\n/workspace\n");
    assert_eq!(session.put("in/put.txt", b"put by the caller").status, 201);
    assert_eq!(
        session.python("print(open('in/put.txt').read(), open('by-bash').read(), end='')"),
        "put by the caller made\n"
    );
    session.python("open('in/put.txt', 'a').write(' and changed')");
    assert_eq!(session.get("in/put.txt").body, b"put by the caller and changed");
    let edit = json!({"tool": "text_editor_code_execution", "input": {
        "command": "str_replace", "path": "/workspace/in/put.txt", "old_str": "caller", "new_str": "editor",
    }});
    session.execute(&edit);
    assert_eq!(session.bash("cat in/put.txt"), "put by the editor and changed");
    let id = session.id.clone();
    session.release();
    assert_eq!(client.call("GET", &format!("/sessions/{id}/files/list"), None).status, 404);
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn calls_end_at_their_time_and_the_session_goes_on() {
    let server = options().start();
    let mut client = server.client();
    let mut session = client.lease(&json!({}));
    // A call counts as its own what started in the tick in which it begins.
    session.bash("sleep 31557 > /dev/null 2>&1 & sleep 0.2");
    let mut slow = python("x = 1\nwhile True: pass");
    slow["timeout_seconds"] = json!(1);
    let envelope = session.execute(&slow);
    assert_eq!((&content(&envelope)["return_code"], &envelope["limit_exceeded"]), (&json!(124), &json!("wall_clock")));
    assert_eq!(session.python("print(x)"), "1\n", "variables are kept");
    let mut tree = json!({"tool": "bash_code_execution", "input": {"command": "sleep 31558 & sleep 31558"}});
    tree["timeout_seconds"] = json!(1);
    assert_eq!(content(&session.execute(&tree))["return_code"], 124);
    // What the call had started is gone; what was there before it is not.
    let seen = "import glob\nfor p in glob.glob('/proc/[0-9]*/cmdline'):\n    t = open(p).read().split('\\0')\n    \
                if t[0] == 'sleep': print(t[1])";
    assert_eq!(session.python(seen), "31557\n");
    let killed = session.execute(&python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"));
    let told = (&content(&killed)["return_code"], &killed["interpreter_restarted"]);
    assert_eq!(told, (&json!(137), &json!(true)));
    assert_eq!(session.python("print('x' in globals())"), "False\n");
    let hog = session.execute(&python("x = bytearray(4 << 30)"));
    assert_eq!((&content(&hog)["return_code"], &hog["limit_exceeded"]), (&json!(137), &json!("memory")));
    let disk = session.execute(&python("with open('f', 'wb') as f:\n    while True: f.write(bytes(1 << 20))"));
    assert_eq!(disk["limit_exceeded"], "disk");
    session.release();
}

/// The list is what is told to operators, and each entry is shown; the day one is mended, it must go.
#[test]
fn sessions_are_apart_and_what_is_not_promised_is_true() {
    let server = options().start();
    let (mut one, mut other) = (server.client(), server.client());
    let (mut first, mut second) = (one.lease(&json!({})), other.lease(&json!({})));
    first.python("secret = 'of the first'\nopen('secret', 'w').write(secret)");
    first.bash("cp secret /tmp/secret; cp secret /dev/shm/secret");
    let look = "import glob, os\nprint('secret' in globals(), glob.glob('/workspace/*') + glob.glob('/tmp/*') + \
                glob.glob('/dev/shm/*'), len([p for p in os.listdir('/proc') if p.isdigit()]))";
    // The guard, and the interpreter.
    assert_eq!(second.python(look), "False [] 2\n");
    let reach = "import os, socket\nfor what in ('os.kill(1, 9)', 'os.setuid(0)', \"open('/usr/x', 'w')\", \
                 \"open('/proc/1/fd/2', 'w')\", \"open('/proc/1/mem')\", \
                 \"socket.create_connection(('192.0.2.1', 80), 2)\"):\n    \
                 try: eval(what); print(what)\n    except OSError: pass";
    assert_eq!(second.python(reach), "");
    assert_eq!(first.python("print(secret)"), "of the first\n");
    first.release();
    second.release();
    let document = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../SECURITY.md")).unwrap();
    let flowing = document.split_whitespace().collect::<Vec<_>>().join(" ");
    let address = Address::parse(&url(&server), None).unwrap();
    let doctor = String::from_utf8(Command::new(PROGRAM).arg("doctor").output().unwrap().stdout).unwrap();
    for weakness in sandbox_weaknesses().unwrap() {
        assert!(flowing.contains(&weakness.about), "SECURITY.md does not say: {}", weakness.about);
        assert!(doctor.contains(&weakness.about), "doctor does not say: {}", weakness.about);
        weakness.show(&address, "").unwrap();
    }
}

#[test]
fn the_contract_is_kept_in_sandboxes() {
    let server = options().start();
    let output = Command::new(PROGRAM).args(["check", "--base-url", &url(&server)]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn sandboxes(server: &Server) -> Vec<u32> {
    let name = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    descendants(server.pid()).into_iter().filter(|pid| name(*pid).starts_with("runsc-sandbox")).collect()
}

fn alive(pid: &u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn left_in(state: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(state).unwrap().flatten();
    entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name.starts_with("ringfence-"))
        .collect()
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

/// Whoever is killed: no process stays, no folder, no mount, no group.
#[test]
fn nothing_is_left_of_whatever_is_killed() {
    for victim in ["", "ringfence-keep", "all of ringfence"] {
        let state = tempfile::tempdir().unwrap();
        let mut server = options().state_dir(state.path()).start();
        let mut client = server.client();
        client.lease(&json!({})).bash("sleep 31559 > /dev/null 2>&1 &");
        let comm = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let processes =
            eventually("a second sandbox", || (sandboxes(&server).len() == 2).then(|| descendants(server.pid())));
        assert_eq!(left_in(state.path()).len(), 1);
        let ours: Vec<u32> = processes.iter().copied().filter(|pid| comm(*pid).starts_with("ringfence")).collect();
        match victim {
            "" => kill(server.pid()),
            "ringfence-keep" => kill(*ours.iter().find(|pid| comm(**pid).trim() == victim).unwrap()),
            _ => ours.iter().chain([&server.pid()]).copied().for_each(kill),
        }
        assert!(!server.wait().success());
        eventually("the end of all processes", || (!processes.iter().any(alive)).then_some(()));
        if victim != "all of ringfence" {
            eventually("the end of all folders", || left_in(state.path()).is_empty().then_some(()));
            eventually("the end of all groups", || cgroups_of(&processes).is_empty().then_some(()));
        }
        // What nobody was left to remove goes with the next start.
        let mut next = options().state_dir(state.path()).start();
        assert!(next.stop().success());
        assert_eq!(left_in(state.path()), Vec::<String>::new());
        assert!(cgroups_of(&processes).is_empty());
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(state.path().to_str().unwrap()), "{mounts}");
    }
}

#[test]
fn a_killed_sandbox_takes_its_session_along_and_no_other() {
    let server = without_pool().args(["--pool-size", "0"]).start();
    let (mut one, mut other) = (server.client(), server.client());
    let first = one.lease(&json!({})).id;
    let before = sandboxes(&server);
    let mut second = other.lease(&json!({}));
    for pid in before {
        kill(pid);
    }
    let path = format!("/sessions/{first}/exec");
    eventually("the end of the first session", || {
        (one.call("POST", &path, Some(&python("1"))).status == 404).then_some(())
    });
    assert_eq!(second.python("print('alive')"), "alive\n");
    second.release();
}

#[test]
fn without_runsc_or_root_it_is_refused_and_said_what_lifts_it() {
    let (status, _, said) = options().env("PATH", "/nonexistent").run_to_end();
    assert_eq!(status.code(), Some(4), "{said}");
    assert!(said.contains("apt-get install runsc"), "{said}");
    let (status, _, said) = options().user(User::Other(65_534)).run_to_end();
    assert_eq!(status.code(), Some(4), "{said}");
    assert!(said.contains("run the server as root"), "{said}");
    // `auto` takes it where nothing weaker will do.
    let server = ServerOptions::new(PROGRAM).args(["--tier-min", "gvisor", "--pool-size", "1"]).start();
    assert_eq!(server.ready_line("tier"), Some("gvisor"));
    let server = ServerOptions::new(PROGRAM).args(["--pool-size", "1"]).start();
    assert_eq!(server.ready_line("tier"), Some("cell"));
}

/// However many sandboxes there are, and whatever runs in them: the host can go on to start processes.
#[test]
fn all_sandboxes_together_leave_half_of_the_hosts_tasks() {
    let server = options().start();
    let pid_max: u64 = std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap().trim().parse().unwrap();
    let groups = cgroups_of(&descendants(server.pid()));
    let limit = |group: &Path| std::fs::read_to_string(group.join("pids.max")).ok();
    let of_sandboxes: Vec<_> = groups
        .iter()
        .filter(|group| group.file_name().unwrap().to_str().unwrap().starts_with("session-"))
        .filter_map(|group| Some((limit(group)?, limit(group.parent()?)?)))
        .collect();
    assert!(!of_sandboxes.is_empty(), "{groups:?}");
    for (one, all) in of_sandboxes {
        assert_eq!((one.trim(), all.trim()), ("4097", (pid_max / 2).to_string().as_str()));
    }
}

/// A sandbox that does not come up is not waited for.
#[test]
fn told_to_end_while_it_warms_up_it_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let state = tempfile::tempdir().unwrap();
    let runsc = folder.path().join("runsc");
    // Its parent is the keeper, whose parent is the warden, whose parent is the server.
    let script = "#!/bin/sh\n\
                  case \"$*\" in *ringfence-trial*) exit 0;; esac\n\
                  read -r _ _ _ warden _ < /proc/$PPID/stat\n\
                  read -r _ _ _ server _ < /proc/$warden/stat\n\
                  kill -TERM $server\n\
                  exec /bin/sleep 31560\n";
    std::fs::write(&runsc, script).unwrap();
    std::fs::set_permissions(&runsc, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let (status, ready, said) = options().state_dir(state.path()).env("PATH", path).run_to_end();
    assert!(status.success() && said.contains("told to end before it was ready"), "{status} {said}");
    assert_eq!(ready, "");
    eventually("the end of all folders", || left_in(state.path()).is_empty().then_some(()));
}
