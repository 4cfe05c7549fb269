//! `POST /sessions`

use std::time::Duration;

use ringfence_op::Tenant;
use ringfence_wire::{CreateSessionRequest, Error, SessionHandle};

use crate::backend::{Backend, Lease};
use crate::dispatch::{App, Asked};
use crate::refusal::Refusal;
use crate::render::Reply;

/// Lease a session
///
/// Hints are accepted or clamped to the server's ceilings; the handle reports what is in force.
#[utoipa::path(
    post, path = "/sessions", operation_id = "CreateSession", tag = "sessions",
    request_body(content = Option<CreateSessionRequest>, description = "Hints, all optional; an empty body is `{}`."),
    responses(
        (status = 201, body = SessionHandle, description = "Session leased."),
        (status = 413, body = Error<'static>, description = "The body is too large."),
        (status = 422, body = Error<'static>, description = "A hint is malformed."),
        (status = 503, body = Error<'static>, description = "At capacity, or shutting down; no session leased.",
            headers(("Retry-After" = u32, description = "Whole seconds after which it may be tried again."))),
    ),
)]
pub(crate) async fn handle<B: Backend>(
    app: &App<B>,
    tenant: Option<Tenant>,
    asked: Asked<'_>,
) -> Result<Reply, Refusal> {
    let hints = CreateSessionRequest::parse(&asked.body.whole().await?)?;
    let lease = Lease {
        image: hints.image,
        idle: hints.idle_timeout_seconds.map(Duration::from_secs),
        lifetime: hints.max_lifetime_seconds.map(Duration::from_secs),
        tenant,
    };
    Ok(Reply::Created(app.backend.create(lease).await?))
}
