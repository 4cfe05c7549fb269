//! Shell commands.

use ringfence_op::LimitKind;
use ringfence_session::Sessions;

use crate::{bash, bash_within, lease, python, release};

crate::cases![
    exit_statuses_pass_through,
    a_background_process_does_not_hold_the_call,
    threads_of_the_interpreter_write_on_while_a_command_runs,
    a_timeout_kills_the_whole_tree_and_spares_the_interpreter,
    a_fork_bomb_is_contained,
    long_and_strange_commands_arrive,
    both_streams_are_read_at_once,
    memory_of_a_command_is_named,
];

async fn exit_statuses_pass_through(sessions: Sessions) {
    let id = lease(&sessions).await;
    assert_eq!(bash(&sessions, id, "exit 7").await.report.return_code, 7);
    assert_eq!(bash(&sessions, id, "printf 'a\\n\\n'").await.report.stdout, "a\n\n");
    let report = bash(&sessions, id, "kill -9 $$").await.report;
    assert_eq!((report.return_code, report.limit_exceeded), (137, None));
    let report = bash(&sessions, id, "no_such_command_here").await.report;
    assert!(report.return_code == 127 && report.stderr.contains("not found"), "{report:?}");
    let report = bash(&sessions, id, "cat; read x; echo done").await.report;
    assert_eq!(report.stdout, "done\n");
    for _ in 0..50 {
        assert_eq!(bash(&sessions, id, "true").await.report.return_code, 0);
    }
    release(&sessions, id).await;
}

async fn a_background_process_does_not_hold_the_call(sessions: Sessions) {
    let id = lease(&sessions).await;
    let outcome = bash(&sessions, id, "(sleep 1; echo late) & sleep 60 & echo hi").await;
    assert_eq!(outcome.report.stdout, "hi\n");
    assert!(outcome.execution_time_ms < 3000);
    let mut late = String::new();
    while late.is_empty() {
        let report = bash(&sessions, id, "sleep 0.2; echo mine").await.report;
        assert_eq!(report.stdout, "mine\n");
        late = report.background.map(|background| background.stdout).unwrap_or_default();
    }
    assert_eq!(late, "late\n");
    release(&sessions, id).await;
}

async fn threads_of_the_interpreter_write_on_while_a_command_runs(sessions: Sessions) {
    let id = lease(&sessions).await;
    // More than a pipe holds, begun once the command runs; the command waits for the end of it.
    let writer = "import os, sys, threading, time\n\
        def write():\n    \
            while not os.path.exists('begin'): time.sleep(0.01)\n    \
            for _ in range(400): sys.stderr.write('x' * 1000 + '\\n')\n    \
            open('written', 'w').close()\n\
        threading.Thread(target=write).start()";
    assert_eq!(python(&sessions, id, writer).await.report.return_code, 0);
    let report = bash(&sessions, id, "touch begin; until [ -e written ]; do sleep 0.05; done; echo done").await.report;
    assert_eq!((report.return_code, report.stdout.as_str(), report.stderr.as_str()), (0, "done\n", ""));
    let report = python(&sessions, id, "print('mine')").await.report;
    assert_eq!((report.stdout.as_str(), report.stderr.as_str()), ("mine\n", ""));
    assert!(report.background.is_some_and(|background| background.stderr.contains("xxx")));
    release(&sessions, id).await;
}

async fn a_timeout_kills_the_whole_tree_and_spares_the_interpreter(sessions: Sessions) {
    let id = lease(&sessions).await;
    python(&sessions, id, "kept = 1").await;
    let report =
        bash_within(&sessions, id, "echo part; (setsid sleep 4711 &) ; sleep 4712 & sleep 4713", 1).await.report;
    assert_eq!((report.return_code, report.limit_exceeded), (124, Some(LimitKind::WallClock)));
    assert_eq!(report.stdout, "part\n");
    assert!(report.stderr.contains("timed out after 1 s"), "{}", report.stderr);
    let count =
        "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null; echo; done | grep -c 'sleep 471[0-9]'";
    assert_eq!(bash(&sessions, id, count).await.report.stdout, "0\n");
    let report = python(&sessions, id, "print(kept)").await.report;
    assert_eq!((report.stdout.as_str(), report.interpreter_restarted), ("1\n", false));
    release(&sessions, id).await;
}

async fn a_fork_bomb_is_contained(sessions: Sessions) {
    let (id, other) = (lease(&sessions).await, lease(&sessions).await);
    let outcome = bash_within(&sessions, id, ":(){ :|:& };: ; sleep 3", 4).await;
    assert!(outcome.execution_time_ms < 8000, "{}", outcome.execution_time_ms);
    assert_eq!(python(&sessions, other, "print('fine')").await.report.stdout, "fine\n");
    let outcome = bash_within(&sessions, id, "while :; do sleep 100 & done", 2).await;
    assert!(outcome.report.return_code != 0, "{outcome:?}");
    assert!(outcome.report.limit_exceeded.is_some());
    let report = bash(&sessions, id, "echo recovered").await.report;
    assert_eq!(report.stdout, "recovered\n", "{report:?}");
    release(&sessions, id).await;
    release(&sessions, other).await;
}

async fn long_and_strange_commands_arrive(sessions: Sessions) {
    let id = lease(&sessions).await;
    let long = format!("# {}\necho end of ${{#0}} characters | cut -c1-6", "x".repeat(300_000));
    assert_eq!(bash(&sessions, id, &long).await.report.stdout, "end of\n");
    assert_eq!(bash(&sessions, id, "").await.report.return_code, 0);
    let report = bash(&sessions, id, "echo a\0b").await.report;
    assert!(report.return_code != 0 && report.stderr.contains("NUL"), "{report:?}");
    assert_eq!(bash(&sessions, id, "cat << 'EOF'\nhi $x\nEOF").await.report.stdout, "hi $x\n");
    release(&sessions, id).await;
}

async fn both_streams_are_read_at_once(sessions: Sessions) {
    let id = lease(&sessions).await;
    let text = "head -c 900000 /dev/zero | tr '\\0' e >&2; head -c 900000 /dev/zero | tr '\\0' o";
    let report = bash(&sessions, id, text).await.report;
    assert_eq!((report.return_code, report.stderr.len(), report.stdout.len()), (0, 900_000, 900_000));
    release(&sessions, id).await;
}

async fn memory_of_a_command_is_named(sessions: Sessions) {
    let id = lease(&sessions).await;
    let report = bash(&sessions, id, "python3 -c \"x = b'x' * (1 << 30)\"").await.report;
    assert_eq!((report.return_code, report.limit_exceeded), (137, Some(LimitKind::Memory)), "{report:?}");
    assert_eq!(python(&sessions, id, "print('back')").await.report.stdout, "back\n");
    release(&sessions, id).await;
}
