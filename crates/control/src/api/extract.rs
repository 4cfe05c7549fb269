//! Bodies, queries and names of paths, each refused in the words of all errors.

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::Shared;
use super::fault::Fault;
use crate::limits::{BATCH_BYTES_MAX, BODY_BYTES_MAX, BODY_WAIT};

/// A JSON body of at most [`BODY_BYTES_MAX`].
pub(crate) struct Body<T>(pub(crate) T);

/// A JSON body of at most [`BATCH_BYTES_MAX`].
pub(crate) struct Delivery<T>(pub(crate) T);

/// The query, of which no part may be unknown.
pub(crate) struct Asked<T>(pub(crate) T);

/// The one name in the path.
pub(crate) struct Name(pub(crate) String);

impl<T: DeserializeOwned> FromRequest<Shared> for Body<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &Shared) -> Result<Self, Fault> {
        read(request, BODY_BYTES_MAX).await.map(Body)
    }
}

impl<T: DeserializeOwned> FromRequest<Shared> for Delivery<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &Shared) -> Result<Self, Fault> {
        read(request, BATCH_BYTES_MAX).await.map(Delivery)
    }
}

async fn read<T: DeserializeOwned>(request: Request, bytes_max: usize) -> Result<T, Fault> {
    if !is_json(request.headers()) {
        return Err(Fault::MediaType);
    }
    let declared = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if declared.is_some_and(|bytes: u64| bytes > bytes_max as u64) {
        return Err(Fault::TooLarge(bytes_max));
    }
    let body = timeout(BODY_WAIT, Limited::new(request.into_body(), bytes_max).collect());
    let body = body.await.map_err(|_| Fault::Slow)?.map_err(|error| match error.is::<LengthLimitError>() {
        true => Fault::TooLarge(bytes_max),
        false => Fault::Query("the body broke off".to_owned()),
    })?;
    let body = body.to_bytes();
    // A list in the order of the members would pass for an object.
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(Fault::Body("the body must be a JSON object".to_owned()));
    }
    serde_json::from_slice(&body).map_err(|error| Fault::Body(error.to_string()))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|value| value.split(';').next()).unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

impl<T: DeserializeOwned> FromRequestParts<Shared> for Asked<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, Fault> {
        let query = Query::<T>::try_from_uri(&parts.uri);
        query.map(|Query(asked)| Asked(asked)).map_err(|rejection| Fault::Query(rejection.body_text()))
    }
}

impl FromRequestParts<Shared> for Name {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, Fault> {
        let path = Path::<String>::from_request_parts(parts, app).await;
        path.map(|Path(name)| Name(name)).map_err(|_| Fault::NotFound("there is nothing of that name"))
    }
}
