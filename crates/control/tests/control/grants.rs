//! Grants, and the hosted resolve call.

use ringfence_grant::{Grant, KeySet, Terms};
use serde_json::{Value, json};

use crate::support::{AUDIENCE, Answer, ISSUER, Setup, ask};

/// A grant as a front door reads it.
pub(crate) fn read(setup: &Setup, answer: &Value) -> Grant {
    let keys = KeySet::parse(&ask(setup.address(), "GET /.well-known/jwks.json", &[], b"").body).unwrap();
    let audience = answer["audience"].as_str().unwrap();
    let terms = Terms::new(ISSUER, audience).unwrap().with_skew(0);
    terms.verify(answer["grant"].as_str().unwrap(), &keys, setup.now_ms() / 1000).unwrap()
}

pub(crate) fn from_policy(setup: &Setup) {
    let policy = json!({
        "enabled": true, "tools": ["code_execution", "bash_code_execution"], "image": "scientific",
        "sessions_max": 5, "timeout_seconds_max": 60, "idle_timeout_seconds_max": 300,
        "max_lifetime_seconds_max": 3600, "purpose_hint": "Sums.", "iterations_max": 8,
    });
    setup.workspace("team-a", policy.clone());
    let gateway = setup.token("gateway", Value::Null);
    let answer = setup.with(&gateway, "POST /v1/grants", json!({"workspace": "team-a"})).is(201);
    assert_eq!(answer["policy"], policy);
    let grant = read(setup, &answer);
    assert_eq!((grant.workspace.as_str(), grant.audience.as_str()), ("team-a", AUDIENCE));
    assert_eq!(grant.id.as_str(), answer["grant_id"].as_str().unwrap());
    assert_eq!(grant.tools.names().collect::<Vec<_>>(), ["bash_code_execution", "code_execution"]);
    assert_eq!(grant.image.as_deref(), Some("scientific"));
    assert_eq!(grant.issued_at, setup.now_ms() / 1000);
    assert_eq!((grant.expires_at - grant.issued_at, answer["expires_at"].as_u64()), (900, Some(grant.expires_at)));
    let ceilings = grant.ceilings;
    assert_eq!((ceilings.sessions_max, ceilings.timeout_seconds_max), (Some(5), Some(60)));
    assert_eq!((ceilings.idle_timeout_seconds_max, ceilings.max_lifetime_seconds_max), (Some(300), Some(3600)));

    let asked = json!({"workspace": "team-a", "tools": ["code_execution"], "lifetime_seconds": 60,
                       "audience": "https://other-door.test"});
    let less = read(setup, &setup.with(&gateway, "POST /v1/grants", asked).is(201));
    assert_eq!(less.tools.names().collect::<Vec<_>>(), ["code_execution"]);
    assert_eq!(less.expires_at - less.issued_at, 60);
    let long = json!({"workspace": "team-a", "lifetime_seconds": u64::MAX});
    let long = read(setup, &setup.with(&gateway, "POST /v1/grants", long).is(201));
    assert_eq!(long.expires_at - long.issued_at, 900, "never longer than it may be");
    assert_ne!(long.id, less.id);
}

pub(crate) fn refused(setup: &Setup) {
    setup.workspace("off", json!({"enabled": false, "tools": ["code_execution"]}));
    setup.workspace("team-a", json!({"enabled": true, "tools": ["code_execution"]}));
    let gateway = setup.token("gateway", Value::Null);
    let ask = |body: Value| -> Answer { setup.with(&gateway, "POST /v1/grants", body) };
    assert!(ask(json!({"workspace": "off"})).refused(403).contains("not enabled"));
    let tools = json!(["bash_code_execution"]);
    assert!(ask(json!({"workspace": "team-a", "tools": tools})).refused(403).contains("bash_code_execution"));
    ask(json!({"workspace": "nobody"})).refused(404);
    for wrong in [
        json!({"workspace": "team-a", "audience": "https://elsewhere.test"}),
        json!({"workspace": "team-a", "lifetime_seconds": 0}),
        json!({"workspace": "team-a", "lifetime_seconds": -1}),
        json!({"workspace": "team-a", "tools": []}),
        json!({"workspace": "team-a", "tools": ["Bash"]}),
        json!({"workspace": "team-a", "unknown": 1}),
        json!({"workspace": 1}),
        json!({}),
    ] {
        ask(wrong).refused(422);
    }
    // What was allowed a moment ago.
    ask(json!({"workspace": "team-a"})).is(201);
    let off = json!({"policy": {"enabled": false, "tools": ["code_execution"]}});
    setup.admin("PUT /v1/workspaces/team-a", off).is(200);
    ask(json!({"workspace": "team-a"})).refused(403);
    setup.admin("DELETE /v1/workspaces/team-a", Value::Null);
    ask(json!({"workspace": "team-a"})).refused(404);
}

