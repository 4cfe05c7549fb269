//! How long leases and calls take below the door: `cargo run --release -p ringfence-session --example speed [ROUNDS]`.

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
    let word = std::env::args().nth(1);
    if word.as_deref() == Some("keeper") {
        return launch::keeper();
    }
    let rounds = word.and_then(|word| word.parse().ok()).unwrap_or(1000);
    let state = tempfile::tempdir().expect("a folder for state");
    let (launched, root) = launch::launch(state.path().to_owned(), CellLimits::default(), None);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let config = InterpConfig {
            pool_size: 4,
            pool_max: 4,
            memory: Arc::new(Memory::new(0)),
            renewal: Renewal::default(),
            zygotes_apart: None,
            calls: CallLimits::default(),
        };
        let interp = Interp::start(launched.socket, launched.limiter, &[root], config).expect("the keeper's socket");
        let sessions = Sessions::start(interp, SessionConfig::default());
        tokio::spawn(measure(sessions, rounds)).await.expect("the measurements");
    });
    ExitCode::SUCCESS
}

async fn measure(sessions: Sessions, rounds: usize) {
    let id = sessions.create(Lease::default()).await.expect("a session").id;
    let first = time(&sessions, id, python("print(1)")).await;
    println!("first print(1): {} us", first.as_micros());
    for (name, operation) in [("print(1)", python("print(1)")), ("pass", python("pass")), ("bash true", bash("true"))] {
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            times.push(time(&sessions, id, operation.clone()).await);
        }
        show(name, times);
    }
    sessions.destroy(id).expect("a session");
    let (mut warm, mut back_to_back) = (Vec::new(), Vec::new());
    for round in 0..200 {
        let calm = round % 2 == 0;
        while calm && sessions.counts().warm < 4 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let begun = Instant::now();
        let id = sessions.create(Lease::default()).await.expect("a session").id;
        if calm { &mut warm } else { &mut back_to_back }.push(begun.elapsed());
        sessions.destroy(id).expect("a session");
    }
    show("lease, warm pool", warm);
    show("lease, right after another", back_to_back);
    let begun = Instant::now();
    for _ in 0..50 {
        let id = sessions.create(Lease::default()).await.expect("a session").id;
        time(&sessions, id, python("print(1)")).await;
        sessions.destroy(id).expect("a session");
    }
    println!("lease, print(1), release, one client: {:.0} a second", 50.0 / begun.elapsed().as_secs_f64());
    sessions.shutdown(Duration::ZERO).await;
}

async fn time(sessions: &Sessions, id: SessionId, operation: Operation) -> Duration {
    let tool_use_id = ToolUseId::random().expect("random bytes");
    let call = Call { tool_use_id, operation, timeout: Duration::from_secs(30) };
    let begun = Instant::now();
    let outcome = sessions.execute(id, call).await.expect("an outcome");
    let elapsed = begun.elapsed();
    assert_eq!(outcome.report.return_code, 0, "{outcome:?}");
    elapsed
}

fn python(code: &str) -> Operation {
    Operation::Python(Python { code: code.to_owned(), echo_last: false })
}

fn bash(command: &str) -> Operation {
    Operation::Bash(Bash { command: command.to_owned() })
}

fn show(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: usize| times.get((times.len() * share / 100).min(times.len() - 1)).map_or(0, Duration::as_micros);
    println!("{name}: p50 {} us, p99 {} us, of {}", at(50), at(99), times.len());
}
