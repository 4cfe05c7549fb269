//! Calls of the interpreter: state, output, every way to end.

use ringfence_op::LimitKind;
use ringfence_session::Sessions;

use crate::{lease, python, python_within, release};

crate::cases![
    state_persists,
    output_is_exact_and_that_of_children_too,
    an_exception_is_a_result,
    sys_exit_keeps_the_session,
    an_exit_of_the_interpreter_is_told_and_survived,
    a_segfault_is_told_and_survived,
    a_timeout_keeps_variables_and_partial_output,
    a_program_that_ignores_the_interrupt_is_killed,
    a_stopped_program_is_killed,
    children_of_a_timed_out_call_die,
    rubbish_on_every_descriptor_costs_one_call,
    a_flood_is_cut_and_counted,
    an_endless_flood_ends_on_time,
    late_output_is_kept_apart,
    memory_is_named,
    a_full_disk_is_named,
    refused_threads_are_named,
    an_interpreter_killed_between_calls_is_told_once,
];

async fn state_persists(sessions: Sessions) {
    let id = lease(&sessions).await;
    assert_eq!(python(&sessions, id, "x = 41\ndef f(n): return n + x").await.report.return_code, 0);
    let outcome = python(&sessions, id, "print(f(1))").await;
    assert_eq!((outcome.report.stdout.as_str(), outcome.report.stderr.as_str()), ("42\n", ""));
    assert!(!outcome.report.interpreter_restarted);
    release(&sessions, id).await;
}

async fn output_is_exact_and_that_of_children_too(sessions: Sessions) {
    let id = lease(&sessions).await;
    let report = python(
        &sessions,
        id,
        "import os, subprocess, sys\nprint('one', flush=True)\nos.system('echo two')\n\
         subprocess.run(['printf','three\\n'])\nos.write(1, b'four\\n')\nos.write(2, b'err\\n')\nprint('five', end='')",
    )
    .await
    .report;
    assert_eq!((report.stdout.as_str(), report.stderr.as_str()), ("one\ntwo\nthree\nfour\nfive", "err\n"));
    assert_eq!((report.usage.stdout_bytes, report.usage.stderr_bytes), (23, 4));
    let report = python(&sessions, id, "print('\u{2615}' * 100000)").await.report;
    assert_eq!(report.stdout, "\u{2615}".repeat(100_000) + "\n");
    release(&sessions, id).await;
}

async fn an_exception_is_a_result(sessions: Sessions) {
    let id = lease(&sessions).await;
    let report = python(&sessions, id, "print('before')\n1/0").await.report;
    assert_eq!((report.return_code, report.stdout.as_str()), (1, "before\n"));
    assert!(report.stderr.contains("ZeroDivisionError") && !report.stderr.contains("ringfence"), "{}", report.stderr);
    release(&sessions, id).await;
}

async fn sys_exit_keeps_the_session(sessions: Sessions) {
    let id = lease(&sessions).await;
    python(&sessions, id, "kept = 7").await;
    assert_eq!(python(&sessions, id, "import sys; sys.exit(3)").await.report.return_code, 3);
    let report = python(&sessions, id, "print(kept)").await.report;
    assert_eq!((report.stdout.as_str(), report.interpreter_restarted), ("7\n", false));
    release(&sessions, id).await;
}

async fn an_exit_of_the_interpreter_is_told_and_survived(sessions: Sessions) {
    let id = lease(&sessions).await;
    python(&sessions, id, "open('kept','w').write('file'); gone = 1").await;
    let report = python(&sessions, id, "import os; print('last words', flush=True); os._exit(5)").await.report;
    assert_eq!((report.return_code, report.stdout.as_str()), (5, "last words\n"));
    assert!(report.interpreter_restarted && report.stderr.contains("exited with status 5"), "{report:?}");
    let report = python(&sessions, id, "print(open('kept').read(), 'gone' in globals())").await.report;
    assert_eq!((report.stdout.as_str(), report.interpreter_restarted), ("file False\n", false));
    release(&sessions, id).await;
}

async fn a_segfault_is_told_and_survived(sessions: Sessions) {
    let id = lease(&sessions).await;
    let report = python(&sessions, id, "import ctypes; ctypes.string_at(0)").await.report;
    assert_eq!((report.return_code, report.limit_exceeded), (139, None));
    assert!(report.stderr.contains("SIGSEGV"), "{}", report.stderr);
    assert_eq!(python(&sessions, id, "print('back')").await.report.stdout, "back\n");
    release(&sessions, id).await;
}

