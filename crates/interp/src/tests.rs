//! Calls, deaths and the pool, over links whose other ends run in threads of the test.

use std::time::Duration;

use ringfence_op::{Bash, CallReport, LimitKind, Python};

use crate::cell::Cell;
use crate::error::LeaseError;
use crate::fake::{Fake, SLOW};
use crate::interrupt::InterruptHandle;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(100);

async fn python(cell: &mut Cell, code: &str, timeout: Duration) -> CallReport {
    let report = cell.run_python(&Python { code: code.to_owned(), echo_last: false }, timeout).await;
    assert!(!cell.died(), "{report:?}");
    report
}

async fn bash(cell: &mut Cell, command: &str, timeout: Duration) -> CallReport {
    cell.run_bash(&Bash { command: command.to_owned() }, timeout).await
}

fn plain(report: &CallReport) -> (i32, &str, &str, bool) {
    (report.return_code, &report.stdout, &report.stderr, report.interpreter_restarted)
}

/// The interpreter lost in a call is told in that call, and the next one has another.
async fn lost(code: &str, return_code: i32, words: &str) {
    let fake = Fake::start(1);
    let mut cell = fake.interp.lease(0, None).await.unwrap();
    let report = python(&mut cell, code, LONG).await;
    assert_eq!((report.return_code, report.interpreter_restarted), (return_code, true), "{report:?}");
    assert!(report.stderr.contains(words) && report.stderr.ends_with('\n'), "{report:?}");
    assert_eq!(plain(&python(&mut cell, "print back", LONG).await), (0, "back", "", false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_run_and_report() {
    let fake = Fake::start(1);
    let mut cell = fake.interp.lease(0, None).await.unwrap();
    let report = python(&mut cell, "print hello\n", LONG).await;
    assert_eq!(plain(&report), (0, "hello\n", "", false));
    assert_eq!((report.usage.cpu_ms, report.usage.stdout_bytes), (2, 6));
    let report = python(&mut cell, "raise Traceback", LONG).await;
    assert_eq!(plain(&report), (1, "", "Traceback", false));
    assert_eq!(plain(&bash(&mut cell, "say hi", LONG).await), (0, "hi", "", false));
    assert_eq!(plain(&bash(&mut cell, "exit 7", LONG).await), (7, "", "", false));
    assert_eq!(plain(&bash(&mut cell, "", LONG).await), (0, "", "", false));
    assert_eq!(bash(&mut cell, "say a\0b", LONG).await.return_code, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_command_travels_as_a_script_and_output_is_capped() {
    let fake = Fake::start(1);
    let mut cell = fake.interp.lease(0, None).await.unwrap();
    let text = "x".repeat(200 << 10);
    let report = bash(&mut cell, &format!("say {text}"), LONG).await;
    assert_eq!((report.return_code, report.limit_exceeded), (0, Some(LimitKind::Output)));
    assert_eq!(report.usage.stdout_bytes, text.len() as u64);
    assert!(report.stdout.contains("204700 bytes dropped") && report.stdout.len() < 200, "{}", report.stdout);
    let report = python(&mut cell, &format!("print {text}"), LONG).await;
    assert_eq!(report.usage.stdout_bytes, text.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interpreter_that_exits_is_told_once_and_replaced() {
    lost("die 5", 5, "exited with status 5; variables are lost, files are kept").await;
    lost("die 0", 1, "exited with status 0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_answer_costs_the_interpreter() {
    for code in ["forge", "wrong", "shut"] {
        lost(code, 1, "control channel was damaged").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_answer_costs_the_interpreter_before_the_next_call() {
    let fake = Fake::start(1);
    let mut cell = fake.interp.lease(0, None).await.unwrap();
    assert_eq!(plain(&python(&mut cell, "twice", LONG).await), (0, "", "", false));
    assert_eq!(plain(&python(&mut cell, "print mine", LONG).await), (0, "mine", "", true));
    assert_eq!(plain(&python(&mut cell, "print mine", LONG).await), (0, "mine", "", false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_interrupts_first_and_keeps_the_interpreter() {
    let fake = Fake::start(1);
    let mut cell = fake.interp.lease(0, None).await.unwrap();
    let report = python(&mut cell, "hang", SHORT).await;
    assert_eq!(plain(&report), (124, "", "ringfence: timed out after 0.1 s; interrupted, variables are kept\n", false));
    assert_eq!(report.limit_exceeded, Some(LimitKind::WallClock));
    assert_eq!(plain(&python(&mut cell, "print on", LONG).await), (0, "on", "", false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_ignores_the_interrupt_is_killed() {
    let fake = Fake::start(1);
    let mut cell = fake.interp.lease(0, None).await.unwrap();
    let report = python(&mut cell, "stubborn", SHORT).await;
    assert_eq!((report.return_code, report.interpreter_restarted), (124, true));
    assert!(report.stderr.contains("killed, variables are lost, files are kept"), "{report:?}");
    assert_eq!(plain(&python(&mut cell, "print on", LONG).await), (0, "on", "", false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killing_that_outlasts_its_call_does_not_take_the_next_interpreter() {
    let fake = Fake::start(1);
    let mut cell = fake.interp.lease(0, None).await.unwrap();
    let report = python(&mut cell, "swarm", SHORT).await;
    assert_eq!((report.return_code, report.interpreter_restarted), (124, true), "{report:?}");
    assert_eq!(plain(&python(&mut cell, "print on", LONG).await), (0, "on", "", false));
    assert_eq!(plain(&python(&mut cell, "print on", LONG).await), (0, "on", "", false));
}

/// Interrupts as soon as a call runs.
async fn interrupt(handle: &InterruptHandle) {
    while !handle.interrupt() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_can_interrupt() {
    let fake = Fake::start(1);
    let mut cell = fake.interp.lease(0, None).await.unwrap();
    let handle = cell.interrupt_handle();
    assert!(!handle.interrupt(), "nothing runs");
    let (report, ()) = tokio::join!(python(&mut cell, "hang", LONG), interrupt(&handle));
    assert_eq!(plain(&report), (130, "", "ringfence: interrupted by the caller; variables are kept\n", false));
    assert_eq!(report.limit_exceeded, None);
    assert!(!handle.interrupt(), "nothing runs any more");
    assert_eq!(plain(&python(&mut cell, "print on", LONG).await), (0, "on", "", false));
    let (report, ()) = tokio::join!(bash(&mut cell, "hang", LONG), interrupt(&handle));
    assert_eq!(plain(&report), (130, "hanging\n", "ringfence: interrupted by the caller; files are kept\n", false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_interrupt_kills_what_ignores_the_first() {
    let fake = Fake::start(1);
    let mut cell = fake.interp.lease(0, None).await.unwrap();
    let handle = cell.interrupt_handle();
    let (report, ()) = tokio::join!(python(&mut cell, "stubborn", LONG), async {
        interrupt(&handle).await;
        interrupt(&handle).await;
    });
    assert_eq!((report.return_code, report.interpreter_restarted), (130, true));
    assert!(report.stderr.contains("by the caller; killed, variables are lost, files are kept"), "{report:?}");
    assert_eq!(plain(&python(&mut cell, "print on", LONG).await), (0, "on", "", false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_hangs_or_cannot_start_is_told_apart() {
    let fake = Fake::start(1);
    let mut cell = fake.interp.lease(0, None).await.unwrap();
    let report = bash(&mut cell, "hang", SHORT).await;
    assert_eq!((report.return_code, report.limit_exceeded), (124, Some(LimitKind::WallClock)));
    assert_eq!(report.stdout, "hanging\n");
    let report = bash(&mut cell, "refuse", LONG).await;
    assert_eq!((report.return_code, report.limit_exceeded), (126, Some(LimitKind::Processes)));
    assert_eq!(plain(&bash(&mut cell, "say on", LONG).await), (0, "on", "", false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cell_full_of_leftovers_is_cleared_and_that_is_told_aside() {
    let fake = Fake::start(1);
    let mut cell = fake.interp.lease(0, None).await.unwrap();
    let report = bash(&mut cell, "crowded", LONG).await;
    assert_eq!(plain(&report), (0, "", "", false));
    assert!(report.background.unwrap().stderr.contains("left behind were killed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_between_calls_is_kept_apart() {
    let mut fake = Fake::start(1);
    let mut cell = fake.interp.lease(0, None).await.unwrap();
    assert_eq!(plain(&python(&mut cell, "late LATE", LONG).await), (0, "", "", false));
    fake = tokio::task::spawn_blocking(move || {
        fake.written.recv().unwrap();
        fake
    })
    .await
    .unwrap();
    let report = python(&mut cell, "print mine", LONG).await;
    assert_eq!(report.stdout, "mine");
    assert_eq!(report.background.unwrap().stdout, "LATE");
    assert_eq!(python(&mut cell, "print next", LONG).await.background, None);
    drop(fake);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_between_calls_neither_blocks_nor_grows() {
    let mut fake = Fake::start(1);
    let mut cell = fake.interp.lease(0, None).await.unwrap();
    let flood = "y".repeat(1 << 20);
    python(&mut cell, &format!("late {flood}"), LONG).await;
    // The write of a megabyte ends only because somebody reads while no call runs.
    fake = tokio::task::spawn_blocking(move || {
        fake.written.recv().unwrap();
        fake
    })
    .await
    .unwrap();
    let background = python(&mut cell, "print mine", LONG).await.background.unwrap();
    assert!(background.stdout.contains("bytes dropped") && background.stdout.len() < 70_000);
    drop(fake);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipe_that_a_command_left_behind_is_drained() {
    let fake = Fake::start(1);
    let mut cell = fake.interp.lease(0, None).await.unwrap();
    bash(&mut cell, "hold later", LONG).await;
    let mut seen = String::new();
    while seen.is_empty() {
        let report = bash(&mut cell, "say on", LONG).await;
        assert_eq!(report.stdout, "on");
        seen = report.background.map(|background| background.stdout).unwrap_or_default();
    }
    assert_eq!(seen, "later");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_without_python_says_so() {
    let fake = Fake::start(0);
    assert_eq!(fake.interp.image_name(1).as_deref(), Some("bare"));
    let mut cell = fake.interp.lease(1, None).await.unwrap();
    let report = python(&mut cell, "print 1", LONG).await;
    assert!(report.return_code != 0 && report.stderr.contains("no Python"), "{report:?}");
    assert!(!report.interpreter_restarted);
    assert_eq!(bash(&mut cell, "say hi", LONG).await.stdout, "hi");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pool_fills_hands_out_and_closes() {
    let fake = Fake::start(3);
    fake.interp.warmed().await.unwrap();
    let first = fake.interp.lease(0, None).await.unwrap();
    let second = fake.interp.lease(0, None).await.unwrap();
    assert_ne!(first.id, second.id);
    assert!(fake.interp.lease(9, None).await.is_err());
    first.destroy().await;
    drop(second);
    fake.interp.shutdown().await;
    assert_eq!(fake.interp.ready(), 0);
    assert!(matches!(fake.interp.lease(0, None).await, Err(LeaseError::Closed)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_closes_waits_for_no_cell_in_the_making() {
    let fake = Fake::start(1);
    fake.interp.warmed().await.unwrap();
    let interp = fake.interp.clone();
    let waits = tokio::spawn(async move { interp.lease(SLOW, None).await.map(drop) });
    fake.written.recv_timeout(LONG).unwrap();
    fake.interp.shutdown().await;
    assert!(matches!(waits.await.unwrap(), Err(LeaseError::Closed)));
    fake.written.recv_timeout(LONG).expect("the keeper is told to destroy it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_keeper_ends_everything_cleanly() {
    let fake = Fake::start(1);
    let mut cell = fake.interp.lease(0, None).await.unwrap();
    fake.kill_keeper();
    fake.interp.closed().await;
    let code = Python { code: "print 1".to_owned(), echo_last: false };
    let report = cell.run_python(&code, LONG).await;
    assert!(report.return_code != 0 && report.stderr.contains("ended by a failure"), "{report:?}");
    assert!(cell.died());
    cell.death().await;
    assert!(fake.interp.lease(0, None).await.is_err());
    cell.destroy().await;
    fake.interp.shutdown().await;
}
