//! What is asked: a lease's hints, and one tool call.

use std::time::Duration;

use serde_json::{Map, Value, json};

/// Hints for CreateSession. A backend may clamp or ignore each; the handle says what is in force.
#[derive(Debug, Clone, Default)]
pub struct LeaseOptions {
    pub(crate) image: Option<String>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) max_lifetime: Option<Duration>,
    pub(crate) wait: Duration,
}

impl LeaseOptions {
    /// The image to run.
    #[must_use]
    pub fn image(mut self, image: impl Into<String>) -> Self {
        self.image = Some(image.into());
        self
    }

    /// Reclaim the session after so long without activity (whole seconds, at least one).
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = Some(timeout);
        self
    }

    /// Reclaim the session so long after its creation (whole seconds, at least one).
    #[must_use]
    pub fn max_lifetime(mut self, lifetime: Duration) -> Self {
        self.max_lifetime = Some(lifetime);
        self
    }

    /// While the backend is at capacity (503: nothing was leased), try again for so long. The default is not to.
    #[must_use]
    pub fn wait_for_capacity(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    pub(crate) fn body(&self) -> Value {
        let mut body = Map::new();
        if let Some(image) = &self.image {
            body.insert("image".to_owned(), json!(image));
        }
        for (name, hint) in [("idle_timeout_seconds", self.idle_timeout), ("max_lifetime_seconds", self.max_lifetime)] {
            if let Some(hint) = hint {
                body.insert(name.to_owned(), json!(whole_seconds(hint)));
            }
        }
        Value::Object(body)
    }
}

/// One tool call.
#[derive(Debug, Clone)]
pub struct ToolCall {
    tool: String,
    input: Value,
    pub(crate) timeout: Option<Duration>,
    pub(crate) patience: Option<Duration>,
    tool_use_id: Option<String>,
}

impl ToolCall {
    /// Source for the session's persistent interpreter (`code_execution`).
    #[must_use]
    pub fn python(code: impl Into<String>) -> Self {
        ToolCall::other("code_execution", json!({"code": code.into()}))
    }

    /// A shell command (`bash_code_execution`).
    #[must_use]
    pub fn bash(command: impl Into<String>) -> Self {
        ToolCall::other("bash_code_execution", json!({"command": command.into()}))
    }

    /// Shows a file with the text editor.
    #[must_use]
    pub fn view(path: &str) -> Self {
        ToolCall::editor(json!({"command": "view", "path": path}))
    }

    /// Makes a new file with the text editor.
    #[must_use]
    pub fn create(path: &str, file_text: &str) -> Self {
        ToolCall::editor(json!({"command": "create", "path": path, "file_text": file_text}))
    }

    /// Replaces the one occurrence of a text with the text editor.
    #[must_use]
    pub fn str_replace(path: &str, old_str: &str, new_str: &str) -> Self {
        ToolCall::editor(json!({"command": "str_replace", "path": path, "old_str": old_str, "new_str": new_str}))
    }

    /// Inserts a text after a line (0 is before the first) with the text editor.
    #[must_use]
    pub fn insert(path: &str, insert_line: u64, new_str: &str) -> Self {
        ToolCall::editor(json!({"command": "insert", "path": path, "insert_line": insert_line, "new_str": new_str}))
    }

    /// Takes back the text editor's last edit of a file.
    #[must_use]
    pub fn undo_edit(path: &str) -> Self {
        ToolCall::editor(json!({"command": "undo_edit", "path": path}))
    }

    fn editor(input: Value) -> Self {
        ToolCall::other("text_editor_code_execution", input)
    }

    /// Any tool kind and input, for kinds that a backend may know and this client does not.
    #[must_use]
    pub fn other(tool: impl Into<String>, input: Value) -> Self {
        ToolCall { tool: tool.into(), input, timeout: None, patience: None, tool_use_id: None }
    }

    /// The budget of the execution (whole seconds, at least one). The client's default is
    /// [`TIMEOUT_DEFAULT`](crate::limits::TIMEOUT_DEFAULT).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How long the client waits for the answer, where budget + [`HEADROOM`](crate::limits::HEADROOM) is not right:
    /// such as for a call that queues behind a long one of the same session.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// A correlation id of the caller's own; the backend makes one otherwise.
    #[must_use]
    pub fn tool_use_id(mut self, id: impl Into<String>) -> Self {
        self.tool_use_id = Some(id.into());
        self
    }

    pub(crate) fn body(&self, timeout: Duration) -> Value {
        let mut body = json!({"tool": self.tool, "input": self.input, "timeout_seconds": whole_seconds(timeout)});
        if let (Some(id), Some(fields)) = (&self.tool_use_id, body.as_object_mut()) {
            fields.insert("tool_use_id".to_owned(), json!(id));
        }
        body
    }
}

/// Seconds as the contract counts them: whole, rounded up, at least one.
fn whole_seconds(duration: Duration) -> u64 {
    let up = u64::from(duration.subsec_nanos() > 0);
    duration.as_secs().saturating_add(up).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_lease_sends_an_empty_object() {
        assert_eq!(LeaseOptions::default().body(), json!({}));
        let hints = LeaseOptions::default().image("i").idle_timeout(Duration::from_millis(1500));
        assert_eq!(hints.body(), json!({"image": "i", "idle_timeout_seconds": 2}));
    }

    #[test]
    fn a_call_sends_what_the_contract_names() {
        let call = ToolCall::python("1").tool_use_id("t");
        let body = call.body(Duration::from_secs(60));
        assert_eq!(
            body,
            json!({"tool": "code_execution", "input": {"code": "1"}, "timeout_seconds": 60, "tool_use_id": "t"})
        );
        assert_eq!(ToolCall::bash("x").body(Duration::ZERO)["timeout_seconds"], 1);
    }
}
