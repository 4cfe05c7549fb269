//! The line of each session, its clocks, its end.

use std::time::{Duration, Instant};

use ringfence_op::{CallReport, Fault, FaultKind, Operation, SessionId, Tenant, WorkspaceId, WorkspacePath};
use ringfence_session::{Lease, Sessions};

use crate::{call, code, command, lease, python, release, try_call};

crate::cases![
    calls_run_one_after_another,
    a_caller_that_hangs_up_does_not_end_the_call,
    an_idle_session_ends_and_a_busy_one_does_not,
    a_lifetime_ends_a_running_call,
    a_release_ends_a_running_call,
    hints_are_clamped_and_never_fail,
    what_is_unknown_is_said_to_be,
    a_long_line_is_refused,
    an_interrupt_ends_what_runs_and_nothing_else,
    a_late_interrupt_does_not_hit_the_next_call,
    an_interrupt_is_the_programs_to_take,
    a_second_interrupt_ends_what_ignores_the_first,
    an_interrupt_reaches_what_a_call_has_started,
    workspaces_share_and_see_their_own,
];

async fn calls_run_one_after_another(sessions: Sessions) {
    let id = lease(&sessions).await;
    python(&sessions, id, "log = []").await;
    let mut tasks = Vec::new();
    for n in 0..20 {
        let text =
            format!("import time\nlog.append(('in', {n}))\nprint({n})\ntime.sleep(0.01)\nlog.append(('out', {n}))");
        let sessions = sessions.clone();
        tasks.push((n, tokio::spawn(async move { python(&sessions, id, &text).await })));
    }
    for (n, task) in tasks {
        assert_eq!(task.await.expect("a call").report.stdout, format!("{n}\n"));
    }
    let check = "print(all(log[i][1] == log[i+1][1] for i in range(0, 40, 2)), len(log))";
    assert_eq!(python(&sessions, id, check).await.report.stdout, "True 40\n");
    release(&sessions, id).await;
}

async fn a_caller_that_hangs_up_does_not_end_the_call(sessions: Sessions) {
    let id = lease(&sessions).await;
    let slow = sessions.execute(id, call(code("import time; time.sleep(0.5); done = 1"), Duration::from_secs(9)));
    assert!(tokio::time::timeout(Duration::from_millis(100), slow).await.is_err());
    assert_eq!(python(&sessions, id, "print(done)").await.report.stdout, "1\n");
    release(&sessions, id).await;
}

async fn an_idle_session_ends_and_a_busy_one_does_not(sessions: Sessions) {
    let hint = Lease { idle: Some(Duration::from_secs(1)), ..Lease::default() };
    let id = sessions.create(hint.clone()).await.expect("a session").id;
    assert_eq!(
        python(&sessions, id, "import time; time.sleep(2); print('finished')").await.report.stdout,
        "finished\n"
    );
    let files = sessions.files(id).expect("its files");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(sessions.counts().sessions, 1, "an open transfer holds it");
    drop(files);
    while sessions.counts().sessions > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(sessions.handle(id).expect_err("it is gone").kind(), FaultKind::UnknownSession);
}

async fn a_lifetime_ends_a_running_call(sessions: Sessions) {
    let hint = Lease { lifetime: Some(Duration::from_secs(1)), ..Lease::default() };
    let id = sessions.create(hint).await.expect("a session").id;
    let fault = try_call(&sessions, id, command("sleep 20")).await.expect_err("the session ends first");
    assert_eq!(fault.kind(), FaultKind::UnknownSession);
    assert_eq!(sessions.files(id).expect_err("it is gone").kind(), FaultKind::UnknownSession);
}

