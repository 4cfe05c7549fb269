//! Whatever comes in, the parser answers, and only what was signed is accepted.

#[expect(dead_code, reason = "the test vectors use more of it")]
#[expect(unreachable_pub, reason = "it is a module of several programs")]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test program may panic")]
mod support;

use proptest::prelude::*;
use ringfence_grant::{Ceilings, Grant, GrantId, KeySet, Refusal, SigningKey, Tools};
use ringfence_op::WorkspaceId;
use support::{AUDIENCE, ISSUER, NOW};

fn ceiling() -> impl Strategy<Value = Option<u32>> {
    proptest::option::of(1_u32..=31_536_000)
}

#[expect(clippy::unwrap_used, reason = "a test program may panic")]
fn grants() -> impl Strategy<Value = Grant> {
    let names = ("[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "[A-Za-z0-9._-]{1,64}");
    let times = (0_u64..=600, 1_u64..=600, 0_u64..=1000);
    let tools = proptest::collection::btree_set("[a-z0-9_]{1,64}", 1..=16);
    let image = proptest::option::of("[!-~]{1,256}");
    let ceilings = (ceiling(), ceiling(), ceiling(), ceiling());
    (names, times, tools, image, ceilings).prop_map(|((workspace, id), (ago, left, early), tools, image, ceilings)| {
        Grant {
            issuer: ISSUER.to_owned(),
            audience: AUDIENCE.to_owned(),
            workspace: WorkspaceId::parse(&workspace).unwrap(),
            id: GrantId::parse(&id).unwrap(),
            issued_at: NOW - ago,
            not_before: NOW - early,
            expires_at: NOW + left,
            tools: Tools::new(tools.iter().map(String::as_str)).unwrap(),
            image,
            ceilings: Ceilings {
                sessions_max: ceilings.0,
                timeout_seconds_max: ceilings.1,
                idle_timeout_seconds_max: ceilings.2,
                max_lifetime_seconds_max: ceilings.3,
            },
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_is_signed_is_read_back(grant in grants(), second in any::<bool>()) {
        let keys = support::keys();
        let key = if second { &keys.p256 } else { &keys.ed25519 };
        let token = grant.sign(&key.signing()).unwrap();
        prop_assert_eq!(support::terms().verify(token.expose(), &support::key_set(&keys), NOW), Ok(grant));
    }

    #[test]
    fn one_changed_character_is_refused(grant in grants(), at in any::<prop::sample::Index>(), by in 1_u8..64) {
        let keys = support::keys();
        let token = grant.sign(&keys.ed25519.signing()).unwrap();
        let mut text: Vec<char> = token.expose().chars().collect();
        let alphabet: Vec<char> = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['-', '_']).collect();
        let at = at.index(text.len());
        let new = match alphabet.iter().position(|character| *character == text[at]) {
            Some(place) => alphabet[(place + usize::from(by)) % 64],
            None => 'A',
        };
        text[at] = new;
        let changed: String = text.into_iter().collect();
        prop_assert!(support::terms().verify(&changed, &support::key_set(&keys), NOW).is_err());
    }

    #[test]
    fn any_text_is_answered(text in "\\PC{0,300}|[A-Za-z0-9_.-]{0,5000}|(\\{[\"a-z:,\\[\\]{}0-9]{0,200}\\}\\.?){0,3}") {
        let keys = support::keys();
        prop_assert!(support::terms().verify(&text, &support::key_set(&keys), NOW).is_err());
    }

    #[test]
    fn any_signed_claims_are_answered(claims in "\\PC{0,300}|\\{[\"a-z:,\\[\\]{}0-9]{0,200}\\}") {
        let keys = support::keys();
        let header = format!(r#"{{"alg":"EdDSA","typ":"ringfence-grant+jwt","kid":"{}"}}"#, keys.ed25519.kid);
        let token = keys.ed25519.token(&header, &claims);
        let refusal = support::terms().verify(&token, &support::key_set(&keys), NOW).unwrap_err();
        prop_assert!(matches!(refusal, Refusal::Malformed(_) | Refusal::Claim(_)), "{refusal}");
    }

    #[test]
    fn any_document_of_keys_is_answered(document in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(KeySet::parse(&document).is_err());
        prop_assert!(SigningKey::from_jwk(&document).is_err());
    }
}
