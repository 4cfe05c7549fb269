//! What comes back from a backend and is no success: passed on where the contract has it, else an error of the gate.

use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode};
use tokio::time::Instant;

use crate::answer::{Denial, detail, json};
use crate::backends::Backend;
use crate::body::{Body, BodyError, Stream};
use crate::headers;
use crate::limits::ERROR_BYTES_MAX;
use crate::shared::Shared;
use crate::upstream::SendError;

/// The statuses of refusals that are the caller's business.
const PASSED: [StatusCode; 14] = [
    StatusCode::BAD_REQUEST,
    StatusCode::FORBIDDEN,
    StatusCode::NOT_FOUND,
    StatusCode::METHOD_NOT_ALLOWED,
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::CONFLICT,
    StatusCode::LENGTH_REQUIRED,
    StatusCode::PRECONDITION_FAILED,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
    StatusCode::RANGE_NOT_SATISFIABLE,
    StatusCode::UNPROCESSABLE_ENTITY,
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::SERVICE_UNAVAILABLE,
];

/// Why a request got no answer.
pub(crate) fn unsent(error: SendError, backend: &Backend) -> Denial {
    match error {
        SendError::Unreachable(_) => {
            backend.unreachable();
            Denial::Unreachable
        }
        SendError::Late => Denial::Broken("did not answer in time"),
        SendError::Broken(error) => match of_client(&error) {
            Some(denial) => denial,
            None => Denial::Broken("broke the connection"),
        },
    }
}

/// Whether a request failed because the client's body did not come.
fn of_client(error: &(dyn std::error::Error + 'static)) -> Option<Denial> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(body) = error.downcast_ref::<BodyError>() {
            return Some(match body {
                BodyError::Slow => Denial::Body(BodyError::Slow),
                _ => Denial::Ambiguous("the body broke off"),
            });
        }
        cause = error.source();
    }
    None
}

/// An answer whose status is no success of the operation.
pub(crate) async fn refusal(
    shared: &Shared,
    answer: Response<Incoming>,
    deadline: Instant,
) -> Result<Response<Body>, Denial> {
    let (parts, body) = answer.into_parts();
    if matches!(parts.status, StatusCode::UNAUTHORIZED | StatusCode::PROXY_AUTHENTICATION_REQUIRED) {
        // The client's grant was good: it is the gate's own proof that the backend does not take.
        tracing::error!("a backend does not accept this gate's proof");
        return Err(Denial::Lie("it does not accept this gate"));
    }
    if !PASSED.contains(&parts.status) {
        return Err(match parts.status {
            status if status.is_server_error() => Denial::Broken("failed"),
            _ => Denial::Lie("an unknown status"),
        });
    }
    let text = match shared.room.collect(Stream::of_backend(body, None), ERROR_BYTES_MAX, deadline).await {
        Ok(held) if is_json(&parts.headers) => String::from_utf8(held.bytes.to_vec()).ok(),
        // The status is known, whatever became of its explanation.
        _ => None,
    };
    let text = text.filter(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok());
    let mut refused = json(parts.status, text.unwrap_or_else(|| detail("the backend refused")));
    for name in [header::ALLOW, header::CONTENT_RANGE] {
        if let Some(value) = parts.headers.get(&name) {
            refused.headers_mut().insert(name, value.clone());
        }
    }
    if parts.status == StatusCode::SERVICE_UNAVAILABLE || parts.status == StatusCode::TOO_MANY_REQUESTS {
        let seconds = headers::retry_after(&parts.headers).unwrap_or(1);
        refused.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    Ok(refused)
}

/// Whether an answer says that it is JSON, and is not packed.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("application/json") && !headers.contains_key(header::CONTENT_ENCODING)
}

/// Whether the end of a body can be told from a connection that broke: by its length or its chunks.
pub(crate) fn is_delimited(answer: &Response<Incoming>) -> bool {
    answer.body().size_hint().exact().is_some() || answer.headers().contains_key(header::TRANSFER_ENCODING)
}

/// Reads the body of an answer of JSON whole.
pub(crate) async fn whole(
    shared: &Shared,
    answer: Response<Incoming>,
    bytes_max: usize,
    deadline: Instant,
) -> Result<(HeaderMap, crate::body::Held), Denial> {
    if !is_json(answer.headers()) {
        return Err(Denial::Lie("it is no JSON"));
    }
    if !is_delimited(&answer) {
        return Err(Denial::Lie("its end cannot be told"));
    }
    let (parts, body) = answer.into_parts();
    let held = shared.room.collect(Stream::of_backend(body, None), bytes_max, deadline).await;
    let held = held.map_err(|error| match error {
        BodyError::Broken(_) => Denial::Broken("cut its answer off"),
        BodyError::Slow => Denial::Broken("did not finish its answer in time"),
        BodyError::TooLarge { .. } => Denial::Lie("it is larger than an answer may be"),
        BodyError::NoRoom => Denial::Broken("answered more than the gate can hold now"),
    })?;
    Ok((headers::to_client(&parts.headers), held))
}
