//! The routes of the contract, and the few beside it that common backends have.

#![expect(clippy::indexing_slicing, reason = "a JSON value is read by name: what is missing reads as null")]

use serde_json::{Value, json};

use crate::http::unescaped;
use crate::multipart::parts;
use crate::programs::Run;
use crate::state::{Session, State};
use crate::workspace::{ROOT, is_inside, relative};
use crate::{Asked, Reply, editor, programs, shell};

const IDLE_MAX: u64 = 900;
const LIFETIME_MAX: u64 = 7200;
const TIMEOUT_DEFAULT: u64 = 30;
const UPLOAD_BYTES_MAX: usize = 100 << 20;

pub(crate) fn answer(state: &mut State, asked: &Asked) -> Reply {
    let parts: Vec<String> = asked.path.trim_start_matches('/').split('/').map(unescaped).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let files = !state.rules.without_files;
    match (asked.method.as_str(), parts.as_slice()) {
        ("GET", ["health"]) => {
            Reply::json(200, &json!({"status": "ok", "session_count": state.sessions(), "max_sessions": 256}))
        }
        ("POST", ["sessions"]) => lease(state, asked),
        ("DELETE", ["sessions", id]) => release(state, id),
        ("GET", ["sessions", id]) => match state.table.contains_key(*id) {
            true => Reply::json(200, &json!({"session_id": id, "image": "fake"})),
            false => unknown_session(),
        },
        ("GET", ["sessions"]) if state.rules.token.is_some() => {
            let handles = state.table.keys().map(|id| json!({"session_id": id, "image": "fake"})).collect::<Vec<_>>();
            Reply::json(200, &json!({"sessions": handles, "total": handles.len()}))
        }
        ("GET", ["sessions"]) => Reply::refusal(403, "sessions are listed only where there is a token"),
        // Its calls take no time: none is ever met by an interrupt.
        ("POST", ["sessions", id, "interrupt"]) => {
            with_session(state, id, |_, _| Reply::json(200, &json!({"interrupted": false, "later": 1})))
        }
        ("POST", ["sessions", id, "exec"]) => with_session(state, id, |state, id| exec(state, id, asked)),
        ("GET", ["sessions", id, "files", "list"]) if files => {
            with_session(state, id, |state, id| list(state, id, asked))
        }
        ("GET", ["sessions", id, "files"]) if files => with_session(state, id, |state, id| read(state, id, asked)),
        ("POST", ["sessions", id, "files"]) if files => with_session(state, id, |state, id| write(state, id, asked)),
        ("DELETE", ["sessions", id, "files"]) if files => with_session(state, id, |state, id| remove(state, id, asked)),
        _ => Reply::refusal(404, "Not Found"),
    }
}

fn unknown_session() -> Reply {
    Reply::refusal(404, "there is no such session")
}

fn with_session(state: &mut State, id: &str, act: impl FnOnce(&mut State, &str) -> Reply) -> Reply {
    if state.table.contains_key(id) { act(state, id) } else { unknown_session() }
}

/// The session as its programs see it, which faults may make a shared one.
fn files_of<'a>(state: &'a mut State, id: &str) -> &'a mut Session {
    if state.rules.quirks.shares_files { &mut state.shared } else { state.table.entry(id.to_owned()).or_default() }
}

fn lease(state: &mut State, asked: &Asked) -> Reply {
    let hints = if asked.body.is_empty() { json!({}) } else { asked.json() };
    if !hints.is_object() {
        return Reply::refusal(422, "the body is no object");
    }
    let hint = |name: &str, most: u64| match &hints[name] {
        Value::Null => Some(most),
        value => value.as_u64().filter(|seconds| *seconds >= 1).map(|seconds| seconds.min(most)),
    };
    let (Some(idle), Some(lifetime)) =
        (hint("idle_timeout_seconds", IDLE_MAX), hint("max_lifetime_seconds", LIFETIME_MAX))
    else {
        return Reply::refusal(422, "a lifetime hint is no positive integer");
    };
    if state.rules.sessions_max > 0 && state.sessions() >= state.rules.sessions_max {
        let mut full = Reply::refusal(503, "no room for another session");
        full.headers.push(("retry-after".to_owned(), "1".to_owned()));
        return full;
    }
    let quirks = state.rules.quirks;
    state.leased += 1;
    let id = match state.table.keys().next_back() {
        Some(held) if quirks.repeats_ids => held.clone(),
        _ if quirks.numeric_ids => (7000 + state.leased).to_string(),
        _ => format!("session-{:04x}", state.leased),
    };
    state.table.entry(id.clone()).or_default();
    let shown = if quirks.numeric_ids { json!(id.parse::<u64>().ok()) } else { json!(id) };
    Reply::json(
        201,
        &json!({"session_id": shown, "idle_timeout_seconds": idle, "max_lifetime_seconds": lifetime,
            "created_at": 1_786_000_000.5, "last_activity_at": 1_786_000_000.5, "image": "fake", "shard": {"of": [1, null]}}),
    )
}

