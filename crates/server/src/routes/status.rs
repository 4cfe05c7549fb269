//! `GET /health`, `GET /ready`, `GET /openapi.json` and `GET /metrics`.

use ringfence_wire::{Error, Health, Ready};

use crate::backend::Backend;
use crate::dispatch::App;
use crate::openapi;
use crate::refusal::Refusal;
use crate::render::Reply;

/// How the server is
///
/// Answered without a credential, as long as the server lives.
#[utoipa::path(
    get, path = "/health", operation_id = "Health", tag = "server", security(()),
    responses((status = 200, body = Health<'static>, description = "The server lives.")),
)]
pub(crate) fn health<B: Backend>(app: &App<B>) -> Reply {
    Reply::Health(app.backend.counts())
}

/// Whether leases are taken
///
/// Answered without a credential.
#[utoipa::path(
    get, path = "/ready", operation_id = "Ready", tag = "server", security(()),
    responses(
        (status = 200, body = Ready<'static>, description = "Leases are taken."),
        (status = 503, body = Error<'static>, description = "Shutting down, or short of memory."),
    ),
)]
pub(crate) fn ready<B: Backend>(app: &App<B>) -> Result<Reply, Refusal> {
    app.backend.ready().map(|()| Reply::Ready).map_err(Refusal::Fault)
}

/// This document
#[utoipa::path(
    get, path = "/openapi.json", operation_id = "OpenApi", tag = "server",
    responses((status = 200, body = Object, description = "The OpenAPI document.")),
)]
pub(crate) fn openapi() -> Reply {
    Reply::OpenApi(openapi::served())
}

/// Counters
#[utoipa::path(
    get, path = "/metrics", operation_id = "Metrics", tag = "server",
    responses((status = 200, body = String, content_type = "text/plain", description = "In Prometheus' text format.")),
)]
pub(crate) fn metrics<B: Backend>(app: &App<B>) -> Reply {
    Reply::Metrics(app.metrics.exposition(&app.backend.counts()))
}
