//! Requests out, answers in, both bounded. The only file that knows the HTTP library's client.

use std::error::Error as _;
use std::future::Future;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, USER_AGENT};
use hyper::{HeaderMap, Method, Request, Response, header};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;

use crate::body::Outgoing;
use crate::limits::{CONNECT_MAX, IDLE_CONNECTION_MAX};
use crate::tls::Roots;
use crate::{BaseUrl, BearerToken, TransportError};

/// Connections to one backend.
#[derive(Clone)]
pub(crate) struct Transport {
    http: legacy::Client<HttpsConnector<HttpConnector>, Outgoing>,
    base: BaseUrl,
}

impl Transport {
    /// Connections to a base URL, over TLS for https with these certificates at its root; none is made yet.
    pub(crate) fn new(base: BaseUrl, roots: Roots) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_MAX));
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(roots.into_config())
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION_MAX)
            .build(connector);
        Transport { http, base }
    }

    pub(crate) fn base(&self) -> &BaseUrl {
        &self.base
    }

    /// A request without a body yet.
    pub(crate) fn request(
        &self,
        method: Method,
        path_and_query: &str,
        headers: HeaderMap,
        token: Option<&BearerToken>,
        body: Outgoing,
    ) -> Result<Request<Outgoing>, TransportError> {
        let mut request = Request::builder()
            .method(method)
            .uri(self.base.join(path_and_query))
            .body(body)
            .map_err(|source| TransportError::Request { source: Box::new(source) })?;
        *request.headers_mut() = headers;
        let agent = header::HeaderValue::from_static(concat!("ringfence-client/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().entry(USER_AGENT).or_insert(agent);
        if let Some(token) = token {
            request.headers_mut().insert(AUTHORIZATION, token.header());
        }
        Ok(request)
    }

    /// Sends a request and waits for the head of its answer. Tries once.
    pub(crate) async fn send(&self, request: Request<Outgoing>) -> Result<Response<Incoming>, TransportError> {
        let to = || self.base.authority().to_owned();
        self.http.request(request).await.map_err(|error| {
            let scheme = other_scheme(&error, self.base.is_secure());
            let connecting = error.is_connect();
            let source = Box::new(error);
            match scheme {
                Some((spoken, other)) => TransportError::Scheme { to: to(), spoken, other, source },
                None if connecting => TransportError::Connect { to: to(), source },
                None => TransportError::Broken { source },
            }
        })
    }
}

/// The scheme that was spoken, and the other one, where that is what the server seems to speak.
fn other_scheme(error: &legacy::Error, secure: bool) -> Option<(&'static str, &'static str)> {
    let mut causes = std::iter::successors(error.source(), |cause| (*cause).source());
    match secure {
        // An answer in place of a handshake.
        true => causes.any(is_no_tls).then_some(("https", "http")),
        // What TLS says of a request that is no handshake is no HTTP.
        false => {
            causes.any(|cause| cause.downcast_ref().is_some_and(hyper::Error::is_parse)).then_some(("http", "https"))
        }
    }
}

/// An error of I/O passes over what is in it when it is asked for its cause.
fn is_no_tls(mut cause: &(dyn std::error::Error + 'static)) -> bool {
    while let Some(inner) = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        cause = inner;
    }
    matches!(cause.downcast_ref(), Some(rustls::Error::InvalidMessage(_)))
}

/// Waits for a step, but not longer than `after`.
pub(crate) async fn within<T>(
    after: Duration,
    step: impl Future<Output = Result<T, TransportError>>,
) -> Result<T, TransportError> {
    timeout(after, step).await.unwrap_or(Err(TransportError::Timeout { after }))
}

/// A body that was read up to a bound.
pub(crate) struct Bounded {
    pub(crate) bytes: Bytes,
    /// There was more than the bound.
    pub(crate) cut: bool,
}

/// Reads a body up to `bytes_max` bytes and leaves the rest.
pub(crate) async fn read(mut body: Incoming, bytes_max: usize) -> Result<Bounded, TransportError> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|source| TransportError::Broken { source: Box::new(source) })?;
        let Ok(data) = frame.into_data() else { continue };
        let room = bytes_max.saturating_sub(bytes.len());
        bytes.extend_from_slice(data.get(..room).unwrap_or(&data));
        if data.len() > room {
            return Ok(Bounded { bytes: bytes.freeze(), cut: true });
        }
    }
    Ok(Bounded { bytes: bytes.freeze(), cut: false })
}
