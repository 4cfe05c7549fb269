//! What is kept for a while: usage that is rolled up and closed, lines of the audit that go.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringfence_control::{ControlError, Keep, Pruned};
use serde_json::{Value, json};

use crate::support::{NOON_MS, Setup, prune, start};
use crate::usage::{record, send};

const DAY_MS: u64 = 86_400_000;
const KEEP: Keep = Keep { usage_days: Some(7), audit_days: None };
/// So long that only a hang meets it.
const PATIENCE: Duration = Duration::from_secs(120);

fn days_ago(id: &str, days: u64, changes: Value) -> Value {
    let mut changed = record(id);
    changed["at_ms"] = json!(NOON_MS - days * DAY_MS);
    for (member, value) in changes.as_object().unwrap() {
        changed[member] = value.clone();
    }
    changed
}

/// Every report that can be asked for, and the CSV.
fn reports(setup: &Setup) -> Vec<Value> {
    let span = "from=2026-12-01&to=2027-01-20";
    let of = |query: &str| setup.admin(&format!("GET /v1/usage?{span}{query}"), Value::Null).is(200)["rows"].clone();
    let mut all: Vec<Value> =
        ["", "&by=", "&by=tool", "&by=day", "&by=workspace,tool", "&workspace=team-b"].map(of).into();
    all.push(Value::String(setup.admin(&format!("GET /v1/usage.csv?{span}"), Value::Null).text()));
    all
}

fn closed(setup: &Setup) -> (Value, Value) {
    let report = setup.admin("GET /v1/usage?by=", Value::Null).is(200);
    (report["closed_before"].clone(), report["late_records"].clone())
}

fn actions(setup: &Setup, action: &str) -> Vec<Value> {
    let audit = setup.admin("GET /v1/audit?limit=1000", Value::Null).is(200);
    audit["lines"].as_array().unwrap().iter().filter(|line| line["action"] == action).cloned().collect()
}

/// Reports say the same before and after; what is sent again from a closed day is refused and counted.
pub(crate) fn rolled_up(setup: &Setup) {
    let gate = setup.token("gate", Value::Null);
    let batch = [
        days_ago("now", 0, json!({})),
        days_ago("kept", 7, json!({})),
        days_ago("old-1", 8, json!({"wall_ms": 1, "memory_peak_bytes": 9000})),
        days_ago("old-2", 8, json!({"wall_ms": 2, "memory_peak_bytes": 4000, "outcome": "program_failed"})),
        days_ago("old-3", 8, json!({"kind": "lease", "tool": null})),
        days_ago("old-4", 8, json!({"workspace": "team-b", "outcome": "refused", "cpu_ms": null})),
        days_ago("older", 40, json!({"outcome": "unknown", "status": null})),
    ];
    send(setup, &gate, "k1", &batch).is(200);
    let before = reports(setup);
    assert_eq!(before[1][0]["calls"], 6, "{before:?}");
    assert_eq!(closed(setup), (Value::Null, json!(0)));

    assert_eq!(prune(setup.config(), KEEP).unwrap(), Pruned { records: 5, ..Pruned::default() });
    assert_eq!(setup.database.count("usage_records"), 2);
    // Two days with three pairs of workspace and tool on the one, and one on the other.
    assert_eq!(setup.database.count("usage_days"), 4);
    assert_eq!(reports(setup), before);
    assert_eq!(closed(setup), (json!("2027-01-08"), json!(0)));
    let lines = actions(setup, "usage.closed");
    assert_eq!(
        (lines.len(), &lines[0]["detail"]["before"], &lines[0]["actor"]),
        (1, &json!("2027-01-08"), &json!("command"))
    );
    assert_eq!(prune(setup.config(), KEEP).unwrap(), Pruned::default(), "nothing is left to do");
    assert_eq!(actions(setup, "usage.closed").len(), 1);

    // The same again, and what is new of a closed day: refused by its record, and the rest of the batch is taken.
    let again = send(setup, &gate, "k1", &batch).is(200);
    assert_eq!((&again["records"], &again["new"], &again["late"]), (&json!(7), &json!(0), &json!(5)));
    assert_eq!(reports(setup), before);
    let mixed = [days_ago("new-old", 8, json!({})), days_ago("new-kept", 7, json!({}))];
    let mixed = send(setup, &gate, "k2", &mixed).is(200);
    assert_eq!((&mixed["new"], &mixed["late"]), (&json!(1), &json!(1)));
    assert_eq!(closed(setup), (json!("2027-01-08"), json!(6)));
    assert_eq!(reports(setup)[1][0]["calls"], 7);

    // A day later one more day is closed. What is closed stays so, whatever is asked for later.
    let before = reports(setup);
    setup.pass(86_400);
    assert_eq!(prune(setup.config(), KEEP).unwrap().records, 2);
    assert_eq!(reports(setup), before);
    prune(setup.config(), Keep { usage_days: Some(30), audit_days: None }).unwrap();
    assert_eq!(closed(setup).0, json!("2027-01-09"));
    assert_eq!(send(setup, &gate, "k3", &[days_ago("late", 7, json!({}))]).is(200)["late"], 1);
}

