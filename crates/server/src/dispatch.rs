//! From a request to its answer: the route, the credential, the handler, the rendering, the record of it.
//!
//! Written by hand around hyper rather than with a routing framework: there are some fifteen routes, every refusal
//! must be ours (`{"detail": ...}`, `Allow`, statuses of the contract), and a call's way in is to cost nothing.

use std::sync::Arc;
use std::time::Instant;

use hyper::body::Incoming;
use hyper::header::ORIGIN;
use hyper::{HeaderMap, Method, Request, Response};
use ringfence_op::{Fault, FaultKind, SessionId, Tenant};
use ringfence_weaken::{Mitigation, holds};
use tokio::sync::Semaphore;

use crate::access::{self, Access, Tenants};
use crate::answer::Body;
use crate::backend::Backend;
use crate::door::{Busy, Intake};
use crate::limits::{ARCHIVES_AT_ONCE_MAX, DoorLimits};
use crate::metrics::Metrics;
use crate::observe::{self, RequestId, RequestIds};
use crate::refusal::Refusal;
use crate::render::{self, Reply};
use crate::routes;

/// What every request needs.
pub(crate) struct App<B> {
    pub(crate) backend: B,
    pub(crate) limits: DoorLimits,
    pub(crate) access: Access,
    /// Where the server is shared.
    tenants: Option<Tenants>,
    pub(crate) metrics: Metrics,
    pub(crate) request_ids: RequestIds,
    pub(crate) archives: Arc<Semaphore>,
}

impl<B: Backend> App<B> {
    pub(crate) fn new(backend: B, limits: DoorLimits, access: Access) -> Result<Self, getrandom::Error> {
        Ok(App {
            backend,
            limits,
            tenants: access.tenancy.map(Tenants::new),
            access,
            metrics: Metrics::default(),
            request_ids: RequestIds::new()?,
            archives: Arc::new(Semaphore::new(ARCHIVES_AT_ONCE_MAX)),
        })
    }
}

/// A request as its handler sees it.
pub(crate) struct Asked<'a> {
    pub(crate) head: &'a hyper::http::request::Parts,
    pub(crate) body: &'a mut Intake,
}

impl Asked<'_> {
    pub(crate) fn query(&self) -> Option<&str> {
        self.head.uri.query()
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }
}

/// What is served. The order is that of the labels in `metrics`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    CreateSession,
    ListSessions,
    GetSession,
    DestroySession,
    Interrupt,
    Execute,
    ListFiles,
    GetFile,
    PutFile,
    DeleteFile,
    GetArchive,
    PutArchive,
    Tenancy,
    Health,
    Ready,
    OpenApi,
    Metrics,
    None,
}

impl Route {
    pub(crate) const ALL: [(Route, &'static str); 18] = [
        (Route::CreateSession, "/sessions"),
        (Route::ListSessions, "/sessions"),
        (Route::GetSession, "/sessions/{session_id}"),
        (Route::DestroySession, "/sessions/{session_id}"),
        (Route::Interrupt, "/sessions/{session_id}/interrupt"),
        (Route::Execute, "/sessions/{session_id}/exec"),
        (Route::ListFiles, "/sessions/{session_id}/files/list"),
        (Route::GetFile, "/sessions/{session_id}/files"),
        (Route::PutFile, "/sessions/{session_id}/files"),
        (Route::DeleteFile, "/sessions/{session_id}/files"),
        (Route::GetArchive, "/sessions/{session_id}/archive"),
        (Route::PutArchive, "/sessions/{session_id}/archive"),
        (Route::Tenancy, "/tenancy"),
        (Route::Health, "/health"),
        (Route::Ready, "/ready"),
        (Route::OpenApi, "/openapi.json"),
        (Route::Metrics, "/metrics"),
        (Route::None, "none"),
    ];

    /// Its path, as logs and counters name it.
    pub(crate) fn path(self) -> &'static str {
        Route::ALL.iter().find(|(route, _)| *route == self).map_or("none", |(_, path)| path)
    }

    /// Served without a credential, since whoever watches over the server has none.
    fn is_open(self) -> bool {
        matches!(self, Route::Health | Route::Ready)
    }

    /// About the server and not about somebody's sessions. Whatever stands not here is for a workspace, where the server
    /// is shared.
    fn is_of_the_server(self) -> bool {
        matches!(self, Route::Health | Route::Ready | Route::OpenApi | Route::Metrics | Route::None)
    }

    /// Counted against the rate of its workspace. What gives capacity back is not, nor is what a front door asks.
    fn is_rated(self) -> bool {
        !matches!(self, Route::DestroySession | Route::Tenancy)
    }
}

