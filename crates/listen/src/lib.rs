//! The accept loop of the front door, of the control plane and of the MCP server: HTTP/1.1 on a bound socket, with or without TLS.
//!
//! For: one loop with its bounds in one place. The server has its own ([`docs/decisions`], 8): it refuses a connection
//! too many by an answer, tells a slow head what it is, and serves Unix sockets. May know: `tls`. Never knows: what is
//! served.
//!
//! **Invariants.**
//! - As many connections as the bounds say; one more waits in the kernel's queue.
//! - A head, a handshake and an answer that nobody reads have an end each; a body's is its reader's.

mod lanes;
pub mod limits;

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use ringfence_tls::ServerTls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use lanes::Lanes;
use limits::ACCEPT_PAUSE;

/// What connections may take.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Connections at once.
    pub connections_max: usize,
    /// The largest head of a request, bytes.
    pub head_bytes_max: usize,
    /// The most header fields of a request.
    pub headers_max: usize,
    /// How long a connection may be idle, or take to send a head.
    pub head_wait: Duration,
    /// How long the kernel waits for a client that does not read its answer.
    pub stall_max: Duration,
}

/// What runs after the last connection was taken.
#[must_use]
pub struct Open {
    graceful: GracefulShutdown,
}

impl Open {
    /// Lets the requests that run come to their end, and closes what is idle. Whoever drops it instead cuts nothing off:
    /// connections end with the runtime.
    pub async fn drain(self) {
        self.graceful.shutdown().await;
    }
}

/// Serves until `shutdown` is done; then takes no connection any more. What runs is handed back.
///
/// # Errors
/// When the socket cannot be used; what goes wrong with a connection ends that connection alone.
pub async fn serve<S, B>(
    listener: std::net::TcpListener,
    tls: Option<ServerTls>,
    bounds: Bounds,
    service: S,
    shutdown: impl Future<Output = ()>,
) -> io::Result<Open>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let take = |taken: Taken| {
        let (tls, service) = (tls.clone(), service.clone());
        tokio::spawn(async move { secured(taken, tls, bounds, service).await });
    };
    accept(listener, bounds, take, shutdown).await
}

/// The same, with the connections spread over lanes. Each lane has a service of its own, which `service` makes of the
/// lane's number; what it starts runs in that lane.
///
/// # Errors
/// When the socket cannot be used; what goes wrong with a connection ends that connection alone.
pub async fn serve_in_lanes<S, B>(
    listener: std::net::TcpListener,
    tls: Option<ServerTls>,
    bounds: Bounds,
    lanes: &Lanes,
    service: impl FnMut(usize) -> S,
    shutdown: impl Future<Output = ()>,
) -> io::Result<Open>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let services: Vec<S> = (0..lanes.count()).map(service).collect();
    let take = |Taken { stream, watcher, permit }: Taken| {
        // The runtime that watches a socket is the one in which it was made.
        let Ok(stream) = stream.into_std() else { return };
        lanes.spawn(|lane| {
            let (tls, service) = (tls.clone(), services.get(lane).cloned());
            async move {
                let (Some(service), Ok(stream)) = (service, TcpStream::from_std(stream)) else { return };
                secured(Taken { stream, watcher, permit }, tls, bounds, service).await;
            }
        });
    };
    accept(listener, bounds, take, shutdown).await
}

/// A connection that was taken, and what ends with it.
struct Taken {
    stream: TcpStream,
    watcher: Watcher,
    permit: OwnedSemaphorePermit,
}

async fn accept(
    listener: std::net::TcpListener,
    bounds: Bounds,
    take: impl Fn(Taken),
    shutdown: impl Future<Output = ()>,
) -> io::Result<Open> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let connections = Arc::new(Semaphore::new(bounds.connections_max));
    let graceful = GracefulShutdown::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = async {
            let permit = Arc::clone(&connections).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            () = &mut shutdown => break,
            accepted = accepted => accepted,
        };
        match (permit, accepted) {
            (Ok(permit), Ok((stream, _))) => {
                prepare(&stream, bounds);
                take(Taken { stream, watcher: graceful.watcher(), permit });
            }
            (_, Err(error)) => {
                // Out of descriptors, most likely: others may be closed meanwhile.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            (Err(_), _) => break,
        }
    }
    Ok(Open { graceful })
}

fn prepare(stream: &TcpStream, bounds: Bounds) {
    // An answer is written whole: nothing is gained by waiting for more of it.
    let _unsupported = stream.set_nodelay(true);
    // A client that does not read its answer is cut off by the kernel.
    let stall_ms = u32::try_from(bounds.stall_max.as_millis()).unwrap_or(u32::MAX);
    let _unsupported = rustix::net::sockopt::set_tcp_user_timeout(stream, stall_ms);
}

/// A connection from its first byte, with or without TLS.
async fn secured<S, B>(taken: Taken, tls: Option<ServerTls>, bounds: Bounds, service: S)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + 'static,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let Taken { stream, watcher, permit } = taken;
    let Some(tls) = tls else { return connection(stream, bounds, service, watcher, permit).await };
    match tls.accept(stream).await {
        Ok(stream) => connection(stream, bounds, service, watcher, permit).await,
        Err(error) => tracing::debug!(%error, "a handshake failed"),
    }
}

async fn connection<S, B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    bounds: Bounds,
    service: S,
    watcher: Watcher,
    permit: OwnedSemaphorePermit,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + 'static,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head_wait)
        .max_headers(bounds.headers_max)
        .max_buf_size(bounds.head_bytes_max)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a connection ended");
    }
    drop(permit);
}