async fn a_timeout_keeps_variables_and_partial_output(sessions: Sessions) {
    let id = lease(&sessions).await;
    let report = python_within(&sessions, id, "import time\nprint('partial', flush=True)\nx = 2\ntime.sleep(30)", 1)
        .await
        .report;
    assert_eq!((report.return_code, report.limit_exceeded), (124, Some(LimitKind::WallClock)));
    assert_eq!(report.stdout, "partial\n");
    assert!(report.stderr.ends_with("timed out after 1 s; interrupted, variables are kept\n"), "{}", report.stderr);
    let report = python(&sessions, id, "print(x)").await.report;
    assert_eq!((report.stdout.as_str(), report.interpreter_restarted), ("2\n", false));
    python(&sessions, id, "n = 0").await;
    python_within(&sessions, id, "while True: n += 1", 1).await;
    let report = python(&sessions, id, "a = n\nimport time; time.sleep(0.2)\nprint(a == n)").await.report;
    assert_eq!(report.stdout, "True\n", "the old code runs no longer");
    release(&sessions, id).await;
}

async fn a_program_that_ignores_the_interrupt_is_killed(sessions: Sessions) {
    let id = lease(&sessions).await;
    python(&sessions, id, "open('kept','w').write('1')").await;
    let stubborn = "import signal, time\nprint('in', flush=True)\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n\
                    while True:\n    try: time.sleep(60)\n    except BaseException: pass";
    let report = python_within(&sessions, id, stubborn, 1).await.report;
    assert_eq!((report.return_code, report.stdout.as_str()), (124, "in\n"));
    assert!(report.interpreter_restarted && report.stderr.contains("variables are lost, files are kept"), "{report:?}");
    let report = python(&sessions, id, "import os; print(os.path.exists('kept'))").await.report;
    assert_eq!((report.stdout.as_str(), report.interpreter_restarted), ("True\n", false));
    release(&sessions, id).await;
}

async fn a_stopped_program_is_killed(sessions: Sessions) {
    let id = lease(&sessions).await;
    let outcome = python_within(&sessions, id, "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", 1).await;
    assert_eq!(outcome.report.return_code, 124);
    assert!(outcome.execution_time_ms < 4000, "{}", outcome.execution_time_ms);
    assert_eq!(python(&sessions, id, "print('back')").await.report.stdout, "back\n");
    release(&sessions, id).await;
}

async fn children_of_a_timed_out_call_die(sessions: Sessions) {
    let id = lease(&sessions).await;
    let count =
        "import glob\nprint(sum(b'sleep\\x00471' in open(p,'rb').read() for p in glob.glob('/proc/[0-9]*/cmdline')))";
    let code = "import subprocess, time\nsubprocess.Popen(['setsid', 'sleep', '4711'])\n\
                subprocess.Popen(['sleep', '4712'], start_new_session=True)\ntime.sleep(60)";
    assert_eq!(python_within(&sessions, id, code, 1).await.report.return_code, 124);
    assert_eq!(python(&sessions, id, count).await.report.stdout, "0\n");
    // The kernel shows the new program's words a moment after the old one's descriptors are closed.
    let start = "p = subprocess.Popen(['sleep', '4713'])\nwhile b'4713' not in open(f'/proc/{p.pid}/cmdline','rb').read(): pass";
    let report = python(&sessions, id, start).await.report;
    assert_eq!((report.return_code, report.interpreter_restarted), (0, false), "{report:?}");
    assert_eq!(
        python(&sessions, id, count).await.report.stdout,
        "1\n",
        "what an earlier call left behind is not touched"
    );
    // What starts in the same clock tick as a call counts as started by it.
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    assert_eq!(python_within(&sessions, id, "while True: pass", 1).await.report.return_code, 124);
    assert_eq!(python(&sessions, id, count).await.report.stdout, "1\n", "nor by the end of a later one");
    release(&sessions, id).await;
}

async fn rubbish_on_every_descriptor_costs_one_call(sessions: Sessions) {
    let (id, other) = (lease(&sessions).await, lease(&sessions).await);
    let code = "import os\nfor fd in range(3, 1024):\n    try: os.write(fd, b'\\xff' * 4096)\n    except OSError: pass\n\
                for fd in range(0, 1024):\n    try: os.close(fd)\n    except OSError: pass";
    let outcome = python_within(&sessions, id, code, 10).await;
    assert!(outcome.execution_time_ms < 9000, "{outcome:?}");
    assert_eq!(python(&sessions, id, "print('again')").await.report.stdout, "again\n");
    assert_eq!(python(&sessions, other, "print('untouched')").await.report.stdout, "untouched\n");
    release(&sessions, id).await;
    release(&sessions, other).await;
}