/// The route of a request, with the session's id as it was written.
fn route<'a>(method: &Method, path: &'a str) -> Result<(Route, &'a str), Refusal> {
    let mut parts = path.strip_prefix('/').ok_or(Refusal::NoRoute)?.split('/');
    let parts = (parts.next(), parts.next(), parts.next(), parts.next(), parts.next());
    let get = method == Method::GET || method == Method::HEAD;
    let post = method == Method::POST;
    let delete = method == Method::DELETE;
    let only = |fits: bool, route: Route, id: &'a str, allow: &'static str| match fits {
        true => Ok((route, id)),
        false => Err(Refusal::WrongMethod(allow)),
    };
    match parts {
        (Some("sessions"), None, ..) => match get {
            true => Ok((Route::ListSessions, "")),
            false => only(post, Route::CreateSession, "", "GET, HEAD, POST"),
        },
        (Some("sessions"), Some(id), None, ..) => match delete {
            true => Ok((Route::DestroySession, id)),
            false => only(get, Route::GetSession, id, "GET, HEAD, DELETE"),
        },
        (Some("sessions"), Some(id), Some("exec"), None, _) => only(post, Route::Execute, id, "POST"),
        (Some("sessions"), Some(id), Some("interrupt"), None, _) => only(post, Route::Interrupt, id, "POST"),
        (Some("sessions"), Some(id), Some("files"), None, _) => match (post, delete) {
            (true, _) => Ok((Route::PutFile, id)),
            (_, true) => Ok((Route::DeleteFile, id)),
            _ => only(get, Route::GetFile, id, "GET, HEAD, POST, DELETE"),
        },
        (Some("sessions"), Some(id), Some("files"), Some("list"), None) => only(get, Route::ListFiles, id, "GET, HEAD"),
        (Some("sessions"), Some(id), Some("archive"), None, _) => match post || method == Method::PUT {
            true => Ok((Route::PutArchive, id)),
            false => only(method == Method::GET, Route::GetArchive, id, "GET, POST, PUT"),
        },
        (Some("tenancy"), None, ..) => only(get, Route::Tenancy, "", "GET, HEAD"),
        (Some("health"), None, ..) => only(get, Route::Health, "", "GET, HEAD"),
        (Some("ready"), None, ..) => only(get, Route::Ready, "", "GET, HEAD"),
        (Some("openapi.json"), None, ..) => only(get, Route::OpenApi, "", "GET, HEAD"),
        (Some("metrics"), None, ..) => only(get, Route::Metrics, "", "GET, HEAD"),
        _ => Err(Refusal::NoRoute),
    }
}

/// Answers one request.
pub(crate) async fn answer<B: Backend>(app: &App<B>, request: Request<Incoming>, busy: Busy) -> Response<Body> {
    let begun = Instant::now();
    let (head, body) = request.into_parts();
    let request_id = app.request_ids.of(&head.headers);
    let mut body = Intake::new(body, &head.headers, &app.limits);
    let mut tenant = None;
    let (matched, outcome) = match route(&head.method, head.uri.path()) {
        Ok((route, id)) => match enter(app, route, &head.headers, &mut tenant) {
            Ok(()) => {
                let asked = Asked { head: &head, body: &mut body };
                (route, handle(app, route, id, tenant.as_ref(), asked).await)
            }
            Err(refusal) => (route, Err(refusal)),
        },
        Err(refusal) => (Route::None, admit(app, &head.headers).and(Err(refusal))),
    };
    if let Ok(reply) = &outcome {
        app.metrics.replied(reply);
    }
    let slow = matches!(outcome, Err(Refusal::SlowBody | Refusal::BrokenBody));
    let (response, cause) = match outcome {
        Ok(reply) => (render::reply(reply, app), None),
        Err(refusal) => render::refusal(refusal),
    };
    if !slow {
        body.linger();
    }
    let response = finish(response, &request_id, busy);
    let tenant = tenant.as_ref().map(|tenant| observe::For { tenant, grant: access::grant(&head.headers) });
    let asked = observe::Asked { method: &head.method, route: matched, request_id: &request_id, tenant };
    observe::answered(&app.metrics, &asked, response.status(), begun.elapsed(), cause);
    response
}

fn finish(mut response: Response<Body>, request_id: &RequestId, busy: Busy) -> Response<Body> {
    response.headers_mut().insert(observe::X_REQUEST_ID, request_id.header());
    response.map(|body| body.hold(busy))
}

fn admit<B>(app: &App<B>, headers: &HeaderMap) -> Result<(), Refusal> {
    let wants = |detail| Err(Refusal::Fault(Fault::new(FaultKind::Unauthorized, detail)));
    match &app.access.token {
        Some(token) if !token.admits(headers) && holds(Mitigation::BearerToken) => {
            wants("this server wants a credential: send `Authorization: Bearer <token>`")
        }
        // Any web page could have its reader's browser send this to a server on the reader's own machine.
        None if headers.contains_key(ORIGIN) && holds(Mitigation::OriginNeedsAToken) => {
            wants("a request of a web page (it has an `Origin`) needs a credential, and this server has none set up")
        }
        _ => Ok(()),
    }
}

