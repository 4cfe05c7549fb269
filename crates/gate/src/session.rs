//! The handle of a session, the interrupt of its running call, and its release.

use std::sync::Arc;

use hyper::{Method, Response, StatusCode};

use crate::answer::{Denial, json};
use crate::body::{Body, within};
use crate::limits::{ANSWER_WAIT, HANDLE_BYTES_MAX};
use crate::members::{Members, quoted};
use crate::relay;
use crate::shared::{Asked, Shared};

/// GET: the handle, with the id that the client knows. DELETE: the release.
pub(crate) async fn session(shared: &Arc<Shared>, asked: Asked, id: &str) -> Result<Response<Body>, Denial> {
    let (place, backend) = shared.place(&asked.grant, id)?;
    let _permit = shared.permit()?;
    let deadline = within(ANSWER_WAIT);
    let request = shared.request(&asked, &backend, &format!("/sessions/{}", place.session), false, Body::empty())?;
    let answer = shared.upstream.send(request, deadline).await.map_err(|error| relay::unsent(error, &backend))?;
    match (asked.method, answer.status()) {
        (Method::DELETE, StatusCode::NO_CONTENT) => {
            let mut released = Response::new(Body::empty());
            *released.status_mut() = StatusCode::NO_CONTENT;
            Ok(released)
        }
        (Method::GET, StatusCode::OK) => {
            let (passed, held) = relay::whole(shared, answer, HANDLE_BYTES_MAX, deadline).await?;
            let mut members = Members::parse(&held.bytes).ok_or(Denial::Lie("it is no handle"))?;
            if members.text("session_id") != Some(place.session) {
                return Err(Denial::Lie("it is the handle of another session"));
            }
            members.set("session_id", quoted(id));
            let mut handle = json(StatusCode::OK, members.write());
            handle.headers_mut().extend(passed);
            Ok(handle)
        }
        (_, status) if status.is_success() => Err(Denial::Lie("an unknown status")),
        _ => relay::refusal(shared, answer, deadline).await,
    }
}

/// The interrupt of the call that runs: passed on at once, whatever waits in the session.
pub(crate) async fn interrupt(shared: &Arc<Shared>, asked: Asked, id: &str) -> Result<Response<Body>, Denial> {
    let (place, backend) = shared.place(&asked.grant, id)?;
    let _permit = shared.permit()?;
    let deadline = within(ANSWER_WAIT);
    let path = format!("/sessions/{}/interrupt", place.session);
    let request = shared.request(&asked, &backend, &path, false, Body::empty())?;
    let answer = shared.upstream.send(request, deadline).await.map_err(|error| relay::unsent(error, &backend))?;
    match answer.status() {
        StatusCode::OK => {
            let (passed, held) = relay::whole(shared, answer, HANDLE_BYTES_MAX, deadline).await?;
            let members = Members::parse(&held.bytes).ok_or(Denial::Lie("it is no JSON object"))?;
            let mut interrupted = json(StatusCode::OK, members.write());
            interrupted.headers_mut().extend(passed);
            Ok(interrupted)
        }
        status if status.is_success() => Err(Denial::Lie("an unknown status")),
        _ => relay::refusal(shared, answer, deadline).await,
    }
}
