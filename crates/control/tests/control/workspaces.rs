//! Workspaces and their policies.

use serde_json::{Value, json};

use crate::support::Setup;

pub(crate) fn lifecycle(setup: &Setup) {
    let closed = setup.admin("POST /v1/workspaces", json!({"id": "team-a"})).is(201);
    assert_eq!(closed["policy"]["enabled"], false, "nothing is allowed unless it is said");
    assert_eq!((&closed["name"], &closed["version"]), (&json!("team-a"), &json!(1)));
    setup.pass(1);
    let policy = json!({
        "enabled": true, "tools": ["code_execution", "bash_code_execution"], "image": "scientific",
        "sessions_max": 5, "timeout_seconds_max": 60, "idle_timeout_seconds_max": 300,
        "max_lifetime_seconds_max": 3600, "purpose_hint": "Sums.\nAnd products.", "iterations_max": 8,
    });
    let replaced = json!({"name": "Team A", "policy": policy, "version": 1});
    let answer = setup.admin("PUT /v1/workspaces/team-a", replaced.clone()).is(200);
    assert_eq!((&answer["policy"], &answer["name"], &answer["version"]), (&policy, &json!("Team A"), &json!(2)));
    assert_eq!(answer["updated_ms"].as_u64().unwrap() - answer["created_ms"].as_u64().unwrap(), 1000);
    assert_eq!(setup.admin("GET /v1/workspaces/team-a", Value::Null).is(200), answer);
    // The version that was seen is not that any more.
    setup.admin("PUT /v1/workspaces/team-a", replaced).refused(409);
    setup.admin("PUT /v1/workspaces/nobody", json!({"policy": policy})).refused(404);
    setup.admin("POST /v1/workspaces", json!({"id": "team-a"})).refused(409);

    assert_eq!(setup.admin("DELETE /v1/workspaces/team-a", Value::Null).status, 204);
    setup.admin("DELETE /v1/workspaces/team-a", Value::Null).refused(404);
    setup.admin("GET /v1/workspaces/team-a", Value::Null).refused(404);
    // An id is never another workspace's.
    setup.admin("POST /v1/workspaces", json!({"id": "team-a"})).refused(409);

    let lines = setup.admin("GET /v1/audit?workspace=team-a", Value::Null).is(200)["lines"].clone();
    let actions: Vec<&str> = lines.as_array().unwrap().iter().map(|line| line["action"].as_str().unwrap()).collect();
    assert_eq!(
        actions,
        ["workspace.created", "workspace.updated", "workspace.deleted"],
        "what was refused is not there"
    );
    let changed = lines[1]["detail"]["changed"].as_array().unwrap();
    assert!(changed.contains(&json!("purpose_hint")) && changed.contains(&json!("name")), "{changed:?}");
    assert!(!lines.to_string().contains("Sums"), "names of members, not what they say");
}

pub(crate) fn pages(setup: &Setup) {
    for number in 0..7 {
        setup.workspace(&format!("w{number}"), json!({"enabled": true, "tools": ["code_execution"]}));
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = setup.admin(&format!("GET /v1/workspaces?limit=3&after={after}"), Value::Null).is(200);
        seen.extend(page["workspaces"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, ["w0", "w1", "w2", "w3", "w4", "w5", "w6"]);
    for wrong in ["limit=0", "limit=1001", "limit=x", "limit=-1", "unknown=1"] {
        setup.admin(&format!("GET /v1/workspaces?{wrong}"), Value::Null).refused(400);
    }
    let mut after = 0;
    let mut ids = Vec::new();
    loop {
        let page = setup.admin(&format!("GET /v1/audit?limit=3&after={after}"), Value::Null).is(200);
        let lines = page["lines"].as_array().unwrap().clone();
        let Some(last) = lines.last() else { break };
        after = last["id"].as_i64().unwrap();
        ids.extend(lines.iter().map(|line| line["id"].as_i64().unwrap()));
    }
    assert_eq!(ids.len(), 8, "seven workspaces and a key");
    assert!(ids.is_sorted());
}

/// Of two that saw the same version one is told so, whatever they do at once.
pub(crate) fn two_writers(setup: &Setup) {
    let policy = json!({"enabled": true, "tools": ["code_execution"]});
    setup.workspace("team-a", policy.clone());
    for version in 1..=10 {
        let body = json!({"policy": policy, "version": version});
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let writers: Vec<_> =
                (0..3).map(|_| scope.spawn(|| setup.admin("PUT /v1/workspaces/team-a", body.clone()).status)).collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
        assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 2, "{statuses:?}");
    }
}