/// A day of more records than one transaction takes.
pub(crate) fn portions(setup: &Setup) {
    let gate = setup.token("gate", Value::Null);
    for batch in 0..11 {
        let records: Vec<Value> =
            (0..1000).map(|number| days_ago(&format!("{number}-{batch}"), 20, json!({"wall_ms": number}))).collect();
        send(setup, &gate, &format!("k{batch}"), &records).is(200);
    }
    let before = reports(setup);
    assert_eq!((&before[1][0]["calls"], &before[1][0]["wall_ms"]), (&json!(11_000), &json!(11 * 499_500)));
    assert_eq!(prune(setup.config(), KEEP).unwrap().records, 11_000);
    assert_eq!((setup.database.count("usage_records"), setup.database.count("usage_days")), (0, 1));
    assert_eq!(reports(setup), before);
}

/// Tells the senders to end, also where something was found.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Front doors that send everything again and again while it is rolled up: each record counts once at every moment.
pub(crate) fn at_once(setup: &Setup) {
    const RECORDS: usize = 600;
    let gate = setup.token("gate", Value::Null);
    let records: Vec<Value> = (0..RECORDS).map(|number| days_ago(&format!("r{number}"), 10, json!({}))).collect();
    send(setup, &gate, "k", &records).is(200);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = Ends(&stop);
        for sender in 0..4 {
            let (gate, records, stop) = (&gate, &records, &stop);
            scope.spawn(move || {
                for turn in 0.. {
                    let told = send(setup, gate, &format!("k{sender}-{turn}"), records).is(200);
                    assert_eq!(told["new"], 0, "{told}");
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                }
            });
        }
        for _ in 0..3 {
            assert_eq!(reports(setup)[1][0]["calls"], RECORDS);
        }
        let pruned = prune(setup.config(), KEEP).unwrap();
        assert_eq!(pruned.records, RECORDS as u64);
        for _ in 0..3 {
            assert_eq!(reports(setup)[1][0]["calls"], RECORDS);
        }
        drop(ends);
    });
    assert_eq!(setup.database.count("usage_records"), 0);
    assert_eq!(reports(setup)[1][0]["calls"], RECORDS);
}

