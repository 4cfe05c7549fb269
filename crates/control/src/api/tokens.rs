//! Tokens of gateways, their users, and front doors.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::auth::Admin;
use super::extract::{Asked, Body, Name};
use super::fault::{ErrorBody, Fault, uncached};
use super::workspaces::PageQuery;
use super::{Done, Shared, check_name, next, page};
use crate::limits::TOKEN_WORKSPACES_MAX;
use crate::random;
use crate::store::{NewToken, TokenRow};
use crate::token::{Fresh, Kind};

/// A token to be made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenRequest {
    kind: Kind,
    /// For people.
    name: String,
    /// `gateway`: the workspaces that it may name, every one unless given. `user`: exactly one. `gate`: none is given.
    #[schema(max_items = 256)]
    workspaces: Option<Vec<String>>,
}

/// A token, without its secret.
#[derive(Serialize, ToSchema)]
pub(crate) struct TokenView {
    id: String,
    kind: Kind,
    name: String,
    /// How its text begins.
    prefix: String,
    /// The workspaces that it may name; null is every one.
    workspaces: Option<Vec<String>>,
    /// POSIX milliseconds.
    created_ms: u64,
    /// POSIX milliseconds; null while it is accepted.
    revoked_ms: Option<u64>,
}

/// A token that was just made.
#[derive(Serialize, ToSchema)]
pub(crate) struct MadeToken {
    /// The secret. It is shown this once: only its hash is kept.
    token: String,
    #[serde(flatten)]
    view: TokenView,
}

/// A page of tokens, in the order of their ids.
#[derive(Serialize, ToSchema)]
pub(crate) struct TokenPage {
    tokens: Vec<TokenView>,
    /// `after` of the next page; null where there is none.
    next: Option<String>,
}

impl From<TokenRow> for TokenView {
    fn from(row: TokenRow) -> Self {
        let TokenRow { id, kind, name, prefix, workspaces, created_ms, revoked_ms } = row;
        TokenView { id, kind, name, prefix, workspaces, created_ms, revoked_ms }
    }
}

/// Makes a token, and shows it once.
#[utoipa::path(post, path = "/v1/tokens", tag = "tokens", request_body = TokenRequest, responses(
    (status = 201, body = MadeToken),
    (status = 401, body = ErrorBody),
    (status = 404, body = ErrorBody, description = "It names a workspace that is not there"),
    (status = 422, body = ErrorBody),
))]
pub(crate) async fn create(State(app): State<Shared>, _: Admin, Body(asked): Body<TokenRequest>) -> Done<Response> {
    check_name(&asked.name)?;
    let named = asked.workspaces.as_ref().map(Vec::len);
    let wrong = match (asked.kind, named) {
        (Kind::Gateway, None) | (Kind::User, Some(1)) | (Kind::Gate, None) => None,
        (Kind::Gateway, Some(count)) if (1..=TOKEN_WORKSPACES_MAX).contains(&count) => None,
        (Kind::Gateway, _) => Some("`workspaces` of a gateway must be 1 to 256 ids, or absent for every workspace"),
        (Kind::User, _) => Some("`workspaces` of a user must be one id"),
        (Kind::Gate, _) => Some("`workspaces` of a front door must be absent"),
    };
    if let Some(wrong) = wrong {
        return Err(Fault::Body(wrong.to_owned()));
    }
    for workspace in asked.workspaces.iter().flatten() {
        app.store.workspace(workspace).await?.ok_or(Fault::NotFound("it names a workspace that is not there"))?;
    }
    let (id, fresh) = (random::id("tok_")?, Fresh::new(asked.kind)?);
    let new = NewToken {
        id: &id,
        kind: asked.kind,
        name: &asked.name,
        workspaces: asked.workspaces.as_deref(),
        fresh: &fresh,
        now_ms: app.now_ms(),
    };
    let row = app.store.create_token(&new).await?;
    let made = MadeToken { token: fresh.text.as_str().to_owned(), view: row.into() };
    Ok(uncached((StatusCode::CREATED, Json(made)).into_response()))
}

/// Lists tokens, revoked ones included.
#[utoipa::path(get, path = "/v1/tokens", tag = "tokens", params(PageQuery), responses(
    (status = 200, body = TokenPage),
    (status = 400, body = ErrorBody),
    (status = 401, body = ErrorBody),
))]
pub(crate) async fn list(State(app): State<Shared>, _: Admin, Asked(asked): Asked<PageQuery>) -> Done<Response> {
    let (after, limit) = asked.parts();
    let page = page(after, limit)?;
    let tokens: Vec<_> = app.store.tokens(&page).await?.into_iter().map(TokenView::from).collect();
    let next = next(&tokens, page.limit, |token| token.id.clone());
    Ok(uncached(Json(TokenPage { tokens, next }).into_response()))
}

/// Revokes a token: it is refused from the next request on.
#[utoipa::path(delete, path = "/v1/tokens/{id}", tag = "tokens", params(("id" = String, Path)), responses(
    (status = 204),
    (status = 401, body = ErrorBody),
    (status = 404, body = ErrorBody, description = "There is none, or it is revoked already"),
))]
pub(crate) async fn revoke(State(app): State<Shared>, _: Admin, Name(id): Name) -> Done<StatusCode> {
    let done = app.store.revoke_token(&id, app.now_ms()).await?;
    if done { Ok(StatusCode::NO_CONTENT) } else { Err(Fault::NotFound("there is no such token")) }
}
