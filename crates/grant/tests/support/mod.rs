//! The test vectors: good and bad grants made with fixed test keys. Nothing in here is a secret.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::Signer as _;
use ringfence_grant::{KeySet, SigningKey, TYPE, Terms};
use serde_json::{Map, Value, json};

pub const NOW: u64 = 1_800_000_000;
pub const ISSUER: &str = "https://control.example";
pub const AUDIENCE: &str = "https://gate.example";
pub const SKEW: u64 = 30;

/// A test key: its private JWK, and how to sign anything with it, also what the crate would not sign.
pub struct TestKey {
    pub jwk: String,
    pub kid: String,
    algorithm: &'static str,
    seed: [u8; 32],
}

impl TestKey {
    fn ed25519(kid: &str, seed: u8) -> Self {
        let seed = [seed; 32];
        let public = ed25519_dalek::SigningKey::from_bytes(&seed).verifying_key();
        let (d, x) = (URL_SAFE_NO_PAD.encode(seed), URL_SAFE_NO_PAD.encode(public.as_bytes()));
        let jwk =
            format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}","kid":"{kid}","alg":"EdDSA","use":"sig","d":"{d}"}}"#);
        TestKey { jwk, kid: kid.to_owned(), algorithm: "EdDSA", seed }
    }

    fn p256(kid: &str, seed: u8) -> Self {
        let seed = [seed; 32];
        let point = p256::ecdsa::SigningKey::from_slice(&seed).unwrap().verifying_key().to_encoded_point(false);
        let text = |bytes: Option<&p256::FieldBytes>| URL_SAFE_NO_PAD.encode(bytes.unwrap());
        let (d, x, y) = (URL_SAFE_NO_PAD.encode(seed), text(point.x()), text(point.y()));
        let jwk = format!(
            r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}","kid":"{kid}","alg":"ES256","use":"sig","d":"{d}"}}"#
        );
        TestKey { jwk, kid: kid.to_owned(), algorithm: "ES256", seed }
    }

    pub fn signing(&self) -> SigningKey {
        SigningKey::from_jwk(self.jwk.as_bytes()).unwrap()
    }

    fn header(&self) -> Value {
        json!({"alg": self.algorithm, "typ": TYPE, "kid": self.kid})
    }

    fn signature(&self, input: &[u8]) -> [u8; 64] {
        if self.algorithm == "EdDSA" {
            return ed25519_dalek::SigningKey::from_bytes(&self.seed).sign(input).to_bytes();
        }
        let signature: p256::ecdsa::Signature = p256::ecdsa::SigningKey::from_slice(&self.seed).unwrap().sign(input);
        signature.to_bytes().into()
    }

    /// Signs any two texts as header and claims.
    pub fn token(&self, header: &str, claims: &str) -> String {
        let input = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = self.signature(input.as_bytes());
        format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

pub struct Keys {
    pub ed25519: TestKey,
    pub p256: TestKey,
    pub stranger: TestKey,
}

pub fn keys() -> Keys {
    Keys {
        ed25519: TestKey::ed25519("test-ed25519-1", 0x11),
        p256: TestKey::p256("test-p256-1", 0x22),
        // Not in the set, under the id of one that is.
        stranger: TestKey::ed25519("test-ed25519-1", 0x33),
    }
}

pub fn key_set(keys: &Keys) -> KeySet {
    KeySet::new(vec![keys.ed25519.signing().public().clone(), keys.p256.signing().public().clone()]).unwrap()
}

pub fn terms() -> Terms {
    Terms::new(ISSUER, AUDIENCE).unwrap().with_skew(SKEW)
}

pub fn claims() -> Map<String, Value> {
    let claims = json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": "team-a", "jti": "grant-1",
        "iat": NOW - 60, "nbf": NOW - 60, "exp": NOW + 840, "tools": ["code_execution"],
    });
    claims.as_object().unwrap().clone()
}

fn with(changes: &[(&str, Value)]) -> String {
    let mut claims = claims();
    for (name, value) in changes {
        claims.insert((*name).to_owned(), value.clone());
    }
    Value::Object(claims).to_string()
}

fn without(name: &str) -> String {
    let mut claims = claims();
    claims.remove(name).unwrap();
    Value::Object(claims).to_string()
}

struct Cases(Vec<Value>);

impl Cases {
    fn accepted(&mut self, name: &str, token: String) {
        self.0.push(json!({"name": name, "token": token, "outcome": "accepted"}));
    }

    fn refused(&mut self, name: &str, reason: &str, token: String) {
        self.0.push(json!({"name": name, "token": token, "outcome": "refused", "reason": reason}));
    }
}

