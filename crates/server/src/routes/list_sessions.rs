//! `GET /sessions`: ours.
//!
//! An id is all that it takes to use a session. Where every caller has the server's token, they are one party, and may
//! see each other's; where there is no token, ids are what keeps callers apart, and are listed to nobody.

use ringfence_wire::{Error, SessionList};

use crate::backend::Backend;
use crate::dispatch::App;
use crate::refusal::Refusal;
use crate::render::Reply;

/// List the sessions
///
/// Only where the server asks for a token: without one, a session's id is what keeps it from other callers. Does not
/// count as activity.
#[utoipa::path(
    get, path = "/sessions", operation_id = "ListSessions", tag = "sessions",
    responses(
        (status = 200, body = SessionList, description = "The handles of all sessions, the oldest first."),
        (status = 403, body = Error<'static>, description = "This server asks for no token, and lists no sessions."),
    ),
)]
pub(crate) async fn handle<B: Backend>(app: &App<B>) -> Result<Reply, Refusal> {
    match app.token {
        Some(_) => Ok(Reply::Sessions(app.backend.handles().await?)),
        None => Err(Refusal::NoListing),
    }
}
