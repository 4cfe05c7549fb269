//! `POST /sessions/{session_id}/exec`

use std::time::Duration;

use ringfence_op::{Bash, Call, Edit, EditCommand, Fault, Operation, Python, SessionId, ToolUseId};
use ringfence_wire::{EditAction, Error, ExecInput, ExecRequest, ExecRequestSchema, ExecResponse, TextEditorEdit};

use crate::backend::{About, Backend};
use crate::dispatch::{App, Asked};
use crate::refusal::{Refusal, malformed};
use crate::render::{Reply, Tool};

/// Run one tool call in a session
///
/// Calls of one session run one after another, in the order in which they came. The timeout starts when the call
/// starts to run. A program that fails is a success of the operation.
#[utoipa::path(
    post, path = "/sessions/{session_id}/exec", operation_id = "Execute", tag = "sessions",
    params(("session_id" = String, Path, min_length = 1, description = "The id from the session handle, used verbatim.")),
    request_body = ExecRequestSchema,
    responses(
        (status = 200, body = ExecResponse<'static>, description = "The call ran, be it to its own failure."),
        (status = 400, body = Error<'static>, description = "Unknown tool kind."),
        (status = 404, body = Error<'static>, description = "Unknown session, or one that ended meanwhile."),
        (status = 413, body = Error<'static>, description = "The body is too large."),
        (status = 422, body = Error<'static>, description = "Malformed request."),
        (status = 503, body = Error<'static>, description = "Too many calls wait, or this one waited too long.",
            headers(("Retry-After" = u32, description = "Whole seconds after which it may be tried again."))),
    ),
)]
pub(crate) async fn handle<B: Backend>(app: &App<B>, id: SessionId, asked: Asked<'_>) -> Result<Reply, Refusal> {
    let request = ExecRequest::parse(&asked.body.whole().await?)?;
    let about = app.backend.about();
    let tool_use_id = match request.tool_use_id {
        None => ToolUseId::random().map_err(|why| Fault::house(why.to_string()))?,
        Some(id) => ToolUseId::parse(&id)
            .ok_or_else(|| malformed(format!("`tool_use_id` is longer than {} bytes", ToolUseId::BYTES_MAX)))?,
    };
    let echoed = tool_use_id.as_str().to_owned();
    let (tool, operation) = operation(request.input, about);
    let call = Call { tool_use_id, operation, timeout: timeout(request.timeout_seconds, about) };
    let outcome = app.backend.execute(id, call).await?;
    Ok(Reply::Ran { tool, tool_use_id: echoed, outcome })
}

/// The default where none is named, and never more than the ceiling (contract, Execute: a backend may clamp).
fn timeout(seconds: Option<u64>, about: &About) -> Duration {
    seconds.map_or(about.call.timeout_default, Duration::from_secs).min(about.call.timeout_max)
}

fn operation(input: ExecInput, about: &About) -> (Tool, Operation) {
    match input {
        ExecInput::Code(input) => {
            let echo_last = input.echo_last_expression.unwrap_or(about.echo_last);
            (Tool::Python, Operation::Python(Python { code: input.code, echo_last }))
        }
        ExecInput::Bash(input) => (Tool::Bash, Operation::Bash(Bash { command: input.command })),
        ExecInput::Edit(TextEditorEdit { path, action }) => {
            (Tool::Edit, Operation::Edit(Edit { path, command: edit_command(action) }))
        }
    }
}

fn edit_command(action: EditAction) -> EditCommand {
    match action {
        EditAction::View { view_range } => EditCommand::View { view_range },
        EditAction::Create { file_text } => EditCommand::Create { file_text },
        EditAction::StrReplace { old_str, new_str } => EditCommand::StrReplace { old_str, new_str },
        EditAction::Insert { insert_line, new_str } => EditCommand::Insert { insert_line, new_str },
        EditAction::UndoEdit => EditCommand::UndoEdit,
    }
}
