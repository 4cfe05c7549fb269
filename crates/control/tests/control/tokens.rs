//! Tokens.

use serde_json::{Value, json};

use crate::support::{ADMIN, Setup, ask};

pub(crate) fn lifecycle(setup: &Setup) {
    setup.workspace("team-a", json!({"enabled": true, "tools": ["code_execution"]}));
    let made = setup.admin("POST /v1/tokens", json!({"kind": "gateway", "name": "otari-1"})).is(201);
    let (token, id) = (made["token"].as_str().unwrap(), made["id"].as_str().unwrap());
    assert!(token.starts_with("rfgw_") && token.len() == 5 + 43, "{token}");
    assert_eq!(made["prefix"].as_str().unwrap(), &token[..9]);
    let list = setup.admin("GET /v1/tokens", Value::Null);
    assert!(!list.text().contains(token), "it is shown once");
    assert_eq!(list.is(200)["tokens"][0]["id"], made["id"]);
    assert!(!setup.admin("GET /v1/audit", Value::Null).text().contains(&token[9..]));
    if let Some(path) = &setup.database.sqlite {
        for file in std::fs::read_dir(path.parent().unwrap()).unwrap() {
            let file = file.unwrap().path();
            let Ok(content) = std::fs::read(&file) else { continue };
            let found = content.windows(token.len()).any(|window| window == token.as_bytes());
            assert!(!found, "the token stands in {}", file.display());
        }
    }
    let ask_for_grant = || setup.with(token, "POST /v1/grants", json!({"workspace": "team-a"}));
    ask_for_grant().is(201);

    // A token is for one thing.
    let gate = setup.token("gate", Value::Null);
    let user = setup.token("user", json!(["team-a"]));
    for (shown, line, body) in [
        (token, "GET /v1/workspaces", Value::Null),
        (token, "GET /v1/usage", Value::Null),
        (token, "POST /v1/usage", json!({})),
        (&gate, "POST /v1/grants", json!({"workspace": "team-a"})),
        (&user, "POST /v1/grants", json!({"workspace": "team-a"})),
        (&gate, "GET /v1/audit", Value::Null),
        (ADMIN, "POST /v1/grants", json!({"workspace": "team-a"})),
        (ADMIN, "POST /v1/usage", json!({})),
        ("rfgw_made-up", "POST /v1/grants", json!({"workspace": "team-a"})),
        (&token[..token.len() - 1], "POST /v1/grants", json!({"workspace": "team-a"})),
    ] {
        let answer = setup.with(shown, line, body);
        answer.refused(401);
        assert!(answer.header("www-authenticate").unwrap().starts_with("Bearer"));
    }

    assert_eq!(setup.admin(&format!("DELETE /v1/tokens/{id}"), Value::Null).status, 204);
    ask_for_grant().refused(401);
    setup.admin(&format!("DELETE /v1/tokens/{id}"), Value::Null).refused(404);
    let listed = setup.admin("GET /v1/tokens", Value::Null).is(200);
    let row = listed["tokens"].as_array().unwrap().iter().find(|row| row["id"] == made["id"]).unwrap().clone();
    assert!(row["revoked_ms"].is_u64(), "{row}");

    // The credential stands once, in its one form.
    let twice = [("Authorization", format!("Bearer {ADMIN}")), ("Authorization", format!("Bearer {ADMIN}"))];
    let twice: Vec<_> = twice.iter().map(|(name, value)| (*name, value.as_str())).collect();
    ask(setup.address(), "GET /v1/tokens", &twice, b"").refused(401);
    for wrong in ["", "Bearer", "Bearer ", &format!("Basic {ADMIN}"), ADMIN, &format!("Bearer  {ADMIN}")] {
        ask(setup.address(), "GET /v1/tokens", &[("Authorization", wrong)], b"").refused(401);
    }
    ask(setup.address(), "GET /v1/tokens", &[], b"").refused(401);
}

pub(crate) fn bound(setup: &Setup) {
    let policy = json!({"enabled": true, "tools": ["code_execution"]});
    setup.workspace("team-a", policy.clone());
    setup.workspace("team-b", policy);
    let token = setup.token("gateway", json!(["team-a"]));
    setup.with(&token, "POST /v1/grants", json!({"workspace": "team-a"})).is(201);
    let hidden = setup.with(&token, "POST /v1/grants", json!({"workspace": "team-b"})).refused(404);
    let missing = setup.with(&token, "POST /v1/grants", json!({"workspace": "nobody"})).refused(404);
    assert_eq!(hidden, missing, "no hint that it exists");
    for (kind, workspaces, status) in [
        ("gateway", json!([]), 422),
        ("gateway", json!(["nobody"]), 404),
        ("gateway", json!(vec!["team-a"; 257]), 422),
        ("user", Value::Null, 422),
        ("user", json!(["team-a", "team-b"]), 422),
        ("gate", json!(["team-a"]), 422),
        ("admin", Value::Null, 422),
    ] {
        let asked = json!({"kind": kind, "name": "x", "workspaces": workspaces});
        setup.admin("POST /v1/tokens", asked).refused(status);
    }
    setup.admin("POST /v1/tokens", json!({"kind": "gate", "name": ""})).refused(422);
    setup.admin("POST /v1/tokens", json!({"kind": "gate", "name": "x\ny"})).refused(422);
}