pub(crate) fn audited(setup: &Setup) {
    setup.workspace("team-a", json!({"enabled": true, "tools": ["code_execution"]}));
    let gateway = setup.token("gateway", Value::Null);
    let grant = setup.with(&gateway, "POST /v1/grants", json!({"workspace": "team-a"})).is(201);
    setup.with(&gateway, "POST /v1/grants", json!({"workspace": "team-a", "tools": ["other"]})).refused(403);
    let answer = setup.admin("GET /v1/audit?workspace=team-a", Value::Null);
    let audit = answer.is(200);
    let lines = audit["lines"].as_array().unwrap();
    let made: Vec<_> = lines.iter().filter(|line| line["action"] == "grant.made").collect();
    assert_eq!(made.len(), 1);
    assert_eq!(made[0]["subject"], grant["grant_id"]);
    assert!(made[0]["actor"].as_str().unwrap().starts_with("tok_"));
    assert_eq!(made[0]["detail"]["expires_at"], grant["expires_at"]);
    let text = grant["grant"].as_str().unwrap();
    for part in text.split('.') {
        assert!(!answer.text().contains(part), "no part of the grant");
    }
    assert!(!answer.text().contains(&gateway));
}

pub(crate) fn resolve(setup: &Setup) {
    setup.workspace(
        "team-a",
        json!({"enabled": true, "tools": ["code_execution"], "purpose_hint": "Sums.", "iterations_max": 5,
               "timeout_seconds_max": 30}),
    );
    setup.workspace("off", json!({"enabled": false, "tools": ["code_execution"]}));
    let gateway = setup.token("gateway", json!(["team-a", "off"]));
    let (user, off) = (setup.token("user", json!(["team-a"])), setup.token("user", json!(["off"])));
    let resolve = |headers: &[(&str, &str)], body: &[u8]| {
        let headers = [&[("Content-Type", "application/json")], headers].concat();
        ask(setup.address(), "POST /api/v1/gateway/code-execution/resolve", &headers, body)
    };
    let answer = resolve(&[("X-Gateway-Token", &gateway), ("X-User-Token", &user)], b"{}").is(200);
    let expected = json!({"enabled": true, "tools": ["code_execution"], "default_purpose_hint": "Sums.",
                          "max_iterations": 5, "exec_timeout_s": 30});
    assert_eq!(answer, expected);
    let answer = resolve(&[("X-Gateway-Token", &gateway), ("X-User-Token", &off)], b"{\"more\":1}").is(200);
    assert_eq!((&answer["enabled"], &answer["max_iterations"]), (&json!(false), &Value::Null));
    for headers in [
        vec![("X-Gateway-Token", gateway.as_str())],
        vec![("X-User-Token", user.as_str())],
        vec![("X-Gateway-Token", &user), ("X-User-Token", &user)],
        vec![("X-Gateway-Token", &gateway), ("X-User-Token", &gateway)],
        vec![("X-Gateway-Token", &gateway), ("X-User-Token", "made-up")],
        vec![("X-Gateway-Token", &gateway), ("X-User-Token", &user), ("X-User-Token", &off)],
        vec![],
    ] {
        resolve(&headers, b"{}").refused(401);
    }
    let narrow = setup.token("gateway", json!(["off"]));
    resolve(&[("X-Gateway-Token", &narrow), ("X-User-Token", &user)], b"{}").refused(404);
    setup.admin("DELETE /v1/workspaces/team-a", Value::Null);
    resolve(&[("X-Gateway-Token", &gateway), ("X-User-Token", &user)], b"{}").refused(404);
}