async fn a_release_ends_a_running_call(sessions: Sessions) {
    let id = lease(&sessions).await;
    let mut running = Vec::new();
    for operation in [command("sleep 20"), code("print(1)")] {
        let sessions = sessions.clone();
        running.push(tokio::spawn(async move { try_call(&sessions, id, operation).await }));
    }
    while sessions.counts().calls < 2 {
        tokio::task::yield_now().await;
    }
    release(&sessions, id).await;
    for task in running {
        let fault = task.await.expect("a call").expect_err("its session is gone");
        assert_eq!(fault.kind(), FaultKind::UnknownSession);
    }
    assert_eq!(sessions.destroy(id).expect_err("it is gone").kind(), FaultKind::UnknownSession);
}

async fn hints_are_clamped_and_never_fail(sessions: Sessions) {
    let far = Some(Duration::from_secs(1_000_000_000));
    let hint = Lease { image: Some("registry.example/no/such:9".to_owned()), idle: far, lifetime: far, tenant: None };
    let handle = sessions.create(hint).await.expect("a session");
    assert_eq!((handle.idle.as_secs(), handle.lifetime.as_secs()), (3600, 86_400));
    assert_eq!(handle.image, "bare");
    let before = sessions.handle(handle.id).expect("a handle").last_activity;
    python(&sessions, handle.id, "print(1)").await;
    let after = sessions.handle(handle.id).expect("a handle").last_activity;
    assert!(after > before);
    assert_eq!(sessions.handle(handle.id).expect("a handle").last_activity, after, "looking is no activity");
    release(&sessions, handle.id).await;
}

async fn what_is_unknown_is_said_to_be(sessions: Sessions) {
    let id = ringfence_op::SessionId::random().expect("random bytes");
    assert_eq!(try_call(&sessions, id, code("1")).await.expect_err("unknown").kind(), FaultKind::UnknownSession);
    assert_eq!(sessions.files(id).expect_err("unknown").kind(), FaultKind::UnknownSession);
    assert_eq!(sessions.destroy(id).expect_err("unknown").kind(), FaultKind::UnknownSession);
}

async fn a_long_line_is_refused(sessions: Sessions) {
    let id = lease(&sessions).await;
    let mut tasks = Vec::new();
    for _ in 0..40 {
        let sessions = sessions.clone();
        tasks.push(tokio::spawn(async move { try_call(&sessions, id, command("sleep 0.05")).await }));
    }
    let (mut ran, mut refused) = (0, 0);
    for task in tasks {
        match task.await.expect("a call") {
            Ok(_) => ran += 1,
            Err(fault) => {
                assert!(matches!(fault.kind(), FaultKind::Capacity { retry_after_seconds: 1.. }), "{fault:?}");
                refused += 1;
            }
        }
    }
    assert!(ran >= 25 && refused > 0, "{ran} ran, {refused} were refused");
    release(&sessions, id).await;
}

/// Interrupts once the call has made the file `ready`.
async fn interrupt(sessions: &Sessions, id: SessionId) {
    let ready = WorkspacePath::parse("ready").expect("a path");
    while sessions.files(id).expect("the session").open_file(&ready).is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(sessions.interrupt(id).expect("the session"), "a call runs");
    sessions.files(id).expect("the session").remove(&ready).expect("the file");
}

/// Runs it, interrupted once it has made the file `ready`.
async fn interrupted(sessions: &Sessions, id: SessionId, operation: Operation) -> CallReport {
    let call = sessions.execute(id, call(operation, Duration::from_secs(600)));
    tokio::join!(call, interrupt(sessions, id)).0.expect("an outcome").report
}

