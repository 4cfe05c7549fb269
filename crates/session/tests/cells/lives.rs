//! The line of each session, its clocks, its end.

use std::time::Duration;

use ringfence_op::FaultKind;
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
    let hint = Lease { image: Some("registry.example/no/such:9".to_owned()), idle: far, lifetime: far };
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
