//! CreateSession: image and ceilings of the grant are put into the hints, the lease is tried on the least loaded
//! backends, and what comes back is held against the grant.

use std::sync::Arc;

use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use ringfence_grant::Grant;
use ringfence_usage::{Kind, Outcome};
use serde::Deserialize;
use tokio::sync::oneshot;

use crate::answer::Denial;
use crate::backends::Backend;
use crate::body::{Body, Stream, within};
use crate::headers;
use crate::ident::{Place, is_backend_session};
use crate::limits::{ANSWER_WAIT, BODY_WAIT, COUNT_WAIT, HANDLE_BYTES_MAX, LEASE_BYTES_MAX, LEASE_TRIES_MAX};
use crate::members::{Members, Object, quoted};
use crate::relay;
use crate::shared::{Asked, Meter, Shared, outcome_of};
use crate::upstream::SendError;

/// A lease that was taken.
struct Leased {
    place: Place,
    handle: Response<Body>,
}

/// What became of a lease, where it was no failure of ours or of a backend.
enum Tried {
    Leased(Leased),
    Refused(Response<Body>),
}

/// Leases a session.
pub(crate) async fn create(shared: &Arc<Shared>, asked: Asked, body: Stream) -> Result<Response<Body>, Denial> {
    let permit = shared.permit()?;
    let held = shared.room.collect(body, LEASE_BYTES_MAX, within(BODY_WAIT)).await.map_err(Denial::Body)?;
    let hints = hints(shared, &asked.grant, &held.bytes)?;
    within_sessions_max(shared, &asked).await?;
    let meter = shared.meter(Kind::Lease, &asked.grant, None, None)?;
    let (answer, answered) = oneshot::channel();
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let _permit = permit;
        let done = lease(&shared, &asked, &hints, meter).await;
        let (place, reply) = match done {
            Ok(Tried::Leased(leased)) => (Some(leased.place), Ok(leased.handle)),
            Ok(Tried::Refused(refused)) => (None, Ok(refused)),
            Err(denial) => (None, Err(denial)),
        };
        if answer.send(reply).is_err()
            && let Some(place) = place
        {
            // The client hung up: nobody knows the session's id.
            destroy(&shared, &asked, &place).await;
        }
    });
    answered.await.map_err(|_| Denial::House("the lease was lost"))?
}

/// The body that goes to the backend.
fn hints(shared: &Shared, grant: &Grant, body: &[u8]) -> Result<String, Denial> {
    let mut members = if body.iter().all(u8::is_ascii_whitespace) {
        Members::empty()
    } else {
        Members::parse(body).ok_or(Denial::Malformed("the body must be a JSON object with each key once"))?
    };
    if let Some(image) = &grant.image {
        members.set("image", quoted(image));
    }
    let (policy, ceilings) = (&shared.policy, &grant.ceilings);
    for (name, wrong, ceiling, default) in [
        (
            "idle_timeout_seconds",
            "`idle_timeout_seconds` must be a whole number",
            ceilings.idle_timeout_seconds_max,
            policy.idle_timeout_seconds_default,
        ),
        (
            "max_lifetime_seconds",
            "`max_lifetime_seconds` must be a whole number",
            ceilings.max_lifetime_seconds_max,
            policy.max_lifetime_seconds_default,
        ),
    ] {
        let Some(ceiling) = ceiling else { continue };
        let asked = members.seconds(name).map_err(|()| Denial::Malformed(wrong))?;
        let seconds = asked.unwrap_or(default).min(u64::from(ceiling));
        if asked != Some(seconds) {
            members.set(name, seconds.to_string());
        }
    }
    Ok(members.write())
}

async fn lease(shared: &Shared, asked: &Asked, hints: &str, meter: Meter) -> Result<Tried, Denial> {
    let done = try_backends(shared, asked, hints).await;
    meter.end(|record| match &done {
        Ok(Tried::Leased(leased)) => {
            record.backend = Some(leased.place.backend.clone());
            record.session = Some(leased.place.session.clone());
            record.status = Some(leased.handle.status().as_u16().into());
            record.outcome = Outcome::Ok;
        }
        Ok(Tried::Refused(refused)) => {
            record.status = Some(refused.status().as_u16().into());
            record.outcome = Outcome::Refused;
        }
        Err(denial) => {
            record.status = Some(denial.status().as_u16().into());
            record.outcome = outcome_of(denial);
        }
    });
    done
}

