//! Signs of life, and the document.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::fault::{ErrorBody, uncached};
use super::{Done, Shared, openapi};

/// That it lives.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`.
    status: &'static str,
}

/// Whether the process lives. It asks nothing of the database.
#[utoipa::path(get, path = "/health", tag = "status", security(()), responses((status = 200, body = Health)))]
pub(crate) async fn health() -> Response {
    uncached(Json(Health { status: "ok" }).into_response())
}

/// Whether grants can be made: the database answers, and a key signs.
#[utoipa::path(get, path = "/ready", tag = "status", security(()), responses(
    (status = 200, body = Health),
    (status = 503, body = ErrorBody, description = "No database, or no key that signs"),
))]
pub(crate) async fn ready(State(app): State<Shared>) -> Done<Response> {
    app.store.ping().await?;
    app.keyring.signer(&app.store.keys().await?, app.now_ms())?;
    Ok(uncached((StatusCode::OK, Json(Health { status: "ok" })).into_response()))
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "status", security(()), responses((status = 200)))]
pub(crate) async fn document() -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], openapi::served()).into_response()
}