/// Whether a request is let in; where the server is shared, who it is for, also of one that comes too often: the record of
/// a request names whom it was refused to.
fn enter<B>(app: &App<B>, route: Route, headers: &HeaderMap, asks: &mut Option<Tenant>) -> Result<(), Refusal> {
    if !route.is_open() {
        admit(app, headers)?;
    }
    let Some(tenants) = app.tenants.as_ref().filter(|_| !route.is_of_the_server()) else { return Ok(()) };
    let tenant = asks.insert(access::tenant(headers)?);
    match route.is_rated() {
        true => tenants.count(&tenant.workspace),
        false => Ok(()),
    }
}

async fn handle<B: Backend>(
    app: &App<B>,
    route: Route,
    id: &str,
    tenant: Option<&Tenant>,
    asked: Asked<'_>,
) -> Result<Reply, Refusal> {
    match route {
        Route::Health => return Ok(routes::status::health(app)),
        Route::Ready => return routes::status::ready(app),
        Route::CreateSession => return routes::create_session::handle(app, tenant.cloned(), asked).await,
        Route::ListSessions => return routes::list_sessions::handle(app, tenant).await,
        Route::Tenancy => return routes::tenancy::handle(app, tenant),
        Route::OpenApi => return Ok(routes::status::openapi()),
        Route::Metrics => return Ok(routes::status::metrics(app)),
        Route::None => return Err(Refusal::NoRoute),
        _ => {}
    }
    // What is no id can be the id of no session.
    let id = SessionId::parse(id).ok_or_else(Fault::unknown_session)?;
    // One place for every operation on a session, those that are added later included.
    if let Some(tenant) = tenant {
        app.backend.belongs(id, &tenant.workspace)?;
    }
    match route {
        Route::GetSession => routes::get_session::handle(app, id).await,
        Route::DestroySession => routes::destroy_session::handle(app, id).await,
        Route::Interrupt => routes::interrupt::handle(app, id).await,
        Route::Execute => routes::execute::handle(app, id, asked).await,
        Route::ListFiles => routes::list_files::handle(app, id, asked).await,
        Route::GetFile => routes::get_file::handle(app, id, asked).await,
        Route::DeleteFile => routes::delete_file::handle(app, id, asked).await,
        // Rare and large: kept out of the state that every connection has room for.
        Route::PutFile => Box::pin(routes::put_file::handle(app, id, asked)).await,
        Route::GetArchive => Box::pin(routes::get_archive::handle(app, id, asked)).await,
        Route::PutArchive => Box::pin(routes::put_archive::handle(app, id, asked)).await,
        _ => Err(Refusal::NoRoute),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_has_its_label() {
        for (index, (route, _)) in Route::ALL.iter().enumerate() {
            assert_eq!(*route as usize, index);
        }
    }

    #[test]
    fn a_request_that_comes_too_often_is_still_known_by_its_workspace() {
        let rate = crate::rate::Rate { interval: std::time::Duration::from_secs(3600), burst: 1 };
        let app = App {
            backend: (),
            limits: DoorLimits::default(),
            access: Access::default(),
            tenants: Some(Tenants::new(access::Tenancy { rate: Some(rate) })),
            metrics: Metrics::default(),
            request_ids: RequestIds::new().unwrap(),
            archives: Arc::new(Semaphore::new(1)),
        };
        let mut headers = HeaderMap::new();
        headers.insert("x-ringfence-workspace", "team-a".parse().unwrap());
        for is_let_in in [true, false] {
            let mut asks = None;
            assert_eq!(enter(&app, Route::GetSession, &headers, &mut asks).is_ok(), is_let_in);
            assert_eq!(asks.unwrap().workspace.as_str(), "team-a");
        }
    }

    #[test]
    fn paths_find_their_route() {
        let cases = [
            (Method::POST, "/sessions", Route::CreateSession),
            (Method::DELETE, "/sessions/x", Route::DestroySession),
            (Method::GET, "/sessions/x", Route::GetSession),
            (Method::GET, "/sessions", Route::ListSessions),
            (Method::POST, "/sessions/x/interrupt", Route::Interrupt),
            (Method::POST, "/sessions/x/exec", Route::Execute),
            (Method::HEAD, "/sessions/x/files", Route::GetFile),
            (Method::GET, "/sessions/..%2f..%2fetc/files/list", Route::ListFiles),
            (Method::PUT, "/sessions/x/archive", Route::PutArchive),
            (Method::GET, "/health", Route::Health),
        ];
        for (method, path, wanted) in cases {
            assert_eq!(route(&method, path).map(|(route, _)| route).ok(), Some(wanted), "{method} {path}");
        }
        for path in
            ["/", "", "*", "/session", "/sessions/x/y", "/sessions/x/exec/", "/sessions/x/files/list/z", "/health/"]
        {
            assert!(matches!(route(&Method::GET, path), Err(Refusal::NoRoute)), "{path}");
        }
        assert!(matches!(route(&Method::PUT, "/sessions"), Err(Refusal::WrongMethod("GET, HEAD, POST"))));
    }
}
