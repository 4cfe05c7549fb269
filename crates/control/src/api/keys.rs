//! Signing keys: published, listed, rotated, revoked.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ringfence_grant::Algorithm;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::auth::Admin;
use super::extract::{Body, Name};
use super::fault::{ErrorBody, Fault, uncached};
use super::{Done, Shared};
use crate::error::ControlError;
use crate::keyring::{Added, Role};
use crate::store::KeyRow;

/// A key to be made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewKey {
    /// `EdDSA` unless given.
    #[serde(default)]
    algorithm: AlgorithmName,
    /// Sign with it at once, as after a leak: grants are refused at each front door until it has fetched the set.
    #[serde(default)]
    at_once: bool,
}

#[derive(Clone, Copy, Default, Deserialize, Serialize, ToSchema)]
pub(crate) enum AlgorithmName {
    #[default]
    #[serde(rename = "EdDSA")]
    EdDsa,
    #[serde(rename = "ES256")]
    Es256,
}

/// What a key does.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyState {
    /// Published, and will sign later.
    Next,
    /// Signs.
    Signing,
    /// Published until the last grant that it signed has ended.
    Old,
    /// Not published any more.
    Ended,
    /// Taken out by the admin.
    Revoked,
}

/// A signing key, without its private part.
#[derive(Serialize, ToSchema)]
pub(crate) struct KeyView {
    kid: String,
    state: KeyState,
    /// POSIX milliseconds.
    created_ms: u64,
    /// From when on it signs, POSIX milliseconds.
    signs_from_ms: u64,
    /// When the last grant that it signed ends, POSIX milliseconds; null before the first.
    grants_end_ms: Option<u64>,
    /// POSIX milliseconds.
    revoked_ms: Option<u64>,
}

/// Every key, in the order in which they sign.
#[derive(Serialize, ToSchema)]
pub(crate) struct KeyList {
    keys: Vec<KeyView>,
}

fn view(row: KeyRow, role: Role) -> KeyView {
    let state = match role {
        Role::Next => KeyState::Next,
        Role::Signing => KeyState::Signing,
        Role::Old => KeyState::Old,
        Role::Ended => KeyState::Ended,
        Role::Revoked => KeyState::Revoked,
    };
    let grants_end_ms = (row.grants_end_ms > 0).then_some(row.grants_end_ms);
    let KeyRow { kid, created_ms, signs_from_ms, revoked_ms, .. } = row;
    KeyView { kid, state, created_ms, signs_from_ms, grants_end_ms, revoked_ms }
}

/// The key set (JWKS) that grants are verified with.
#[utoipa::path(get, path = "/.well-known/jwks.json", tag = "keys", security(()), responses(
    (status = 200, description = "RFC 7517", content_type = "application/jwk-set+json"),
    (status = 503, body = ErrorBody, description = "There is no key yet"),
))]
pub(crate) async fn published(State(app): State<Shared>) -> Done<Response> {
    let document = app.keyring.published(&app.store.keys().await?, app.now_ms())?;
    let document = document.ok_or(Fault::House(ControlError::NoKey))?;
    let kind = HeaderValue::from_static("application/jwk-set+json");
    // Shorter than any lead time, so that a cache does not make a hole.
    let cached = HeaderValue::from_static("public, max-age=15");
    Ok(([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, cached)], document).into_response())
}

/// Lists keys.
#[utoipa::path(get, path = "/v1/keys", tag = "keys", responses(
    (status = 200, body = KeyList),
    (status = 401, body = ErrorBody),
))]
pub(crate) async fn list(State(app): State<Shared>, _: Admin) -> Done<Response> {
    let rows = app.store.keys().await?;
    let roles = app.keyring.schedule(&rows, app.now_ms());
    let keys = rows.into_iter().zip(roles).map(|(row, role)| view(row, role)).collect();
    Ok(uncached(Json(KeyList { keys }).into_response()))
}

/// Rotates: makes a key, which is published now and signs after the lead time; the first signs at once.
#[utoipa::path(post, path = "/v1/keys", tag = "keys", request_body = NewKey, responses(
    (status = 201, body = KeyView),
    (status = 401, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "A next key waits already, or too many are published"),
    (status = 422, body = ErrorBody),
))]
pub(crate) async fn add(State(app): State<Shared>, _: Admin, Body(asked): Body<NewKey>) -> Done<Response> {
    let algorithm = match asked.algorithm {
        AlgorithmName::EdDsa => Algorithm::EdDsa,
        AlgorithmName::Es256 => Algorithm::Es256,
    };
    let now_ms = app.now_ms();
    let row = match app.keyring.add(&app.store, algorithm, asked.at_once, now_ms, "admin").await? {
        Added::Done(row) => row,
        Added::Conflict(why) => return Err(Fault::Conflict(why.to_owned())),
    };
    let role = if row.signs_from_ms > now_ms { Role::Next } else { Role::Signing };
    Ok(uncached((StatusCode::CREATED, Json(view(row, role))).into_response()))
}

/// Takes a key out of the set at once and removes its file: its grants end at each front door with the next fetch.
#[utoipa::path(delete, path = "/v1/keys/{kid}", tag = "keys", params(("kid" = String, Path)), responses(
    (status = 204),
    (status = 401, body = ErrorBody),
    (status = 404, body = ErrorBody),
))]
pub(crate) async fn revoke(State(app): State<Shared>, _: Admin, Name(kid): Name) -> Done<StatusCode> {
    if !app.store.revoke_key(&kid, app.now_ms()).await? {
        return Err(Fault::NotFound("there is no such key"));
    }
    app.keyring.forget(&kid);
    Ok(StatusCode::NO_CONTENT)
}
