//! What a refused request is answered with: the one place that chooses statuses of errors.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::ControlError;
use crate::limits::{DETAIL_CHARS_MAX, RETRY_AFTER_SECONDS};

/// The body of every error.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    /// What is wrong, for a person.
    pub(crate) detail: String,
}

/// The body of an error with that text, cut to its bound.
pub(crate) fn detail(text: &str) -> Json<ErrorBody> {
    Json(ErrorBody { detail: text.chars().take(DETAIL_CHARS_MAX).collect() })
}

/// Why a request is not carried out.
#[derive(Debug)]
pub(crate) enum Fault {
    /// 400: query or headers are not of their form.
    Query(String),
    /// 401: no credential, or one that is not known here.
    Unauthenticated,
    /// 403: known, and not allowed.
    Forbidden(String),
    /// 404.
    NotFound(&'static str),
    /// 408: the body did not come in time.
    Slow,
    /// 409.
    Conflict(String),
    /// 413.
    TooLarge(usize),
    /// 415: the body is no JSON.
    MediaType,
    /// 422: the body is not of its form.
    Body(String),
    /// 503 where it may pass, else 500.
    House(ControlError),
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let (status, text) = match &self {
            Fault::Query(text) => (StatusCode::BAD_REQUEST, text.clone()),
            Fault::Unauthenticated => {
                (StatusCode::UNAUTHORIZED, "a credential is missing or not accepted here".to_owned())
            }
            Fault::Forbidden(text) => (StatusCode::FORBIDDEN, text.clone()),
            Fault::NotFound(text) => (StatusCode::NOT_FOUND, (*text).to_owned()),
            Fault::Slow => (StatusCode::REQUEST_TIMEOUT, "the body did not come in time".to_owned()),
            Fault::Conflict(text) => (StatusCode::CONFLICT, text.clone()),
            Fault::TooLarge(bytes_max) => {
                (StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {bytes_max} bytes"))
            }
            Fault::MediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be application/json".to_owned()),
            Fault::Body(text) => (StatusCode::UNPROCESSABLE_ENTITY, text.clone()),
            Fault::House(error) => house(error),
        };
        let mut answer = (status, detail(&text)).into_response();
        let headers = answer.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"ringfence-control\""));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
        }
        if matches!(status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT) {
            // What is left of the body is not read.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        uncached(answer)
    }
}

fn house(error: &ControlError) -> (StatusCode, String) {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    tracing::error!(%error, cause, "a request failed");
    match error {
        ControlError::NoKey => (StatusCode::SERVICE_UNAVAILABLE, "there is no key to sign with".to_owned()),
        error if error.is_passing() => (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer now".to_owned()),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "the control plane failed; its log says why".to_owned()),
    }
}

/// Nothing that the API says is kept by anyone on the way.
pub(crate) fn uncached(mut answer: Response) -> Response {
    const NOSNIFF: HeaderName = HeaderName::from_static("x-content-type-options");
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer.headers_mut().insert(NOSNIFF, HeaderValue::from_static("nosniff"));
    answer
}
