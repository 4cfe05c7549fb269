//! Metering within one process: what is recorded, a control plane that is down, a spool that is full or torn.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use ringfence_gate::{Gate, GateConfig, UsageConfig};
use serde_json::{Value, json};

use crate::support::control::{Control, Mood, USAGE_TOKEN};
use crate::support::{Backend, Reply, TestGate, Then, World};

pub(crate) fn metered(world: &World, control: &Control, mut config: GateConfig) -> GateConfig {
    let mut usage = UsageConfig::new(world.path("spool"), control.url());
    usage.token_file = Some(world.file("usage-token", &format!("{USAGE_TOKEN}\n")));
    config.usage = Some(usage);
    config
}

/// Bytes of all segments of a spool.
fn spool_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let segments = entries.filter(|entry| entry.file_name().to_str().unwrap().ends_with(".usage"));
    segments.map(|entry| entry.metadata().unwrap().len()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_lease_and_call_is_one_record() {
    let (backend, control) = (Backend::start("one").await, Control::start().await);
    let world = World::new();
    let gate = TestGate::start(metered(&world, &control, world.config(&[&backend]))).await;
    let grant = world.issuer.grant("team-a");
    let id = gate.lease(&grant).await;
    assert_eq!(gate.execute(&grant, &id, "x").await.status, 200);
    let failed = r#"{"tool_use_id":"t","result_block":{"type":"r","tool_use_id":"t","content":{"return_code":1}}}"#;
    let limited = failed.replace("}}}", r#"}},"limit_exceeded":"memory"}"#);
    for reply in [
        Reply::json("200 OK", failed),
        Reply::json("200 OK", &limited),
        Reply::json("422 Unprocessable Content", "{}"),
        Reply::json("503 Service Unavailable", "{}"),
        Reply(Vec::new(), Then::Close),
    ] {
        backend.twist(move |seen| seen.path.ends_with("/exec").then(|| reply.clone()));
        gate.execute(&grant, &id, "x").await;
    }
    backend.straight();
    // What the gate itself refuses never began.
    gate.call(&format!("POST /sessions/{id}/exec"), &grant, "{}").await;
    gate.execute("Bearer x", &id, "x").await;
    gate.call("GET /sessions/x", &grant, "").await;
    *backend.state.sessions_max.lock().unwrap() = 0;
    assert_eq!(gate.call("POST /sessions", &grant, "").await.status, 503);
    control.until(|books| books.records.len() == 8).await;
    gate.end().await;
    let books = control.books.lock().unwrap();
    books.balance();
    let mut records: Vec<Value> = books.records.values().map(|(record, _)| record.clone()).collect();
    records.sort_by_key(|record| record["at_ms"].as_u64().unwrap());
    let mut outcomes: Vec<(&str, &str, Value)> = records
        .iter()
        .map(|record| (record["kind"].as_str().unwrap(), record["outcome"].as_str().unwrap(), record["status"].clone()))
        .collect();
    outcomes.sort_by_key(|(kind, outcome, _)| (kind.to_string(), outcome.to_string()));
    assert_eq!(
        outcomes,
        [
            ("call", "backend_failed", json!(502)),
            ("call", "limit_exceeded", json!(200)),
            ("call", "ok", json!(200)),
            ("call", "program_failed", json!(200)),
            ("call", "refused", json!(422)),
            ("call", "unavailable", json!(503)),
            ("lease", "ok", json!(201)),
            ("lease", "unavailable", json!(503)),
        ]
    );
    let good = records.iter().find(|record| record["kind"] == "call" && record["outcome"] == "ok").unwrap();
    for (name, value) in [
        ("workspace", json!("team-a")),
        ("backend", json!("b0")),
        ("session", json!("one-1")),
        ("tool", json!("code_execution")),
        ("cpu_ms", json!(3)),
        ("memory_peak_bytes", json!(1000)),
        ("stdout_bytes", json!(3)),
        ("stderr_bytes", json!(0)),
    ] {
        assert_eq!(good[name], value, "{name}");
    }
    assert!(good["wall_ms"].is_u64() && good["grant"].as_str().unwrap().len() == 32);
    let lease = records.iter().find(|record| record["kind"] == "lease" && record["outcome"] == "ok").unwrap();
    assert_eq!((&lease["session"], &lease["backend"]), (&json!("one-1"), &json!("b0")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_client_hung_up_runs_on_and_is_metered() {
    let (backend, control) = (Backend::start("one").await, Control::start().await);
    let world = World::new();
    let gate = TestGate::start(metered(&world, &control, world.config(&[&backend]))).await;
    let grant = world.issuer.grant("team-a");
    let id = gate.lease(&grant).await;
    {
        let call = gate.execute(&grant, &id, "wait");
        let started = backend.until(|seen| seen.path.ends_with("/exec"));
        tokio::select! {
            _ = call => panic!("it waits"),
            _ = started => {}
        }
        // Here the call's future, and with it the connection, is dropped.
    }
    backend.state.gate.add_permits(1);
    control.until(|books| books.calls("ok").len() == 1).await;
    gate.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_that_is_down_or_dies_gets_everything_once() {
    let (backend, control) = (Backend::start("one").await, Control::start().await);
    let world = World::new();
    control.feels(Mood::Down);
    let gate = TestGate::start(metered(&world, &control, world.config(&[&backend]))).await;
    let grant = world.issuer.grant("team-a");
    let id = gate.lease(&grant).await;
    for _ in 0..20 {
        assert_eq!(gate.execute(&grant, &id, "x").await.status, 200);
    }
    control.server.until(|seen| seen.path == "/v1/usage").await;
    assert!(control.books.lock().unwrap().records.is_empty());
    control.feels(Mood::TakesAndDies);
    control.until(|books| books.came >= 3).await;
    control.feels(Mood::Takes);
    for _ in 0..20 {
        assert_eq!(gate.execute(&grant, &id, "x").await.status, 200);
    }
    control.until(|books| books.records.len() == 41).await;
    control.books.lock().unwrap().balance();
    // A clean end and another start: nothing is sent again.
    gate.end().await;
    let batches = control.books.lock().unwrap().batches.len();
    let gate = TestGate::start(metered(&world, &control, world.config(&[&backend]))).await;
    assert_eq!(gate.execute(&grant, &id, "x").await.status, 200);
    control.until(|books| books.records.len() == 42).await;
    gate.end().await;
    let books = control.books.lock().unwrap();
    books.balance();
    // One that was taken as the gate ended may come again, under its own key.
    assert_eq!(books.batches.len(), batches + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_spool_refuses_leases_and_calls_and_nothing_else() {
    let (backend, control) = (Backend::start("one").await, Control::start().await);
    let world = World::new();
    control.feels(Mood::Down);
    let mut config = metered(&world, &control, world.config(&[&backend]));
    if let Some(usage) = &mut config.usage {
        usage.spool_bytes_max = 16 << 10;
    }
    let gate = TestGate::start(config).await;
    let grant = world.issuer.grant("team-a");
    let id = gate.lease(&grant).await;
    let mut done = 0;
    let full = loop {
        let answer = gate.execute(&grant, &id, "x").await;
        if answer.status != 200 {
            break answer;
        }
        done += 1;
        assert!(done < 1000, "the spool never fills");
    };
    assert!(done > 5, "{done}");
    assert_eq!((full.status, full.header("retry-after")), (503, Some("5")));
    assert_eq!(gate.call("POST /sessions", &grant, "").await.status, 503);
    assert_eq!(gate.call(&format!("GET /sessions/{id}/files/list"), &grant, "").await.status, 200);
    assert_eq!(gate.call(&format!("DELETE /sessions/{id}"), &grant, "").await.status, 204);
    assert!(spool_bytes(&world.path("spool")) <= 16 << 10);
    let refused = backend.seen().iter().filter(|seen| seen.path.ends_with("/exec")).count();
    assert_eq!(refused, done, "what is not recorded does not run");
    control.feels(Mood::Takes);
    control.until(|books| books.records.len() == done + 1).await;
    gate.end().await;
    control.books.lock().unwrap().balance();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shipped_segments_are_removed() {
    let (backend, control) = (Backend::start("one").await, Control::start().await);
    let world = World::new();
    let spool = world.path("spool");
    // A segment's worth of records from an earlier life.
    let config = || metered(&world, &control, world.config(&[&backend]));
    let gate = TestGate::start(config()).await;
    let grant = world.issuer.grant("team-a");
    let id = gate.lease(&grant).await;
    control.until(|books| books.records.len() == 1).await;
    gate.end().await;
    for turn in 2..5 {
        let gate = TestGate::start(config()).await;
        gate.execute(&grant, &id, "x").await;
        control.until(|books| books.records.len() == turn).await;
        let segments = || {
            let names = fs::read_dir(&spool).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name.ends_with(".usage")).count()
        };
        let few = async {
            while segments() > 1 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(crate::support::client::PATIENCE, few).await.expect("old segments go");
        gate.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_torn_or_damaged_spool_loses_the_damaged_lines_alone() {
    let (backend, control) = (Backend::start("one").await, Control::start().await);
    let world = World::new();
    control.feels(Mood::Down);
    let gate = TestGate::start(metered(&world, &control, world.config(&[&backend]))).await;
    let grant = world.issuer.grant("team-a");
    let id = gate.lease(&grant).await;
    for _ in 0..5 {
        gate.execute(&grant, &id, "x").await;
    }
    gate.end().await;
    let segment = fs::read_dir(world.path("spool"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "usage"))
        .unwrap();
    let mut text = fs::read(&segment).unwrap();
    assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 12);
    // One end is damaged: the call is known to have begun, so it ends as unknown. And the last line is torn.
    let ends: Vec<usize> = text.windows(3).enumerate().filter(|(_, three)| three == b" E ").map(|(at, _)| at).collect();
    text[ends[2] + 20] ^= 1;
    fs::write(&segment, &text).unwrap();
    OpenOptions::new().append(true).open(&segment).unwrap().write_all(&text[..50]).unwrap();
    control.feels(Mood::Takes);
    let gate = TestGate::start(metered(&world, &control, world.config(&[&backend]))).await;
    gate.execute(&grant, &id, "x").await;
    control.until(|books| books.records.len() == 7).await;
    gate.end().await;
    let books = control.books.lock().unwrap();
    books.balance();
    assert_eq!((books.calls("ok").len(), books.calls("unknown").len()), (5, 1));
}

#[tokio::test]
async fn a_spool_has_one_user_and_its_position_is_not_guessed() {
    let (backend, control) = (Backend::start("one").await, Control::start().await);
    let world = World::new();
    let config = || metered(&world, &control, world.config(&[&backend]));
    let first = Gate::start(config()).unwrap_or_else(|error| panic!("{error}"));
    let Err(second) = Gate::start(config()) else { panic!("two gates with one spool") };
    assert!(second.to_string().contains("in use"), "{second}");
    drop(first);
    drop(Gate::start(config()).unwrap_or_else(|error| panic!("the spool is free again: {error}")));
    fs::write(world.path("spool").join("shipped.json"), "{").unwrap();
    let Err(damaged) = Gate::start(config()) else { panic!("it guessed") };
    assert!(damaged.to_string().contains("shipped.json"), "{damaged}");
}
