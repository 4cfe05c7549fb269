//! Grants: a gateway names a workspace, and gets its policy and a grant.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ringfence_grant::{Grant, GrantId, Tools};
use ringfence_op::WorkspaceId;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::auth::Gateway;
use super::extract::Body;
use super::fault::{ErrorBody, Fault, uncached};
use super::{App, Done, Shared};
use crate::error::ControlError;
use crate::policy::Policy;
use crate::store::{self, NewLine, TokenRow, Workspace};

/// What a gateway asks for.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrantRequest {
    /// The workspace's id.
    workspace: String,
    /// The front door; the first of the configured ones unless given.
    audience: Option<String>,
    /// Fewer tools than the policy allows, where given.
    tools: Option<Vec<String>>,
    /// A shorter life than the control plane's, where given.
    #[schema(minimum = 1)]
    lifetime_seconds: Option<u64>,
}

/// A grant, and the policy that it was made from.
#[derive(Serialize, ToSchema)]
pub(crate) struct GrantAnswer {
    /// The signed grant: a bearer token for the front door. It is kept nowhere here.
    grant: String,
    /// Its id (`jti`), for logs.
    grant_id: String,
    /// POSIX seconds.
    expires_at: u64,
    workspace: String,
    audience: String,
    policy: Policy,
}

/// Makes a grant.
#[utoipa::path(post, path = "/v1/grants", tag = "grants", request_body = GrantRequest, responses(
    (status = 201, body = GrantAnswer),
    (status = 401, body = ErrorBody, description = "No token of a gateway"),
    (status = 403, body = ErrorBody, description = "The policy forbids it"),
    (status = 404, body = ErrorBody, description = "No such workspace, or none that this gateway may name"),
    (status = 422, body = ErrorBody),
    (status = 503, body = ErrorBody, description = "No key signs, or the database does not answer"),
))]
pub(crate) async fn make(
    State(app): State<Shared>,
    Gateway(gateway): Gateway,
    Body(asked): Body<GrantRequest>,
) -> Done<Response> {
    let audience = match &asked.audience {
        None => app.audiences.first(),
        Some(named) => app.audiences.iter().find(|audience| *audience == named),
    };
    let audience =
        audience.ok_or_else(|| Fault::Body("`audience` is no front door of this control plane".to_owned()))?;
    if asked.lifetime_seconds == Some(0) {
        return Err(Fault::Body("`lifetime_seconds` must be 1 or more".to_owned()));
    }
    if !may_name(&gateway, &asked.workspace) {
        return Err(Fault::NotFound(MISSING));
    }
    let answer = sign(&app, &gateway, &asked, audience).await?;
    Ok(uncached((StatusCode::CREATED, Json(answer)).into_response()))
}

const MISSING: &str = "there is no such workspace";

/// Whether a gateway may name a workspace at all. One that it may not name does not exist for it.
pub(crate) fn may_name(gateway: &TokenRow, workspace: &str) -> bool {
    gateway.workspaces.as_ref().is_none_or(|list| list.iter().any(|one| one == workspace))
}

/// The tools of the grant: what the policy allows, or the part of it that was asked for.
fn allowed(workspace: &Workspace, asked: Option<&[String]>) -> Result<Tools, Fault> {
    let policy = &workspace.policy;
    if !policy.enabled {
        return Err(Fault::Forbidden("code execution is not enabled for this workspace".to_owned()));
    }
    let of_policy = policy.tools().ok_or(ControlError::Row("policy"))?;
    let Some(asked) = asked else { return Ok(of_policy) };
    let wrong = || Fault::Body("`tools` must be 1 to 16 names of tools, each once".to_owned());
    let tools = Tools::new(asked.iter().map(String::as_str)).ok_or_else(wrong)?;
    if let Some(name) = tools.names().find(|name| !of_policy.allow(name)) {
        return Err(Fault::Forbidden(format!("the workspace's policy does not allow `{name}`")));
    }
    Ok(tools)
}

/// Reads the policy, signs a grant and writes it down, in one transaction.
async fn sign(app: &App, gateway: &TokenRow, asked: &GrantRequest, audience: &str) -> Result<GrantAnswer, Fault> {
    let now_ms = app.now_ms();
    let issued_at = now_ms / 1000;
    let lifetime = asked.lifetime_seconds.unwrap_or(u64::MAX).min(app.grant_seconds_max);
    let mut transaction = app.store.write().await?;
    let workspace = store::workspace_in(&mut transaction, &asked.workspace).await?.ok_or(Fault::NotFound(MISSING))?;
    let grant = Grant {
        issuer: app.issuer.clone(),
        audience: audience.to_owned(),
        workspace: WorkspaceId::parse(&workspace.id).ok_or(ControlError::Row("workspace"))?,
        id: GrantId::random().map_err(ControlError::Grant)?,
        issued_at,
        not_before: issued_at,
        expires_at: issued_at.saturating_add(lifetime),
        tools: allowed(&workspace, asked.tools.as_deref())?,
        image: workspace.policy.image.clone(),
        ceilings: workspace.policy.ceilings(),
    };
    let key = app.keyring.signer(&store::keys_in(&mut transaction).await?, now_ms)?;
    let token = grant.sign(&key).map_err(ControlError::Grant)?;
    let kid = key.public().key_id();
    store::signs_until(&mut transaction, kid, grant.expires_at.saturating_mul(1000)).await?;
    let line = NewLine {
        at_ms: now_ms,
        actor: &gateway.id,
        action: "grant.made",
        workspace: Some(&workspace.id),
        subject: grant.id.as_str(),
        detail: json!({"kid": kid, "expires_at": grant.expires_at, "policy_version": workspace.version}),
    };
    store::write_audit(&mut transaction, line).await?;
    store::commit(transaction).await?;
    Ok(GrantAnswer {
        grant: token.expose().to_owned(),
        grant_id: grant.id.as_str().to_owned(),
        expires_at: grant.expires_at,
        workspace: workspace.id,
        audience: grant.audience,
        policy: workspace.policy,
    })
}
