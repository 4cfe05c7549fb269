//! Executes that are broken in one place.

use ringfence_fake::{Asked, Reply};
use serde_json::{Value, json};

use crate::{Breakage, answering, edited, twisted};

fn ran(asked: &Asked, reply: &Reply) -> bool {
    asked.is_exec() && reply.status == 200
}

fn of_tool(tool: &'static str) -> impl Fn(&Asked, &Reply) -> bool {
    move |asked, reply| ran(asked, reply) && asked.json()["tool"] == tool
}

fn code(asked: &Asked) -> String {
    asked.json()["input"]["code"].as_str().unwrap_or_default().to_owned()
}

/// Runs that failed with an exception.
fn raised(asked: &Asked, reply: &Reply) -> bool {
    ran(asked, reply) && code(asked).contains("raise ")
}

fn slept(asked: &Asked, reply: &Reply) -> bool {
    ran(asked, reply) && code(asked).contains("time.sleep")
}

fn payload(envelope: &mut Value) -> &mut Value {
    &mut envelope["result_block"]["content"]
}

pub(crate) fn breakages() -> Vec<Breakage> {
    [envelopes(), contents(), tools(), failures(), requests()].into_iter().flatten().collect()
}

fn envelopes() -> Vec<Breakage> {
    let given = |asked: &Asked, reply: &Reply| ran(asked, reply) && asked.json()["tool_use_id"].is_string();
    let absent = |asked: &Asked, reply: &Reply| ran(asked, reply) && !asked.json()["tool_use_id"].is_string();
    vec![
        answering(201, "201 instead of 200", "exec.status", ran),
        edited("a bare block", "exec.envelope", ran, |envelope| *envelope = envelope["result_block"].take()),
        edited("a null block", "exec.envelope", ran, |envelope| envelope["result_block"] = Value::Null),
        edited("a block as a text", "exec.envelope", ran, |envelope| {
            envelope["result_block"] = json!(envelope["result_block"].to_string());
        }),
        edited("another tool_use_id on the envelope", "exec.echo", given, |envelope| {
            envelope["tool_use_id"] = json!("srvtoolu_other");
        }),
        edited("another tool_use_id on the block", "exec.echo", given, |envelope| {
            envelope["result_block"]["tool_use_id"] = json!("srvtoolu_other");
        }),
        edited("no tool_use_id generated", "exec.generated_id", absent, |envelope| {
            envelope["tool_use_id"] = Value::Null;
            envelope["result_block"]["tool_use_id"] = Value::Null;
        }),
        edited("an empty tool_use_id generated", "exec.generated_id", absent, |envelope| {
            envelope["tool_use_id"] = json!("");
            envelope["result_block"]["tool_use_id"] = json!("");
        }),
        edited("a negative execution time", "exec.execution_time", ran, |envelope| {
            envelope["execution_time_ms"] = json!(-1)
        }),
        edited("a fractional execution time", "exec.execution_time", ran, |envelope| {
            envelope["execution_time_ms"] = json!(3.25);
        }),
        edited("one block type for every tool", "exec.block_type", of_tool("bash_code_execution"), |envelope| {
            envelope["result_block"]["type"] = json!("code_execution_tool_result");
        }),
        edited("no block type", "exec.block_type", ran, |envelope| {
            envelope["result_block"]["type"] = json!("");
        }),
    ]
}

fn contents() -> Vec<Breakage> {
    let silent = |asked: &Asked, reply: &Reply| {
        of_tool("code_execution")(asked, reply) && reply.value()["result_block"]["content"]["stdout"] == ""
    };
    let entry = |name: &'static str| {
        move |envelope: &mut Value| {
            if let Some(entries) = payload(envelope)["content"].as_array_mut() {
                entries.iter_mut().filter_map(Value::as_object_mut).for_each(|entry| drop(entry.remove(name)));
            }
        }
    };
    vec![
        edited("no content", "content.present", ran, |envelope| {
            envelope["result_block"].as_object_mut().unwrap().remove("content");
        }),
        edited("content null where nothing was printed", "content.present", silent, |envelope| {
            *payload(envelope) = Value::Null;
        }),
        edited("content as a list", "content.object", ran, |envelope| {
            *payload(envelope) = json!([payload(envelope).take()])
        }),
        edited("stderr as a number", "content.fields", ran, |envelope| {
            if payload(envelope)["stderr"] == "" {
                payload(envelope)["stderr"] = json!(0);
            }
        }),
        edited("the return code as a text", "content.fields", ran, |envelope| {
            payload(envelope)["return_code"] = json!(payload(envelope)["return_code"].to_string());
        }),
        edited("the payload's type of another contract", "content.fields", ran, |envelope| {
            payload(envelope)["type"] = json!("bash_code_execution_result");
        }),
        edited("the files as an object", "content.fields", of_tool("bash_code_execution"), |envelope| {
            payload(envelope)["content"] = json!({});
        }),
        edited("a notice where nothing was printed", "content.empty_run", silent, |envelope| {
            payload(envelope)["stdout"] = json!("(no output)");
        }),
        edited("an error variant", "content.error_variant", raised, |envelope| {
            *payload(envelope) = json!({"type": "code_execution_tool_result_error", "error_code": "execution_failed"});
        }),
        edited("a file without its name", "content.file_references", ran, entry("filename")),
        edited("a file without its id", "content.file_references", ran, entry("file_id")),
    ]
}

