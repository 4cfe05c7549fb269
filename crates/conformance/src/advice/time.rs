//! Timeouts of calls, and lifetimes of sessions.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::should;
use crate::bench::Bench;
use crate::check::FileOperation::List;
use crate::check::{Check, Stop};
use crate::held::Ran;

const SECTION: &str = "Time";

/// How much later than the timeout an answer may come before a user wonders.
const LATE: Duration = Duration::from_secs(4);

pub(crate) const CHECKS: &[Check] = &[
    should(
        "time.state_kept",
        "a timeout keeps output and variables",
        SECTION,
        "the program is interrupted first: what it printed and what it set survives, and stderr says why it ended",
        &[],
        |bench| Box::pin(state_kept(bench)),
    ),
    should(
        "time.stubborn",
        "a program that ignores the interrupt is ended too",
        SECTION,
        "the answer comes on time, with the output so far; files and session stay",
        &[],
        |bench| Box::pin(stubborn(bench)),
    ),
    should(
        "time.tree",
        "a timed-out command leaves no process behind",
        SECTION,
        "whatever sessions and groups its children made for themselves",
        &[],
        |bench| Box::pin(tree(bench)),
    ),
    should(
        "time.overlap",
        "after a timeout the old code has stopped",
        SECTION,
        "two calls of one session never run beside each other",
        &[],
        |bench| Box::pin(overlap(bench)),
    ),
    should(
        "time.background",
        "a background process does not hold its call",
        SECTION,
        "a call ends with its own process, not with the last holder of its output",
        &[],
        |bench| Box::pin(background(bench)),
    ),
    should(
        "time.server",
        "a server started in one call answers in the next",
        SECTION,
        "a session is one machine",
        &[],
        |bench| Box::pin(server(bench)),
    ),
    should(
        "time.bad_timeouts",
        "timeouts that are no positive integers are refused",
        SECTION,
        "negative, fractional and other values are malformed",
        &[],
        |bench| Box::pin(bad_timeouts(bench)),
    ),
    should(
        "time.hints",
        "modest lifetime hints are kept, immodest ones clamped",
        SECTION,
        "the handle reports what is in force",
        &[],
        |bench| Box::pin(hints(bench)),
    ),
    should(
        "time.idle_running",
        "a call may be longer than the idle timeout",
        SECTION,
        "a session is idle only while nothing runs in it",
        &[],
        |bench| Box::pin(idle_running(bench)),
    ),
    should(
        "time.idle_reclaimed",
        "an idle session is reclaimed soon after its time",
        SECTION,
        "an idle timeout that a handle reports is one that will come",
        &[List],
        |bench| Box::pin(idle_reclaimed(bench)),
    ),
];

fn on_time(ran: &Ran, begun: Instant, budget_seconds: u64) -> Result<(), Stop> {
    let late = begun.elapsed() > Duration::from_secs(budget_seconds) + LATE;
    ran.want(!late, format!("an answer within {} s of the timeout", LATE.as_secs()))
}

async fn state_kept(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let begun = Instant::now();
    let ran = held.python_for("import time\nprint('so far', flush=True)\nkept = 'kept'\ntime.sleep(60)", 1).await?;
    on_time(&ran, begun, 1)?;
    ran.want_said("so far")?;
    ran.want(
        ran.return_code != 0 && ran.stderr.to_lowercase().contains("time"),
        "a failed run that speaks of time on stderr",
    )?;
    held.python("print(kept)").await?.want_said("kept")
}

async fn stubborn(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.python("open('kept.txt', 'w').write('kept')").await?;
    let program = "import signal, time\nprint('so far', flush=True)\nfor each in (signal.SIGINT, signal.SIGTERM): signal.signal(each, signal.SIG_IGN)\n\
                   while True:\n    try: time.sleep(99)\n    except BaseException: pass";
    let begun = Instant::now();
    let ran = held.python_for(program, 1).await?;
    on_time(&ran, begun, 1)?;
    ran.want_said("so far")?;
    ran.want(ran.return_code != 0, "a failed run")?;
    held.python("print(open('kept.txt').read())").await?.want_said("kept")
}

async fn tree(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let begun = Instant::now();
    let ran = held.bash_for("setsid sleep 7301 & (sleep 7302 &) ; sleep 7303", 1).await?;
    on_time(&ran, begun, 1)?;
    let look = "for each in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $each 2>/dev/null; echo; done | grep -c '^sleep 730' || true";
    held.bash(look).await?.want_said("0")
}

async fn overlap(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.python_for("count = 0\nwhile True: count += 1", 1).await?;
    held.python("import time\nbefore = count\ntime.sleep(0.4)\nprint(before == count)").await?.want_said("True")
}

async fn background(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let begun = Instant::now();
    let ran = held.bash("sleep 300 & echo started").await?;
    ran.want_said("started")?;
    on_time(&ran, begun, 0)?;
    let begun = Instant::now();
    let ran = held.python("import subprocess\nsubprocess.Popen(['sleep', '300'])\nprint('started')").await?;
    ran.want_said("started")?;
    on_time(&ran, begun, 0)
}

async fn server(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.bash("echo served > page.txt; python3 -m http.server 8641 --bind 127.0.0.1 > /dev/null 2>&1 &").await?;
    let program = "import time, urllib.request\nfor attempt in range(50):\n    try:\n        print(urllib.request.urlopen('http://127.0.0.1:8641/page.txt').read().decode(), end='')\n        break\n    except OSError: time.sleep(0.1)";
    held.python(program).await?.want_said("served")
}

async fn bad_timeouts(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    for wrong in [json!(-5), json!(0.5), json!("10"), json!([1]), json!(true)] {
        let body = json!({"tool": "code_execution", "input": {"code": "pass"}, "timeout_seconds": wrong});
        held.exec(&body).await?.want_status(&[400, 422], "for a timeout that is no positive integer")?;
    }
    Ok(())
}

async fn hints(bench: &Bench) -> Result<(), Stop> {
    let lease = bench.lease_with(Some(json!({"idle_timeout_seconds": 41, "max_lifetime_seconds": 83}))).await?;
    let reported = |name: &str| lease.json.get(name).and_then(Value::as_u64);
    let kept = reported("idle_timeout_seconds") == Some(41) && reported("max_lifetime_seconds") == Some(83);
    lease.want(kept, "an idle timeout of 41 and a lifetime of 83, as asked")?;
    let most = 4_000_000_000_u64;
    let lease = bench.lease_with(Some(json!({"idle_timeout_seconds": most, "max_lifetime_seconds": most}))).await?;
    let clamped = lease.json.get("idle_timeout_seconds").and_then(Value::as_u64).is_some_and(|idle| idle < most);
    lease.want(clamped, "a lease with an idle timeout that is clamped and reported")
}

async fn idle_running(bench: &Bench) -> Result<(), Stop> {
    let held = bench.held(&bench.lease_with(Some(json!({"idle_timeout_seconds": 2}))).await?)?;
    held.python_for("import time\ntime.sleep(5)\nprint('to the end')", 20).await?.want_said("to the end")?;
    held.python("print('after')").await?.want_said("after")
}

async fn idle_reclaimed(bench: &Bench) -> Result<(), Stop> {
    let lease = bench.lease_with(Some(json!({"idle_timeout_seconds": 1}))).await?;
    let held = bench.held(&lease)?;
    // Each look counts as activity, so the looks are further apart than the timeout.
    for pause in [4, 5, 6] {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        let look = held.list(None).await?;
        if look.status == 404 {
            return Ok(());
        }
    }
    held.list(None).await?.want_status(&[404], "for a session that was idle for longer than its timeout of 1 s")
}
