//! The HTTP door: connections, credential, routes, rendering, and what is told about them.
//!
//! For: turning bytes of strangers into operations and outcomes back into bytes, under the code-execution protocol,
//! contract version 1. May know: `wire`, `op`, `session` (behind [`backend::Backend`]), `tls`, `tally`, `weaken`. Never
//! knows: kernel calls of a cell, Python, where files are.
//!
//! ```text
//! connection -> door (deadlines, limits, credential) -> dispatch -> routes/* (wire -> op) -> Backend
//!            -> Reply | Refusal -> render (the only place with statuses) -> observe -> connection
//! ```
//!
//! **Invariants.**
//! - Every wait for a client has an end, every buffer for one has a bound; both have a name in [`limits`].
//! - Nothing that a client sends makes a handler panic, and no session's files or output are ever held whole, but
//!   for the capped output of one call.
//! - Every refusal that reaches a handler is `{"detail": ...}` and says what to change.
//! - With tenancy, no operation on sessions is begun before it is known, from a peer that has proven itself, which
//!   workspace it is for; and none on a session of another workspace ever.
//! - Only `/health` and `/ready` are answered without the credential, where one is set.
//! - No body, code, output, file name or credential is ever logged.
//!
//! # Shutting down
//!
//! Two steps, so that leases are refused with 503 rather than by a closed port: first whoever owns the backend
//! stops its leases and lets its calls end, while this door goes on answering; then the `stop` future of
//! [`Server::serve`] ends: no connection is taken any more, answers in the making are sent, and after
//! [`DoorLimits::drain_max`] what is left is cut off.

mod access;
mod answer;
pub mod backend;
mod dispatch;
mod door;
#[doc(hidden)]
pub mod fuzzing;
pub mod limits;
mod metrics;
mod mime;
mod multipart;
mod observe;
pub mod openapi;
mod query;
mod range;
mod rate;
mod refusal;
mod render;
mod routes;

use std::future::Future;
use std::io;
use std::sync::Arc;

pub use access::{Access, Tenancy};
pub use door::{BearerToken, Drained, Listener, TokenRefused};
pub use limits::DoorLimits;
pub use rate::Rate;

use backend::Backend;
use dispatch::App;

/// Why a server could not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// No random bytes for its request ids.
    #[error("cannot draw the random part of request ids: {0}")]
    Random(getrandom::Error),
    /// Tenancy is wanted, and nothing proves who tells it.
    #[error("tenancy is wanted of callers that prove nothing: ask for a token or for a certificate")]
    Unproven,
    /// The listening socket cannot be used by the runtime.
    #[error("cannot listen on the socket that was handed over")]
    Listen(#[source] io::Error),
}

/// A server over a backend.
pub struct Server<B: Backend> {
    app: Arc<App<B>>,
}

impl<B: Backend> Server<B> {
    /// A server that asks its callers for what `access` says.
    ///
    /// # Errors
    /// When tenancy is wanted of callers that prove nothing, or the kernel gives no random bytes.
    pub fn new(backend: B, limits: DoorLimits, access: impl Into<Access>) -> Result<Self, ServerError> {
        let access: Access = access.into();
        if access.tenancy.is_some() && !access.is_proven() {
            return Err(ServerError::Unproven);
        }
        Ok(Server { app: Arc::new(App::new(backend, limits, access).map_err(ServerError::Random)?) })
    }

    /// Serves a bound socket until `stop` ends, then drains. Needs a tokio runtime with time and I/O.
    ///
    /// # Errors
    /// When the socket cannot be used; what goes wrong with a connection ends that connection alone.
    pub async fn serve(&self, listener: Listener, stop: impl Future<Output = ()>) -> Result<Drained, ServerError> {
        door::serve(Arc::clone(&self.app), listener, stop).await.map_err(ServerError::Listen)
    }
}
