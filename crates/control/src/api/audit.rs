//! The audit, for the admin.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::auth::Admin;
use super::extract::Asked;
use super::fault::{ErrorBody, uncached};
use super::{Done, Shared, page};
use crate::store::Line;

/// Which lines.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditQuery {
    /// Lines after the one of this id.
    after: Option<i64>,
    /// 1 to 1000; 100 unless given.
    limit: Option<u32>,
    /// Lines of this workspace alone.
    workspace: Option<String>,
}

/// Lines of the audit, the oldest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct AuditPage {
    lines: Vec<Line>,
}

/// Lists lines of the audit: every change and every grant. The next page is after the last line's id.
#[utoipa::path(get, path = "/v1/audit", tag = "audit", params(AuditQuery), responses(
    (status = 200, body = AuditPage),
    (status = 400, body = ErrorBody),
    (status = 401, body = ErrorBody),
))]
pub(crate) async fn list(State(app): State<Shared>, _: Admin, Asked(asked): Asked<AuditQuery>) -> Done<Response> {
    let limit = page(None, asked.limit)?.limit;
    let lines = app.store.audit(asked.after.unwrap_or(0), limit, asked.workspace.as_deref()).await?;
    Ok(uncached(Json(AuditPage { lines }).into_response()))
}
