//! A program that fails is a successful operation.

use std::time::Duration;

use serde_json::json;

use super::must;
use crate::bench::Bench;
use crate::check::{Check, Stop};
use crate::exchange::Exchange;

const SECTION: &str = "Result blocks";
const SAYS: &str =
    "a call that ran code and collected its failure has succeeded: the failure is in return_code and stderr";

pub(crate) const CHECKS: &[Check] = &[
    must("failure.code", "an exception is a result", SECTION, SAYS, &[], |bench| Box::pin(code(bench))),
    must("failure.bash", "a command's exit status is a result", SECTION, SAYS, &[], |bench| Box::pin(bash(bench))),
    must(
        "failure.timeout",
        "a program that runs out of time is a result, in time",
        "Execute",
        "timeout_seconds bounds the execution; a client waits for it and ten seconds more",
        &[],
        |bench| Box::pin(timeout(bench)),
    ),
];

async fn code(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let program = json!({"code": "raise ValueError('wanted by the check')"});
    told(&held.call("code_execution", program.clone(), 10).await?)?;
    let ran = held.python("raise ValueError('wanted by the check')").await?;
    ran.want(ran.failed(), "a return_code other than 0, or a text on stderr")
}

async fn bash(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    told(&held.call("bash_code_execution", json!({"command": "exit 3"}), 10).await?)?;
    let ran = held.bash("exit 3").await?;
    ran.want(ran.failed(), "a return_code other than 0, or a text on stderr")
}

fn told(answer: &Exchange) -> Result<(), Stop> {
    answer.need(!(400..500).contains(&answer.status), "a call that is not refused")?;
    answer.want(answer.is_success(), "200, with the failure in the payload")
}

async fn timeout(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let program = json!({"code": "import time\ntime.sleep(100)"});
    let asked = std::time::Instant::now();
    let answer = held.call("code_execution", program, 1).await?;
    told(&answer)?;
    answer.want(
        asked.elapsed() < Duration::from_secs(1) + bench.headroom,
        "an answer within the budget and the headroom",
    )?;
    let ran = held.python_for("import time\ntime.sleep(100)", 1).await?;
    ran.want(ran.failed(), "a return_code other than 0, or a text on stderr")
}
