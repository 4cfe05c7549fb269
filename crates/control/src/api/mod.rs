//! The HTTP API: one file for each subject, one place for credentials, one for bodies, one for errors.

mod audit;
mod auth;
mod extract;
mod fault;
mod grants;
mod keys;
pub mod openapi;
mod resolve;
mod status;
mod tokens;
mod usage;
mod workspaces;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use crate::config::Clock;
use crate::error::ControlError;
use crate::keyring::Keyring;
use crate::limits::{PAGE_DEFAULT, PAGE_MAX};
use crate::store::{Page, Store};
use fault::{Fault, detail};

/// What every request uses.
pub(crate) struct App {
    pub(crate) store: Store,
    pub(crate) keyring: Keyring,
    /// The hash of the admin's token.
    pub(crate) admin_hash: String,
    pub(crate) issuer: String,
    pub(crate) audiences: Vec<String>,
    pub(crate) grant_seconds_max: u64,
    pub(crate) clock: Clock,
}

impl App {
    pub(crate) fn now_ms(&self) -> u64 {
        (self.clock)()
    }
}

type Shared = Arc<App>;

/// Every route. What is not here is 404 or 405, in the words of all errors.
pub(crate) fn router(app: Shared) -> Router {
    let of_workspace = get(workspaces::get).put(workspaces::replace).delete(workspaces::delete);
    Router::new()
        .route("/health", get(status::health))
        .route("/ready", get(status::ready))
        .route("/openapi.json", get(status::document))
        .route("/.well-known/jwks.json", get(keys::published))
        .route("/v1/workspaces", get(workspaces::list).post(workspaces::create))
        .route("/v1/workspaces/{id}", of_workspace)
        .route("/v1/tokens", get(tokens::list).post(tokens::create))
        .route("/v1/tokens/{id}", axum::routing::delete(tokens::revoke))
        .route("/v1/keys", get(keys::list).post(keys::add))
        .route("/v1/keys/{kid}", axum::routing::delete(keys::revoke))
        .route("/v1/grants", post(grants::make))
        .route("/v1/audit", get(audit::list))
        .route("/v1/usage", get(usage::report).post(usage::take))
        .route("/v1/usage.csv", get(usage::export))
        .route("/api/v1/gateway/code-execution/resolve", post(resolve::resolve))
        .fallback(async || Fault::NotFound("there is nothing here"))
        .method_not_allowed_fallback(async || -> Response {
            (StatusCode::METHOD_NOT_ALLOWED, detail("this is not done here")).into_response()
        })
        .with_state(app)
        .layer(axum::middleware::from_fn(told))
}

/// A line of the log for each request: its route, never its path, query or headers, which may hold what is no one's to
/// read.
async fn told(request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let answer = next.run(request).await;
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    let (status, micros) = (answer.status().as_u16(), begun.elapsed().as_micros());
    match answer.status().is_success() && method == Method::GET {
        true => tracing::debug!(%method, route, status, micros, "answered"),
        false => tracing::info!(%method, route, status, micros, "answered"),
    }
    answer
}

/// The page that a request asks for.
fn page(after: Option<String>, limit: Option<u32>) -> Result<Page, Fault> {
    let limit = limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Fault::Query(format!("`limit` must be 1 to {PAGE_MAX}")));
    }
    Ok(Page { after: after.unwrap_or_default(), limit: i64::from(limit) })
}

/// The id of the last entry, where there may be more.
fn next<T>(entries: &[T], limit: i64, id: impl Fn(&T) -> String) -> Option<String> {
    (i64::try_from(entries.len()).is_ok_and(|count| count == limit)).then(|| entries.last().map(id)).flatten()
}

/// A name for people: 1 to 128 bytes of text without control characters.
fn check_name(name: &str) -> Result<(), Fault> {
    let good = (1..=crate::limits::NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
    if good {
        Ok(())
    } else {
        Err(Fault::Body("`name` must be 1 to 128 bytes of text without control characters".into()))
    }
}

/// For handlers that only answer with an error of the house.
type Done<T> = Result<T, Fault>;

impl From<ControlError> for Fault {
    fn from(error: ControlError) -> Self {
        Fault::House(error)
    }
}