/// One backend after the other, as long as it is certain that none leased.
async fn try_backends(shared: &Shared, asked: &Asked, hints: &str) -> Result<Tried, Denial> {
    let mut retry_after: Option<u32> = None;
    for backend in shared.backends.for_lease().into_iter().take(LEASE_TRIES_MAX) {
        let deadline = within(ANSWER_WAIT);
        let mut request = shared.request(asked, &backend, "/sessions", false, Body::from(hints.to_owned()))?;
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let answer = match shared.upstream.send(request, deadline).await {
            Ok(answer) => answer,
            Err(SendError::Unreachable(_)) => {
                backend.unreachable();
                continue;
            }
            Err(error) => return Err(relay::unsent(error, &backend)),
        };
        match answer.status() {
            StatusCode::CREATED => {
                let (passed, held) = relay::whole(shared, answer, HANDLE_BYTES_MAX, deadline).await?;
                let mut leased = taken(shared, asked, &backend, &held.bytes).await?;
                backend.leased();
                leased.handle.headers_mut().extend(passed);
                return Ok(Tried::Leased(leased));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                let told = headers::retry_after(answer.headers());
                retry_after = match (retry_after, told) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                };
            }
            status if status.is_success() => return Err(Denial::Lie("an unknown status")),
            _ => return relay::refusal(shared, answer, deadline).await.map(Tried::Refused),
        }
    }
    Err(Denial::NoBackend(retry_after))
}

/// A handle, held against the grant, with the id that the client gets.
async fn taken(shared: &Shared, asked: &Asked, backend: &Backend, handle: &[u8]) -> Result<Leased, Denial> {
    let mut members = Members::parse(handle).ok_or(Denial::Lie("it is no handle"))?;
    let session = members.text("session_id").filter(|id| is_backend_session(id));
    let session = session.ok_or(Denial::Lie("it has no usable session id"))?;
    let place = Place { backend: backend.name.clone(), session };
    let ceilings = &asked.grant.ceilings;
    for (name, ceiling) in [
        ("idle_timeout_seconds", ceilings.idle_timeout_seconds_max),
        ("max_lifetime_seconds", ceilings.max_lifetime_seconds_max),
    ] {
        let held = ceiling
            .is_none_or(|ceiling| matches!(members.seconds(name), Ok(Some(seconds)) if seconds <= u64::from(ceiling)));
        if !held {
            destroy(shared, asked, &place).await;
            return Err(Denial::Lie("the session does not keep to the grant's ceilings"));
        }
    }
    let id = shared.id_keys.seal(&asked.grant.workspace, &place);
    let id = id.ok_or(Denial::House("the session's id cannot be made"))?;
    members.set("session_id", quoted(&id));
    let handle = crate::answer::json(StatusCode::CREATED, members.write());
    Ok(Leased { place, handle })
}

/// Releases a session that nobody will use. What becomes of it is the backend's: an unused session expires.
async fn destroy(shared: &Shared, asked: &Asked, place: &Place) {
    let Some(backend) = shared.backends.backend(&place.backend) else { return };
    let Some(uri) = backend.url.join(&format!("/sessions/{}", place.session)) else { return };
    let mut request = Request::new(Body::empty());
    (*request.method_mut(), *request.uri_mut()) = (Method::DELETE, uri);
    headers::tenancy(request.headers_mut(), &asked.grant, shared.proof.as_ref());
    if let Err(error) = shared.upstream.send(request, within(ANSWER_WAIT)).await {
        tracing::warn!(backend = backend.name, %error, "a session that nobody will use could not be released");
    }
}

#[derive(Deserialize)]
struct Count {
    session_count: u64,
}

/// Where there are several backends, each knows its own sessions of a workspace alone: they are asked. With one, its
/// own check of the ceiling (which it is told) is exact.
async fn within_sessions_max(shared: &Arc<Shared>, asked: &Asked) -> Result<(), Denial> {
    let Some(ceiling) = asked.grant.ceilings.sessions_max else { return Ok(()) };
    let backends: Vec<_> = shared.backends.all().into_iter().filter(|backend| backend.is_up()).collect();
    if backends.len() < 2 {
        return Ok(());
    }
    let mut asking = tokio::task::JoinSet::new();
    for backend in backends {
        let (shared, grant) = (Arc::clone(shared), Arc::clone(&asked.grant));
        asking.spawn(async move { count(&shared, &grant, &backend).await.unwrap_or(0) });
    }
    let mut sessions = 0_u64;
    while let Some(counted) = asking.join_next().await {
        sessions = sessions.saturating_add(counted.unwrap_or(0));
    }
    if sessions >= u64::from(ceiling) { Err(Denial::SessionsMax) } else { Ok(()) }
}

/// How many sessions the workspace has there; `None` where the backend does not tell.
async fn count(shared: &Shared, grant: &Grant, backend: &Backend) -> Option<u64> {
    let deadline = within(COUNT_WAIT);
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = backend.url.join("/tenancy")?;
    headers::tenancy(request.headers_mut(), grant, shared.proof.as_ref());
    let answer = shared.upstream.send(request, deadline).await.ok()?;
    if answer.status() != StatusCode::OK {
        return None;
    }
    let (_, held) = relay::whole(shared, answer, HANDLE_BYTES_MAX, deadline).await.ok()?;
    serde_json::from_slice::<Object<Count>>(&held.bytes).ok().map(|Object(count)| count.session_count)
}
