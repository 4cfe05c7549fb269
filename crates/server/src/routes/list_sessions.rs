//! `GET /sessions`: ours.
//!
//! An id is all that it takes to use a session, unless the server is shared between workspaces: then each lists its own.
//! Where every caller has the server's token, they are one party, and may see each other's; where callers prove nothing,
//! ids are what keeps them apart, and are listed to nobody.

use ringfence_op::Tenant;
use ringfence_wire::{Error, SessionList};

use crate::backend::Backend;
use crate::dispatch::App;
use crate::refusal::Refusal;
use crate::render::Reply;

/// List the sessions
///
/// Only where the server asks for a proof: without one, a session's id is what keeps it from other callers. With tenancy,
/// those of the workspace alone. Does not count as activity.
#[utoipa::path(
    get, path = "/sessions", operation_id = "ListSessions", tag = "sessions",
    responses(
        (status = 200, body = SessionList, description = "The handles of the sessions, the oldest first."),
        (status = 403, body = Error<'static>, description = "This server asks for no token, and lists no sessions."),
    ),
)]
pub(crate) async fn handle<B: Backend>(app: &App<B>, tenant: Option<&Tenant>) -> Result<Reply, Refusal> {
    match app.access.is_proven() {
        true => Ok(Reply::Sessions(app.backend.handles(tenant.map(|tenant| &tenant.workspace)).await?)),
        false => Err(Refusal::NoListing),
    }
}