fn release(state: &mut State, id: &str) -> Reply {
    let known = if state.rules.quirks.survives_release {
        state.table.contains_key(id)
    } else {
        state.table.remove(id).is_some()
    };
    if known { Reply { status: 204, ..Reply::default() } } else { unknown_session() }
}

fn exec(state: &mut State, id: &str, asked: &Asked) -> Reply {
    let body = asked.json();
    let input = &body["input"];
    let timeout = match &body["timeout_seconds"] {
        Value::Null => Some(TIMEOUT_DEFAULT),
        value => value.as_u64().filter(|seconds| *seconds >= 1),
    };
    let id_given = match &body["tool_use_id"] {
        Value::Null => Some(None),
        Value::String(text) => Some(Some(text.clone())),
        _ => None,
    };
    let (Some(timeout), Some(given)) = (timeout, id_given) else {
        return Reply::refusal(422, "a field has a wrong value");
    };
    let quirks = state.rules.quirks;
    let session = state.table.entry(id.to_owned()).or_default();
    session.calls += 1;
    let call = session.calls;
    let tool = body["tool"].as_str().unwrap_or_default().to_owned();
    if quirks.forgets_variables {
        session.variables.clear();
    }
    if quirks.forgets_files && tool == "code_execution" {
        for path in std::mem::take(&mut session.written) {
            session.disk.remove(&format!("{ROOT}/{path}"));
        }
    }
    let text = |name: &str| input[name].as_str().filter(|text| !text.is_empty());
    let run = match tool.as_str() {
        "code_execution" => text("code").map(|code| python(state, id, code, timeout)),
        "bash_code_execution" => {
            text("command").map(|command| shell::run(command, timeout, &mut files_of(state, id).disk))
        }
        "text_editor_code_execution" => {
            let Session { disk, history, .. } = files_of(state, id);
            editor::run(input, disk, history)
        }
        _ => return Reply::refusal(400, "there is no such tool"),
    };
    let Some(run) = run else { return Reply::refusal(422, "the input lacks what its tool needs") };
    envelope(&tool, &given.unwrap_or_else(|| format!("srvtoolu_{id}_{call}")), &run)
}

fn python(state: &mut State, id: &str, code: &str, timeout: u64) -> Run {
    let quirks = state.rules.quirks;
    let mut variables = if quirks.shares_variables {
        std::mem::take(&mut state.shared.variables)
    } else {
        std::mem::take(&mut state.table.entry(id.to_owned()).or_default().variables)
    };
    let run = programs::run(code, timeout, &mut variables, &mut files_of(state, id).disk);
    files_of(state, id).written.extend(run.produced.iter().cloned());
    if quirks.shares_variables {
        state.shared.variables = variables;
    } else {
        state.table.entry(id.to_owned()).or_default().variables = variables;
    }
    run
}

fn envelope(tool: &str, id: &str, run: &Run) -> Reply {
    let files: Vec<Value> = run
        .produced
        .iter()
        .map(|path| json!({"type": "code_execution_output", "file_id": format!("file:{path}"), "filename": path, "kind": "new"}))
        .collect();
    Reply::json(
        200,
        &json!({"tool_use_id": id, "execution_time_ms": 3, "trace": "x", "result_block": {
            "type": format!("{tool}_tool_result"), "tool_use_id": id, "cached": false,
            "content": {"type": "code_execution_result", "stdout": run.stdout, "stderr": run.stderr,
                "return_code": run.return_code, "content": files, "more": null}}}),
    )
}

