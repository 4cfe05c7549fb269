//! Execute: the tool kind is held against the grant, the timeout is clamped, and the call is sent once.

use std::sync::Arc;
use std::time::Duration;

use hyper::{Response, StatusCode};
use ringfence_grant::Grant;
use ringfence_usage::{Kind, Outcome};

use crate::answer::Denial;
use crate::backends::Backend;
use crate::body::{Body, Held, Stream, within};
use crate::envelope::Summary;
use crate::ident::Place;
use crate::limits::TIMEOUT_WAITED_SECONDS_MAX;
use crate::limits::{BODY_WAIT, EXECUTE_BYTES_MAX, RESULT_BYTES_MAX, TIMEOUT_UNKNOWN_SECONDS};
use crate::members::Members;
use crate::relay;
use crate::shared::{Asked, Meter, Shared, outcome_of};

/// A call as it goes to the backend.
struct Prepared {
    tool: String,
    body: Body,
    wait: Duration,
}

/// Runs one call.
pub(crate) async fn execute(
    shared: &Arc<Shared>,
    asked: Asked,
    id: &str,
    body: Stream,
) -> Result<Response<Body>, Denial> {
    let (place, backend) = shared.place(&asked.grant, id)?;
    let permit = shared.permit()?;
    let held = shared.room.collect(body, EXECUTE_BYTES_MAX, within(BODY_WAIT)).await.map_err(Denial::Body)?;
    let prepared = prepare(shared, &asked.grant, held)?;
    let meter = shared.meter(Kind::Call, &asked.grant, Some(&place), Some(&prepared.tool))?;
    // A task of its own: a client that hangs up does not end the call, and it is metered all the same.
    let shared = Arc::clone(shared);
    let call = tokio::spawn(async move {
        let _permit = permit;
        run(&shared, &asked, &place, &backend, prepared, meter).await
    });
    call.await.map_err(|_| Denial::House("the call was lost"))?
}

fn prepare(shared: &Shared, grant: &Grant, held: Held) -> Result<Prepared, Denial> {
    let mut members =
        Members::parse(&held.bytes).ok_or(Denial::Malformed("the body must be a JSON object with each key once"))?;
    let tool = members.text("tool").ok_or(Denial::Malformed("`tool` must be a text"))?;
    if !grant.tools.allow(&tool) {
        return Err(Denial::Tool);
    }
    let asked = members.seconds("timeout_seconds");
    let Some(ceiling) = grant.ceilings.timeout_seconds_max.map(u64::from) else {
        let seconds = asked.ok().flatten().unwrap_or(TIMEOUT_UNKNOWN_SECONDS);
        return Ok(Prepared { tool, wait: patience(shared, seconds), body: held.into() });
    };
    let asked = asked.map_err(|()| Denial::Malformed("`timeout_seconds` must be a whole number"))?;
    let seconds = asked.unwrap_or(shared.policy.timeout_seconds_default).min(ceiling);
    let wait = patience(shared, seconds);
    if asked == Some(seconds) {
        return Ok(Prepared { tool, wait, body: held.into() });
    }
    members.set("timeout_seconds", seconds.to_string());
    let body = Body::from(members.write());
    Ok(Prepared { tool, wait, body })
}

fn patience(shared: &Shared, seconds: u64) -> Duration {
    Duration::from_secs(seconds.min(TIMEOUT_WAITED_SECONDS_MAX)) + shared.policy.call_headroom
}

async fn run(
    shared: &Shared,
    asked: &Asked,
    place: &Place,
    backend: &Backend,
    prepared: Prepared,
    meter: Meter,
) -> Result<Response<Body>, Denial> {
    let done = send(shared, asked, place, backend, prepared).await;
    meter.end(|record| match &done {
        Ok((answer, summary)) => {
            record.status = Some(answer.status().as_u16().into());
            record.outcome = match answer.status() {
                StatusCode::SERVICE_UNAVAILABLE => Outcome::Unavailable,
                _ => Outcome::Refused,
            };
            if let Some(summary) = summary {
                summary.fill(record);
            }
        }
        Err(denial) => {
            record.status = Some(denial.status().as_u16().into());
            record.outcome = outcome_of(denial);
        }
    });
    done.map(|(answer, _)| answer)
}

/// The backend's answer, with its figures where the call ran.
async fn send(
    shared: &Shared,
    asked: &Asked,
    place: &Place,
    backend: &Backend,
    prepared: Prepared,
) -> Result<(Response<Body>, Option<Summary>), Denial> {
    let deadline = within(prepared.wait);
    let path = format!("/sessions/{}/exec", place.session);
    let request = shared.request(asked, backend, &path, false, prepared.body)?;
    let answer = shared.upstream.send(request, deadline).await.map_err(|error| relay::unsent(error, backend))?;
    if answer.status() != StatusCode::OK {
        if answer.status().is_success() {
            return Err(Denial::Lie("an unknown status"));
        }
        return relay::refusal(shared, answer, deadline).await.map(|refused| (refused, None));
    }
    let (headers, held) = relay::whole(shared, answer, RESULT_BYTES_MAX, deadline).await?;
    let summary = Summary::read(&held.bytes).map_err(Denial::Lie)?;
    let mut answer = Response::new(Body::from(held));
    *answer.headers_mut() = headers;
    Ok((answer, Some(summary)))
}
