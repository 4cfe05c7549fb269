//! The resolve call of Otari's hybrid mode: a gateway's token and a user's token name a workspace, whose policy is the
//! answer. What of it is known, and from where, is in `docs/control.md`.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::auth::{once, token};
use super::extract::Body;
use super::fault::{ErrorBody, Fault, uncached};
use super::grants::may_name;
use super::{Done, Shared};
use crate::token::Kind;

const GATEWAY: HeaderName = HeaderName::from_static("x-gateway-token");
const USER: HeaderName = HeaderName::from_static("x-user-token");

/// An empty object. Members are ignored, since the call is not ours to define.
#[derive(Deserialize, ToSchema)]
pub(crate) struct ResolveRequest {}

/// A workspace's policy in the words of the call.
#[derive(Serialize, ToSchema)]
pub(crate) struct ResolveAnswer {
    enabled: bool,
    tools: Vec<String>,
    /// What the tool is for where the request does not say.
    default_purpose_hint: Option<String>,
    /// The most rounds of the tool loop.
    max_iterations: Option<u32>,
    /// The longest timeout of a call, seconds.
    exec_timeout_s: Option<u32>,
}

/// Resolves the policy of a user's workspace.
#[utoipa::path(post, path = "/api/v1/gateway/code-execution/resolve", tag = "grants", security(()),
    request_body = ResolveRequest,
    params(
        ("X-Gateway-Token" = String, Header, description = "A token of kind `gateway`"),
        ("X-User-Token" = String, Header, description = "A token of kind `user`"),
    ),
    responses(
        (status = 200, body = ResolveAnswer, description = "Also where code execution is not enabled"),
        (status = 401, body = ErrorBody, description = "One of the tokens is missing or not accepted"),
        (status = 404, body = ErrorBody, description = "The workspace is gone, or the gateway may not name it"),
    ),
)]
pub(crate) async fn resolve(
    State(app): State<Shared>,
    headers: HeaderMap,
    Body(_): Body<ResolveRequest>,
) -> Done<Response> {
    let gateway = token(&app, once(&headers, &GATEWAY)?, Kind::Gateway).await?;
    let user = token(&app, once(&headers, &USER)?, Kind::User).await?;
    let named = user.workspaces.as_deref().and_then(<[String]>::first);
    let workspace = match named.filter(|id| may_name(&gateway, id)) {
        Some(id) => app.store.workspace(id).await?,
        None => None,
    };
    let policy = workspace.ok_or(Fault::NotFound("there is no such workspace"))?.policy;
    let answer = ResolveAnswer {
        enabled: policy.enabled,
        tools: policy.tools,
        default_purpose_hint: policy.purpose_hint,
        max_iterations: policy.iterations_max,
        exec_timeout_s: policy.timeout_seconds_max,
    };
    Ok(uncached(Json(answer).into_response()))
}
