//! What the model is told of its tools and of the session behind them.

use std::sync::Arc;

use ringfence_client::SessionHandle;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

/// Python.
pub(crate) const PYTHON: &str = "run_python";
/// A shell command.
pub(crate) const BASH: &str = "run_bash";
/// The text editor.
pub(crate) const EDITOR: &str = "edit_file";
/// A file in.
pub(crate) const UPLOAD: &str = "upload_file";
/// A file out.
pub(crate) const DOWNLOAD: &str = "download_file";
/// What there is.
pub(crate) const LIST: &str = "list_files";

/// Of the server as a whole.
pub(crate) fn instructions(session: Option<&SessionHandle>) -> String {
    let mut text = format!(
        "A sandboxed session of Python and a shell, this conversation's own. Variables, imports and files live from \
         call to call; files are in the working directory /workspace. There is no network. Write a picture to a file, \
         or leave a figure of matplotlib open: {PYTHON} and {BASH} show it. Other files that a call produces are \
         linked as resources; {DOWNLOAD} hands one over. Standard input is empty: never wait for it."
    );
    if let Some(facts) = session.and_then(facts) {
        text.push(' ');
        text.push_str(&facts);
    }
    text
}

/// The tier and the limits that a handle names, in a sentence; `None` where it names none.
fn facts(session: &SessionHandle) -> Option<String> {
    let limits = session.more.get("limits").and_then(Value::as_object);
    let number = |name: &str| limits.and_then(|limits| limits.get(name)).and_then(Value::as_u64);
    let mut facts = Vec::new();
    if let Some(image) = &session.image {
        facts.push(format!("image {image}"));
    }
    if let Some(tier) = &session.tier {
        facts.push(format!("isolation tier {tier}"));
    }
    if let Some(bytes) = number("memory_bytes") {
        facts.push(format!("{} of memory, files included", size(bytes)));
    }
    if let Some(millis) = number("cpu_millis") {
        facts.push(format!("{} CPU", millis as f64 / 1000.0));
    }
    if let Some(count) = number("processes") {
        facts.push(format!("{count} processes and threads"));
    }
    if let Some(bytes) = number("workspace_bytes") {
        facts.push(format!("{} in /workspace", size(bytes)));
    }
    if let Some(seconds) = number("timeout_seconds_max") {
        facts.push(format!("at most {seconds} s for a call"));
    }
    if let Some(seconds) = session.idle_timeout_seconds {
        facts.push(format!("ends after {seconds} s without a call"));
    }
    if let Some(seconds) = session.max_lifetime_seconds {
        facts.push(format!("lives {seconds} s at most"));
    }
    (!facts.is_empty()).then(|| format!("The session: {}.", facts.join(", ")))
}

/// `1.5 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    let units = [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => {
            let tenths = (bytes as f64 / *unit as f64 * 10.0).round() / 10.0;
            format!("{tenths} {name}")
        }
        None => format!("{bytes} bytes"),
    }
}

