//! Requests that must be refused, and requests that must not.

use serde_json::{Value, json};

use super::must;
use crate::bench::Bench;
use crate::check::{Check, Stop};
use crate::limits::BUDGET_SECONDS;

const BINDING: &str = "HTTP/JSON binding";
const MALFORMED: &str = "a malformed request is a 400 or a 422";

pub(crate) const CHECKS: &[Check] = &[
    must(
        "request.unknown_tool",
        "an unknown tool is refused",
        "Tool kinds",
        "a backend must refuse a tool kind that it does not know, with 400 or 422",
        &[],
        |bench| Box::pin(refused(bench, json!({"tool": "no_such_tool", "input": {"code": "print(1)"}}))),
    ),
    must("request.missing_tool", "a call without a tool is refused", BINDING, MALFORMED, &[], |bench| {
        Box::pin(refused(bench, json!({"input": {"code": "print(1)"}})))
    }),
    must(
        "request.missing_input",
        "an input without what its tool needs is refused",
        BINDING,
        MALFORMED,
        &[],
        |bench| Box::pin(missing_input(bench)),
    ),
    must(
        "request.zero_timeout",
        "a timeout of 0 is refused",
        BINDING,
        "timeout_seconds is an integer of at least 1, and a malformed request is a 400 or a 422",
        &[],
        |bench| Box::pin(refused(bench, with_timeout(json!(0)))),
    ),
    must("request.not_json", "a body that is no JSON is refused", BINDING, MALFORMED, &[], |bench| {
        Box::pin(not_json(bench))
    }),
    must(
        "request.large_timeout",
        "a timeout above the ceiling is clamped or refused",
        "Execute",
        "a backend may clamp a larger timeout or refuse it as malformed",
        &[],
        |bench| Box::pin(large_timeout(bench)),
    ),
    must(
        "request.unknown_fields",
        "unknown fields of a call are ignored",
        "Extension policy",
        "the contract grows by adding: a request and its input may hold fields that a backend does not know",
        &[],
        |bench| Box::pin(unknown_fields(bench)),
    ),
];

fn with_timeout(timeout: Value) -> Value {
    json!({"tool": "code_execution", "input": {"code": "print(1)"}, "timeout_seconds": timeout})
}

async fn refused(bench: &Bench, body: Value) -> Result<(), Stop> {
    bench.lease().await?.exec(&body).await?.want_status(&[400, 422], "for this request")
}

async fn missing_input(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    for body in [
        json!({"tool": "code_execution"}),
        json!({"tool": "code_execution", "input": {}}),
        json!({"tool": "bash_code_execution", "input": {"code": "echo"}}),
        json!({"tool": "text_editor_code_execution", "input": {"command": "view"}}),
    ] {
        held.exec(&body).await?.want_status(&[400, 422], "for this request")?;
    }
    Ok(())
}

async fn not_json(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    for body in ["{", "hello"] {
        held.exec_bytes(body.into(), BUDGET_SECONDS).await?.want_status(&[400, 422], "for this body")?;
    }
    Ok(())
}

async fn large_timeout(bench: &Bench) -> Result<(), Stop> {
    let answer = bench.lease().await?.exec(&with_timeout(json!(86_400 * 365))).await?;
    answer.want(answer.is_success() || matches!(answer.status, 400 | 422), "the call run, or 400 or 422")
}

async fn unknown_fields(bench: &Bench) -> Result<(), Stop> {
    let body = json!({"tool": "code_execution", "input": {"code": "print('hello')", "field_of_a_later_time": 1},
        "timeout_seconds": BUDGET_SECONDS, "another_field": {"deep": [null]}});
    let answer = bench.lease().await?.exec(&body).await?;
    answer.want(answer.is_success(), "the call run, as without these fields")
}
