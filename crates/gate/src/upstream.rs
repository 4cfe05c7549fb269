//! Requests to backends and to the control plane, on kept connections, plain or TLS.

mod connect;

use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use ringfence_tls::ClientTls;
use thiserror::Error;
use tokio::time::{Instant, timeout_at};

use crate::body::{Body, Movement};
use crate::error::GateError;
use crate::limits::{ANSWER_WAIT, BACKEND_IDLE_CONNECTIONS_MAX, BACKEND_IDLE_MAX};
use crate::url::Url;
use connect::Connector;

/// Why there is no answer.
#[derive(Debug, Error)]
pub(crate) enum SendError {
    /// The connection was never made: nothing was sent.
    #[error("the connection was not made")]
    Unreachable(#[source] hyper_util::client::legacy::Error),
    /// The request may have been carried out.
    #[error("the connection broke")]
    Broken(#[source] hyper_util::client::legacy::Error),
    /// The request may have been carried out.
    #[error("no answer in time")]
    Late,
}

/// A client with a pool. It follows no redirect and uses no proxy.
#[derive(Clone)]
pub(crate) struct Upstream {
    client: Client<Connector, Body>,
    has_tls: bool,
}

impl Upstream {
    /// With `tls` it also speaks to `https` URLs.
    pub(crate) fn new(tls: Option<ClientTls>) -> Self {
        let has_tls = tls.is_some();
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(BACKEND_IDLE_MAX)
            .pool_max_idle_per_host(BACKEND_IDLE_CONNECTIONS_MAX)
            .http1_max_buf_size(256 << 10)
            .build(Connector::new(tls));
        Upstream { client, has_tls }
    }

    /// Whether it can speak to a URL at all.
    pub(crate) fn check(&self, what: &'static str, url: &Url, option: &'static str) -> Result<(), GateError> {
        if url.secure && !self.has_tls {
            return Err(GateError::Value { what, value: format!("https://{}:{}", url.host, url.port), reason: option });
        }
        Ok(())
    }

    /// Sends, and waits for the head of the answer.
    pub(crate) async fn send(
        &self,
        request: Request<Body>,
        deadline: Instant,
    ) -> Result<Response<Incoming>, SendError> {
        timeout_at(deadline, self.client.request(request))
            .await
            .map_err(|_| SendError::Late)?
            .map_err(|error| if error.is_connect() { SendError::Unreachable(error) } else { SendError::Broken(error) })
    }

    /// The same for a request with a long body: the wait begins anew whenever bytes of it moved.
    pub(crate) async fn send_moving(
        &self,
        request: Request<Body>,
        movement: &Movement,
    ) -> Result<Response<Incoming>, SendError> {
        let mut sending = std::pin::pin!(self.client.request(request));
        let mut seen = movement.pieces();
        loop {
            match tokio::time::timeout(ANSWER_WAIT, &mut sending).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) if error.is_connect() => return Err(SendError::Unreachable(error)),
                Ok(Err(error)) => return Err(SendError::Broken(error)),
                Err(_) if movement.pieces() != seen => seen = movement.pieces(),
                Err(_) => return Err(SendError::Late),
            }
        }
    }
}