async fn an_interrupt_ends_what_runs_and_nothing_else(sessions: Sessions) {
    let id = lease(&sessions).await;
    assert!(!sessions.interrupt(id).expect("the session"), "nothing runs");
    let sleep = "import time\nx = 7\nprint('in')\nopen('ready', 'w').close()\ntime.sleep(600)";
    let first = interrupted(&sessions, id, code(sleep));
    let waits = async {
        while sessions.counts().calls == 0 {
            tokio::task::yield_now().await;
        }
        python(&sessions, id, "print(x)").await.report
    };
    let (report, next) = tokio::join!(first, waits);
    assert_eq!((report.return_code, report.limit_exceeded, report.interpreter_restarted), (130, None, false));
    assert_eq!(report.stdout, "in\n");
    assert!(report.stderr.contains("KeyboardInterrupt"), "{}", report.stderr);
    assert!(
        report.stderr.ends_with("\nringfence: interrupted by the caller; variables are kept\n"),
        "{}",
        report.stderr
    );
    assert_eq!((next.stdout.as_str(), next.stderr.as_str()), ("7\n", ""), "the call behind it runs untouched");
    let report = interrupted(&sessions, id, command("touch ready; sleep 600; echo after")).await;
    assert_eq!((report.return_code, report.stdout.as_str()), (130, ""));
    assert_eq!(report.stderr, "ringfence: interrupted by the caller; files are kept\n");
    assert_eq!(python(&sessions, id, "print(x)").await.report.stdout, "7\n");
    release(&sessions, id).await;
    assert!(sessions.interrupt(id).is_err_and(|fault| fault.kind() == FaultKind::UnknownSession));
}

/// Interrupts that come when their call is about to end by itself; that many processes make them slow on their way.
async fn a_late_interrupt_does_not_hit_the_next_call(sessions: Sessions) {
    let id = lease(&sessions).await;
    let crowd = "import subprocess, time\nfor _ in range(45): subprocess.Popen(['sleep', '600'])";
    assert_eq!(python(&sessions, id, crowd).await.report.return_code, 0);
    let ready = WorkspacePath::parse("ready").expect("a path");
    let (mut round, mut in_time) = (0, 0);
    // One that the first call cannot have ended before: on a busy machine not each is.
    while in_time < 20 {
        round += 1;
        let begun = Instant::now();
        let strike = async {
            while sessions.files(id).expect("the session").open_file(&ready).is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let _ = sessions.interrupt(id);
            let struck = begun.elapsed();
            sessions.files(id).expect("the session").remove(&ready).expect("the file");
            struck
        };
        let first = format!("open('ready', 'w').close()\ntime.sleep(0.042 + {} * 0.0004)", round % 40);
        let first = python(&sessions, id, &first);
        let next = python(&sessions, id, "end = time.time() + 0.02\nwhile time.time() < end: pass");
        let (_, next, struck) = tokio::join!(first, next, strike);
        if struck < Duration::from_millis(40) {
            in_time += 1;
            assert_eq!((next.report.return_code, next.report.stderr.as_str()), (0, ""), "round {round}");
        }
    }
    release(&sessions, id).await;
}

async fn an_interrupt_is_the_programs_to_take(sessions: Sessions) {
    let id = lease(&sessions).await;
    let caught = "import time\ntry:\n    open('ready', 'w').close()\n    time.sleep(600)\nexcept KeyboardInterrupt:\n    \
                  time.sleep(1.5)\n    print('tidied')";
    let report = interrupted(&sessions, id, code(caught)).await;
    assert_eq!((report.return_code, report.stdout.as_str(), report.stderr.as_str()), (0, "tidied\n", ""));
    let trapped = "trap 'echo trapped; exit 3' INT; touch ready; sleep 600 & wait";
    let report = interrupted(&sessions, id, command(trapped)).await;
    assert_eq!((report.return_code, report.stdout.as_str(), report.stderr.as_str()), (3, "trapped\n", ""));
    release(&sessions, id).await;
}

async fn a_second_interrupt_ends_what_ignores_the_first(sessions: Sessions) {
    let id = lease(&sessions).await;
    let stubborn = "import time\nx = 1\nwhile True:\n    try:\n        open('ready', 'w').close()\n        time.sleep(600)\n    \
                    except KeyboardInterrupt: pass";
    let twice = async {
        interrupt(&sessions, id).await;
        interrupt(&sessions, id).await;
    };
    let call = sessions.execute(id, call(code(stubborn), Duration::from_secs(600)));
    let report = tokio::join!(call, twice).0.expect("an outcome").report;
    assert_eq!((report.return_code, report.interpreter_restarted), (130, true), "{report:?}");
    assert!(
        report.stderr.ends_with("by the caller; killed, variables are lost, files are kept\n"),
        "{}",
        report.stderr
    );
    assert_eq!(python(&sessions, id, "print('x' in globals())").await.report.stdout, "False\n");
    release(&sessions, id).await;
}

