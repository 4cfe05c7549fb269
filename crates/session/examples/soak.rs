//! Mixed calls in many sessions, with timeouts, deaths and floods among them, and what the process holds meanwhile:
//! `cargo run --release -p ringfence-session --example soak [CALLS] [SESSIONS]`.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on ends by a panic, and what it has to say goes to its output"
)]

#[path = "../tests/cells/launch.rs"]
mod launch;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_interp::{Interp, InterpConfig, Memory, Renewal};
use ringfence_op::{Bash, Call, CallLimits, CellLimits, Operation, Python, SessionId, ToolUseId};
use ringfence_session::{Lease, SessionConfig, Sessions};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "keeper") {
        return launch::keeper();
    }
    let number = |place: usize, default| words.get(place).and_then(|word| word.parse().ok()).unwrap_or(default);
    let (calls, sessions) = (number(0, 20_000), number(1, 50));
    let state = tempfile::tempdir().expect("a folder for state");
    let limits = CellLimits { memory_bytes: 256 << 20, processes: 64, ..CellLimits::default() };
    let (launched, root) = launch::launch(state.path().to_owned(), limits, None);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let good = runtime.block_on(async {
        let config = InterpConfig {
            pool_size: 4,
            pool_max: 4,
            memory: Arc::new(Memory::new(0)),
            renewal: Renewal::default(),
            zygotes_apart: None,
            calls: CallLimits::default(),
        };
        let interp = Interp::start(launched.socket, launched.limiter, &[root], config).expect("the keeper's socket");
        let config = SessionConfig { sessions_max: sessions + 1, ..SessionConfig::default() };
        soak(Sessions::start(interp, config), calls, sessions).await
    });
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What a call must come to: its operation, its timeout, its return code.
fn mixed(n: usize) -> (Operation, u64, i32) {
    match n % 40 {
        7 => (python("import time\ntime.sleep(30)"), 1, 124),
        13 => (python("import os; os._exit(5)"), 30, 5),
        17 => (python("print('x' * 3_000_000)"), 30, 0),
        19 => (python("import ctypes; ctypes.string_at(0)"), 30, 139),
        23 => (bash("sleep 30 & sleep 30"), 1, 124),
        27 => (bash("(sleep 0.2; echo late) & echo hi; exit 3"), 30, 3),
        29 => (
            python("import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(1)"),
            1,
            124,
        ),
        31 => (python("import os\nfor fd in range(3, 1024):\n    try: os.close(fd)\n    except OSError: pass"), 30, -1),
        37 => (python("1/0"), 30, 1),
        even if even % 4 == 0 => (bash("echo $$ > f; cat f > g"), 30, 0),
        _ => (python("print(sum(range(1000)))"), 30, 0),
    }
}

async fn soak(sessions: Sessions, calls: usize, count: usize) -> bool {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(sessions.create(Lease::default()).await.expect("a session").id);
    }
    let begun = Instant::now();
    let (mut wrong, step) = (0, calls.div_ceil(10).max(1));
    println!("calls    descriptors  resident KiB  processes");
    report(0);
    for first in (0..calls).step_by(step) {
        let mut tasks = Vec::new();
        for (place, &id) in ids.iter().enumerate() {
            let sessions = sessions.clone();
            let mine: Vec<usize> = (first..(first + step).min(calls)).filter(|n| n % count == place).collect();
            tasks.push(tokio::spawn(async move {
                let mut wrong = 0;
                for n in mine {
                    wrong += usize::from(!right(&sessions, id, n).await);
                }
                wrong
            }));
        }
        for task in tasks {
            wrong += task.await.expect("a client");
        }
        report((first + step).min(calls));
    }
    for id in ids {
        wrong += usize::from(sessions.destroy(id).is_err());
    }
    sessions.shutdown(Duration::ZERO).await;
    report(calls);
    println!(
        "{calls} calls in {count} sessions in {:.1} s, {wrong} were not as they must be",
        begun.elapsed().as_secs_f64()
    );
    wrong == 0
}

async fn right(sessions: &Sessions, id: SessionId, n: usize) -> bool {
    // Each session gets every kind, in an order of its own.
    let (operation, seconds, return_code) = mixed(n / 7 + n);
    let tool_use_id = ToolUseId::random().expect("random bytes");
    let call = Call { tool_use_id, operation, timeout: Duration::from_secs(seconds) };
    match sessions.execute(id, call).await {
        Ok(outcome) if return_code < 0 || outcome.report.return_code == return_code => true,
        other => {
            println!("call {n}: wanted {return_code}, saw {other:?}");
            false
        }
    }
}

fn report(calls: usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("?").trim().to_owned();
    let processes = std::fs::read_dir("/proc").map_or(0, |entries| {
        entries
            .flatten()
            .filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit))
            .count()
    });
    println!("{calls:<8} {descriptors:<12} {resident:<13} {processes}");
}

fn python(code: &str) -> Operation {
    Operation::Python(Python { code: code.to_owned(), echo_last: false })
}

fn bash(command: &str) -> Operation {
    Operation::Bash(Bash { command: command.to_owned() })
}
