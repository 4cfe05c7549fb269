//! Start, serving, end.

use std::convert::Infallible;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use hyper::service::service_fn;
use ringfence_grant::Terms;
use ringfence_listen::{Bounds, Lanes};
use ringfence_tls::{ClientTls, ServerTls};
use tokio::sync::Semaphore;
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
use crate::metrics;
use crate::secret::Bearer;
use crate::shared::Shared;
use crate::upstream::Upstream;
use crate::url::Url;
use crate::usage::{Destination, Shipper, Spool};

/// A gate whose parts run behind the scenes: key set, backends, usage.
pub struct Gate {
    shared: Shared,
    tls: Option<ServerTls>,
    /// What the backends' certificates are held to.
    backend_tls: Option<ClientTls>,
    /// Dropped with the gate, and so ended.
    tasks: JoinSet<()>,
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
        let tls = config.tls.listener;
        let backend_tls = config.tls.backends;
        let (upstream, control) = (Upstream::new(backend_tls.clone()), Upstream::new(config.tls.control));
        let keys = Arc::new(Keys::new(key_source(&config.keys, &control)?, pace.keys_every, pace.keys_stale_max)?);
        let proof = config.backend_token_file.as_deref().map(Bearer::read).transpose()?;
        let id_keys = IdKeys::read(&config.id_keys_file)?;
        let (list, file) = (&config.backends, config.backends_file.clone());
        let backends = Backends::new(list, file, upstream.clone(), proof.clone(), pace.health_every)?;
        let mut tasks = JoinSet::new();
        let spool = config.usage.as_ref().map(|usage| metering(usage, pace, &control, &mut tasks)).transpose()?;
        let admission = Admission::new(terms, Arc::clone(&keys), config.clock.unwrap_or_else(system_clock));
        let shared = Shared {
            admission: Arc::new(admission),
            id_keys: Arc::new(id_keys),
            backends: Arc::clone(&backends),
            room: Room::new(),
            operations: Arc::new(Semaphore::new(OPERATIONS_MAX)),
            spool,
            proof,
            policy: config.policy,
            metrics: Arc::default(),
            upstream,
        };
        let room = shared.room.clone();
        tasks.spawn(async move { keys.refresh(&control, &room).await });
        let resolve_every = config.pace.resolve_every;
        tasks.spawn(async move { backends.follow(resolve_every).await });
        Ok(Gate { shared, tls, backend_tls, tasks })
    }

    /// Answers `GET /metrics` on a listener of its own, to whoever reaches it, until the gate ends.
    pub fn serve_metrics(&mut self, listener: std::net::TcpListener) {
        let shared = self.shared.clone();
        self.tasks.spawn(async move {
            if let Err(error) = metrics::serve(shared, listener).await {
                tracing::error!(%error, "no metrics are served");
            }
        });
    }

    /// Serves until `shutdown` is done, on a thread for each core; then takes no connection, lets what runs end within
    /// the drain time, and returns.
    ///
    /// # Errors
    /// When the listening socket cannot be used, or a thread cannot be started.
    pub async fn serve(
        self,
        listener: std::net::TcpListener,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), GateError> {
        let bounds = Bounds {
            connections_max: CONNECTIONS_MAX,
            head_bytes_max: HEAD_BYTES_MAX,
            headers_max: HEADERS_MAX,
            head_wait: HEAD_WAIT,
            stall_max: STALL_MAX,
        };
        let lanes = Lanes::start("gate").map_err(GateError::Thread)?;
        let service = |_| {
            let upstream = Upstream::new(self.backend_tls.clone());
            let shared = Arc::new(Shared { upstream, ..self.shared.clone() });
            service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(dispatch(shared, request).await) }
            })
        };
        let (tls, lanes) = (self.tls.clone(), &lanes);
        let open = ringfence_listen::serve_in_lanes(listener, tls, bounds, lanes, service, shutdown).await;
        let open = open.map_err(GateError::Listen)?;
        let deadline = within(self.shared.policy.drain);
        let _in_time = timeout_at(deadline, open.drain()).await;
        // Calls whose clients hung up go on without a connection: they are metered too.
        let all = self.shared.operations.acquire_many(u32::try_from(OPERATIONS_MAX).unwrap_or(u32::MAX));
        if timeout_at(deadline, all).await.is_err() {
            tracing::warn!("operations still run: they are cut off");
        }
        Ok(())
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Some(spool) = &self.shared.spool {
            spool.close();
        }
    }
}

const WITHOUT_CONTROL_CA: &str = "needs `--control-ca`: the authorities that its certificate is checked by";

fn key_source(text: &str, control: &Upstream) -> Result<KeySource, GateError> {
    if text.contains("://") {
        let url = Url::parse("key set", text)?;
        control.check("key set", &url, WITHOUT_CONTROL_CA)?;
        return Ok(KeySource::Url(url));
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
    let url = Url::parse("usage URL", &usage.url)?;
    upstream.check("usage URL", &url, WITHOUT_CONTROL_CA)?;
    let destination = Destination {
        url,
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
