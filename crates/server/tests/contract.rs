//! The contract's table (crates/wire/tests/contract/contract.json) against our document and against real answers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod common;

use std::collections::BTreeSet;

use common::TestServer;
use serde_json::{Value, json};

fn table() -> Value {
    serde_json::from_str(include_str!("../../wire/tests/contract/contract.json")).unwrap()
}

fn document() -> Value {
    serde_json::from_str(&ringfence_server::openapi::generated().unwrap()).unwrap()
}

fn strings(value: &Value) -> BTreeSet<String> {
    value.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// A schema of ours without its references.
fn resolved<'a>(document: &'a Value, mut schema: &'a Value) -> &'a Value {
    while let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        schema = document.pointer(reference.strip_prefix('#').unwrap()).unwrap_or_else(|| panic!("{reference}"));
    }
    schema
}

/// The JSON types that a schema of ours allows.
fn types(document: &Value, schema: &Value) -> BTreeSet<String> {
    let schema = resolved(document, schema);
    if let Some(either) = schema.get("oneOf").or_else(|| schema.get("anyOf")) {
        return either.as_array().unwrap().iter().flat_map(|item| types(document, item)).collect();
    }
    match &schema["type"] {
        Value::String(one) => [one.clone()].into(),
        many => strings(many),
    }
}

#[test]
fn our_document_has_every_operation_of_the_contract() {
    let (table, document) = (table(), document());
    assert_eq!(document["openapi"], "3.1.0");
    for operation in table["operations"].as_array().unwrap() {
        let (path, method) = (operation["path"].as_str().unwrap(), operation["method"].as_str().unwrap());
        let ours = &document["paths"][path][method];
        assert_eq!(ours["operationId"], operation["id"], "{method} {path}");
        let statuses: BTreeSet<String> = ours["responses"].as_object().unwrap().keys().cloned().collect();
        assert!(statuses.is_superset(&strings(&operation["statuses"])), "{method} {path}: {statuses:?}");
        for (status, shape) in operation["answers"].as_object().unwrap() {
            let answer = &ours["responses"][status]["content"]["application/json"]["schema"];
            answers_as_demanded(&document, answer, &table["answers"][shape.as_str().unwrap()], path);
        }
        if let Some(required) = operation.get("body_required") {
            assert_eq!(ours["requestBody"]["required"], *required, "{method} {path}");
        }
        for (name, _) in operation.get("query").and_then(Value::as_object).into_iter().flatten() {
            let parameters = ours["parameters"].as_array().unwrap();
            assert!(parameters.iter().any(|ours| ours["name"] == *name && ours["in"] == "query"), "{path}: {name}");
        }
        for (media_type, _) in operation.get("request").and_then(Value::as_object).into_iter().flatten() {
            assert!(ours["requestBody"]["content"].get(media_type).is_some(), "{path}: {media_type}");
        }
    }
}

/// What is required is required of ours as well, and no field of ours may hold what the contract does not allow it.
fn answers_as_demanded(document: &Value, ours: &Value, demanded: &Value, place: &str) {
    let ours = resolved(document, ours);
    let allowed: BTreeSet<String> = types(&Value::Null, demanded);
    assert!(types(document, ours).is_subset(&allowed), "{place}: {ours}");
    assert!(strings(&ours["required"]).is_superset(&strings(&demanded["required"])), "{place}: {ours}");
    assert_ne!(ours.get("additionalProperties"), Some(&Value::Bool(false)), "{place}");
    for (name, field) in demanded.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let our_field = ours["properties"].get(name).unwrap_or_else(|| panic!("{place}.{name} is not ours"));
        answers_as_demanded(document, our_field, field, &format!("{place}.{name}"));
    }
    if let Some(items) = demanded.get("items") {
        answers_as_demanded(document, &ours["items"], items, &format!("{place}[]"));
    }
}

