//! What each tool does.

use std::time::Duration;

use ringfence_client::{Session, ToolCall};
use rmcp::RoleServer;
use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock, ProgressNotificationParam};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

use crate::arguments::{Download, List, Program, Upload, read};
use crate::conversation::{Conversation, Trouble};
use crate::describe::{BASH, DOWNLOAD, EDITOR, LIST, PYTHON, UPLOAD, size};
use crate::files;
use crate::limits::{FILE_BYTES_MAX, IMAGE_BYTES_MAX};
use crate::show;

/// What a tool came to; `None` where there is no such tool. What goes wrong is told to the model.
pub(crate) async fn call(
    conversation: &Conversation,
    request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Option<CallToolResult> {
    let arguments = request.arguments;
    let done = match &*request.name {
        PYTHON => match read(arguments) {
            Ok(program) => run(conversation, python(&program), context).await,
            Err(wrong) => Err(wrong),
        },
        BASH => match read::<Program>(arguments) {
            Ok(program) => run(conversation, timed(ToolCall::bash(&program.code), &program), context).await,
            Err(wrong) => Err(wrong),
        },
        EDITOR => {
            let input = Value::Object(arguments.unwrap_or_default());
            run(conversation, Ok(ToolCall::other("text_editor_code_execution", input)), context).await
        }
        UPLOAD => upload(conversation, read::<Upload>(arguments)).await,
        DOWNLOAD => download(conversation, read::<Download>(arguments)).await,
        LIST => list(conversation, read::<List>(arguments)).await,
        _ => return None,
    };
    Some(done.unwrap_or_else(show::trouble))
}

fn python(program: &Program) -> Result<ToolCall, String> {
    let input = json!({"code": program.code, "echo_last_expression": true});
    timed(ToolCall::other("code_execution", input), program)
}

fn timed(call: ToolCall, program: &Program) -> Result<ToolCall, String> {
    let Some(seconds) = program.timeout_seconds else { return Ok(call) };
    match Duration::try_from_secs_f64(seconds) {
        Ok(timeout) if !timeout.is_zero() => Ok(call.timeout(timeout)),
        _ => Err("`timeout_seconds` is no number of seconds above 0".to_owned()),
    }
}

async fn run(
    conversation: &Conversation,
    call: Result<ToolCall, String>,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, String> {
    let call = call?;
    let ran = conversation.run(&call, &context.ct, |elapsed| tell(context, elapsed)).await;
    let (session, done) = ran.map_err(in_words)?;
    Ok(show::result(&session, &done).await)
}

/// Progress, for a client that wants it. A client that is slow to read it does not hold the call.
fn tell(context: &RequestContext<RoleServer>, elapsed: Duration) {
    let Some(token) = context.meta.get_progress_token() else { return };
    let progress = ProgressNotificationParam::new(token, elapsed.as_secs_f64());
    let progress = progress.with_message(format!("running for {} s", elapsed.as_secs()));
    let (peer, ended) = (context.peer.clone(), context.ct.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = ended.cancelled() => {}
            told = peer.notify_progress(progress) => {
                if let Err(error) = told {
                    tracing::debug!(%error, "progress could not be told");
                }
            }
        }
    });
}

async fn upload(conversation: &Conversation, upload: Result<Upload, String>) -> Result<CallToolResult, String> {
    let (path, content) = upload?.content()?;
    let stored = conversation.with_files(async |session: &Session| session.put(&path, content).await).await;
    let stored = stored.map_err(in_words)?;
    let said = format!("stored {} ({})", stored.path, size(stored.size_bytes));
    let link = ContentBlock::resource_link(files::link(&stored.path));
    Ok(CallToolResult::success(vec![ContentBlock::text(said), link]))
}

async fn download(conversation: &Conversation, download: Result<Download, String>) -> Result<CallToolResult, String> {
    let Download { path } = download?;
    let fetched =
        conversation.with_files(async |session: &Session| files::fetch(session, &path, FILE_BYTES_MAX).await).await;
    let content = files::content(&path, &fetched.map_err(in_words)?, IMAGE_BYTES_MAX);
    Ok(CallToolResult::success(vec![content]))
}

async fn list(conversation: &Conversation, list: Result<List, String>) -> Result<CallToolResult, String> {
    let List { path, recursive } = list?;
    let listed = conversation.with_files(async |session: &Session| match recursive {
        true => session.list_recursive(&path).await,
        false => session.list(&path).await,
    });
    let listed = listed.await.map_err(in_words)?;
    Ok(CallToolResult::success(vec![ContentBlock::text(files::table(&listed))]))
}

/// With everything that led to it.
pub(crate) fn in_words(trouble: Trouble) -> String {
    let mut text = trouble.to_string();
    let mut cause = std::error::Error::source(&trouble);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
