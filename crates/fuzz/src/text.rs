//! JSON, paths, grants and names of images.

use std::str::FromStr;

use ringfence_grant::{KeySet, Terms};
use ringfence_oci::Reference;
use ringfence_op::WorkspacePath;
use ringfence_wire::{CreateSessionRequest, EditAction, ExecInput, ExecRequest};
use serde_json::{Value, json};

/// Bodies of Execute and CreateSession: what is parsed and written again is parsed the same.
pub(crate) fn body(data: &[u8]) {
    if let Ok(request) = ExecRequest::parse(data) {
        assert!(request.timeout_seconds.is_none_or(|seconds| seconds >= 1));
        assert!(request.tool_use_id.as_ref().is_none_or(|id| !id.is_empty()));
        let written = exec(&request).to_string();
        assert_eq!(ExecRequest::parse(written.as_bytes()).as_ref(), Ok(&request), "{written}");
    }
    if let Ok(request) = CreateSessionRequest::parse(data) {
        let seconds = [request.idle_timeout_seconds, request.max_lifetime_seconds];
        assert!(seconds.iter().flatten().all(|seconds| *seconds >= 1));
        let written = serde_json::to_vec(&request).unwrap_or_default();
        assert_eq!(CreateSessionRequest::parse(&written), Ok(request));
    }
}

fn exec(request: &ExecRequest) -> Value {
    let (tool, input) = match &request.input {
        ExecInput::Code(code) => {
            assert!(!code.code.is_empty());
            let mut input = json!({"code": code.code});
            if let (Some(echo), Some(fields)) = (code.echo_last_expression, input.as_object_mut()) {
                fields.insert("echo_last_expression".to_owned(), echo.into());
            }
            ("code_execution", input)
        }
        ExecInput::Bash(bash) => {
            assert!(!bash.command.is_empty() && !bash.command.contains('\0'));
            ("bash_code_execution", json!({"command": bash.command}))
        }
        ExecInput::Edit(edit) => ("text_editor_code_execution", action(&edit.path, &edit.action)),
    };
    let mut written = json!({"tool": tool, "input": input});
    if let Some(fields) = written.as_object_mut() {
        if let Some(seconds) = request.timeout_seconds {
            fields.insert("timeout_seconds".to_owned(), seconds.into());
        }
        if let Some(id) = &request.tool_use_id {
            fields.insert("tool_use_id".to_owned(), id.as_str().into());
        }
    }
    written
}

fn action(path: &str, action: &EditAction) -> Value {
    match action {
        EditAction::View { view_range: None } => json!({"path": path, "command": "view"}),
        EditAction::View { view_range: Some((first, last)) } => {
            json!({"path": path, "command": "view", "view_range": [first, last]})
        }
        EditAction::Create { file_text } => json!({"path": path, "command": "create", "file_text": file_text}),
        EditAction::StrReplace { old_str, new_str } => {
            json!({"path": path, "command": "str_replace", "old_str": old_str, "new_str": new_str})
        }
        EditAction::Insert { insert_line, new_str } => {
            json!({"path": path, "command": "insert", "insert_line": insert_line, "new_str": new_str})
        }
        EditAction::UndoEdit => json!({"path": path, "command": "undo_edit"}),
    }
}

/// Workspace paths: what parses is plain, within its bounds, and parses as itself, alone and behind `/workspace/`.
pub(crate) fn path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(path) = WorkspacePath::parse(text) else { return };
    let plain = path.as_str();
    assert!(plain.len() <= WorkspacePath::BYTES_MAX && !plain.contains('\0') && !plain.starts_with('/'));
    if !path.is_root() {
        for part in plain.split('/') {
            assert!(!matches!(part, "" | "." | "..") && part.len() <= WorkspacePath::NAME_BYTES_MAX, "{plain:?}");
        }
        assert_eq!(path.name(), plain.rsplit('/').next());
    }
    assert_eq!(WorkspacePath::parse(plain).as_ref(), Ok(&path));
    let absolute = format!("{}/{plain}", WorkspacePath::ROOT_IN_CELL);
    if absolute.len() <= WorkspacePath::BYTES_MAX {
        assert_eq!(WorkspacePath::parse(&absolute).as_ref(), Ok(&path));
    }
}

const AUDIENCE: &str = "https://gate.example";
const KEYS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","kid":"k","alg":"EdDSA","use":"sig"}]}"#;

/// A token without a key that made it, key sets, and the claims that are read once a signature holds.
pub(crate) fn grant(data: &[u8]) {
    let read = KeySet::parse(data);
    if let (Ok(text), Ok(keys), Ok(terms)) = (
        std::str::from_utf8(data),
        read.or_else(|_| KeySet::parse(KEYS.as_bytes())),
        Terms::new("https://control.example", AUDIENCE),
    ) {
        assert!(terms.verify(text, &keys, 1_800_000_000).is_err(), "nobody signed this: {text}");
    }
    if let Some(grant) = ringfence_grant::fuzzing::claims(data, AUDIENCE) {
        assert!(grant.expires_at > grant.issued_at);
        let written = ringfence_grant::fuzzing::written(&grant).unwrap_or_default();
        assert_eq!(ringfence_grant::fuzzing::claims(written.as_bytes(), AUDIENCE), Some(grant), "{written}");
    }
}

/// Manifests, indexes and configurations of images.
pub(crate) fn document(data: &[u8]) {
    if let Some(layers) = ringfence_oci::fuzzing::document(data) {
        assert!(layers <= ringfence_oci::limits::LAYERS_MAX);
    }
}

/// Names of images in registries: what is shown is read as the same.
pub(crate) fn reference(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(reference) = Reference::from_str(text) {
        let shown = reference.to_string();
        assert_eq!(Reference::from_str(&shown).map(|again| again.to_string()).ok(), Some(shown));
    }
}