fn tools() -> Vec<Breakage> {
    let printed = |asked: &Asked, reply: &Reply| {
        of_tool("code_execution")(asked, reply) && reply.value()["result_block"]["content"]["stdout"] != ""
    };
    let command = |name: &'static str| {
        move |asked: &Asked, reply: &Reply| ran(asked, reply) && asked.json()["input"]["command"] == name
    };
    vec![
        edited("a warning on stderr of a good run", "tool.code", printed, |envelope| {
            payload(envelope)["stderr"] = json!("warning: the sandbox is warm\n");
        }),
        answering(400, "no shell", "tool.bash", of_tool("bash_code_execution")),
        answering(422, "no undo", "tool.editor", command("undo_edit")),
        edited("an insertion that is lost", "tool.editor", command("view"), |envelope| {
            let shown = payload(envelope)["stdout"].as_str().unwrap_or_default().replace("delta\n", "");
            payload(envelope)["stdout"] = json!(shown);
        }),
        twisted("a created file echoed", "tool.editor_no_echo", |asked, reply| {
            let text = asked.json()["input"]["file_text"].clone();
            if text.is_string() && reply.status == 200 {
                return reply.changed(|envelope| payload(envelope)["stdout"] = text);
            }
            reply
        }),
        answering(500, "a missing editor field as 500", "tool.editor_fields", |asked, reply| {
            asked.json()["input"]["command"] == "create" && reply.status == 422
        }),
    ]
}

fn failures() -> Vec<Breakage> {
    vec![
        answering(500, "an exception as 500", "failure.code", raised),
        edited("an exception as a success", "failure.code", raised, |envelope| {
            payload(envelope)["return_code"] = json!(0);
            payload(envelope)["stderr"] = json!("");
        }),
        edited("the shell's exit status lost", "failure.bash", of_tool("bash_code_execution"), |envelope| {
            payload(envelope)["return_code"] = json!(0);
        }),
        answering(504, "the timeout as 504", "failure.timeout", slept),
        twisted("a timeout that never answers", "failure.timeout", |asked, reply| Reply {
            silent: slept(asked, &reply),
            ..reply
        }),
        edited("the timeout as a success", "failure.timeout", slept, |envelope| {
            payload(envelope)["return_code"] = json!(0);
            payload(envelope)["stderr"] = json!("");
        }),
    ]
}

fn requests() -> Vec<Breakage> {
    let refused = |asked: &Asked, reply: &Reply| asked.is_exec() && matches!(reply.status, 400 | 422);
    let missing = move |asked: &Asked, name: &str| asked.json().is_object() && asked.json().get(name).is_none();
    let large = |asked: &Asked| asked.json()["timeout_seconds"].as_u64().is_some_and(|seconds| seconds > 100_000);
    vec![
        answering(404, "an unknown tool as 404", "request.unknown_tool", |asked, _| {
            asked.json()["tool"] == "no_such_tool"
        }),
        answering(200, "an unknown tool accepted", "request.unknown_tool", |asked, _| {
            asked.json()["tool"] == "no_such_tool"
        }),
        answering(500, "a missing tool as 500", "request.missing_tool", move |asked, reply| {
            refused(asked, reply) && missing(asked, "tool")
        }),
        answering(500, "a missing input as 500", "request.missing_input", move |asked, reply| {
            refused(asked, reply) && missing(asked, "input")
        }),
        answering(200, "a timeout of 0 accepted", "request.zero_timeout", |asked, _| {
            asked.json()["timeout_seconds"] == 0
        }),
        answering(500, "no JSON as 500", "request.not_json", move |asked, reply| {
            refused(asked, reply) && asked.json().is_null()
        }),
        answering(500, "a large timeout as 500", "request.large_timeout", move |asked, _| large(asked)),
        answering(422, "unknown fields refused", "request.unknown_fields", |asked, _| {
            asked.is_exec() && asked.json().get("another_field").is_some()
        }),
    ]
}
