//! Key sets, good and bad.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test program may panic")]

use ringfence_grant::{Algorithm, KeyError, KeySet, SigningKey};
use serde_json::{Value, json};

fn jwk(algorithm: Algorithm) -> Value {
    let key = SigningKey::generate(algorithm).unwrap();
    let set: Value = serde_json::from_str(&KeySet::new(vec![key.public().clone()]).unwrap().to_json()).unwrap();
    set["keys"][0].clone()
}

fn parse(keys: &[Value]) -> Result<KeySet, KeyError> {
    KeySet::parse(json!({"keys": keys}).to_string().as_bytes())
}

fn changed(mut jwk: Value, name: &str, value: Value) -> Value {
    jwk[name] = value;
    jwk
}

#[test]
fn a_set_survives_being_published() {
    let keys = [Algorithm::EdDsa, Algorithm::Es256].map(|algorithm| SigningKey::generate(algorithm).unwrap());
    let set = KeySet::new(keys.iter().map(|key| key.public().clone()).collect()).unwrap();
    assert_eq!(KeySet::parse(set.to_json().as_bytes()).unwrap(), set);
    assert_eq!(set.key(keys[1].public().key_id()), Some(keys[1].public()));
}

#[test]
fn foreign_keys_are_ignored() {
    let own = jwk(Algorithm::EdDsa);
    let mut nameless = jwk(Algorithm::EdDsa);
    nameless.as_object_mut().unwrap().remove("kid");
    let foreign = [
        json!({"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "r"}),
        json!({"kty": "OKP", "crv": "X25519", "x": "AAAA", "kid": "x"}),
        json!({"kty": "EC", "crv": "P-384", "x": "AAAA", "y": "AAAA", "kid": "p"}),
        json!({"kty": "new", "kid": "n"}),
        changed(jwk(Algorithm::EdDsa), "use", json!("enc")),
        changed(jwk(Algorithm::EdDsa), "alg", json!("ES256")),
        changed(jwk(Algorithm::Es256), "alg", json!("ECDH-ES")),
        changed(jwk(Algorithm::Es256), "key_ops", json!(["sign"])),
        nameless,
    ];
    let set = parse(&[&foreign[..], std::slice::from_ref(&own)].concat()).unwrap();
    assert_eq!(set.keys().iter().map(|key| key.key_id()).collect::<Vec<_>>(), [own["kid"].as_str().unwrap()]);
    assert_eq!(parse(&foreign).unwrap_err(), KeyError::Empty);
    let with_operations = changed(own, "key_ops", json!(["verify"]));
    assert_eq!(parse(&[with_operations]).unwrap().keys().len(), 1);
}

#[test]
fn bad_sets_are_refused_whole() {
    let (ed, ec) = (jwk(Algorithm::EdDsa), jwk(Algorithm::Es256));
    assert_eq!(parse(&[]).unwrap_err(), KeyError::Empty);
    assert_eq!(parse(&[ed.clone(), changed(ec.clone(), "kid", ed["kid"].clone())]).unwrap_err(), KeyError::Twice);
    assert_eq!(parse(&vec![json!({"kty": "new"}); 17]).unwrap_err(), KeyError::TooMany);
    assert_eq!(parse(&[changed(ed.clone(), "d", json!("AAAA"))]).unwrap_err(), KeyError::Private);
    assert_eq!(parse(&[json!({"kty": "oct", "k": "AAAA", "kid": "o"})]).unwrap_err(), KeyError::Private);
    let zeros = json!("A".repeat(43));
    for broken in [
        changed(ed.clone(), "x", json!("AAAA")),
        changed(ed.clone(), "x", json!("not base64!")),
        changed(ed.clone(), "x", Value::Null),
        // A point of small order: a signature could hold for every message.
        changed(ed.clone(), "x", zeros.clone()),
        changed(ed.clone(), "kid", json!("a\"b")),
        changed(ed.clone(), "kid", json!("k".repeat(129))),
        changed(ec.clone(), "y", ec["x"].clone()),
        changed(ec.clone(), "x", zeros),
    ] {
        assert!(matches!(parse(&[ed.clone(), broken.clone()]), Err(KeyError::Unusable(_))), "{broken}");
    }
    for text in ["", "[]", "{}", r#"{"keys":{}}"#, r#"{"keys":[1]}"#, r#"{"keys":[],"keys":[]}"#, "<html>"] {
        assert!(matches!(KeySet::parse(text.as_bytes()), Err(KeyError::Malformed(_))), "{text}");
    }
    assert!(matches!(KeySet::parse(&vec![b' '; 65_537]), Err(KeyError::TooLarge { .. })));
}
