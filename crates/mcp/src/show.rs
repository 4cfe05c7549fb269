//! What a call came to, as a model reads it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ringfence_client::{ExecResult, ProducedFile, Session};
use rmcp::model::{CallToolResult, ContentBlock};

use crate::files::{self, is_named_picture, link, picture_kind};
use crate::limits::{IMAGE_BYTES_MAX, IMAGES_MAX, TEXT_BYTES_MAX};

/// A result with its pictures and the links of its files. A program that failed is an error of the tool.
pub(crate) async fn result(session: &Session, done: &ExecResult) -> CallToolResult {
    let mut content = texts(done);
    let mut pictures = 0;
    for file in &done.files {
        if pictures < IMAGES_MAX
            && let Some(picture) = picture(session, file).await
        {
            content.push(picture);
            pictures += 1;
        }
        content.push(ContentBlock::resource_link(link(&file.filename)));
    }
    match done.succeeded() {
        true => CallToolResult::success(content),
        false => CallToolResult::error(content),
    }
}

/// What went wrong apart from any program.
pub(crate) fn trouble(said: impl std::fmt::Display) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(said.to_string())])
}

/// The output, and what else there is to know; never nothing.
fn texts(done: &ExecResult) -> Vec<ContentBlock> {
    let mut texts = Vec::new();
    if !done.stdout.is_empty() {
        texts.push(cut(&done.stdout));
    }
    if !done.stderr.is_empty() {
        texts.push(format!("stderr:\n{}", cut(&done.stderr)));
    }
    if let Some(late) = &done.background {
        let written: Vec<&str> =
            [late.stdout.as_str(), late.stderr.as_str()].into_iter().filter(|text| !text.is_empty()).collect();
        if !written.is_empty() {
            texts.push(format!(
                "written between the calls, by what earlier ones had started:\n{}",
                cut(&written.join("\n"))
            ));
        }
    }
    let notes = notes(done);
    if !notes.is_empty() {
        texts.push(format!("[{}]", notes.join("; ")));
    }
    if texts.is_empty() {
        texts.push("[no output]".to_owned());
    }
    texts.into_iter().map(ContentBlock::text).collect()
}

fn notes(done: &ExecResult) -> Vec<String> {
    let mut notes = Vec::new();
    if !done.succeeded() {
        notes.push(format!("exit status {}", done.return_code));
    }
    if let Some(limit) = &done.limit_exceeded {
        notes.push(format!("limit reached: {limit}"));
    }
    if done.interpreter_restarted {
        notes.push("the interpreter was restarted: variables are lost, files are kept".to_owned());
    }
    if let Some(more) = done.envelope.get("files_omitted").and_then(serde_json::Value::as_u64).filter(|more| *more > 0)
    {
        notes.push(format!("{more} more files were written than are named"));
    }
    notes
}

/// The picture that a produced file is, if it is one that can be shown.
async fn picture(session: &Session, file: &ProducedFile) -> Option<ContentBlock> {
    if !is_named_picture(&file.filename) {
        return None;
    }
    let bytes = files::fetch(session, &file.filename, IMAGE_BYTES_MAX).await.ok()?;
    let kind = picture_kind(&bytes)?;
    Some(ContentBlock::image(BASE64.encode(&bytes), kind))
}

/// A text of at most [`TEXT_BYTES_MAX`] bytes and a line: the head and the tail of a longer one.
fn cut(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let half = TEXT_BYTES_MAX / 2;
    let whole = |at: &usize| text.is_char_boundary(*at);
    let head = (0..=half).rev().find(whole).and_then(|end| text.get(..end)).unwrap_or_default();
    let tail = (text.len() - half..=text.len()).find(whole).and_then(|from| text.get(from..)).unwrap_or_default();
    let left_out = text.len() - head.len() - tail.len();
    format!("{head}\n[{left_out} bytes are left out here: write long output to a file]\n{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn done(content: Value, more: Value) -> Vec<String> {
        let mut done = ExecResult {
            tool_use_id: String::new(),
            block_type: String::new(),
            stdout: content["stdout"].as_str().unwrap_or_default().to_owned(),
            stderr: content["stderr"].as_str().unwrap_or_default().to_owned(),
            return_code: content["return_code"].as_i64().unwrap_or_default(),
            files: Vec::new(),
            execution_time_ms: None,
            limit_exceeded: more["limit_exceeded"].as_str().map(str::to_owned),
            interpreter_restarted: more["interpreter_restarted"].as_bool().unwrap_or_default(),
            timeout_seconds: None,
            usage: None,
            background: None,
            envelope: serde_json::Map::new(),
        };
        done.envelope.extend(more.as_object().cloned().unwrap_or_default());
        texts(&done).iter().map(|text| text.as_text().unwrap().text.clone()).collect()
    }

    #[test]
    fn a_model_reads_what_happened() {
        assert_eq!(done(json!({}), json!({})), ["[no output]"]);
        assert_eq!(done(json!({"stdout": "1\n"}), json!({})), ["1\n"]);
        let failed = json!({"stderr": "late\n", "return_code": 124});
        assert_eq!(
            done(failed, json!({"limit_exceeded": "wall_clock", "interpreter_restarted": true, "files_omitted": 2})),
            [
                "stderr:\nlate\n",
                "[exit status 124; limit reached: wall_clock; the interpreter was restarted: variables are lost, files \
                 are kept; 2 more files were written than are named]"
            ]
        );
    }

    #[test]
    fn long_output_keeps_its_ends() {
        let long = format!("first {} last", "é".repeat(TEXT_BYTES_MAX));
        let cut = cut(&long);
        assert!(cut.len() < TEXT_BYTES_MAX + 100 && cut.starts_with("first") && cut.ends_with("last"), "{}", cut.len());
        assert!(cut.contains("bytes are left out"));
    }
}