/// The document `vectors.json`.
pub fn document() -> Value {
    let keys = keys();
    let mut cases = Cases(Vec::new());
    good(&mut cases, &keys);
    bad_shapes(&mut cases, &keys);
    bad_headers(&mut cases, &keys);
    bad_signatures(&mut cases, &keys);
    bad_claims(&mut cases, &keys);
    bad_objects_parties_and_times(&mut cases, &keys);
    let set: Value = serde_json::from_str(&key_set(&keys).to_json()).unwrap();
    let private = |key: &TestKey| serde_json::from_str::<Value>(&key.jwk).unwrap();
    json!({
        "description": "Grants and what a front door makes of them (docs/grant.md). Every case is judged at `now` with \
                        `issuer`, `audience` and `skew_seconds`, with the keys of `key_set`. The private keys are for \
                        tests alone.",
        "now": NOW, "issuer": ISSUER, "audience": AUDIENCE, "skew_seconds": SKEW,
        "key_set": set,
        "private_keys": [private(&keys.ed25519), private(&keys.p256)],
        "cases": cases.0,
    })
}

fn good(cases: &mut Cases, keys: &Keys) {
    let ed = |claims: &str| keys.ed25519.token(&keys.ed25519.header().to_string(), claims);
    cases.accepted("EdDSA, the least claims", ed(&with(&[])));
    cases.accepted("ES256", keys.p256.token(&keys.p256.header().to_string(), &with(&[])));
    cases.accepted(
        "every claim",
        ed(&with(&[
            ("tools", json!(["code_execution", "bash_code_execution", "text_editor_code_execution"])),
            ("image", json!("registry.example/python:3.12")),
            ("sessions_max", json!(5)),
            ("timeout_seconds_max", json!(120)),
            ("idle_timeout_seconds_max", json!(600)),
            ("max_lifetime_seconds_max", json!(3600)),
        ])),
    );
    cases.accepted(
        "several audiences, ours among them",
        ed(&with(&[("aud", json!(["https://other.example", AUDIENCE]))])),
    );
    cases.accepted("a claim that this format does not have", ed(&with(&[("department", json!("x"))])));
    cases.accepted("a tool kind that is not known yet", ed(&with(&[("tools", json!(["sql_execution"]))])));
    cases.accepted("expired within the skew", ed(&with(&[("exp", json!(NOW - SKEW + 1))])));
    cases.accepted(
        "not valid yet, within the skew",
        ed(&with(&[("nbf", json!(NOW + SKEW)), ("iat", json!(NOW + SKEW))])),
    );
    cases.accepted("the longest lifetime", ed(&with(&[("iat", json!(NOW)), ("exp", json!(NOW + 86_400))])));
}

fn bad_shapes(cases: &mut Cases, keys: &Keys) {
    let whole = keys.ed25519.token(&keys.ed25519.header().to_string(), &with(&[]));
    let parts: Vec<&str> = whole.split('.').collect();
    cases.refused("empty", "malformed", String::new());
    cases.refused("no dots", "malformed", "grant".to_owned());
    cases.refused("two parts", "malformed", format!("{}.{}", parts[0], parts[1]));
    cases.refused("four parts", "malformed", format!("{whole}.{}", parts[2]));
    cases.refused("truncated signature", "malformed", whole[..whole.len() - 8].to_owned());
    cases.refused("empty signature", "malformed", format!("{}.{}.", parts[0], parts[1]));
    cases.refused("padding", "malformed", format!("{whole}=="));
    cases.refused("a space before it", "malformed", format!(" {whole}"));
    cases.refused(
        "base64 of the other alphabet",
        "malformed",
        format!("{}.{}.{}", parts[0], parts[1], "+/".repeat(43)),
    );
    let last = whole.as_bytes()[whole.len() - 1];
    let stray = char::from(if last == b'A' { b'B' } else { last + 1 });
    cases.refused("stray bits in the last character", "malformed", format!("{}{stray}", &whole[..whole.len() - 1]));
    cases.refused("longer than 4096 bytes", "too_large", "a".repeat(4097));
    let long = with(&[("department", json!("x".repeat(3200)))]);
    cases.refused(
        "signed and longer than 4096 bytes",
        "too_large",
        keys.ed25519.token(&keys.ed25519.header().to_string(), &long),
    );
    let header = json!({"alg": "EdDSA", "typ": TYPE, "kid": "k".repeat(600)}).to_string();
    cases.refused("a header of more than 512 bytes", "too_large", keys.ed25519.token(&header, &with(&[])));
}

