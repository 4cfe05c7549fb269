//! CreateSession: the handle, and the hints.

use serde_json::{Value, json};

use super::must;
use crate::bench::{Bench, session_id};
use crate::check::{Check, Stop};
use crate::shape::{Kind, Shape};

const SECTION: &str = "CreateSession";

pub(crate) const CHECKS: &[Check] = &[
    must(
        "lease.status",
        "a lease answers 201",
        "HTTP/JSON binding",
        "a session that was created is a 201",
        &[],
        |bench| Box::pin(status(bench)),
    ),
    must(
        "lease.session_id",
        "the handle carries a string session_id",
        SECTION,
        "the one required field of a handle; a string, so that nobody has to reformat it",
        &[],
        |bench| Box::pin(id_is_text(bench)),
    ),
    must(
        "lease.handle_fields",
        "the handle's optional fields have their types",
        SECTION,
        "timeouts are integers, times are numbers of POSIX seconds; each may be left out",
        &[],
        |bench| Box::pin(handle_fields(bench)),
    ),
    must(
        "lease.without_body",
        "a lease needs no body",
        SECTION,
        "every field of the request is optional, and so is the request's body",
        &[],
        |bench| Box::pin(without_body(bench)),
    ),
    must(
        "lease.null_hints",
        "lifetime hints may be null",
        SECTION,
        "a hint is an integer of at least 1, or null",
        &[],
        |bench| Box::pin(tolerated(bench, json!({"idle_timeout_seconds": null, "max_lifetime_seconds": null}))),
    ),
    must(
        "lease.unknown_fields",
        "unknown fields in the request are ignored",
        "Extension policy",
        "the contract grows by adding: a request may hold fields that a backend does not know",
        &[],
        |bench| Box::pin(tolerated(bench, json!({"field_of_a_later_time": {"deep": [1, null]}}))),
    ),
    must(
        "lease.image_hint",
        "an image hint never fails the lease",
        SECTION,
        "the image is a hint: a backend may ignore it and must not fail the request for it",
        &[],
        |bench| Box::pin(tolerated(bench, json!({"image": "registry.invalid/no/such/image:0"}))),
    ),
    must(
        "lease.idle_hint",
        "the idle timeout in force is not above the hint",
        SECTION,
        "a hint is kept or clamped, and the handle reports what is in force",
        &[],
        |bench| Box::pin(hint(bench, "idle_timeout_seconds", 90)),
    ),
    must(
        "lease.lifetime_hint",
        "the lifetime in force is not above the hint",
        SECTION,
        "a hint is kept or clamped, and the handle reports what is in force",
        &[],
        |bench| Box::pin(hint(bench, "max_lifetime_seconds", 600)),
    ),
    must(
        "lease.distinct",
        "two leases are two sessions",
        SECTION,
        "the id addresses this session in every later operation",
        &[],
        |bench| Box::pin(distinct(bench)),
    ),
];

async fn status(bench: &Bench) -> Result<(), Stop> {
    let lease = bench.lease_with(Some(json!({}))).await?;
    lease.want_status(&[201], "for a session that was created")
}

async fn id_is_text(bench: &Bench) -> Result<(), Stop> {
    let lease = bench.lease_with(Some(json!({}))).await?;
    lease.need(lease.is_success(), "a lease")?;
    match Shape::of(&lease.json).required("session_id", Kind::TextNotEmpty).faults() {
        None => Ok(()),
        Some(faults) => Err(Stop::Fail(lease.finding(faults))),
    }
}

async fn handle_fields(bench: &Bench) -> Result<(), Stop> {
    let lease = bench.lease_with(Some(json!({}))).await?;
    lease.need(lease.is_success() && lease.json.is_object(), "a handle")?;
    let faults = Shape::of(&lease.json)
        .optional("idle_timeout_seconds", Kind::Integer)
        .optional("max_lifetime_seconds", Kind::Integer)
        .optional("created_at", Kind::Number)
        .optional("last_activity_at", Kind::Number)
        .faults();
    lease.want(faults.is_none(), faults.unwrap_or_default())
}

async fn without_body(bench: &Bench) -> Result<(), Stop> {
    let lease = bench.lease_with(None).await?;
    lease.want(session_id(&lease).is_some(), "a lease, as for an empty object")
}

async fn tolerated(bench: &Bench, hints: Value) -> Result<(), Stop> {
    let lease = bench.lease_with(Some(hints)).await?;
    lease.want(session_id(&lease).is_some(), "a lease, as without these fields")
}

async fn hint(bench: &Bench, name: &str, seconds: u64) -> Result<(), Stop> {
    let lease = bench.lease_with(Some(json!({name: seconds}))).await?;
    lease.want(session_id(&lease).is_some(), "a lease: a hint is kept or clamped, not refused")?;
    match lease.json.get(name) {
        None | Some(Value::Null) => Err(Stop::Skip(format!("the handle reports no {name}"))),
        Some(value) => {
            let kept = value.as_f64().is_some_and(|value| value >= 0.0 && value <= seconds as f64);
            lease.want(kept, format!("{name} of at most {seconds}, as was asked"))
        }
    }
}

async fn distinct(bench: &Bench) -> Result<(), Stop> {
    let one = bench.lease().await?;
    let answer = bench.lease_with(Some(json!({}))).await?;
    let two = bench.held(&answer)?;
    answer.want(one.id != two.id, format!("another id than {:?}, which is leased already", one.id))
}
