//! The three tool kinds do what they are for.

use serde_json::{Value, json};

use super::must;
use crate::bench::Bench;
use crate::check::{Check, Stop};
use crate::held::Held;

const SECTION: &str = "Tool kinds";

pub(crate) const CHECKS: &[Check] = &[
    must(
        "tool.code",
        "code_execution runs source in an interpreter",
        SECTION,
        "input carries code, which runs in the session's interpreter",
        &[],
        |bench| Box::pin(code(bench)),
    ),
    must(
        "tool.bash",
        "bash_code_execution runs a shell command",
        SECTION,
        "input carries command, which a shell runs; a backend must accept the kind",
        &[],
        |bench| Box::pin(bash(bench)),
    ),
    must(
        "tool.editor",
        "text_editor_code_execution knows its five commands",
        SECTION,
        "view, create, str_replace, insert and undo_edit, on a file of the workspace",
        &[],
        |bench| Box::pin(editor(bench)),
    ),
    must(
        "tool.editor_no_echo",
        "creating a file does not echo its content",
        SECTION,
        "for create, the content is on the originating call already and is not sent back",
        &[],
        |bench| Box::pin(editor_no_echo(bench)),
    ),
    must(
        "tool.editor_fields",
        "a command without the fields that it needs does not run",
        SECTION,
        "command-specific fields are validated per command",
        &[],
        |bench| Box::pin(editor_fields(bench)),
    ),
];

async fn code(bench: &Bench) -> Result<(), Stop> {
    let mark = Bench::mark();
    let ran = bench.lease().await?.python(&format!("print('{mark}')")).await?;
    ran.want_in_stdout(&mark)?;
    ran.want(!ran.failed(), "a program without any fault: return_code 0 and nothing on stderr")
}

async fn bash(bench: &Bench) -> Result<(), Stop> {
    let mark = Bench::mark();
    let held = bench.lease().await?;
    let answer = held.call("bash_code_execution", json!({"command": format!("echo {mark}")}), 10).await?;
    answer.want(answer.is_success(), "the call run")?;
    held.bash(&format!("echo {mark}")).await?.want_in_stdout(&mark)
}

/// One command that must succeed.
async fn succeed(held: &Held<'_>, input: Value) -> Result<String, Stop> {
    let answer = held.call("text_editor_code_execution", input.clone(), 10).await?;
    answer.want(answer.is_success(), "the command run")?;
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}

async fn editor(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let path = "edited.txt";
    succeed(&held, json!({"command": "create", "path": path, "file_text": "alpha\nbeta\n"})).await?;
    succeed(&held, json!({"command": "str_replace", "path": path, "old_str": "beta", "new_str": "gamma"})).await?;
    succeed(&held, json!({"command": "insert", "path": path, "insert_line": 1, "new_str": "delta\n"})).await?;
    let view = json!({"command": "view", "path": path});
    let ran = held.edit(view.clone()).await?;
    let shown =
        ["alpha", "gamma", "delta"].iter().all(|word| ran.stdout.contains(word)) && !ran.stdout.contains("beta");
    ran.want(shown && ran.return_code == 0, "alpha, delta and gamma on stdout, and beta no more")?;
    succeed(&held, json!({"command": "undo_edit", "path": path})).await?;
    let ran = held.edit(view).await?;
    let undone = !ran.stdout.contains("delta") && ran.stdout.contains("gamma");
    ran.want(undone, "the insertion taken back, and nothing else")
}

async fn editor_no_echo(bench: &Bench) -> Result<(), Stop> {
    let mark = Bench::mark();
    let held = bench.lease().await?;
    let ran = held.edit(json!({"command": "create", "path": "quiet.txt", "file_text": format!("{mark}\n")})).await?;
    let echoed = ran.exchange.body.windows(mark.len()).any(|window| window == mark.as_bytes());
    ran.want(!echoed, "an answer that does not hold the file's content")
}

async fn editor_fields(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let answer = held.call("text_editor_code_execution", json!({"command": "create", "path": "bare.txt"}), 10).await?;
    if matches!(answer.status, 400 | 422) {
        return Ok(());
    }
    answer.want(answer.is_success(), "400 or 422, or a result that says that the command failed")?;
    let ran = held.edit(json!({"command": "create", "path": "bare.txt"})).await?;
    ran.want(ran.failed(), "400 or 422, or a result that says that the command failed")
}