async fn an_interrupt_reaches_what_a_call_has_started(sessions: Sessions) {
    let id = lease(&sessions).await;
    // The kernel tells starts in ticks of 10 ms: the next call must not begin in the tick of this one's child.
    let older = "import os, subprocess, time\nolder = subprocess.Popen(['sleep', '600'])\ntime.sleep(0.05)";
    python(&sessions, id, older).await;
    // As at a terminal: the child dies of the interrupt, the program that waits for it by system(3) goes on.
    let report = interrupted(&sessions, id, code("print(os.system('touch ready; exec sleep 600'), flush=True)")).await;
    assert_eq!((report.return_code, report.stdout.as_str()), (0, "2\n"), "{report:?}");
    let report = python(&sessions, id, "print(older.poll())\nolder.kill()").await.report;
    assert_eq!(report.stdout, "None\n", "what an earlier call started is not meant");
    release(&sessions, id).await;
}

fn workspace(name: &str) -> WorkspaceId {
    WorkspaceId::parse(name).expect("a workspace's id")
}

async fn lease_for(sessions: &Sessions, name: &str, sessions_max: Option<usize>) -> Result<SessionId, Fault> {
    let tenant = Some(Tenant { workspace: workspace(name), sessions_max });
    sessions.create(Lease { tenant, ..Lease::default() }).await.map(|handle| handle.id)
}

/// Six places: one is kept for those below their share.
async fn workspaces_share_and_see_their_own(sessions: Sessions) {
    let mut held = Vec::new();
    for _ in 0..crate::SESSIONS_MAX - 1 {
        held.push(lease_for(&sessions, "greedy", None).await.expect("a session"));
    }
    for _ in 0..2 {
        let refused = lease_for(&sessions, "greedy", None).await.expect_err("the last place is kept");
        assert!(matches!(refused.kind(), FaultKind::Capacity { retry_after_seconds: 1.. }), "{refused:?}");
    }
    let modest = lease_for(&sessions, "modest", Some(1)).await.expect("the place that was kept");
    assert!(lease_for(&sessions, "modest", Some(1)).await.is_err(), "its grant has a ceiling");
    // When all is taken, what becomes free is not the greedy one's.
    release(&sessions, held.pop().expect("one of them")).await;
    assert!(lease_for(&sessions, "greedy", None).await.is_err());
    let third = lease_for(&sessions, "third", None).await.expect("the place that became free");

    let greedys = *held.first().expect("one of them");
    for (owner, id) in [("greedy", greedys), ("modest", modest), ("third", third)] {
        for other in ["greedy", "modest", "third", "nobody"] {
            assert_eq!(sessions.admit(id, &workspace(other)).is_ok(), other == owner, "{other} at {owner}'s");
        }
    }
    assert_eq!(sessions.handles(Some(&workspace("modest"))).len(), 1);
    assert_eq!((sessions.handles(None).len(), sessions.count_of(&workspace("greedy"))), (6, 4));
    // A session that is nobody's is there for no workspace.
    release(&sessions, third).await;
    let nobodys = lease(&sessions).await;
    assert!(sessions.admit(nobodys, &workspace("greedy")).is_err());
    for id in held.into_iter().chain([modest, nobodys]) {
        release(&sessions, id).await;
    }
    assert_eq!(sessions.count_of(&workspace("greedy")), 0);
    assert!(lease_for(&sessions, "modest", Some(1)).await.is_ok_and(|id| sessions.destroy(id).is_ok()));
}
