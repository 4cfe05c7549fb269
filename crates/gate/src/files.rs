//! Operations on files: passed on as they come, both ways.

use std::sync::Arc;

use hyper::header;
use hyper::{Method, Response, StatusCode};

use crate::answer::Denial;
use crate::body::{Body, Stream, within};
use crate::headers;
use crate::limits::ANSWER_WAIT;
use crate::relay;
use crate::shared::{Asked, Shared};

/// What of a session is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// `files`.
    Files,
    /// `files/list`.
    List,
    /// `archive`.
    Archive,
}

impl Part {
    fn path(self) -> &'static str {
        match self {
            Part::Files => "files",
            Part::List => "files/list",
            Part::Archive => "archive",
        }
    }

    /// Whether a status is a success of this operation.
    fn succeeds(self, method: &Method, status: StatusCode) -> bool {
        let statuses: &[StatusCode] = match (self, method) {
            (Part::Files, &Method::GET | &Method::HEAD) => {
                &[StatusCode::OK, StatusCode::PARTIAL_CONTENT, StatusCode::NOT_MODIFIED]
            }
            (Part::Files, &Method::POST) => &[StatusCode::CREATED],
            (Part::Files, &Method::DELETE) => &[StatusCode::NO_CONTENT],
            (Part::Archive, &Method::POST | &Method::PUT) => {
                &[StatusCode::OK, StatusCode::CREATED, StatusCode::NO_CONTENT]
            }
            _ => &[StatusCode::OK],
        };
        statuses.contains(&status)
    }
}

/// Passes one operation on.
pub(crate) async fn pass(
    shared: &Arc<Shared>,
    asked: Asked,
    id: &str,
    part: Part,
    body: Stream,
) -> Result<Response<Body>, Denial> {
    let (place, backend) = shared.place(&asked.grant, id)?;
    let permit = shared.permit()?;
    let mut path = format!("/sessions/{}/{}", place.session, part.path());
    if let Some(query) = &asked.query {
        path.push('?');
        path.push_str(query);
    }
    let movement = body.movement();
    let sends = matches!(asked.method, Method::POST | Method::PUT);
    // What else has a body has none that means anything: it stays here.
    let body = if sends { Body::Stream(body) } else { Body::empty() };
    let request = shared.request(&asked, &backend, &path, true, body)?;
    let sent = shared.upstream.send_moving(request, &movement).await;
    let answer = sent.map_err(|error| relay::unsent(error, &backend))?;
    if !part.succeeds(&asked.method, answer.status()) {
        if answer.status().is_success() {
            return Err(Denial::Lie("an unknown status"));
        }
        return relay::refusal(shared, answer, within(ANSWER_WAIT)).await;
    }
    let bodiless =
        asked.method == Method::HEAD || matches!(answer.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if !bodiless && !relay::is_delimited(&answer) {
        return Err(Denial::Lie("its end cannot be told"));
    }
    let (parts, body) = answer.into_parts();
    let body = if bodiless { Body::empty() } else { Body::Stream(Stream::of_backend(body, Some(permit))) };
    let mut passed = Response::new(body);
    *passed.status_mut() = parts.status;
    *passed.headers_mut() = headers::to_client(&parts.headers);
    if asked.method == Method::HEAD
        && let Some(length) = parts.headers.get(header::CONTENT_LENGTH)
    {
        passed.headers_mut().insert(header::CONTENT_LENGTH, length.clone());
    }
    Ok(passed)
}
