//! Leases that are broken in one place.

use ringfence_fake::{Asked, Reply, Rules};
use serde_json::{Value, json};

use crate::{Breakage, answering, edited, faulty, twisted};

fn lease(asked: &Asked, reply: &Reply) -> bool {
    asked.is_lease() && reply.status == 201
}

/// A lease that asks for a field.
fn asks(asked: &Asked, name: &str) -> bool {
    asked.is_lease() && asked.json().get(name).is_some_and(|value| !value.is_null())
}

pub(crate) fn breakages() -> Vec<Breakage> {
    let refused = |asked: &Asked, reply: Reply, when: bool| {
        if asked.is_lease() && when { Reply::refusal(422, "not known") } else { reply }
    };
    let mut all = vec![
        answering(200, "200 instead of 201", "lease.status", lease),
        faulty("a numeric session id", "lease.session_id", |quirks| quirks.numeric_ids = true),
        edited("an idle timeout that is no integer", "lease.handle_fields", lease, |handle| {
            handle["idle_timeout_seconds"] = json!(handle["idle_timeout_seconds"].as_f64().unwrap_or(1.0) - 0.5);
        }),
        edited("an idle timeout of null", "lease.handle_fields", lease, |handle| {
            handle["idle_timeout_seconds"] = Value::Null;
        }),
        edited("a lifetime as a text", "lease.handle_fields", lease, |handle| {
            if handle["max_lifetime_seconds"] == 7200 {
                handle["max_lifetime_seconds"] = json!("7200");
            }
        }),
        edited("a creation time as a text", "lease.handle_fields", lease, |handle| {
            handle["created_at"] = json!("2026-08-01T00:00:00Z");
        }),
        twisted("a lease that wants a body", "lease.without_body", move |asked, reply| {
            refused(asked, reply, asked.body.is_empty())
        }),
        twisted("null hints refused", "lease.null_hints", move |asked, reply| {
            refused(asked, reply, asked.json().get("idle_timeout_seconds") == Some(&Value::Null))
        }),
        twisted("unknown fields of a lease refused", "lease.unknown_fields", move |asked, reply| {
            refused(asked, reply, asks(asked, "field_of_a_later_time"))
        }),
        twisted("an image refused", "lease.image_hint", move |asked, reply| {
            refused(asked, reply, asks(asked, "image"))
        }),
        twisted("an idle timeout above the hint", "lease.idle_hint", |asked, reply| {
            let above = asks(asked, "idle_timeout_seconds");
            if above { reply.changed(|handle| handle["idle_timeout_seconds"] = json!(900)) } else { reply }
        }),
        twisted("an idle timeout a little above the hint", "lease.idle_hint", |asked, reply| {
            let above = asks(asked, "idle_timeout_seconds");
            if above { reply.changed(|handle| handle["idle_timeout_seconds"] = json!(90.5)) } else { reply }
        }),
        twisted("a hint refused", "lease.idle_hint", move |asked, reply| {
            refused(asked, reply, asks(asked, "idle_timeout_seconds"))
        }),
        twisted("a lifetime above the hint", "lease.lifetime_hint", |asked, reply| {
            let above = asks(asked, "max_lifetime_seconds");
            if above { reply.changed(|handle| handle["max_lifetime_seconds"] = json!(601)) } else { reply }
        }),
        faulty("one session for everybody", "lease.distinct", |quirks| quirks.repeats_ids = true),
    ];
    let mut wants_token = answering(403, "403 instead of 401", "credential.missing", |_, reply| reply.status == 401);
    wants_token.rules = Rules { token: Some("s3cret".to_owned()), ..wants_token.rules };
    all.push(wants_token);
    all
}
