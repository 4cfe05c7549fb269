//! Execute: the payload of the result block.

use serde_json::{Value, json};

use super::must;
use crate::bench::Bench;
use crate::check::{Check, Stop};
use crate::exchange::Exchange;
use crate::limits::BUDGET_SECONDS;
use crate::shape::{Kind, Shape};

const SECTION: &str = "Result blocks";
const ERROR_VARIANT: &str = "code_execution_tool_result_error";

pub(crate) const CHECKS: &[Check] = &[
    must(
        "content.present",
        "the block has its content even where nothing was printed",
        SECTION,
        "content is required, also for a run that produced nothing",
        &[],
        |bench| Box::pin(present(bench)),
    ),
    must(
        "content.object",
        "the block's content is one object",
        SECTION,
        "the outer content is a single object; the inner content is the list",
        &[],
        |bench| Box::pin(object(bench)),
    ),
    must(
        "content.fields",
        "the payload's fields have their types, for each tool",
        SECTION,
        "streams are strings or null, the return code an integer or null, the files a list or null; type is fixed",
        &[],
        |bench| Box::pin(fields(bench)),
    ),
    must(
        "content.empty_run",
        "a silent run has empty streams and return code 0",
        SECTION,
        "a run with no output: stdout and stderr are empty and return_code is 0",
        &[],
        |bench| Box::pin(empty_run(bench)),
    ),
    must(
        "content.error_variant",
        "a failed program is not reported by an error variant",
        SECTION,
        "version 1 rules the error variant out: a client would read it as an empty, successful run",
        &[],
        |bench| Box::pin(error_variant(bench)),
    ),
    must(
        "content.file_references",
        "each file that a call produced has file_id and filename",
        SECTION,
        "both are required on an entry: what cannot be named or fetched is not worth a mention",
        &[],
        |bench| Box::pin(file_references(bench)),
    ),
];

async fn call(bench: &Bench, tool: &str, input: Value) -> Result<Exchange, Stop> {
    let answer = bench.lease().await?.call(tool, input, BUDGET_SECONDS).await?;
    answer.need(answer.is_success(), "an Execute that succeeds")?;
    Ok(answer)
}

/// The payload as an object; where it is none, that is another check's finding.
fn payload(answer: &Exchange) -> Result<&Value, Stop> {
    let content = answer.block()?.get("content").filter(|content| content.is_object());
    content.ok_or_else(|| Stop::Unjudged(answer.finding("a payload to look into")))
}

async fn present(bench: &Bench) -> Result<(), Stop> {
    let answer = call(bench, "code_execution", json!({"code": "pass"})).await?;
    let content = answer.block()?.get("content");
    answer.want(content.is_some_and(|content| !content.is_null()), "a result block with its content")
}

async fn object(bench: &Bench) -> Result<(), Stop> {
    let answer = call(bench, "code_execution", json!({"code": "print('hello')"})).await?;
    let content = answer.block()?.get("content").filter(|content| !content.is_null());
    let Some(content) = content else { return Err(Stop::Unjudged(answer.finding("a content to look at"))) };
    answer.want(content.is_object(), "a content that is one object, not a list")
}

async fn fields(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    for (tool, input) in [
        ("code_execution", json!({"code": "print('hello')"})),
        ("bash_code_execution", json!({"command": "echo hello"})),
        ("text_editor_code_execution", json!({"command": "create", "path": "shaped.txt", "file_text": "hello\n"})),
    ] {
        let answer = held.call(tool, input, BUDGET_SECONDS).await?;
        answer.need(answer.is_success(), "an Execute that succeeds")?;
        let payload = payload(&answer)?;
        let mut shape = Shape::of(payload)
            .optional("stdout", Kind::TextOrNull)
            .optional("stderr", Kind::TextOrNull)
            .optional("return_code", Kind::IntegerOrNull)
            .optional("content", Kind::ListOrNull);
        if payload.get("type").and_then(Value::as_str) != Some(ERROR_VARIANT) {
            shape = shape.constant("type", "code_execution_result");
        }
        let faults = shape.faults();
        answer.want(faults.is_none(), faults.unwrap_or_default())?;
    }
    Ok(())
}

async fn empty_run(bench: &Bench) -> Result<(), Stop> {
    let answer = call(bench, "code_execution", json!({"code": "silent = 1"})).await?;
    let payload = payload(&answer)?;
    // What is no string or no number here is a finding about the fields, not about this run.
    let silent = |name: &str| payload.get(name).and_then(Value::as_str).unwrap_or_default().is_empty();
    let zero = payload.get("return_code").and_then(Value::as_f64).unwrap_or_default() == 0.0;
    answer.want(silent("stdout") && silent("stderr") && zero, "empty stdout, empty stderr and return_code 0")
}

async fn error_variant(bench: &Bench) -> Result<(), Stop> {
    let answer = call(bench, "code_execution", json!({"code": "raise ValueError('wanted by the check')"})).await?;
    let Some(content) = answer.block()?.get("content") else {
        return Err(Stop::Unjudged(answer.finding("a content to look at")));
    };
    let variant =
        content.get("type").and_then(Value::as_str) == Some(ERROR_VARIANT) || content.get("error_code").is_some();
    answer.want(!variant, "the failure in return_code and stderr, and no error_code")
}

async fn file_references(bench: &Bench) -> Result<(), Stop> {
    let answer = call(bench, "code_execution", json!({"code": "open('produced.txt', 'w').write('x')"})).await?;
    let entries = payload(&answer)?.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if entries.is_empty() {
        return Err(Stop::Skip("the backend does not fill the list of produced files".to_owned()));
    }
    for entry in entries {
        let shape = Shape::of(entry).required("file_id", Kind::Text).required("filename", Kind::Text);
        let faults = shape.constant("type", "code_execution_output").faults();
        answer.want(faults.is_none(), faults.unwrap_or_default())?;
    }
    Ok(())
}
