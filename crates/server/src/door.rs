//! The door: connections in, with every wait bounded; requests to the dispatcher; a drained end.
//!
//! Own accept loop over hyper, since `axum::serve` bounds neither the reading of a head nor the number of
//! connections, nor its own shutdown. What HTTP itself forbids (a broken head, one that is too large, two lengths)
//! hyper refuses by itself, with a bare status, which `guard` gives a `detail`; a request with both Content-Length and Transfer-Encoding is read by the latter
//! and its connection closed (RFC 9112, 6.1).

mod auth;
mod guard;
mod intake;
mod listener;
mod steady;

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use ringfence_tls::ServerTls;
use ringfence_weaken::{Mitigation, holds};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};

use crate::answer::Body;
use crate::backend::Backend;
use crate::dispatch::{self, App};
use crate::limits::{ACCEPT_PAUSE, CONNECTION_BUFFER_BYTES, HEAD_BYTES_MAX};

pub use auth::{BearerToken, TokenRefused};
pub(crate) use guard::Busy;
pub(crate) use intake::Intake;
pub use listener::Listener;

use guard::{Guarded, Phase};
use listener::{Acceptor, Stream};
use steady::Steady;

/// How serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Every answer in the making was sent.
    Clean,
    /// The deadline came first, and so many connections were cut.
    CutOff(usize),
}

/// The stages of a server's life, told to every connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Serving,
    Draining,
    Ended,
}

pub(crate) async fn serve<B: Backend>(
    app: Arc<App<B>>,
    listener: Listener,
    stop: impl Future<Output = ()>,
) -> io::Result<Drained> {
    let acceptor = Acceptor::new(listener)?;
    let (stage, told) = watch::channel(Stage::Serving);
    let most = if holds(Mitigation::Connections) { app.limits.connections_max } else { Semaphore::MAX_PERMITS };
    let connections_max = u32::try_from(most).unwrap_or(u32::MAX);
    let connections = Arc::new(Semaphore::new(connections_max as usize));
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stop => break,
            accepted = acceptor.accept() => accepted,
        };
        match accepted {
            Ok(stream) => match Arc::clone(&connections).try_acquire_owned() {
                Ok(permit) => {
                    let (app, told) = (Arc::clone(&app), told.clone());
                    tokio::spawn(async move {
                        match app.access.tls.clone() {
                            None => connection(app, stream, told).await,
                            Some(tls) => secured(app, tls, stream, told).await,
                        }
                        drop(permit);
                    });
                }
                Err(_) => {
                    app.metrics.connection_refused();
                    // Who waits for a handshake can read no answer.
                    if app.access.tls.is_none() {
                        stream.refuse(guard::FULL);
                    }
                }
            },
            Err(why) if one_connection_only(&why) => {}
            Err(why) => {
                tracing::warn!(error = %why, "cannot take a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(acceptor);
    drain(&stage, &connections, connections_max, app.limits.drain_max).await
}

/// Errors of accept(2) that are about the one connection that was to be taken.
fn one_connection_only(why: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(why.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

async fn drain(
    stage: &watch::Sender<Stage>,
    connections: &Semaphore,
    connections_max: u32,
    drain_max: Duration,
) -> io::Result<Drained> {
    stage.send_replace(Stage::Draining);
    if tokio::time::timeout(drain_max, connections.acquire_many(connections_max)).await.is_ok() {
        return Ok(Drained::Clean);
    }
    let open = (connections_max as usize).saturating_sub(connections.available_permits());
    stage.send_replace(Stage::Ended);
    // Each task sees the stage at its next turn and drops its connection.
    let _closed = connections.acquire_many(connections_max).await;
    Ok(Drained::CutOff(open))
}

/// A connection whose handshake comes first; one that has not ended when the server drains is cut off.
async fn secured<B: Backend>(app: Arc<App<B>>, tls: ServerTls, stream: Stream, mut told: watch::Receiver<Stage>) {
    let shaken = tokio::select! {
        biased;
        shaken = tls.accept(stream) => shaken,
        _ = told.changed() => return,
    };
    match shaken {
        Ok(stream) => connection(app, stream, told).await,
        Err(why) => {
            app.metrics.handshake_failed();
            tracing::debug!(error = %why, "a handshake failed");
        }
    }
}

async fn connection<B: Backend>(
    app: Arc<App<B>>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    mut told: watch::Receiver<Stage>,
) {
    let phase = Arc::new(Phase::default());
    let io = TokioIo::new(Guarded::new(stream, Arc::clone(&phase), &app.limits));
    let service = service_fn(move |request: Request<Incoming>| {
        let app = Arc::clone(&app);
        let busy = Busy::begin(&phase);
        async move { Ok::<Response<Body>, Infallible>(dispatch::answer(&app, request, busy).await) }
    });
    // A client may say that it has no more to ask (half-close) and still wait for its answer.
    let mut served = pin!(
        http1::Builder::new()
            .half_close(true)
            .header_read_timeout(None)
            .max_header_size(if holds(Mitigation::HeadBytes) { HEAD_BYTES_MAX } else { usize::MAX })
            .max_buf_size(if holds(Mitigation::HeadBytes) { CONNECTION_BUFFER_BYTES } else { usize::MAX >> 1 })
            .serve_connection(io, service)
    );
    let mut steady = Steady::default();
    loop {
        tokio::select! {
            biased;
            ended = poll_fn(|cx| steady.poll(served.as_mut(), cx)) => {
                if let Err(why) = ended {
                    tracing::trace!(error = %why, "a connection ended early");
                }
                return;
            }
            changed = told.changed() => match (changed, *told.borrow()) {
                (Ok(()), Stage::Serving) => {}
                (Ok(()), Stage::Draining) => served.as_mut().graceful_shutdown(),
                (Ok(()), Stage::Ended) | (Err(_), _) => return,
            },
        }
    }
}