async fn a_flood_is_cut_and_counted(sessions: Sessions) {
    let id = lease(&sessions).await;
    let report =
        python(&sessions, id, "print('HEAD')\nfor i in range(300000): print('x' * 100)\nprint('TAIL')").await.report;
    assert_eq!((report.return_code, report.limit_exceeded), (0, Some(LimitKind::Output)));
    assert_eq!((report.stderr.as_str(), report.usage.stdout_bytes), ("", 30_300_010));
    assert!(report.stdout.starts_with("HEAD\n") && report.stdout.ends_with("TAIL\n"));
    assert!(report.stdout.contains("bytes dropped") && report.stdout.len() < 1_100_000);
    assert_eq!(python(&sessions, id, "print('next')").await.report.stdout, "next\n");
    release(&sessions, id).await;
}

async fn an_endless_flood_ends_on_time(sessions: Sessions) {
    let id = lease(&sessions).await;
    let outcome = python_within(&sessions, id, "while True: print('x' * 4096)", 1).await;
    assert_eq!((outcome.report.return_code, outcome.report.limit_exceeded), (124, Some(LimitKind::WallClock)));
    assert!(outcome.execution_time_ms < 4000, "{}", outcome.execution_time_ms);
    release(&sessions, id).await;
}

async fn late_output_is_kept_apart(sessions: Sessions) {
    let id = lease(&sessions).await;
    python(&sessions, id, "import threading\nt = threading.Timer(0.2, lambda: print('LATE'))\nt.start()").await;
    let mut late = String::new();
    while late.is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let report = crate::bash(&sessions, id, "echo mine").await.report;
        assert_eq!(report.stdout, "mine\n");
        late = report.background.map(|background| background.stdout).unwrap_or_default();
    }
    assert_eq!(late, "LATE\n");
    release(&sessions, id).await;
}

async fn memory_is_named(sessions: Sessions) {
    let (id, other) = (lease(&sessions).await, lease(&sessions).await);
    let hog = "blocks = []\nwhile True: blocks.append(bytearray(b'x' * (16 << 20)))";
    let report = python(&sessions, id, hog).await.report;
    assert_eq!((report.return_code, report.limit_exceeded), (137, Some(LimitKind::Memory)), "{report:?}");
    assert!(report.stderr.to_lowercase().contains("memory"), "{}", report.stderr);
    assert_eq!(python(&sessions, other, "print('fine')").await.report.stdout, "fine\n");
    assert_eq!(python(&sessions, id, "print('back')").await.report.stdout, "back\n");
    let report = python(&sessions, id, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)").await.report;
    assert_eq!((report.return_code, report.limit_exceeded), (137, None), "a kill is no memory: {}", report.stderr);
    release(&sessions, id).await;
    release(&sessions, other).await;
}

async fn a_full_disk_is_named(sessions: Sessions) {
    let id = lease(&sessions).await;
    let fill = "with open('big','wb') as f:\n    while True: f.write(b'x' * (1 << 20))";
    let report = python(&sessions, id, fill).await.report;
    assert_eq!((report.return_code, report.limit_exceeded), (1, Some(LimitKind::Disk)), "{report:?}");
    let report = crate::bash(&sessions, id, "head -c 9000000 /dev/zero > more").await.report;
    assert_eq!(report.limit_exceeded, Some(LimitKind::Disk), "{report:?}");
    assert_eq!(crate::bash(&sessions, id, "rm -f big more; echo ok").await.report.stdout, "ok\n");
    assert_eq!(python(&sessions, id, "print('ok')").await.report.stdout, "ok\n");
    release(&sessions, id).await;
}

async fn refused_threads_are_named(sessions: Sessions) {
    let id = lease(&sessions).await;
    let code = "import threading, time\nfor _ in range(500): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()";
    let report = python(&sessions, id, code).await.report;
    assert_eq!((report.return_code, report.limit_exceeded), (1, Some(LimitKind::Processes)), "{report:?}");
    release(&sessions, id).await;
}

async fn an_interpreter_killed_between_calls_is_told_once(sessions: Sessions) {
    let id = lease(&sessions).await;
    python(&sessions, id, "import os; me = os.getpid(); open('pid', 'w').write(str(me))").await;
    crate::bash(&sessions, id, "kill -9 $(cat pid); while kill -0 $(cat pid) 2>/dev/null; do sleep 0.01; done").await;
    let report = python(&sessions, id, "print('me' in globals())").await.report;
    assert_eq!((report.stdout.as_str(), report.stderr.as_str(), report.return_code), ("False\n", "", 0));
    assert!(report.interpreter_restarted);
    assert!(!python(&sessions, id, "print(1)").await.report.interpreter_restarted);
    release(&sessions, id).await;
}
