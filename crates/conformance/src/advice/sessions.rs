//! Sessions beside each other, and beside the backend.

use serde_json::json;

use super::should;
use crate::bench::Bench;
use crate::check::{Check, Stop};

const SECTION: &str = "Sessions";

pub(crate) const CHECKS: &[Check] = &[
    should(
        "sessions.serial",
        "calls that come at once run one after the other",
        SECTION,
        "each with its own output, whatever order they take",
        &[],
        |bench| Box::pin(serial(bench)),
    ),
    should(
        "sessions.apart",
        "sessions share no file, process, port or environment",
        SECTION,
        "nothing that one session does can be seen in another",
        &[],
        |bench| Box::pin(apart(bench)),
    ),
    should(
        "sessions.backend",
        "the backend is out of a program's reach",
        SECTION,
        "neither its port nor its processes",
        &[],
        |bench| Box::pin(backend(bench)),
    ),
    should(
        "sessions.network",
        "there is no network, and that is known at once",
        SECTION,
        "untrusted code talks to nobody; a connection fails without a wait",
        &[],
        |bench| Box::pin(network(bench)),
    ),
    should(
        "sessions.release_running",
        "a release during a call ends that call cleanly",
        SECTION,
        "the release is quick, and the call's answer is no 500",
        &[],
        |bench| Box::pin(release_running(bench)),
    ),
    should(
        "sessions.refusal_detail",
        "a refusal says what to change",
        SECTION,
        "error bodies carry a detail",
        &[],
        |bench| Box::pin(refusal_detail(bench)),
    ),
];

async fn serial(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.python("import time\nlog = []").await?;
    let one = async |number: u32| {
        let program = format!("log.append('in')\nprint({number})\ntime.sleep(0.05)\nlog.append('out')");
        held.python(&program).await?.want_said(&number.to_string())
    };
    let (a, b, c, d, e, f) = tokio::join!(one(1), one(2), one(3), one(4), one(5), one(6));
    for ended in [a, b, c, d, e, f] {
        ended?;
    }
    held.python("print(log == ['in', 'out'] * 6)").await?.want_said("True")
}

async fn apart(bench: &Bench) -> Result<(), Stop> {
    let (one, two) = (bench.lease().await?, bench.lease().await?);
    let mark = Bench::mark();
    let hide = format!(
        "for place in . /tmp /dev/shm; do echo {mark} > $place/{mark} 2>/dev/null; done; \
         (exec -a {mark} sleep 300) & python3 -m http.server 8642 --bind 127.0.0.1 > /dev/null 2>&1 & sleep 1"
    );
    one.bash(&hide).await?;
    let seek = "ls -a . .. /tmp /dev/shm 2>/dev/null; env; for each in /proc/[0-9]*; do tr '\\0' ' ' < $each/cmdline; done 2>/dev/null; true";
    let ran = two.bash(seek).await?;
    ran.want(!ran.stdout.contains(&mark), format!("nothing of another session, which calls everything {mark}"))?;
    let knock = "import socket\ns = socket.socket()\ns.settimeout(2)\nprint(s.connect_ex(('127.0.0.1', 8642)) == 0)";
    two.python(knock).await?.want_said("False")
}

async fn backend(bench: &Bench) -> Result<(), Stop> {
    let Some((host, port)) = bench.authority().rsplit_once(':') else {
        return Err(Stop::Skip("the backend's port is not known".to_owned()));
    };
    let held = bench.lease().await?;
    let host = host.trim_matches(['[', ']']);
    let knock = format!(
        "import socket\nfor host in ('127.0.0.1', '{host}'):\n    try: socket.create_connection((host, {port}), 2)\n    except OSError: continue\n    print('reached', host)"
    );
    held.python(&knock).await?.want_stdout("")?;
    let look = "import os\nfor each in os.listdir('/proc'):\n    if each.isdigit() and int(each) != os.getpid():\n        try: os.kill(int(each), 0); os.listdir(f'/proc/{each}/fd')\n        except OSError: continue\n        command = open(f'/proc/{each}/cmdline').read()\n        if 'uvicorn' in command or ' serve' in command.replace('\\0', ' '): print('reached', command)";
    held.python(look).await?.want_stdout("")
}

async fn network(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    // 192.0.2.0/24 is set aside for documents (RFC 5737): nobody answers there, so only a wait or a refusal can come.
    let dial = "import socket, time\nbegun = time.monotonic()\ns = socket.socket()\ns.settimeout(8)\ncode = s.connect_ex(('192.0.2.7', 80))\nprint(code != 0, time.monotonic() - begun < 3)";
    held.python(dial).await?.want_said("True True")
}

async fn release_running(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let call = held.call("bash_code_execution", json!({"command": "sleep 40"}), 45);
    let release = async {
        tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        let begun = std::time::Instant::now();
        let answer = held.release().await?;
        answer.want(answer.status == 204 && begun.elapsed().as_secs() < 5, "204 within 5 s")
    };
    let (called, released) = tokio::join!(call, release);
    released?;
    let called = called?;
    called.want(called.status < 500 || called.status == 503, "a result, a 4xx or a 503 for the call that was ended")
}

async fn refusal_detail(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let answer = held.exec(&json!({"tool": "code_execution", "input": {"code": 5}})).await?;
    answer.want_status(&[400, 422], "for code that is no string")?;
    answer.want(answer.json.get("detail").is_some_and(|detail| !detail.is_null()), "an object with a detail")
}
