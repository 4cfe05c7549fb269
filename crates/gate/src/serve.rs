//! Start, accept loop, end.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use ringfence_grant::Terms;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use crate::admit::{Admission, system_clock};
use crate::backends::Backends;
use crate::body::{Room, within};
use crate::config::{GateConfig, Pace, UsageConfig};
use crate::dispatch::dispatch;
use crate::error::GateError;
use crate::ident::IdKeys;
use crate::keys::{KeySource, Keys};
use crate::limits::{CONNECTIONS_MAX, HEAD_BYTES_MAX, HEAD_WAIT, HEADERS_MAX, OPERATIONS_MAX, STALL_MAX};
use crate::secret::Bearer;
use crate::shared::Shared;
use crate::upstream::Upstream;
use crate::url::Url;
use crate::usage::{Destination, Shipper, Spool};

/// A gate whose parts run behind the scenes: key set, backends, usage.
pub struct Gate {
    shared: Arc<Shared>,
    /// Dropped with the gate, and so ended.
    _tasks: JoinSet<()>,
}

impl Gate {
    /// Checks the configuration, reads every file of it, and begins to look at keys and backends. Must be called on a
    /// tokio runtime.
    ///
    /// # Errors
    /// What of the configuration cannot be used. Secrets are in no error.
    pub fn start(config: GateConfig) -> Result<Self, GateError> {
        let terms = Terms::new(&config.issuer, &config.audience).map_err(GateError::Terms)?;
        let terms = terms.with_skew(config.skew_seconds);
        let pace = &config.pace;
        let upstream = Upstream::new();
        let keys = Arc::new(Keys::new(key_source(&config.keys)?, pace.keys_every, pace.keys_stale_max)?);
        let proof = config.backend_token_file.as_deref().map(Bearer::read).transpose()?;
        let id_keys = IdKeys::read(&config.id_keys_file)?;
        let (list, file) = (&config.backends, config.backends_file.clone());
        let backends = Backends::new(list, file, upstream.clone(), proof.clone(), pace.health_every)?;
        let mut tasks = JoinSet::new();
        let spool = config.usage.as_ref().map(|usage| metering(usage, pace, &upstream, &mut tasks)).transpose()?;
        let shared = Arc::new(Shared {
            admission: Admission::new(terms, Arc::clone(&keys), config.clock.unwrap_or_else(system_clock)),
            id_keys,
            backends: Arc::clone(&backends),
            upstream: upstream.clone(),
            room: Room::new(),
            operations: Arc::new(Semaphore::new(OPERATIONS_MAX)),
            spool,
            proof,
            policy: config.policy,
        });
        let room = shared.room.clone();
        tasks.spawn(async move { keys.refresh(&upstream, &room).await });
        let resolve_every = config.pace.resolve_every;
        tasks.spawn(async move { backends.follow(resolve_every).await });
        Ok(Gate { shared, _tasks: tasks })
    }

    /// Serves until `shutdown` is done; then takes no connection, lets what runs end within the drain time, and
    /// returns.
    ///
    /// # Errors
    /// When the listening socket cannot be used.
    pub async fn serve(
        self,
        listener: std::net::TcpListener,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), GateError> {
        listener.set_nonblocking(true).map_err(GateError::Listen)?;
        let listener = TcpListener::from_std(listener).map_err(GateError::Listen)?;
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let graceful = GracefulShutdown::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            // One connection too many waits in the kernel's queue.
            let accepted = async {
                let permit = Arc::clone(&connections).acquire_owned().await;
                (permit, listener.accept().await)
            };
            let (permit, accepted) = tokio::select! {
                () = &mut shutdown => break,
                accepted = accepted => accepted,
            };
            match (permit, accepted) {
                (Ok(permit), Ok((stream, _))) => self.connection(stream, permit, &graceful),
                (_, Err(error)) => {
                    // Out of descriptors, most likely: others may be closed meanwhile.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                (Err(_), _) => break,
            }
        }
        drop(listener);
        let deadline = within(self.shared.policy.drain);
        let _in_time = timeout_at(deadline, graceful.shutdown()).await;
        // Calls whose clients hung up go on without a connection: they are metered too.
        let all = self.shared.operations.acquire_many(u32::try_from(OPERATIONS_MAX).unwrap_or(u32::MAX));
        if timeout_at(deadline, all).await.is_err() {
            tracing::warn!("operations still run: they are cut off");
        }
        Ok(())
    }

    fn connection(&self, stream: TcpStream, permit: OwnedSemaphorePermit, graceful: &GracefulShutdown) {
        // An answer is written whole: nothing is gained by waiting for more of it.
        let _unsupported = stream.set_nodelay(true);
        // A client that does not read its answer is cut off by the kernel.
        let stall_ms = u32::try_from(STALL_MAX.as_millis()).unwrap_or(u32::MAX);
        let _unsupported = rustix::net::sockopt::set_tcp_user_timeout(&stream, stall_ms);
        let shared = Arc::clone(&self.shared);
        let service = service_fn(move |request| {
            let shared = Arc::clone(&shared);
            async move { Ok::<_, std::convert::Infallible>(dispatch(shared, request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WAIT)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            let _permit = permit;
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Some(spool) = &self.shared.spool {
            spool.close();
        }
    }
}

fn key_source(text: &str) -> Result<KeySource, GateError> {
    if text.contains("://") {
        return Url::parse("key set", text).map(KeySource::Url);
    }
    Ok(KeySource::File(PathBuf::from(text)))
}

/// Opens the spool and begins to ship from it.
fn metering(
    usage: &UsageConfig,
    pace: &Pace,
    upstream: &Upstream,
    tasks: &mut JoinSet<()>,
) -> Result<Arc<Spool>, GateError> {
    if !(1..=64).contains(&usage.gate.len()) || !usage.gate.bytes().all(|byte| byte.is_ascii_graphic()) {
        let reason = "must be 1 to 64 visible ASCII characters";
        return Err(GateError::Value { what: "the gate's name", value: usage.gate.clone(), reason });
    }
    let destination = Destination {
        url: Url::parse("usage URL", &usage.url)?,
        token: usage.token_file.as_deref().map(Bearer::read).transpose()?,
        gate: usage.gate.clone(),
        pause_first: pace.usage_pause_first,
        pause_max: pace.usage_pause_max,
        gather: pace.usage_gather,
    };
    let spool = Spool::open(&usage.spool, usage.spool_bytes_max)?;
    spool.keep_synced()?;
    let shipper = Shipper::new(Arc::clone(&spool), upstream.clone(), destination).inspect_err(|_| spool.close())?;
    tasks.spawn(shipper.run());
    Ok(spool)
}
