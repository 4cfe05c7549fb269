//! Usage.

use ringfence_testkit::Postgres;
use serde_json::{Value, json};

use crate::support::{Answer, NOON_MS, Setup, ask};

pub(crate) fn record(id: &str) -> Value {
    json!({"id": id, "kind": "call", "at_ms": NOON_MS, "workspace": "team-a", "grant": "g", "backend": "b1",
           "session": "s", "tool": "code_execution", "wall_ms": 84, "cpu_ms": 61, "memory_peak_bytes": 1000,
           "stdout_bytes": 12, "stderr_bytes": 1, "outcome": "ok", "status": 200})
}

pub(crate) fn send(setup: &Setup, gate: &str, key: &str, records: &[Value]) -> Answer {
    let body = json!({"batch": key, "gate": "door-1", "records": records}).to_string();
    let authorization = format!("Bearer {gate}");
    let headers =
        [("Authorization", authorization.as_str()), ("Content-Type", "application/json"), ("Idempotency-Key", key)];
    ask(setup.address(), "POST /v1/usage", &headers, body.as_bytes())
}

fn calls(setup: &Setup) -> u64 {
    let report = setup.admin("GET /v1/usage?by=", Value::Null).is(200);
    report["rows"][0]["calls"].as_u64().unwrap_or(0)
}

pub(crate) fn once(setup: &Setup) {
    let gate = setup.token("gate", Value::Null);
    assert_eq!(calls(setup), 0);
    let batch = [record("r1"), record("r2"), record("r2")];
    let first = send(setup, &gate, "k1", &batch).is(200);
    assert_eq!((&first["records"], &first["new"]), (&json!(3), &json!(2)));
    assert_eq!(send(setup, &gate, "k1", &batch).is(200)["new"], 0, "the same again");
    assert_eq!(send(setup, &gate, "k2", &[record("r2"), record("r3")]).is(200)["new"], 1, "in another batch");
    assert_eq!(calls(setup), 3);
    // Members and outcomes of a newer front door.
    let mut newer = record("r4");
    newer["outcome"] = json!("evaporated");
    newer["gpu_ms"] = json!(5);
    assert_eq!(send(setup, &gate, "k3", &[newer]).is(200)["new"], 1);
    let report = setup.admin("GET /v1/usage?by=", Value::Null).is(200);
    assert_eq!(report["rows"][0]["uncertain"], 1);
    // One wrong record: nothing of its batch is taken.
    for (member, wrong) in [
        ("id", json!("")),
        ("id", json!("x".repeat(300))),
        ("id", json!("a\u{0}b")),
        ("workspace", Value::Null),
        ("at_ms", json!(-1)),
        ("wall_ms", json!("many")),
    ] {
        let mut spoilt = record("r6");
        spoilt[member] = wrong;
        send(setup, &gate, "k4", &[record("r5"), spoilt]).refused(422);
    }
    send(setup, &gate, "k5", &[]).refused(422);
    let many: Vec<Value> = (0..1001).map(|number| record(&format!("m{number}"))).collect();
    send(setup, &gate, "k6", &many).refused(422);
    assert_eq!(send(setup, &gate, "k7", &many[..1000]).is(200)["new"], 1000);
    assert_eq!(calls(setup), 1004);
    let body = json!({"batch": "k8", "gate": "g", "records": [record("r7")]}).to_string();
    let authorization = format!("Bearer {gate}");
    let headers = [("Authorization", authorization.as_str()), ("Content-Type", "application/json")];
    ask(setup.address(), "POST /v1/usage", &headers, body.as_bytes()).refused(400);
    let other = [&headers[..], &[("Idempotency-Key", "k9")]].concat();
    ask(setup.address(), "POST /v1/usage", &other, body.as_bytes()).refused(400);
    assert_eq!(calls(setup), 1004);
}

pub(crate) fn at_once(setup: &Setup) {
    let gate = setup.token("gate", Value::Null);
    let new: Vec<u64> = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..6)
            .map(|sender: usize| {
                let gate = &gate;
                scope.spawn(move || {
                    // Each sends the same records, in another order.
                    let mut records: Vec<Value> = (0..100).map(|number| record(&format!("r{number}"))).collect();
                    records.rotate_left(sender * 17);
                    let batches = records.chunks(25).enumerate();
                    batches
                        .map(|(number, batch)| {
                            let answer = send(setup, gate, &format!("k{sender}-{number}"), batch).is(200);
                            answer["new"].as_u64().unwrap()
                        })
                        .sum::<u64>()
                })
            })
            .collect();
        senders.into_iter().map(|sender| sender.join().unwrap()).collect()
    });
    assert_eq!(new.iter().sum::<u64>(), 100, "{new:?}");
    assert_eq!(calls(setup), 100);
}