/// Every tool, as it is listed.
pub(crate) fn tools(session: Option<&SessionHandle>) -> Vec<Tool> {
    let facts = session.and_then(facts).map(|facts| format!(" {facts}")).unwrap_or_default();
    let program = |what: &str, help: &str| {
        object(
            json!({
                what: {"type": "string", "description": help},
                "timeout_seconds": {"type": "number", "exclusiveMinimum": 0,
                    "description": "End the call after so many seconds, rounded up; 60 where it is not given."},
            }),
            &[what],
        )
    };
    let python = format!(
        "Runs Python in the session's interpreter: variables and imports of earlier calls are there. The value of a last \
         expression is printed, as in a notebook; `await` works at the top level.{facts}"
    );
    let bash = format!("Runs a shell command in /workspace, beside the interpreter.{facts}");
    vec![
        tool(PYTHON, "Run Python", python, program("code", "The source.")),
        tool(BASH, "Run a shell command", bash, program("command", "The command.")),
        tool(EDITOR, "View and edit a file", EDITOR_HELP.to_owned(), editor_schema()),
        tool(
            UPLOAD,
            "Upload a file",
            "Writes a file into /workspace, whole; folders are made. Give its content as `text` or as `base64`."
                .to_owned(),
            object(
                json!({
                    "path": {"type": "string", "description": "Its path in /workspace."},
                    "text": {"type": "string", "description": "The content, as UTF-8 text."},
                    "base64": {"type": "string", "description": "The content, as base64."},
                }),
                &["path"],
            ),
        ),
        tool(
            DOWNLOAD,
            "Download a file",
            "Hands over a file of /workspace: a picture as a picture, anything else as a resource.".to_owned(),
            object(json!({"path": {"type": "string", "description": "Its path in /workspace."}}), &["path"]),
        )
        .annotate(ToolAnnotations::new().read_only(true).open_world(false)),
        tool(
            LIST,
            "List files",
            "Lists the files of a folder of /workspace, with their sizes.".to_owned(),
            object(
                json!({
                    "path": {"type": "string", "description": "The folder; empty is /workspace itself."},
                    "recursive": {"type": "boolean", "description": "Also what lies in folders below it."},
                }),
                &[],
            ),
        )
        .annotate(ToolAnnotations::new().read_only(true).open_world(false)),
    ]
}

const EDITOR_HELP: &str = "Views and edits text files of /workspace. `view` shows a file with `view_range` [first, \
last] (1-based, -1 is the end), or a folder; `create` writes `file_text`; `str_replace` replaces the one occurrence of \
`old_str` by `new_str`; `insert` puts `new_str` after line `insert_line` (0 is before the first); `undo_edit` takes back \
the last edit of the file.";

fn editor_schema() -> JsonObject {
    object(
        json!({
            "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert", "undo_edit"]},
            "path": {"type": "string", "description": "The file's path in /workspace."},
            "view_range": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
            "file_text": {"type": "string"},
            "old_str": {"type": "string"},
            "new_str": {"type": "string"},
            "insert_line": {"type": "integer", "minimum": 0},
        }),
        &["command", "path"],
    )
}

fn tool(name: &'static str, title: &str, description: String, schema: JsonObject) -> Tool {
    // A session has no network, and what it destroys is its own.
    let hints = ToolAnnotations::new().read_only(false).destructive(false).open_world(false);
    let mut tool = Tool::new(name, description, Arc::new(schema)).annotate(hints);
    tool.title = Some(title.to_owned());
    tool
}

fn object(properties: Value, required: &[&str]) -> JsonObject {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    match schema {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_handle_says_is_told_and_what_it_does_not_say_is_not() {
        let handle: SessionHandle = serde_json::from_value(json!({
            "session_id": "s", "tier": "cell", "image": "scientific", "idle_timeout_seconds": 3600,
            "limits": {"memory_bytes": 2147483648_u64, "cpu_millis": 1500, "timeout_seconds_max": 600, "later": [1]},
        }))
        .unwrap();
        let told = instructions(Some(&handle));
        for part in ["tier cell", "2 GiB of memory", "1.5 CPU", "at most 600 s", "after 3600 s", "image scientific"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(!told.contains("processes and threads"));
        assert!(!instructions(None).contains("The session:"));
        assert!(tools(Some(&handle)).iter().any(|tool| tool.description.as_deref().unwrap().contains("tier cell")));
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!((size(5).as_str(), size(1536).as_str(), size(3 << 29).as_str()), ("5 bytes", "1.5 KiB", "1.5 GiB"));
    }

    #[test]
    fn every_tool_asks_for_what_it_needs() {
        for tool in tools(None) {
            let schema = Value::Object((*tool.input_schema).clone());
            for name in schema["required"].as_array().unwrap() {
                assert!(schema["properties"].get(name.as_str().unwrap()).is_some(), "{}: {name}", tool.name);
            }
            assert!(tool.title.is_some() && tool.description.is_some() && tool.annotations.is_some());
        }
    }
}
