//! From a request to an operation, and the line about it in the log.

use std::sync::Arc;
use std::time::Instant;

use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use ringfence_grant::Grant;

use crate::answer::{Denial, json};
use crate::body::{Body, Stream};
use crate::files::Part;
use crate::headers::{REQUEST_ID, request_id, smuggled};
use crate::shared::{Asked, Shared};
use crate::{execute, files, lease, session};

/// What is asked. Ids are texts of the path as they came: no id of ours needs escaping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route<'a> {
    CreateSession,
    Session(&'a str),
    Interrupt(&'a str),
    Execute(&'a str),
    Files(&'a str, Part),
    Health,
    Ready,
}

impl Route<'_> {
    fn name(self) -> &'static str {
        match self {
            Route::CreateSession => "/sessions",
            Route::Session(_) => "/sessions/{session_id}",
            Route::Interrupt(_) => "/sessions/{session_id}/interrupt",
            Route::Execute(_) => "/sessions/{session_id}/exec",
            Route::Files(_, Part::Files) => "/sessions/{session_id}/files",
            Route::Files(_, Part::List) => "/sessions/{session_id}/files/list",
            Route::Files(_, Part::Archive) => "/sessions/{session_id}/archive",
            Route::Health => "/health",
            Route::Ready => "/ready",
        }
    }

    fn methods(self) -> (&'static [Method], &'static str) {
        match self {
            Route::CreateSession | Route::Interrupt(_) | Route::Execute(_) => (&[Method::POST], "POST"),
            Route::Session(_) => (&[Method::GET, Method::DELETE], "GET, DELETE"),
            Route::Files(_, Part::Files) => {
                (&[Method::GET, Method::HEAD, Method::POST, Method::DELETE], "GET, HEAD, POST, DELETE")
            }
            Route::Files(_, Part::Archive) => {
                (&[Method::GET, Method::HEAD, Method::POST, Method::PUT], "GET, HEAD, POST, PUT")
            }
            Route::Files(_, Part::List) | Route::Health | Route::Ready => (&[Method::GET, Method::HEAD], "GET, HEAD"),
        }
    }
}

/// Only what the gate knows is passed on: a path that a backend gains later is 404 until it stands here.
fn route(path: &str) -> Option<Route<'_>> {
    let path = path.strip_prefix('/')?;
    let parts: Vec<&str> = path.splitn(5, '/').collect();
    match parts.as_slice() {
        ["health"] => Some(Route::Health),
        ["ready"] => Some(Route::Ready),
        ["sessions"] => Some(Route::CreateSession),
        ["sessions", ""] => None,
        ["sessions", id] => Some(Route::Session(id)),
        ["sessions", id, "interrupt"] => Some(Route::Interrupt(id)),
        ["sessions", id, "exec"] => Some(Route::Execute(id)),
        ["sessions", id, "files"] => Some(Route::Files(id, Part::Files)),
        ["sessions", id, "files", "list"] => Some(Route::Files(id, Part::List)),
        ["sessions", id, "archive"] => Some(Route::Files(id, Part::Archive)),
        _ => None,
    }
}

/// Answers one request.
pub(crate) async fn dispatch(shared: Arc<Shared>, request: Request<Incoming>) -> Response<Body> {
    let began = Instant::now();
    let (Parts { method, uri, headers, .. }, body) = request.into_parts();
    // From here on a body that is not read is discarded within bounds.
    let body = Stream::of_client(body);
    let id = request_id(&headers);
    let route = route(uri.path());
    let mut said = Said::default();
    let answer = match (route, smuggled(&headers)) {
        (Some(route), None) => {
            let came = Came { method: method.clone(), query: uri.query(), headers, request_id: id.clone() };
            answer(&shared, route, came, body, &mut said).await
        }
        (Some(_), Some(how)) => Err(Denial::Ambiguous(how)),
        (None, _) => Err(Denial::NoRoute),
    };
    let mut answer = answer.unwrap_or_else(|denial| {
        said.denial = Some(denial.text());
        denial.answer()
    });
    let route = route.map_or("none", Route::name);
    shared.metrics.answered(route, answer.status(), began.elapsed());
    said.log(method.as_str(), route, answer.status(), began, id.to_str().unwrap_or_default());
    answer.headers_mut().insert(REQUEST_ID, id);
    answer
}