pub(crate) fn sums(setup: &Setup) {
    let gate = setup.token("gate", Value::Null);
    let with = |id: &str, changes: Value| {
        let mut changed = record(id);
        for (member, value) in changes.as_object().unwrap() {
            changed[member] = value.clone();
        }
        changed
    };
    let day_ms = 86_400_000;
    let records = [
        with("1", json!({})),
        with("2", json!({"outcome": "program_failed", "memory_peak_bytes": 5000})),
        with("3", json!({"outcome": "limit_exceeded", "tool": "bash_code_execution"})),
        with("4", json!({"outcome": "refused", "cpu_ms": null, "stdout_bytes": null})),
        with("5", json!({"outcome": "unknown", "at_ms": NOON_MS - day_ms, "wall_ms": null, "status": null})),
        with("6", json!({"workspace": "team-b"})),
        with("7", json!({"kind": "lease", "tool": null, "cpu_ms": null})),
        with("8", json!({"at_ms": NOON_MS - 40 * day_ms})),
    ];
    send(setup, &gate, "k", &records).is(200);
    let report = setup.admin("GET /v1/usage", Value::Null).is(200);
    assert_eq!((&report["from"], &report["to"]), (&json!("2026-12-16"), &json!("2027-01-15")));
    let rows = report["rows"].as_array().unwrap();
    let key = |row: &Value| ["workspace", "day", "tool"].map(|name| row[name].as_str().unwrap().to_owned());
    let keys: Vec<_> = rows.iter().map(key).collect();
    let expected = [
        ["team-a", "2027-01-14", "code_execution"],
        ["team-a", "2027-01-15", ""],
        ["team-a", "2027-01-15", "bash_code_execution"],
        ["team-a", "2027-01-15", "code_execution"],
        ["team-b", "2027-01-15", "code_execution"],
    ];
    assert_eq!(keys, expected.map(|row| row.map(str::to_owned)));
    let row = &rows[3];
    let figures = [
        "leases",
        "calls",
        "ok",
        "failed",
        "not_run",
        "uncertain",
        "wall_ms",
        "cpu_ms",
        "memory_peak_bytes",
        "stdout_bytes",
        "stderr_bytes",
    ]
    .map(|name| row[name].as_u64().unwrap());
    assert_eq!(figures, [0, 3, 1, 1, 1, 0, 3 * 84, 2 * 61, 5000, 24, 3]);
    assert_eq!((&rows[0]["uncertain"], &rows[0]["wall_ms"], &rows[1]["leases"]), (&json!(1), &json!(0), &json!(1)));

    let narrow = setup.admin("GET /v1/usage?workspace=team-a&from=2027-01-15&to=2027-01-15&by=workspace", Value::Null);
    let narrow = narrow.is(200)["rows"].as_array().unwrap().clone();
    assert_eq!((narrow.len(), &narrow[0]["calls"], narrow[0].get("day")), (1, &json!(4), None));
    let csv = setup.admin("GET /v1/usage.csv?from=2026-12-01&to=2026-12-31&by=day,workspace", Value::Null);
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8; header=present"));
    let head = "workspace,day,leases,calls,ok,failed,not_run,uncertain,wall_ms,cpu_ms,memory_peak_bytes,stdout_bytes,\
                stderr_bytes\r\n";
    assert_eq!(csv.text(), format!("{head}team-a,2026-12-06,0,1,1,0,0,0,84,61,1000,12,1\r\n"));
    let empty = setup.admin("GET /v1/usage.csv?from=2020-01-01&to=2020-01-01&by=", Value::Null).text();
    assert_eq!(empty.lines().count(), 1, "{empty}");
    for wrong in ["from=yesterday", "to=2027-02-30", "from=2027-01-02&to=2027-01-01", "from=2020-01-01", "by=hour"] {
        setup.admin(&format!("GET /v1/usage?{wrong}"), Value::Null).refused(400);
    }
}

/// The largest numbers do not spoil the sums of others.
pub(crate) fn extremes(setup: &Setup) {
    let gate = setup.token("gate", Value::Null);
    let largest: Vec<Value> = (0..50)
        .map(|number| {
            let mut record = record(&format!("r{number}"));
            for member in ["wall_ms", "cpu_ms", "memory_peak_bytes", "stdout_bytes", "stderr_bytes", "status"] {
                record[member] = json!(u64::MAX);
            }
            record
        })
        .collect();
    send(setup, &gate, "k", &largest).is(200);
    let report = setup.admin("GET /v1/usage?by=", Value::Null).is(200);
    assert_eq!(report["rows"][0]["wall_ms"], 50_u64 << 40);
    let mut late = record("late");
    late["at_ms"] = json!(u64::MAX);
    late["workspace"] = json!("'; DROP TABLE usage_records; --");
    send(setup, &gate, "k2", &[late]).is(200);
    let report = setup.admin("GET /v1/usage?from=9999-12-31&to=9999-12-31", Value::Null).is(200);
    assert_eq!(report["rows"][0]["workspace"], "'; DROP TABLE usage_records; --");
}

/// Without its database it says that it cannot now, and goes on when it is back. A batch that was refused meanwhile is
/// sent again and counts once.
pub(crate) fn database_away(setup: &Setup, postgres: &mut Postgres) {
    let gate = setup.token("gate", Value::Null);
    send(setup, &gate, "k1", &[record("r1")]).is(200);
    postgres.stop();
    let away = send(setup, &gate, "k2", &[record("r2")]);
    away.refused(503);
    assert_eq!(away.header("retry-after"), Some("5"));
    ask(setup.address(), "GET /ready", &[], b"").refused(503);
    ask(setup.address(), "GET /health", &[], b"").is(200);
    postgres.start_again();
    assert_eq!(send(setup, &gate, "k2", &[record("r1"), record("r2")]).is(200)["new"], 1);
    ask(setup.address(), "GET /ready", &[], b"").is(200);
    assert_eq!(calls(setup), 2);
}