#[test]
fn our_document_accepts_every_request_of_the_contract() {
    let (table, document) = (table(), document());
    for (name, shape) in table["requests"].as_object().unwrap() {
        let ours = &document["components"]["schemas"][name];
        assert!(strings(&ours["required"]).is_subset(&strings(&shape["required"])), "{name}");
        assert_ne!(ours.get("additionalProperties"), Some(&Value::Bool(false)), "{name}");
        for (field, demanded) in shape["fields"].as_object().unwrap() {
            let allowed = types(&document, &ours["properties"][field]);
            assert!(allowed.is_superset(&strings(demanded)), "{name}.{field}: {allowed:?}");
        }
        if let Some(tool) = shape.get("tool") {
            let ours = resolved(&document, &ours["properties"]["tool"]);
            assert_eq!(ours["enum"], json!([tool]), "{name}");
            let mapping = &document["components"]["schemas"]["ExecRequest"]["discriminator"]["mapping"];
            assert_eq!(mapping[tool.as_str().unwrap()], format!("#/components/schemas/{name}"));
        }
    }
}

/// An answer must be what the contract demands, and what our own document says.
#[track_caller]
fn holds(shape: &str, answer: &Value) {
    let demanded = jsonschema::validator_for(&table()["answers"][shape]).unwrap();
    demanded.validate(answer).unwrap_or_else(|why| panic!("{shape}: {why}: {answer}"));
    our(shape).validate(answer).unwrap_or_else(|why| panic!("our {shape}: {why}: {answer}"));
}

/// A schema of our document.
fn our(shape: &str) -> jsonschema::Validator {
    let mut schema = document();
    schema["$ref"] = json!(format!("#/components/schemas/{shape}"));
    jsonschema::validator_for(&schema).unwrap()
}

#[test]
fn both_can_refuse() {
    assert!(!our("Error").is_valid(&json!({"detail": 5})));
    assert!(!our("FileList").is_valid(&json!({"files": [{"path": "x"}]})));
    let demanded = jsonschema::validator_for(&table()["answers"]["ExecResponse"]).unwrap();
    assert!(!demanded.is_valid(&json!({"tool_use_id": "x", "result_block": {"type": "t", "tool_use_id": "x"}})));
    assert!(!demanded.is_valid(&json!({"tool_use_id": 5})));
}

