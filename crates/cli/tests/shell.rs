//! `ringfence shell` from outside: on a pipe against a backend in memory, on a terminal against the real server.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use ringfence_fake::{Fake, Rules};
use ringfence_testkit::{Server, ServerOptions};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ringfence");

fn clean(command: &mut Command, folder: &Path, url: &str) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("RINGFENCE_")) {
        command.env_remove(name);
    }
    command.env("RINGFENCE_URL", url).env("HOME", folder).env_remove("XDG_STATE_HOME").current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
}

/// The shell on a pipe, to its end.
async fn piped(folder: &Path, url: &str, arguments: &[&str], entries: &str) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("shell").args(arguments);
    clean(&mut command, folder, url);
    let entries = entries.to_owned();
    let work = move || {
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(entries.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    tokio::task::spawn_blocking(work).await.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn on_a_pipe_each_entry_is_a_call_of_one_session() {
    let (fake, folder) = (Fake::start(Rules::default()).await.unwrap(), tempfile::tempdir().unwrap());
    let entries = "x = 41\n\nprint(x + 1)\n!echo from a shell\nopen('out.txt', 'w').write('made')\nraise ValueError('no')\n\
                   !\nprint('after')\nexit\nprint('never')\n";
    let output = piped(folder.path(), fake.url(), &[], entries).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stdout), "42\nfrom a shell\nafter\n");
    let said = text(&output.stderr);
    assert!(said.contains("wrote out.txt\n") && said.contains("ValueError: no"), "{said}");
    assert!(!said.contains('\x1b') && !said.contains(">>>"), "{said}");
    assert_eq!(fake.sessions(), 0);
    assert_eq!(fake.requests().iter().filter(|line| line.ends_with("/exec")).count(), 6);
}

#[tokio::test]
async fn an_attached_session_is_left_and_results_are_json_where_asked() {
    let (fake, folder) = (Fake::start(Rules::default()).await.unwrap(), tempfile::tempdir().unwrap());
    let client = ringfence_client::Client::new(fake.url()).unwrap();
    let id = client.lease(&ringfence_client::LeaseOptions::default()).await.unwrap().keep().id().to_owned();
    let output = piped(folder.path(), fake.url(), &["--session", &id, "--json"], "x = 5\nprint(x)\n").await;
    let last: Value = serde_json::from_str(text(&output.stdout).lines().last().unwrap()).unwrap();
    assert_eq!((&last["stdout"], &last["session_id"]), (&Value::from("5\n"), &Value::from(id.as_str())));
    assert_eq!(fake.sessions(), 1);
    let lost = piped(folder.path(), fake.url(), &["--session", "no-such"], "x = 5\nprint(x)\n").await;
    assert!(lost.status.code() == Some(1) && text(&lost.stderr).contains("not found"), "{lost:?}");
}

/// The shell on a terminal of its own.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    seen: String,
}

