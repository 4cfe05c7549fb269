//! Execute: the status, and what is around the result.

use serde_json::{Value, json};

use super::must;
use crate::bench::Bench;
use crate::check::{Check, Stop};
use crate::exchange::Exchange;
use crate::held::Held;
use crate::shape::{Kind, Shape};

const SECTION: &str = "Result blocks";

pub(crate) const CHECKS: &[Check] = &[
    must(
        "exec.status",
        "a call that ran answers 200",
        "HTTP/JSON binding",
        "an Execute that succeeded is a 200",
        &[],
        |bench| Box::pin(status(bench)),
    ),
    must(
        "exec.envelope",
        "the result block is nested under result_block",
        SECTION,
        "the block stands under result_block beside the metadata; a bare block is refused by clients",
        &[],
        |bench| Box::pin(envelope(bench)),
    ),
    must(
        "exec.echo",
        "the call's tool_use_id comes back unchanged, twice",
        SECTION,
        "the correlation id is echoed on the envelope and on the block",
        &[],
        |bench| Box::pin(echo(bench)),
    ),
    must(
        "exec.generated_id",
        "a call without a tool_use_id is given one",
        "Execute",
        "the backend generates the correlation id where the request has none; both places are required",
        &[],
        |bench| Box::pin(generated(bench)),
    ),
    must(
        "exec.execution_time",
        "execution_time_ms is an integer of at least 0",
        SECTION,
        "how long the backend spent executing; may be null or left out",
        &[],
        |bench| Box::pin(execution_time(bench)),
    ),
    must(
        "exec.block_type",
        "the block's type names the tool that ran",
        SECTION,
        "the block's type corresponds to the tool kind, for each of the three",
        &[],
        |bench| Box::pin(block_type(bench)),
    ),
];

/// A call of Python that says one word, with more fields.
async fn hello(held: &Held<'_>, more: &[(&str, Value)]) -> Result<Exchange, Stop> {
    let mut body = json!({"tool": "code_execution", "input": {"code": "print('hello')"}, "timeout_seconds": 10});
    if let Some(fields) = body.as_object_mut() {
        fields.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    }
    held.exec(&body).await
}

async fn status(bench: &Bench) -> Result<(), Stop> {
    hello(&bench.lease().await?, &[]).await?.want_status(&[200], "for a call that ran")
}

async fn envelope(bench: &Bench) -> Result<(), Stop> {
    let answer = hello(&bench.lease().await?, &[]).await?;
    answer.need(answer.is_success(), "an Execute that succeeds")?;
    let nested = answer.json.get("result_block").is_some_and(Value::is_object);
    answer.want(nested, "an object whose result_block is an object")
}

async fn echo(bench: &Bench) -> Result<(), Stop> {
    let id = format!("srvtoolu_{}", Bench::mark());
    let answer = hello(&bench.lease().await?, &[("tool_use_id", json!(id))]).await?;
    answer.need(answer.is_success(), "an Execute that succeeds")?;
    let same = |at: &Value| at.get("tool_use_id").and_then(Value::as_str) == Some(&id);
    answer.want(
        same(&answer.json) && same(answer.block()?),
        format!("tool_use_id {id:?} on the envelope and on the block"),
    )
}

async fn generated(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    for more in [vec![], vec![("tool_use_id", Value::Null)]] {
        let answer = hello(&held, &more).await?;
        answer.need(answer.is_success(), "an Execute that succeeds")?;
        let id = answer.json.get("tool_use_id");
        let given = id.and_then(Value::as_str).is_some_and(|id| !id.is_empty());
        let same = answer.block()?.get("tool_use_id") == id;
        answer.want(given && same, "a generated tool_use_id, the same on the envelope and on the block")?;
    }
    Ok(())
}

async fn execution_time(bench: &Bench) -> Result<(), Stop> {
    let answer = hello(&bench.lease().await?, &[]).await?;
    answer.need(answer.is_success(), "an Execute that succeeds")?;
    let faults = Shape::of(&answer.json).optional("execution_time_ms", Kind::CountOrNull).faults();
    answer.want(faults.is_none(), faults.unwrap_or_default())
}

async fn block_type(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    for (tool, input) in [
        ("code_execution", json!({"code": "print('hello')"})),
        ("bash_code_execution", json!({"command": "echo hello"})),
        ("text_editor_code_execution", json!({"command": "create", "path": "typed.txt", "file_text": "hello\n"})),
    ] {
        let answer = held.call(tool, input, crate::limits::BUDGET_SECONDS).await?;
        answer.need(answer.is_success(), "an Execute that succeeds")?;
        let wanted = format!("{tool}_tool_result");
        let named = answer.block()?.get("type").and_then(Value::as_str) == Some(&wanted);
        answer.want(named, format!("a block of type {wanted:?}"))?;
    }
    Ok(())
}
