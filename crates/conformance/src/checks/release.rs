//! DestroySession.

use hyper::header::{CONTENT_LENGTH, TRANSFER_ENCODING};

use super::must;
use crate::bench::Bench;
use crate::check::{Check, Stop};

const SECTION: &str = "DestroySession";

pub(crate) const CHECKS: &[Check] = &[
    must(
        "release.status",
        "a release answers 204",
        "HTTP/JSON binding",
        "a session that was destroyed is a 204",
        &[],
        |bench| Box::pin(status(bench)),
    ),
    must(
        "release.no_body",
        "a release's answer is empty",
        "Operations",
        "DestroySession answers nothing; HTTP allows no body with a 204",
        &[],
        |bench| Box::pin(no_body(bench)),
    ),
    must(
        "release.gone",
        "a released session runs nothing more",
        SECTION,
        "the session is released and its state destroyed; an unknown session is a 404",
        &[],
        |bench| Box::pin(gone(bench)),
    ),
    must(
        "release.twice",
        "releasing again is a 204 or a 404",
        SECTION,
        "a session that does not exist is in the desired state already",
        &[],
        |bench| Box::pin(twice(bench)),
    ),
];

async fn status(bench: &Bench) -> Result<(), Stop> {
    bench.lease().await?.release().await?.want_status(&[204], "for a session that was released")
}

async fn no_body(bench: &Bench) -> Result<(), Stop> {
    let answer = bench.lease().await?.release().await?;
    answer.need(answer.status == 204, "204 for a session that was released")?;
    let length = answer.headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0");
    let announced = length || answer.headers.contains_key(TRANSFER_ENCODING);
    answer.want(answer.body.is_empty() && !announced, "no body, and none announced by a header")
}

async fn gone(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let answer = held.release().await?;
    answer.need(answer.is_success(), "a release that succeeds")?;
    let body = serde_json::json!({"tool": "code_execution", "input": {"code": "print(1)"}});
    held.exec(&body).await?.want_status(&[404], "for a session that was released")
}

async fn twice(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let answer = held.release().await?;
    answer.need(answer.is_success(), "a release that succeeds")?;
    held.release().await?.want_status(&[204, 404], "for a session that was released before")
}