impl Terminal {
    fn open(folder: &Path, url: &str, arguments: &str) -> Self {
        // `script` (package bsdutils) gives its child a terminal, and passes keys and screen through.
        let mut command = Command::new("script");
        command.args(["--quiet", "--flush", "--return", "--command"]);
        command.arg(format!("exec env --default-signal {PROGRAM} shell {arguments}")).arg("/dev/null");
        clean(&mut command, folder, url);
        command.env("TERM", "xterm").env("NO_COLOR", "1");
        let mut child = command.spawn().unwrap_or_else(|error| panic!("script (install bsdutils): {error}"));
        let (keys, screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Terminal { child, keys, screen, seen: String::new() }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits until the screen has shown it, and forgets what came before.
    fn sees(&mut self, wanted: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            if let Some(at) = self.seen.find(wanted) {
                let rest = self.seen.split_off(at + wanted.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let count = self.screen.read(&mut buffer).unwrap();
            assert!(count > 0, "{wanted:?} is not in {:?}", self.seen);
            self.seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    }
}

/// What the server says under a path, to one with its token.
fn ask(server: &Server, path: &str) -> Value {
    ringfence_testkit::Client::new(server.address(), Some("t0ken")).call("GET", path, None).json()
}

#[test]
fn on_a_terminal_calls_are_interrupted_and_entries_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "t0ken").unwrap();
    std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let server = ServerOptions::new(PROGRAM).args(["--auth-token-file".into(), token.clone()]).start();
    let url = format!("http://{}", server.address());
    let mut terminal = Terminal::open(folder.path(), &url, &format!("--token-file {}", token.display()));
    terminal.sees(">>> ");
    terminal.press("for i in range(3):\r");
    terminal.sees("... ");
    terminal.press("    print('line', i * 11)\r");
    terminal.sees("... ");
    terminal.press("\r");
    terminal.sees("line 22");
    terminal.sees(">>> ");
    terminal.press("6 * 7\r");
    terminal.sees("42\r\n");
    terminal.sees(">>> ");
    terminal.press("import time; x = 5; print('go' + 'es', flush=True); open('ready', 'w').close(); time.sleep(600)\r");
    let listed = ask(&server, "/sessions")["sessions"].clone();
    let id = listed[0]["session_id"].as_str().unwrap();
    // The call runs once its file is there; its output comes when it ends.
    while ask(&server, &format!("/sessions/{id}/files/list"))["files"].as_array().unwrap().is_empty() {}
    terminal.press("\x03");
    terminal.sees("goes");
    terminal.sees("interrupted by the caller; variables are kept");
    terminal.sees(">>> ");
    terminal.press("half an entry\x03");
    terminal.sees(">>> ");
    terminal.press("print(x + 1)\r");
    terminal.sees("6\r\n");
    terminal.sees(">>> ");
    // What a terminal would obey is shown, not sent to it: the clipboard, a report that would come back as if typed.
    terminal.press("!printf '\\033]52;c;eA==\\007\\033[6n\\n\\033[31mred\\033[m\\n'\r");
    let shown = terminal.sees("\\u{1b}]52;c;eA==\\u{7}\\u{1b}[6n\r\n");
    assert!(!shown.contains("\x1b]52"), "{shown:?}");
    terminal.sees("\x1b[31mred\x1b[m\r\n\x1b[0m");
    terminal.sees(">>> ");
    terminal.press("2 * 4\r");
    terminal.sees("8\r\n");
    terminal.sees(">>> ");
    // An entry of before, from the history.
    terminal.press("\x1b[A\x1b[A\x1b[A\x1b[A");
    terminal.sees("time.sleep(600)");
    terminal.press("\x03");
    terminal.sees(">>> ");
    terminal.press("\x04");
    assert!(terminal.child.wait().unwrap().success());
    assert_eq!(ask(&server, "/health")["session_count"], 0);
    let history = folder.path().join(".local/state/ringfence/shell-history");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&history).unwrap().permissions());
    assert_eq!(mode & 0o077, 0, "{mode:o}");
    let history = std::fs::read_to_string(history).unwrap();
    assert!(history.contains("6 * 7"), "{history}");
}

#[test]
fn signals_interrupt_a_call_and_release_what_a_shell_has_leased() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerOptions::new(PROGRAM).start();
    let url = format!("http://{}", server.address());
    let mut door = ringfence_testkit::Client::new(server.address(), None);
    let work = |program: &str, arguments: &[&str]| {
        // Whatever the tests' own parent ignores.
        let mut command = Command::new("env");
        command.args(["--default-signal", PROGRAM, program]).args(arguments);
        clean(&mut command, folder.path(), &url);
        command.spawn().unwrap()
    };
    let signal = |child: &Child, name: &str| {
        assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
    };
    let id =
        door.call("POST", "/sessions", Some(&serde_json::json!({}))).json()["session_id"].as_str().unwrap().to_owned();
    let exec = work("exec", &[&id, "x = 5; open('ready', 'w').close(); import time; time.sleep(600)"]);
    while door.call("GET", &format!("/sessions/{id}/files/list"), None).json()["files"].as_array().unwrap().is_empty() {
    }
    signal(&exec, "-INT");
    let output = exec.wait_with_output().unwrap();
    assert!(text(&output.stderr).contains("interrupted by the caller"), "{output:?}");
    assert!(!matches!(output.status.code(), None | Some(0 | 125)), "{output:?}");

    // While it waits for a line, and during a call.
    for (entry, name, status) in [("", "-TERM", 143), ("import time; time.sleep(600)\n", "-HUP", 129)] {
        let mut shell = work("shell", &[]);
        // Held open: the end of the input is an end as well.
        let mut input = shell.stdin.take().unwrap();
        input.write_all(format!("print('begun')\n{entry}").as_bytes()).unwrap();
        let mut begun = [0; 6];
        shell.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
        assert_eq!(door.call("GET", "/health", None).json()["session_count"], 2);
        signal(&shell, name);
        assert_eq!(shell.wait().unwrap().code(), Some(status), "{name}");
        assert_eq!(door.call("GET", "/health", None).json()["session_count"], 1, "{name}");
    }
}
