//! The test vectors hold, and the file is what the generator makes.

#[expect(unreachable_pub, reason = "it is a module of several programs")]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test program may panic")]
mod support;

use ringfence_grant::{Grant, KeySet, Terms};
use serde_json::Value;

/// Breaks one rule of a grant.
type Break = fn(&mut Grant);

const FILE: &str = include_str!("vectors.json");

#[test]
fn the_file_is_what_the_generator_makes() {
    let file: Value = serde_json::from_str(FILE).unwrap();
    assert_eq!(file, support::document(), "write it anew: cargo run -p ringfence-grant --example vectors");
}

#[test]
fn every_case_meets_its_outcome_as_read_from_the_file_alone() {
    let file: Value = serde_json::from_str(FILE).unwrap();
    let text = |name: &str| file[name].as_str().unwrap().to_owned();
    let terms =
        Terms::new(&text("issuer"), &text("audience")).unwrap().with_skew(file["skew_seconds"].as_u64().unwrap());
    let keys = KeySet::parse(file["key_set"].to_string().as_bytes()).unwrap();
    let now = file["now"].as_u64().unwrap();
    let cases = file["cases"].as_array().unwrap();
    assert!(cases.len() > 100, "{} cases", cases.len());
    let mut accepted = 0;
    for case in cases {
        let (name, token) = (case["name"].as_str().unwrap(), case["token"].as_str().unwrap());
        match terms.verify(token, &keys, now) {
            Ok(_) => {
                assert_eq!(case["outcome"], "accepted", "{name}");
                accepted += 1;
            }
            Err(refusal) => {
                assert_eq!(case["outcome"], "refused", "{name}: {refusal}");
                assert_eq!(case["reason"], refusal.code(), "{name}");
                let said = format!("{refusal} {refusal:?}");
                assert!(
                    token.is_empty() || token.split('.').all(|part| part.len() < 16 || !said.contains(part)),
                    "{name}"
                );
            }
        }
    }
    assert!(accepted >= 9, "{accepted} accepted");
}

#[test]
fn what_is_signed_is_what_is_read() {
    let keys = support::keys();
    let set = support::key_set(&keys);
    let file: Value = serde_json::from_str(FILE).unwrap();
    for case in file["cases"].as_array().unwrap().iter().filter(|case| case["outcome"] == "accepted") {
        let grant = support::terms().verify(case["token"].as_str().unwrap(), &set, support::NOW).unwrap();
        for key in [&keys.ed25519, &keys.p256] {
            let token = grant.sign(&key.signing()).unwrap();
            assert_eq!(support::terms().verify(token.expose(), &set, support::NOW).unwrap(), grant);
            assert!(!format!("{token:?}").contains(token.expose()));
        }
    }
}

#[test]
fn what_breaks_a_rule_is_not_signed() {
    let keys = support::keys();
    let set = support::key_set(&keys);
    let file: Value = serde_json::from_str(FILE).unwrap();
    let token = file["cases"][0]["token"].as_str().unwrap();
    let good = support::terms().verify(token, &set, support::NOW).unwrap();
    let key = keys.ed25519.signing();
    assert!(good.sign(&key).is_ok());
    let breaks: [(&str, Break); 7] = [
        ("iss", |grant| grant.issuer.clear()),
        ("aud", |grant| grant.audience = "a b".to_owned()),
        ("image", |grant| grant.image = Some("\n".to_owned())),
        ("exp", |grant| grant.expires_at = grant.issued_at),
        ("exp", |grant| grant.expires_at = grant.issued_at + 86_401),
        ("nbf", |grant| grant.not_before = grant.expires_at + 1),
        ("sessions_max", |grant| grant.ceilings.sessions_max = Some(0)),
    ];
    for (claim, break_it) in breaks {
        let mut grant = good.clone();
        break_it(&mut grant);
        assert_eq!(grant.sign(&key).unwrap_err(), ringfence_grant::GrantError::Claim(claim));
    }
}
