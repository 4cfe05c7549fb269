//! Signing keys.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use ringfence_grant::{Algorithm, KeySet, Terms};
use serde_json::{Value, json};

use crate::support::{AUDIENCE, ISSUER, Setup, ask, start, with};

fn published(setup: &Setup) -> KeySet {
    let answer = ask(setup.address(), "GET /.well-known/jwks.json", &[], b"");
    assert_eq!(answer.header("content-type"), Some("application/jwk-set+json"));
    assert!(!answer.text().contains("\"d\""));
    KeySet::parse(&answer.body).unwrap()
}

fn kids(set: &KeySet) -> BTreeSet<String> {
    set.keys().iter().map(|key| key.key_id().to_owned()).collect()
}

fn states(setup: &Setup) -> Vec<String> {
    let list = setup.admin("GET /v1/keys", Value::Null).is(200);
    list["keys"].as_array().unwrap().iter().map(|key| key["state"].as_str().unwrap().to_owned()).collect()
}

fn gateway(setup: &Setup) -> String {
    setup.workspace("team-a", json!({"enabled": true, "tools": ["code_execution"]}));
    setup.token("gateway", Value::Null)
}

fn grant(setup: &Setup, gateway: &str) -> String {
    let answer = setup.with(gateway, "POST /v1/grants", json!({"workspace": "team-a"})).is(201);
    answer["grant"].as_str().unwrap().to_owned()
}

/// A front door that fetches the set every minute never meets a grant of a key that it does not know, minute by minute
/// through a rotation; and every grant holds until its end.
pub(crate) fn without_a_hole(setup: &Setup) {
    let gateway = gateway(setup);
    let terms = Terms::new(ISSUER, AUDIENCE).unwrap().with_skew(0);
    let (mut held, mut door, mut signers) = (Vec::new(), published(setup), BTreeSet::new());
    for minute in 0..60_u64 {
        if minute == 5 {
            let next = setup.admin("POST /v1/keys", json!({})).is(201);
            assert_eq!(next["state"], "next");
            assert_eq!(next["signs_from_ms"], setup.now_ms() + 300_000);
            setup.admin("POST /v1/keys", json!({})).refused(409);
        }
        // The door's set is a minute old when the grant comes.
        let fresh = grant(setup, &gateway);
        let now = setup.now_ms() / 1000;
        signers.insert(fresh.split('.').next().unwrap().to_owned());
        held.push((fresh, now + 900));
        for (grant, ends) in held.iter().filter(|(_, ends)| *ends > now) {
            terms.verify(grant, &door, now).unwrap_or_else(|refusal| panic!("minute {minute}: {refusal}, ends {ends}"));
        }
        door = published(setup);
        setup.pass(60);
    }
    assert_eq!(signers.len(), 2, "the next key took over");
    assert_eq!(kids(&published(setup)).len(), 1, "the old one is gone after its last grant");
    assert_eq!(states(setup), ["ended", "signing"]);
}