/// A request's head, before its grant is known.
struct Came<'a> {
    method: Method,
    query: Option<&'a str>,
    headers: HeaderMap,
    request_id: HeaderValue,
}

async fn answer(
    shared: &Arc<Shared>,
    route: Route<'_>,
    came: Came<'_>,
    body: Stream,
    said: &mut Said,
) -> Result<Response<Body>, Denial> {
    let (methods, shown) = route.methods();
    if !methods.contains(&came.method) {
        return Err(Denial::WrongMethod(shown));
    }
    match route {
        Route::Health => return Ok(health(shared)),
        Route::Ready => return ready(shared),
        _ => {}
    }
    let grant = shared.admission.admit(&came.headers)?;
    said.grant = Some(Arc::clone(&grant));
    let Came { method, query, headers, request_id } = came;
    let asked = Asked { method, headers, query: query.map(str::to_owned), request_id, grant };
    match route {
        Route::CreateSession => lease::create(shared, asked, body).await,
        Route::Session(id) => session::session(shared, asked, id).await,
        Route::Interrupt(id) => session::interrupt(shared, asked, id).await,
        Route::Execute(id) => execute::execute(shared, asked, id, body).await,
        Route::Files(id, part) => files::pass(shared, asked, id, part, body).await,
        Route::Health | Route::Ready => Err(Denial::NoRoute),
    }
}

/// The shape of a backend's health, over all backends: no tenant's figure is in it.
fn health(shared: &Shared) -> Response<Body> {
    let totals = shared.backends.totals();
    let status = if totals.open > 0 { "ok" } else { "unavailable" };
    let text = serde_json::json!({
        "status": status,
        "session_count": totals.session_count,
        "max_sessions": totals.sessions_max,
        "backends": totals.backends,
        "backends_open": totals.open,
        "version": env!("CARGO_PKG_VERSION"),
    });
    json(StatusCode::OK, text.to_string())
}

fn ready(shared: &Shared) -> Result<Response<Body>, Denial> {
    if shared.admission.keys.current().is_none() {
        return Err(Denial::NoKeys);
    }
    if shared.backends.totals().open == 0 {
        return Err(Denial::NoBackend(None));
    }
    Ok(json(StatusCode::OK, r#"{"status":"ready"}"#.to_owned()))
}

/// What the log says of a request: ids and figures, never a token, code, a path of a file or an output.
#[derive(Default)]
struct Said {
    grant: Option<Arc<Grant>>,
    denial: Option<String>,
}

impl Said {
    fn log(&self, method: &str, route: &str, status: StatusCode, began: Instant, request_id: &str) {
        let Said { grant, denial } = self;
        let (workspace, grant) = grant.as_ref().map(|grant| (grant.workspace.as_str(), grant.id.as_str())).unzip();
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let status = status.as_u16();
        if status >= 500 {
            tracing::warn!(method, route, status, micros, request_id, workspace, grant, denial, "failed");
        } else if status >= 400 {
            tracing::info!(method, route, status, micros, request_id, workspace, grant, denial, "refused");
        } else {
            tracing::debug!(method, route, status, micros, request_id, workspace, grant, "answered");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_is_routed() {
        for (path, name) in [
            ("/sessions", "/sessions"),
            ("/sessions/x", "/sessions/{session_id}"),
            ("/sessions/x/interrupt", "/sessions/{session_id}/interrupt"),
            ("/sessions/x/exec", "/sessions/{session_id}/exec"),
            ("/sessions/x/files", "/sessions/{session_id}/files"),
            ("/sessions/x/files/list", "/sessions/{session_id}/files/list"),
            ("/sessions/x/archive", "/sessions/{session_id}/archive"),
            ("/health", "/health"),
            ("/ready", "/ready"),
        ] {
            assert_eq!(route(path).map(Route::name), Some(name), "{path}");
            assert!(crate::metrics::ROUTES.contains(&name), "{name} is counted");
        }
        for path in [
            "",
            "*",
            "/",
            "//sessions",
            "/sessions/",
            "/sessions//",
            "/Sessions",
            "/sessions/x/",
            "/sessions/x/exec/",
            "/sessions/x/files/list/y",
            "/sessions/x/files/..",
            "/sessions/x/programmatic-tools/register",
            "/metrics",
            "/openapi.json",
        ] {
            assert_eq!(route(path), None, "{path}");
        }
    }
}