fn bad_headers(cases: &mut Cases, keys: &Keys) {
    let with_header = |header: Value| keys.ed25519.token(&header.to_string(), &with(&[]));
    let kid = keys.ed25519.kid.as_str();
    let raw = |header: &str| keys.ed25519.token(header, &with(&[]));
    cases.refused("alg none", "algorithm", with_header(json!({"alg": "none", "typ": TYPE, "kid": kid})));
    cases.refused("alg None", "algorithm", with_header(json!({"alg": "None", "typ": TYPE, "kid": kid})));
    let none = format!(
        "{}.{}.{}",
        URL_SAFE_NO_PAD.encode(json!({"alg": "none", "typ": TYPE, "kid": kid}).to_string()),
        URL_SAFE_NO_PAD.encode(with(&[])),
        ""
    );
    cases.refused("alg none without a signature", "algorithm", none);
    for algorithm in ["HS256", "RS256", "ES384", "Ed25519", "eddsa"] {
        let header = json!({"alg": algorithm, "typ": TYPE, "kid": kid});
        cases.refused(&format!("alg {algorithm}"), "algorithm", with_header(header));
    }
    let confused = json!({"alg": "ES256", "typ": TYPE, "kid": kid});
    cases.refused("the Ed25519 key under ES256", "algorithm", with_header(confused));
    let confused = json!({"alg": "EdDSA", "typ": TYPE, "kid": keys.p256.kid}).to_string();
    cases.refused("the P-256 key under EdDSA", "algorithm", keys.p256.token(&confused, &with(&[])));
    cases.refused("no alg", "algorithm", with_header(json!({"typ": TYPE, "kid": kid})));
    cases.refused("typ JWT", "type", with_header(json!({"alg": "EdDSA", "typ": "JWT", "kid": kid})));
    cases.refused("no typ", "type", with_header(json!({"alg": "EdDSA", "kid": kid})));
    cases.refused("typ of a number", "type", with_header(json!({"alg": "EdDSA", "typ": 7, "kid": kid})));
    cases.refused("no kid", "unknown_key", with_header(json!({"alg": "EdDSA", "typ": TYPE})));
    cases.refused("an unknown kid", "unknown_key", with_header(json!({"alg": "EdDSA", "typ": TYPE, "kid": "other"})));
    cases.refused("crit", "critical", with_header(json!({"alg": "EdDSA", "typ": TYPE, "kid": kid, "crit": ["exp"]})));
    for (name, value) in [
        ("jwk", json!({"kty": "OKP", "crv": "Ed25519", "x": "AAAA"})),
        ("jku", json!("https://evil.example/keys")),
        ("x5c", json!(["AAAA"])),
        ("b64", json!(false)),
        ("zip", json!("DEF")),
        ("cty", json!("JWT")),
    ] {
        let mut header = keys.ed25519.header();
        header[name] = value;
        cases.refused(&format!("header parameter {name}"), "parameter", with_header(header));
    }
    cases.refused(
        "alg twice",
        "malformed",
        raw(&format!(r#"{{"alg":"none","alg":"EdDSA","typ":"{TYPE}","kid":"{kid}"}}"#)),
    );
    cases.refused("header is a list", "malformed", raw(r#"["EdDSA"]"#));
    cases.refused(
        "header nested deeply",
        "malformed",
        raw(&format!(r#"{{"alg":{}1{}}}"#, "[".repeat(100), "]".repeat(100))),
    );
    cases.refused("header with text after it", "malformed", raw(&format!("{} x", keys.ed25519.header())));
    cases.refused("header is no JSON", "malformed", raw("alg=EdDSA"));
}

fn bad_signatures(cases: &mut Cases, keys: &Keys) {
    for key in [&keys.ed25519, &keys.p256] {
        let algorithm = key.algorithm;
        let good = key.token(&key.header().to_string(), &with(&[]));
        let (input, signature) = good.rsplit_once('.').unwrap();
        let (header, _) = input.split_once('.').unwrap();
        let other = URL_SAFE_NO_PAD.encode(with(&[("sub", json!("team-b"))]));
        cases.refused(&format!("{algorithm}: claims exchanged"), "signature", format!("{header}.{other}.{signature}"));
        let mut bytes = URL_SAFE_NO_PAD.decode(signature).unwrap();
        bytes[20] ^= 1;
        let flipped = URL_SAFE_NO_PAD.encode(&bytes);
        cases.refused(
            &format!("{algorithm}: a bit of the signature flipped"),
            "signature",
            format!("{input}.{flipped}"),
        );
        let zero = URL_SAFE_NO_PAD.encode([0_u8; 64]);
        cases.refused(&format!("{algorithm}: a signature of zeros"), "signature", format!("{input}.{zero}"));
        let ones = URL_SAFE_NO_PAD.encode([0xff_u8; 64]);
        cases.refused(&format!("{algorithm}: a signature of ones"), "signature", format!("{input}.{ones}"));
    }
    let forged = keys.stranger.token(&keys.stranger.header().to_string(), &with(&[]));
    cases.refused("another key under the kid of ours", "signature", forged);
}

fn bad_claims(cases: &mut Cases, keys: &Keys) {
    let ed = |claims: &str| keys.ed25519.token(&keys.ed25519.header().to_string(), claims);
    for name in ["iss", "aud", "sub", "jti", "iat", "nbf", "exp", "tools"] {
        cases.refused(&format!("no {name}"), "claim", ed(&without(name)));
        cases.refused(&format!("{name} is null"), "claim", ed(&with(&[(name, Value::Null)])));
        cases.refused(&format!("{name} of another type"), "claim", ed(&with(&[(name, json!({"a": 1}))])));
    }
    for (name, value) in [
        ("sub", json!("")),
        ("sub", json!("a b")),
        ("sub", json!("a\r\nx: y")),
        ("sub", json!("../a")),
        ("sub", json!("a".repeat(65))),
        ("jti", json!("")),
        ("jti", json!("a".repeat(65))),
        ("jti", json!("a/b")),
        ("iat", json!("1800000000")),
        ("iat", json!(-1)),
        ("exp", json!(1.8e9 + 0.5)),
        ("exp", json!(u64::MAX)),
        ("exp", json!(NOW - 60)),
        ("exp", json!(NOW - 60 + 86_401)),
        ("nbf", json!(NOW + 841)),
        ("aud", json!([])),
        ("aud", json!([1])),
        ("aud", json!("a".repeat(257))),
        ("tools", json!([])),
        ("tools", json!("code_execution")),
        ("tools", json!([1])),
        ("tools", json!(["A"])),
        ("tools", json!(["a", "a"])),
        ("tools", json!(["a".repeat(65)])),
        ("tools", json!((0..17).map(|i| format!("t{i}")).collect::<Vec<_>>())),
        ("image", json!("")),
        ("image", json!("a b")),
        ("image", json!(7)),
        ("image", Value::Null),
        ("image", json!("a".repeat(257))),
        ("sessions_max", json!(0)),
        ("timeout_seconds_max", json!(-1)),
        ("idle_timeout_seconds_max", json!("60")),
        ("max_lifetime_seconds_max", json!(1.5)),
        ("sessions_max", json!(31_536_001)),
        ("timeout_seconds_max", json!(1_u64 << 33)),
        ("idle_timeout_seconds_max", Value::Null),
    ] {
        let mut shown = value.to_string();
        shown.truncate(40);
        cases.refused(&format!("{name} is {shown}"), "claim", ed(&with(&[(name, value)])));
    }
}

fn bad_objects_parties_and_times(cases: &mut Cases, keys: &Keys) {
    let ed = |claims: &str| keys.ed25519.token(&keys.ed25519.header().to_string(), claims);
    let twice = with(&[]).replacen('{', r#"{"sub":"team-b","#, 1);
    cases.refused("sub twice", "malformed", ed(&twice));
    cases.refused("sub twice, once escaped", "malformed", ed(&with(&[]).replacen('{', r#"{"s\u0075b":"team-b","#, 1)));
    cases.refused(
        "claims nested deeply",
        "malformed",
        ed(&format!(r#"{{"x":{}{}}}"#, "[".repeat(200), "]".repeat(200))),
    );
    cases.refused("claims are a list", "malformed", ed("[]"));
    cases.refused("claims are no JSON", "malformed", ed("sub=team-a"));
    cases.refused("claims are another token", "malformed", ed("eyJhbGciOiJFZERTQSJ9.e30."));
    cases.refused("another issuer", "issuer", ed(&with(&[("iss", json!("https://evil.example"))])));
    cases.refused("an issuer with a slash more", "issuer", ed(&with(&[("iss", json!(format!("{ISSUER}/")))])));
    cases.refused("another audience", "audience", ed(&with(&[("aud", json!("https://other.example"))])));
    cases.refused("other audiences", "audience", ed(&with(&[("aud", json!(["a", "b"]))])));
    cases.refused("expired", "expired", ed(&with(&[("exp", json!(NOW - SKEW))])));
    cases.refused(
        "expired long ago",
        "expired",
        ed(&with(&[("iat", json!(1)), ("nbf", json!(1)), ("exp", json!(61))])),
    );
    cases.refused("not valid yet", "not_yet_valid", ed(&with(&[("nbf", json!(NOW + SKEW + 1))])));
    cases.refused("issued in the future", "not_yet_valid", ed(&with(&[("iat", json!(NOW + SKEW + 1))])));
}
