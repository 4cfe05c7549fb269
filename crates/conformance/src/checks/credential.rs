//! The bearer credential, where the deployment wants one.

use super::must;
use crate::bench::Bench;
use crate::check::{Check, Stop};

pub(crate) const CHECKS: &[Check] = &[must(
    "credential.missing",
    "a request without the credential is a 401",
    "Authentication and tenancy",
    "a deployment may require a bearer credential on every operation; missing or rejected, it is a 401",
    &[],
    |bench| Box::pin(missing(bench)),
)];

async fn missing(bench: &Bench) -> Result<(), Stop> {
    if !bench.has_token() {
        return Err(Stop::Skip("no credential was given to this run".to_owned()));
    }
    let answer = bench.lease_without_token().await?;
    if answer.is_success() {
        return Err(Stop::Skip("this deployment does not require the credential".to_owned()));
    }
    answer.want_status(&[401], "for a request without the credential")
}