pub(crate) fn emergency(setup: &Setup) {
    let gateway = gateway(setup);
    let leaked = grant(setup, &gateway);
    let first = kids(&published(setup)).pop_first().unwrap();
    let made = setup.admin("POST /v1/keys", json!({"at_once": true, "algorithm": "ES256"})).is(201);
    assert_eq!(made["state"], "signing");
    assert_eq!(states(setup), ["old", "signing"]);
    assert_eq!(setup.admin(&format!("DELETE /v1/keys/{first}"), Value::Null).status, 204);
    setup.admin(&format!("DELETE /v1/keys/{first}"), Value::Null).refused(404);
    assert!(!setup.keys().join(format!("{first}.jwk")).exists());
    let set = published(setup);
    assert_eq!(set.keys().iter().map(|key| key.algorithm()).collect::<Vec<_>>(), [Algorithm::Es256]);
    let (terms, now) = (Terms::new(ISSUER, AUDIENCE).unwrap(), setup.now_ms() / 1000);
    terms.verify(&grant(setup, &gateway), &set, now).unwrap();
    terms.verify(&leaked, &set, now).unwrap_err();

    // Without any key nothing is signed, and that is said.
    let last = kids(&set).pop_first().unwrap();
    assert_eq!(setup.admin(&format!("DELETE /v1/keys/{last}"), Value::Null).status, 204);
    let none = setup.with(&gateway, "POST /v1/grants", json!({"workspace": "team-a"}));
    none.refused(503);
    assert_eq!(none.header("retry-after"), Some("5"));
    ask(setup.address(), "GET /.well-known/jwks.json", &[], b"").refused(503);
    ask(setup.address(), "GET /ready", &[], b"").refused(503);
    ask(setup.address(), "GET /health", &[], b"").is(200);
    setup.admin("POST /v1/keys", json!({})).is(201);
    grant(setup, &gateway);
    ask(setup.address(), "GET /ready", &[], b"").is(200);
    // A bounded number is published.
    let added = (0..20).map(|_| setup.admin("POST /v1/keys", json!({"at_once": true})).status);
    let added: Vec<u16> = added.take_while(|status| *status == 201).collect();
    assert!((4..16).contains(&added.len()), "{added:?}");
    for wrong in [json!({"algorithm": "none"}), json!({"algorithm": "HS256"}), json!({"kid": "x"}), json!([])] {
        setup.admin("POST /v1/keys", wrong).refused(422);
    }
}

pub(crate) fn replicas(setup: &Setup) {
    let gateway = gateway(setup);
    setup.admin("POST /v1/keys", json!({})).is(201);
    setup.pass(300);
    let fresh = grant(setup, &gateway);
    let other = setup.replica();
    let answer = with(other.address, &gateway, "POST /v1/grants", json!({"workspace": "team-a"})).is(201);
    assert_eq!(answer["grant"].as_str().unwrap().split('.').next(), fresh.split('.').next(), "the same key signs");
    let of_other = KeySet::parse(&ask(other.address, "GET /.well-known/jwks.json", &[], b"").body).unwrap();
    assert_eq!(of_other, published(setup));
    assert_eq!(of_other.keys().len(), 2);
    // Many at once, on both.
    std::thread::scope(|scope| {
        for address in [setup.address(), other.address] {
            for _ in 0..3 {
                let gateway = &gateway;
                scope.spawn(move || {
                    for _ in 0..10 {
                        with(address, gateway, "POST /v1/grants", json!({"workspace": "team-a"})).is(201);
                    }
                });
            }
        }
    });
    let audit = setup.admin("GET /v1/audit?workspace=team-a&limit=1000", Value::Null).is(200);
    let made = audit["lines"].as_array().unwrap().iter().filter(|line| line["action"] == "grant.made").count();
    assert_eq!(made, 62);
}

pub(crate) fn files(setup: &Setup) {
    let gateway = gateway(setup);
    grant(setup, &gateway);
    let files: Vec<_> = std::fs::read_dir(setup.keys()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = files.as_slice() else { panic!("{files:?}") };
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let secret = std::fs::read_to_string(file).unwrap();
    if let Some(database) = &setup.database.sqlite {
        let d = secret.split("\"d\":\"").nth(1).unwrap().split('"').next().unwrap();
        let content = std::fs::read(database).unwrap();
        assert!(!content.windows(d.len()).any(|window| window == d.as_bytes()), "no private key in the database");
        let mode = std::fs::metadata(database).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
    }
    // A file that others can use is not used.
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let replica = setup.replica();
    let refused = with(replica.address, &gateway, "POST /v1/grants", json!({"workspace": "team-a"}));
    assert_eq!(refused.refused(500), "the control plane failed; its log says why");
    std::fs::write(file, "{}").unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
    with(replica.address, &gateway, "POST /v1/grants", json!({"workspace": "team-a"})).refused(500);
    std::fs::write(file, secret).unwrap();
    with(replica.address, &gateway, "POST /v1/grants", json!({"workspace": "team-a"})).is(201);
    drop(replica);
    // Neither is an admin's token.
    let admin = setup.folder().join("admin-token");
    std::fs::set_permissions(&admin, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = start(setup.config()).err().unwrap();
    assert!(error.to_string().contains("chmod 600") && !format!("{error:?}").contains("admin-0123"), "{error:?}");
}