/// A control plane that is told so prunes by itself.
pub(crate) fn by_itself(setup: &Setup) {
    let gate = setup.token("gate", Value::Null);
    setup.workspace("team-a", json!({"enabled": true, "tools": ["code_execution"]}));
    send(setup, &gate, "k", &[days_ago("r1", 20, json!({}))]).is(200);
    let before = reports(setup);
    setup.pass(3 * 86_400);
    setup.workspace("team-b", json!({"enabled": true, "tools": ["code_execution"]}));
    let mut config = setup.config();
    config.keep = Keep { usage_days: Some(7), audit_days: Some(2) };
    let replica = start(config).unwrap();
    let begun = Instant::now();
    while setup.database.count("usage_records") > 0 || actions(setup, "audit.pruned").is_empty() {
        assert!(begun.elapsed() < PATIENCE, "nothing is pruned");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(replica);
    assert_eq!(reports(setup), before);
    // Of today stay the second workspace, and the two lines about it all.
    let audit = setup.admin("GET /v1/audit", Value::Null).is(200);
    let left: Vec<_> = audit["lines"].as_array().unwrap().iter().map(|line| line["action"].as_str().unwrap()).collect();
    assert_eq!(left, ["workspace.created", "usage.closed", "audit.pruned"], "{audit}");
    let pruned = actions(setup, "audit.pruned").remove(0);
    assert_eq!((&pruned["actor"], &pruned["detail"]["lines"]), (&json!("schedule"), &json!(3)));
    // Ids are never used again, whatever the audit still knows.
    setup.admin("POST /v1/workspaces", json!({"id": "team-a"})).refused(409);
}

/// A clock that is ahead for a while closes nothing and takes nothing of the audit, however often it is asked and whatever
/// a front door says of the time; when something has come, and the clock is right, all goes on.
pub(crate) fn clock_ahead(setup: &Setup) {
    const YEAR_S: u64 = 365 * 86_400;
    let keep = Keep { usage_days: Some(7), audit_days: Some(1) };
    let gate = setup.token("gate", Value::Null);
    let mut future = record("future");
    future["at_ms"] = json!(NOON_MS + YEAR_S * 1000);
    send(setup, &gate, "k", &[days_ago("r1", 0, json!({})), days_ago("r2", 6, json!({})), future]).is(200);
    let lines = setup.database.count("audit");

    setup.pass(YEAR_S);
    for _ in 0..3 {
        // A day after the newest, what is older than seven days before that is closed: nothing that is here.
        assert_eq!(prune(setup.config(), keep).unwrap(), Pruned { ahead_days: 365, ..Pruned::default() });
        assert_eq!(closed(setup), (json!("2027-01-09"), json!(0)));
    }
    assert_eq!(setup.database.count("usage_records"), 3);
    // The line about what was closed, which has the wrong time, bears nothing out.
    assert_eq!(setup.database.count("audit"), lines + 1);

    // The newest record rules where the audit is older.
    setup.back(YEAR_S - 3 * 86_400);
    send(setup, &gate, "k2", &[days_ago("r3", 0, json!({}))]).is(200);
    setup.pass(YEAR_S);
    assert_eq!(prune(setup.config(), KEEP).unwrap(), Pruned { records: 1, lines: 0, ahead_days: 365 });
    assert_eq!(closed(setup).0, json!("2027-01-12"));
    setup.back(YEAR_S);
    let taken = send(setup, &gate, "k3", &[days_ago("r4", 0, json!({}))]).is(200);
    assert_eq!((&taken["new"], &taken["late"]), (&json!(1), &json!(0)));
    assert_eq!(prune(setup.config(), KEEP).unwrap(), Pruned::default());

    // Where nothing was ever written there is nothing to let go.
    setup.database.execute("DELETE FROM audit; DELETE FROM usage_records");
    setup.pass(30 * 86_400);
    assert_eq!(prune(setup.config(), keep).unwrap(), Pruned::default());
    assert_eq!(closed(setup).0, json!("2027-01-12"));
}

/// Times that would lose what is sent again are no configuration.
pub(crate) fn bounds(setup: &Setup) {
    for keep in [
        Keep { usage_days: Some(6), audit_days: None },
        Keep { usage_days: Some(36_501), audit_days: None },
        Keep { usage_days: None, audit_days: Some(0) },
        Keep { usage_days: None, audit_days: Some(u64::MAX) },
    ] {
        let error = prune(setup.config(), keep).unwrap_err();
        assert!(matches!(error, ControlError::Setting(_)), "{error:?}");
    }
}

/// A database of the program that kept everything.
pub(crate) fn earlier_schema(setup: &Setup) {
    let gate = setup.token("gate", Value::Null);
    let batch = [days_ago("r1", 20, json!({})), days_ago("r2", 0, json!({}))];
    send(setup, &gate, "k", &batch).is(200);
    let before = reports(setup);
    setup.database.execute(
        "DROP TABLE usage_days; DROP TABLE usage_closed; DROP INDEX audit_by_time; DROP INDEX usage_by_day; \
         CREATE INDEX usage_by_day ON usage_records (day); UPDATE schema_version SET version = 1",
    );
    assert_eq!(prune(setup.config(), KEEP).unwrap().records, 1);
    assert_eq!(reports(setup), before);
    assert_eq!(send(setup, &gate, "k", &batch).is(200)["late"], 1);
}