#[test]
fn real_answers_are_what_both_say() {
    let server = TestServer::start();
    let created = server.post("/sessions", r#"{"idle_timeout_seconds": 37, "later": true}"#);
    assert_eq!(created.status, 201);
    holds("SessionHandle", &created.json());
    let session = format!("/sessions/{}", created.json()["session_id"].as_str().unwrap());
    let described = server.get(&session);
    assert_eq!(described.status, 200);
    holds("SessionHandle", &described.json());

    for code in ["x", "fail", "late", "plot"] {
        let ran = server.exec(&session, code);
        assert_eq!(ran.status, 200);
        holds("ExecResponse", &ran.json());
    }
    for (tool, input) in [
        ("bash_code_execution", json!({"command": "ls"})),
        ("text_editor_code_execution", json!({"command": "view", "path": "a"})),
    ] {
        let ran = server.post(&format!("{session}/exec"), &json!({"tool": tool, "input": input}).to_string());
        assert_eq!(ran.status, 200);
        holds("ExecResponse", &ran.json());
        assert_eq!(ran.json()["result_block"]["type"], format!("{tool}_tool_result"));
    }

    let put = server.put(&session, "a b.csv", b"1,2", None);
    assert_eq!(put.status, 201);
    holds("FileUploadResult", &put.json());
    let listed = server.get(&format!("{session}/files/list"));
    assert_eq!(listed.status, 200);
    holds("FileList", &listed.json());
    assert_eq!(server.get(&format!("{session}/files?path=a+b.csv")).body, b"1,2");
    assert_eq!(server.ask("DELETE", &session, &[], b"").status, 204);
}

#[test]
fn each_refusal_has_its_status_and_shape() {
    let server = TestServer::start();
    let session = server.session();
    server.put(&session, "x", b"1", Some("dir/x"));
    let gone = server.session();
    assert_eq!(server.ask("DELETE", &gone, &[], b"").status, 204);
    assert_eq!(server.ask("DELETE", &gone, &[], b"").status, 204, "already in the desired state");
    let unknown_tool = r#"{"tool": "no_such_tool", "input": {}}"#;
    let cases = [
        (server.post(&format!("{session}/exec"), unknown_tool), 400),
        (server.post(&format!("{session}/exec"), "{}"), 422),
        (server.exec(&gone, "x"), 404),
        (server.get(&gone), 404),
        (server.get(&format!("{gone}/files/list")), 404),
        (server.get(&format!("{gone}/files?path=x")), 404),
        (server.put(&gone, "x", b"1", None), 404),
        (server.get(&format!("{session}/files?path=dir")), 400),
        (server.get(&format!("{session}/files?path=pipe")), 400),
        (server.get(&format!("{session}/files?path=missing")), 404),
        (server.get(&format!("{session}/files?path=..%2f..%2fetc%2fpasswd")), 403),
        (server.get(&format!("{session}/files?path=/etc/passwd")), 403),
        (server.get(&format!("{session}/files?path=link")), 403),
        (server.get(&format!("{session}/files/list?path=..")), 403),
        (server.get(&format!("{session}/files/list?path=missing")), 404),
        (server.put(&session, "x", b"1", Some("../x")), 403),
        (server.put(&session, "x", b"1", Some("link")), 403),
        (server.ask("DELETE", &format!("{session}/files?path=missing"), &[], b""), 404),
        (server.exec(&session, "busy"), 503),
    ];
    for (answer, status) in &cases {
        answer.refused(*status);
        holds("Error", &answer.json());
    }
    server.fake.full.store(true, std::sync::atomic::Ordering::SeqCst);
    let full = server.post("/sessions", "");
    assert_eq!((full.status, full.header("retry-after")), (503, Some("7")));
    holds("Error", &full.json());
}

#[test]
fn retry_after_is_whole_seconds_and_never_nothing() {
    let server = TestServer::start();
    let session = server.session();
    assert_eq!(server.exec(&session, "busy").header("retry-after"), Some("1"));
}

#[test]
fn the_envelope_says_what_happened() {
    let server = TestServer::start();
    let session = server.session();
    let body = json!({
        "tool": "code_execution", "input": {"code": "late", "echo_last_expression": true},
        "timeout_seconds": 1_000_000, "tool_use_id": "mine",
    });
    let late = server.post(&format!("{session}/exec"), &body.to_string()).json();
    assert_eq!(late["tool_use_id"], "mine");
    assert_eq!(late["result_block"]["tool_use_id"], "mine");
    assert_eq!(late["result_block"]["content"]["return_code"], 124);
    assert_eq!(late["limit_exceeded"], "wall_clock");
    assert_eq!(late["interpreter_restarted"], true);
    assert_eq!(late["timeout_seconds"], 600, "clamped to the ceiling, and said");
    assert_eq!(late["usage"], json!({"cpu_ms": 1, "memory_peak_bytes": 5, "stdout_bytes": 2, "stderr_bytes": 3}));
    assert_eq!(late["background"], json!({"stdout": "b", "stderr": ""}));
    assert_eq!(late.get("files_omitted"), None);
    let call = server.fake.last_call.lock().unwrap().clone().unwrap();
    assert!(matches!(call.operation, ringfence_op::Operation::Python(python) if python.echo_last));

    let plot = server.exec(&session, "plot").json();
    assert_eq!(plot["files_omitted"], 3);
    assert_eq!(plot["timeout_seconds"], 30, "the default");
    assert_eq!(plot["limit_exceeded"], Value::Null);
    assert_eq!(plot.get("background"), None);
    let file = json!([{"type": "code_execution_output", "file_id": "file_1", "filename": "out/chart.png"}]);
    assert_eq!(plot["result_block"]["content"]["content"], file);
    let generated = plot["tool_use_id"].as_str().unwrap();
    assert!(generated.starts_with("srvtoolu_") && plot["result_block"]["tool_use_id"] == generated);
}

#[test]
fn the_handle_says_what_is_in_force() {
    let server = TestServer::start();
    let handle = server.post("/sessions", r#"{"image": "x", "idle_timeout_seconds": 1000000000}"#).json();
    assert_eq!(handle["idle_timeout_seconds"], 3600);
    assert_eq!(handle["max_lifetime_seconds"], 2, "rounded up");
    assert_eq!(handle["created_at"], 1_786_000_000.25);
    assert_eq!((&handle["image"], &handle["tier"]), (&json!("scientific"), &json!("cell")));
    assert_eq!(handle["limits"]["upload_bytes_max"], 100 << 20);
    assert_eq!(server.fake.last_lease.lock().unwrap().clone().unwrap().image.as_deref(), Some("x"));
    let unheld = server.post("/sessions", "").json();
    assert_eq!(unheld.get("idle_timeout_seconds"), None, "no reclaim is coming, so none is reported");
}

#[test]
fn health_readiness_document_and_counters_are_served() {
    let server = TestServer::start();
    let session = server.session();
    let health = server.get("/health").json();
    assert_eq!(
        (&health["status"], &health["session_count"], &health["max_sessions"]),
        (&json!("ok"), &json!(1), &json!(100))
    );
    assert_eq!((&health["tier"], &health["image"]), (&json!("cell"), &json!("scientific")));
    assert_eq!(server.get("/ready").status, 200);
    let served: Value = serde_json::from_slice(&server.get("/openapi.json").body).unwrap();
    assert_eq!(served, document());
    server.exec(&session, "fail");
    let counters = String::from_utf8(server.get("/metrics").body).unwrap();
    assert!(counters.contains("ringfence_calls_total{tool=\"code_execution\",outcome=\"failed\"} 1"), "{counters}");
    server.fake.draining.store(true, std::sync::atomic::Ordering::SeqCst);
    let ready = server.get("/ready");
    assert_eq!((ready.status, ready.header("retry-after")), (503, Some("10")));
    assert_eq!(server.get("/health").json()["status"], "draining");
    for path in ["/health", "/ready", "/openapi.json"] {
        let head = server.ask("HEAD", path, &[], b"");
        assert!(head.header("content-length").is_some_and(|length| length != "0"), "{path}: {head:?}");
    }
}

#[test]
fn a_fault_of_ours_is_told_without_its_cause() {
    let server = TestServer::start();
    let session = server.session();
    let broken = server.ask("GET", &format!("{session}/files?path=broken"), &[("X-Request-Id", "mine-1")], b"");
    let detail = broken.refused(500);
    assert!(!detail.contains("secret") && !detail.contains("fire"), "{detail}");
    assert_eq!(broken.header("x-request-id"), Some("mine-1"));
    let other = server.exec(&session, "house");
    assert!(!other.refused(500).contains("keeper"));
    assert!(other.header("x-request-id").is_some_and(|id| id.len() > 8));
}

#[test]
fn a_call_is_interrupted_while_it_runs_and_others_wait() {
    let server = TestServer::start();
    let session = server.session();
    let interrupt = format!("{session}/interrupt");
    let nothing = server.post(&interrupt, "");
    assert_eq!((nothing.status, nothing.json()), (200, json!({"interrupted": false})));
    std::thread::scope(|scope| {
        let call = scope.spawn(|| server.exec(&session, "wait:"));
        server.fake.await_waiting(1);
        let answer = server.post(&interrupt, "{\"later\": true}");
        assert_eq!((answer.status, answer.json()), (200, json!({"interrupted": true})));
        our("Interrupted").validate(&answer.json()).unwrap();
        assert_eq!(call.join().unwrap().status, 200);
    });
    server.post("/sessions/0123456789abcdef0123456789abcdef/interrupt", "").refused(404);
    server.post("/sessions/x/interrupt", "").refused(404);
    server.is_well();
}

#[test]
fn sessions_are_listed_to_those_with_the_token_alone() {
    let server = TestServer::start();
    let session = server.session();
    let refused = server.get("/sessions");
    refused.refused(403);
    assert!(!format!("{refused:?}").contains(&session["/sessions/".len()..]));

    let server = TestServer::with(ringfence_server::DoorLimits::default(), Some("secret"));
    let bearer = [("Authorization", "Bearer secret")];
    let created = server.ask("POST", "/sessions", &bearer, b"");
    server.get("/sessions").refused(401);
    let listed = server.ask("GET", "/sessions", &bearer, b"");
    assert_eq!(listed.status, 200);
    our("SessionList").validate(&listed.json()).unwrap();
    assert_eq!(listed.json()["sessions"], json!([created.json()]));
}
