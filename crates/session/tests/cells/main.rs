//! Sessions in real cells, with the standard library's Python of this machine.
//!
//! No test harness: the program is its own keeper, and enters the fleet's namespace before it has a second thread.
//! `cargo test -p ringfence-session --test cells [NAME]...` runs the cases whose name contains one of the words.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on ends by a panic, and what it has to say goes to its output"
)]

mod bash;
mod house;
mod interpreter;
mod launch;
mod lives;
mod renewal;

use std::fs::Permissions;
use std::future::Future;
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ringfence_interp::{Interp, InterpConfig, Memory, Renewal};
use ringfence_op::{Bash, Call, CallLimits, CellLimits, Fault, Operation, Outcome, Python, SessionId, ToolUseId};
use ringfence_session::{Lease, SessionConfig, Sessions};

/// Where zygotes look for a file `hold` before they are ready.
pub(crate) static GATE: OnceLock<PathBuf> = OnceLock::new();

type Case = (&'static str, fn(Sessions) -> Pin<Box<dyn Future<Output = ()> + Send>>);

/// Names the cases of a module.
#[macro_export]
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub(crate) const CASES: &[$crate::Case] = &[$((stringify!($name), |sessions| Box::pin($name(sessions)))),*];
    };
}

const TIMEOUT: Duration = Duration::from_secs(30);
/// Forks of a zygote until it is replaced: few, so that all of these tests run with zygotes that come and go.
pub(crate) const FORKS_MAX: u32 = 8;
/// Sessions at the same time in these tests.
pub(crate) const SESSIONS_MAX: usize = 6;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if words.first().is_some_and(|word| word == "keeper") {
        return launch::keeper();
    }
    let state = tempfile::tempdir().expect("a folder for state");
    // Once in the fleet, this process is another user.
    let gate = tempfile::tempdir().expect("a folder for the gate");
    std::fs::set_permissions(gate.path(), Permissions::from_mode(0o777)).expect("its rights");
    GATE.set(gate.path().to_owned()).expect("one gate");
    let (launched, root) = launch::launch(state.path().to_owned(), limits(), Some(gate.path()));
    let keeper = launched.pid;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let failed = runtime.block_on(async {
        let config = InterpConfig {
            pool_size: 2,
            pool_max: 2,
            memory: Arc::new(Memory::new(0)),
            renewal: Renewal { forks_max: NonZeroU32::new(FORKS_MAX), age_max: None },
            zygotes_apart: None,
            calls: calls(),
        };
        let interp = Interp::start(launched.socket, launched.limiter, &[root], config).expect("the keeper's socket");
        interp.warmed().await.expect("a first cell");
        let config =
            SessionConfig { sessions_max: SESSIONS_MAX, calls: calls(), cell: limits(), ..SessionConfig::default() };
        let sessions = Sessions::start(interp, config);
        let failed = run(&sessions, &words).await;
        sessions.shutdown(Duration::from_secs(1)).await;
        failed
    });
    drop(runtime);
    let ended = ringfence_sys::process::wait_for(keeper).expect("the keeper's end");
    println!("the keeper ended with wait status {}; {failed} failed", ended.status);
    if failed == 0 && ended.status == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(sessions: &Sessions, words: &[String]) -> usize {
    let mut failed = 0;
    for (name, case) in [interpreter::CASES, bash::CASES, lives::CASES, house::CASES, renewal::CASES].concat() {
        if !words.is_empty() && !words.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        let result = tokio::time::timeout(Duration::from_secs(120), tokio::spawn(case(sessions.clone()))).await;
        let good = matches!(result, Ok(Ok(())));
        println!("{} {name}", if good { "ok    " } else { "FAILED" });
        failed += usize::from(!good);
    }
    failed
}

fn calls() -> CallLimits {
    CallLimits { queue_calls_max: 24, ..CallLimits::default() }
}

fn limits() -> CellLimits {
    CellLimits { memory_bytes: 256 << 20, processes: 64, workspace_bytes: 32 << 20, ..CellLimits::default() }
}

/// A session with the default hints.
pub(crate) async fn lease(sessions: &Sessions) -> SessionId {
    sessions.create(Lease::default()).await.expect("a session").id
}

/// Releases a session, and waits until its cell is gone.
pub(crate) async fn release(sessions: &Sessions, id: SessionId) {
    sessions.destroy(id).expect("a session to release");
    while sessions.counts().ending > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A call of this operation.
pub(crate) fn call(operation: Operation, timeout: Duration) -> Call {
    Call { tool_use_id: ToolUseId::random().expect("random bytes"), operation, timeout }
}

/// Code for the interpreter.
pub(crate) fn code(text: &str) -> Operation {
    Operation::Python(Python { code: text.to_owned(), echo_last: false })
}

/// A command for the shell.
pub(crate) fn command(text: &str) -> Operation {
    Operation::Bash(Bash { command: text.to_owned() })
}

/// Runs code.
pub(crate) async fn python(sessions: &Sessions, id: SessionId, text: &str) -> Outcome {
    sessions.execute(id, call(code(text), TIMEOUT)).await.expect("an outcome")
}

/// Runs code that must be done after `seconds`.
pub(crate) async fn python_within(sessions: &Sessions, id: SessionId, text: &str, seconds: u64) -> Outcome {
    sessions.execute(id, call(code(text), Duration::from_secs(seconds))).await.expect("an outcome")
}

/// Runs a command.
pub(crate) async fn bash(sessions: &Sessions, id: SessionId, text: &str) -> Outcome {
    sessions.execute(id, call(command(text), TIMEOUT)).await.expect("an outcome")
}

/// Runs a command that must be done after `seconds`.
pub(crate) async fn bash_within(sessions: &Sessions, id: SessionId, text: &str, seconds: u64) -> Outcome {
    sessions.execute(id, call(command(text), Duration::from_secs(seconds))).await.expect("an outcome")
}

/// Runs whatever.
pub(crate) async fn try_call(sessions: &Sessions, id: SessionId, operation: Operation) -> Result<Outcome, Fault> {
    sessions.execute(id, call(operation, TIMEOUT)).await
}
