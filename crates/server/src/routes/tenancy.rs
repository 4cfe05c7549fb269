//! `GET /tenancy`: ours.

use ringfence_op::Tenant;
use ringfence_wire::{Error, Tenancy};

use crate::backend::Backend;
use crate::dispatch::App;
use crate::refusal::Refusal;
use crate::render::Reply;

/// How many sessions the workspace has here
///
/// Only where the server is shared between workspaces (`--require-tenancy`): a front door asks for it where a grant has
/// a ceiling of sessions over several servers. Leases under way are counted in.
#[utoipa::path(
    get, path = "/tenancy", operation_id = "Tenancy", tag = "server",
    params(("X-Ringfence-Workspace" = String, Header, description = "The workspace.")),
    responses(
        (status = 200, body = Tenancy<'static>, description = "Its sessions."),
        (status = 400, body = Error<'static>, description = "The workspace is missing, stands twice or is none."),
        (status = 404, body = Error<'static>, description = "This server is not shared."),
    ),
)]
pub(crate) fn handle<B: Backend>(app: &App<B>, tenant: Option<&Tenant>) -> Result<Reply, Refusal> {
    let workspace = tenant.ok_or(Refusal::NoRoute)?.workspace.clone();
    let session_count = app.backend.count_of(&workspace);
    Ok(Reply::Tenancy { workspace, session_count })
}