fn list(state: &mut State, id: &str, asked: &Asked) -> Reply {
    let outside = state.rules.quirks.lists_outside;
    let disk = &files_of(state, id).disk;
    let Some(absolute) = disk.resolve(asked.parameter("path").unwrap_or(".")) else {
        return Reply::refusal(403, "a loop of links");
    };
    if !is_inside(&absolute) && !outside {
        return Reply::refusal(403, "outside of the workspace");
    }
    if !disk.is_folder(&absolute) {
        return Reply::refusal(404, "there is no such folder");
    }
    let deep = asked.parameter("recursive") == Some("true");
    let files: Vec<Value> = disk
        .list(&absolute, deep)
        .map(|(path, file)| {
            json!({"path": relative(path), "size_bytes": file.content.len(), "mime_type": null, "modified_at": file.modified_at, "owner": 1})
        })
        .collect();
    Reply::json(200, &json!({"files": files, "total": files.len()}))
}

fn read(state: &mut State, id: &str, asked: &Asked) -> Reply {
    let quirks = state.rules.quirks;
    let Session { disk, hidden, .. } = files_of(state, id);
    let Some(path) = asked.parameter("path").filter(|path| !path.is_empty()) else {
        return Reply::refusal(422, "no path");
    };
    let Some(absolute) = disk.resolve(path) else { return Reply::refusal(403, "a loop of links") };
    let by_link = !path.contains("..") && !path.starts_with('/');
    let let_out = if by_link { quirks.reads_through_links } else { quirks.reads_outside };
    if !is_inside(&absolute) && !let_out {
        return Reply::refusal(403, "outside of the workspace");
    }
    if disk.is_folder(&absolute) {
        return Reply::refusal(400, "it is a folder");
    }
    let Some(file) = disk.file(&absolute).or_else(|| hidden.file(&absolute)) else {
        return Reply::refusal(404, "there is no such file");
    };
    let headers = vec![("content-type".to_owned(), "application/octet-stream".to_owned())];
    Reply { status: 200, headers, body: file.content.clone(), ..Reply::default() }
}

fn write(state: &mut State, id: &str, asked: &Asked) -> Reply {
    let quirks = state.rules.quirks;
    let Some(mut parts) = parts(asked.header("content-type").unwrap_or_default(), &asked.body) else {
        return Reply::refusal(400, "no multipart body");
    };
    let path =
        parts.iter().find(|part| part.name == "path").map(|part| String::from_utf8_lossy(&part.content).into_owned());
    let Some(file) = parts.iter().position(|part| part.name == "file").map(|at| parts.swap_remove(at)) else {
        return Reply::refusal(422, "there is no file part");
    };
    let Some(path) = path.or(file.filename).filter(|path| !path.is_empty()) else {
        return Reply::refusal(422, "no path");
    };
    let size = file.content.len();
    if size > UPLOAD_BYTES_MAX {
        return Reply::refusal(413, "it is too large");
    }
    let mut content = file.content;
    if quirks.truncates_at > 0 {
        content.truncate(quirks.truncates_at);
    }
    let Session { disk, hidden, .. } = files_of(state, id);
    let Some(absolute) = disk.resolve(&path) else { return Reply::refusal(403, "a loop of links") };
    let by_link = !path.contains("..") && !path.starts_with('/');
    if !is_inside(&absolute) {
        if quirks.writes_outside_and_denies && !by_link {
            disk.write(&absolute, content);
            return Reply::refusal(403, "outside of the workspace");
        }
        if !(if by_link { quirks.writes_through_links } else { quirks.writes_outside }) {
            return Reply::refusal(403, "outside of the workspace");
        }
    }
    let stored = relative(&absolute).to_owned();
    let disk = if quirks.hides_uploads { hidden } else { disk };
    disk.write(&absolute, content);
    Reply::json(201, &json!({"path": stored, "size_bytes": size, "etag": "x"}))
}

fn remove(state: &mut State, id: &str, asked: &Asked) -> Reply {
    let disk = &mut files_of(state, id).disk;
    let absolute = disk.resolve(asked.parameter("path").unwrap_or_default()).unwrap_or_default();
    if !is_inside(&absolute) {
        return Reply::refusal(403, "outside of the workspace");
    }
    if disk.remove(&absolute) {
        Reply { status: 204, ..Reply::default() }
    } else {
        Reply::refusal(404, "there is no such file")
    }
}
