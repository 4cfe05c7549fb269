//! Workspaces and their policies.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ringfence_op::WorkspaceId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::auth::Admin;
use super::extract::{Asked, Body, Name};
use super::fault::{ErrorBody, Fault, uncached};
use super::{Done, Shared, check_name, next, page};
use crate::policy::Policy;
use crate::store::{Workspace, Written};

/// A workspace to be made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewWorkspace {
    /// 1 to 64 characters of `A-Z a-z 0-9 . _ -`, the first a letter or a digit. It is never used for another one.
    id: String,
    /// For people; the id unless given.
    name: Option<String>,
    /// Nothing is allowed unless given.
    policy: Option<Policy>,
}

/// What a workspace is to become.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Replacement {
    /// The name that it has unless given.
    name: Option<String>,
    policy: Policy,
    /// The version that the writer saw: with another one nothing is changed (409).
    version: Option<i64>,
}

/// A workspace.
#[derive(Serialize, ToSchema)]
pub(crate) struct WorkspaceView {
    id: String,
    name: String,
    policy: Policy,
    /// Counts changes.
    version: i64,
    /// POSIX milliseconds.
    created_ms: u64,
    /// POSIX milliseconds.
    updated_ms: u64,
}

/// A page of workspaces, in the order of their ids.
#[derive(Serialize, ToSchema)]
pub(crate) struct WorkspacePage {
    workspaces: Vec<WorkspaceView>,
    /// `after` of the next page; null where there is none.
    next: Option<String>,
}

/// Which page.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageQuery {
    /// Entries after this id.
    after: Option<String>,
    /// 1 to 1000; 100 unless given.
    limit: Option<u32>,
}

impl PageQuery {
    pub(crate) fn parts(self) -> (Option<String>, Option<u32>) {
        (self.after, self.limit)
    }
}

impl From<Workspace> for WorkspaceView {
    fn from(workspace: Workspace) -> Self {
        let Workspace { id, name, policy, version, created_ms, updated_ms } = workspace;
        WorkspaceView { id, name, policy, version, created_ms, updated_ms }
    }
}

const MISSING: &str = "there is no such workspace";

fn answer(status: StatusCode, workspace: Workspace) -> Response {
    uncached((status, Json(WorkspaceView::from(workspace))).into_response())
}

fn check_policy(policy: &Policy) -> Done<()> {
    policy.check().map_err(|fault| Fault::Body(format!("`policy`: {fault}")))
}

/// Makes a workspace.
#[utoipa::path(post, path = "/v1/workspaces", tag = "workspaces", request_body = NewWorkspace, responses(
    (status = 201, body = WorkspaceView),
    (status = 401, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "The id is taken, also where its workspace was deleted"),
    (status = 422, body = ErrorBody),
))]
pub(crate) async fn create(State(app): State<Shared>, _: Admin, Body(new): Body<NewWorkspace>) -> Done<Response> {
    let id = WorkspaceId::parse(&new.id).ok_or_else(|| {
        Fault::Body("`id` must be 1 to 64 characters of A-Z a-z 0-9 . _ -, the first a letter or a digit".to_owned())
    })?;
    let name = new.name.unwrap_or_else(|| id.as_str().to_owned());
    check_name(&name)?;
    let policy = new.policy.unwrap_or_else(Policy::closed);
    check_policy(&policy)?;
    match app.store.create_workspace(id.as_str(), &name, &policy, app.now_ms()).await? {
        Written::Done(workspace) => Ok(answer(StatusCode::CREATED, *workspace)),
        _ => Err(Fault::Conflict("the id is or was another workspace's".to_owned())),
    }
}

/// Lists workspaces.
#[utoipa::path(get, path = "/v1/workspaces", tag = "workspaces", params(PageQuery), responses(
    (status = 200, body = WorkspacePage),
    (status = 400, body = ErrorBody),
    (status = 401, body = ErrorBody),
))]
pub(crate) async fn list(State(app): State<Shared>, _: Admin, Asked(asked): Asked<PageQuery>) -> Done<Response> {
    let page = page(asked.after, asked.limit)?;
    let workspaces: Vec<_> = app.store.workspaces(&page).await?.into_iter().map(WorkspaceView::from).collect();
    let next = next(&workspaces, page.limit, |workspace| workspace.id.clone());
    Ok(uncached(Json(WorkspacePage { workspaces, next }).into_response()))
}

/// One workspace.
#[utoipa::path(get, path = "/v1/workspaces/{id}", tag = "workspaces", params(("id" = String, Path)), responses(
    (status = 200, body = WorkspaceView),
    (status = 401, body = ErrorBody),
    (status = 404, body = ErrorBody),
))]
pub(crate) async fn get(State(app): State<Shared>, _: Admin, Name(id): Name) -> Done<Response> {
    let workspace = app.store.workspace(&id).await?.ok_or(Fault::NotFound(MISSING))?;
    Ok(answer(StatusCode::OK, workspace))
}

/// Replaces a workspace's policy. Grants that were made before keep what they say until they end.
#[utoipa::path(put, path = "/v1/workspaces/{id}", tag = "workspaces", params(("id" = String, Path)),
    request_body = Replacement, responses(
    (status = 200, body = WorkspaceView),
    (status = 401, body = ErrorBody),
    (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "It has another version"),
    (status = 422, body = ErrorBody),
))]
pub(crate) async fn replace(
    State(app): State<Shared>,
    _: Admin,
    Name(id): Name,
    Body(new): Body<Replacement>,
) -> Done<Response> {
    new.name.as_deref().map_or(Ok(()), check_name)?;
    check_policy(&new.policy)?;
    let (name, version) = (new.name.as_deref(), new.version);
    match app.store.replace_workspace(&id, name, &new.policy, version, app.now_ms()).await? {
        Written::Done(workspace) => Ok(answer(StatusCode::OK, *workspace)),
        Written::Missing => Err(Fault::NotFound(MISSING)),
        Written::Conflict => Err(Fault::Conflict("the workspace was changed meanwhile: read it again".to_owned())),
    }
}

/// Deletes a workspace: it gets no more grants. Its usage and its audit stay.
#[utoipa::path(delete, path = "/v1/workspaces/{id}", tag = "workspaces", params(("id" = String, Path)), responses(
    (status = 204),
    (status = 401, body = ErrorBody),
    (status = 404, body = ErrorBody),
))]
pub(crate) async fn delete(State(app): State<Shared>, _: Admin, Name(id): Name) -> Done<StatusCode> {
    let done = app.store.delete_workspace(&id, app.now_ms()).await?;
    if done { Ok(StatusCode::NO_CONTENT) } else { Err(Fault::NotFound(MISSING)) }
}
