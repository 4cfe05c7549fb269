//! Start, accept loop, end.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use ringfence_grant::limits::LIFETIME_SECONDS_MAX;
use ringfence_grant::{Algorithm, Terms};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::{self, App};
use crate::config::{Clock, Config};
use crate::error::ControlError;
use crate::keyring::{Added, Keyring};
use crate::limits::{
    ADMIN_TOKEN_BYTES_MIN, BODY_WAIT, CONNECTIONS_MAX, DRAIN_WAIT, HEAD_BYTES_MAX, HEAD_WAIT, HEADERS_MAX,
    KEY_LEAD_SECONDS_MAX,
};
use crate::store::Store;
use crate::token::hash;

/// A control plane that is connected to its database.
pub struct Control {
    app: Arc<App>,
}

impl Control {
    /// Checks the configuration, reads the admin's token, connects to the database and brings its schema up to date.
    ///
    /// # Errors
    /// What cannot be used. Secrets are in no error.
    pub async fn start(config: Config) -> Result<Self, ControlError> {
        check(&config)?;
        let admin = ringfence_secret::read_line(&config.admin_token_file, ADMIN_TOKEN_BYTES_MIN)?;
        let clock = config.clock.unwrap_or_else(|| -> Clock { Arc::new(system_ms) });
        let keyring = Keyring::new(config.keys_folder, config.key_lead_seconds);
        let app = App {
            store: Store::open(&config.database).await?,
            keyring,
            admin_hash: hash(&admin),
            issuer: config.issuer,
            audiences: config.audiences,
            grant_seconds_max: config.grant_seconds_max,
            clock,
        };
        Ok(Control { app: Arc::new(app) })
    }

    /// The id of the key that signs now.
    ///
    /// # Errors
    /// When there is none, or its private part cannot be read.
    pub async fn signing_key(&self) -> Result<String, ControlError> {
        let rows = self.app.store.keys().await?;
        let key = self.app.keyring.signer(&rows, self.app.now_ms())?;
        Ok(key.public().key_id().to_owned())
    }

    /// Makes the first key, which signs at once, unless there is one. Its id, where it was made.
    ///
    /// # Errors
    /// When the database or the folder of keys cannot be written.
    pub async fn make_first_key(&self) -> Result<Option<String>, ControlError> {
        if self.app.store.keys().await?.iter().any(|row| row.revoked_ms.is_none()) {
            return Ok(None);
        }
        let app = &self.app;
        match app.keyring.add(&app.store, Algorithm::EdDsa, false, app.now_ms(), "command").await? {
            Added::Done(row) => Ok(Some(row.kid)),
            Added::Conflict(_) => Ok(None),
        }
    }

    /// Ends the connections to the database.
    pub async fn close(self) {
        self.app.store.close().await;
    }

    /// Serves until `shutdown` is done; then takes no connection, lets what runs end within a bounded time, and
    /// returns.
    ///
    /// # Errors
    /// When the listening socket cannot be used.
    pub async fn serve(
        self,
        listener: std::net::TcpListener,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ControlError> {
        listener.set_nonblocking(true).map_err(ControlError::Listen)?;
        let listener = TcpListener::from_std(listener).map_err(ControlError::Listen)?;
        let router = api::router(Arc::clone(&self.app));
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
                (Ok(permit), Ok((stream, _))) => connection(router.clone(), stream, permit, &graceful),
                (_, Err(error)) => {
                    // Out of descriptors, most likely: others may be closed meanwhile.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                (Err(_), _) => break,
            }
        }
        drop(listener);
        let begun = Instant::now();
        let _in_time = tokio::time::timeout(DRAIN_WAIT, graceful.shutdown()).await;
        tracing::debug!(waited = ?begun.elapsed(), "drained");
        self.app.store.close().await;
        Ok(())
    }
}

fn connection(router: Router, stream: TcpStream, permit: OwnedSemaphorePermit, graceful: &GracefulShutdown) {
    let _unsupported = stream.set_nodelay(true);
    // A client that does not read its answer is cut off by the kernel.
    let stall_ms = u32::try_from(BODY_WAIT.as_millis()).unwrap_or(u32::MAX);
    let _unsupported = rustix::net::sockopt::set_tcp_user_timeout(&stream, stall_ms);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        let _permit = permit;
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection ended");
        }
    });
}

fn check(config: &Config) -> Result<(), ControlError> {
    let setting = |text| Err(ControlError::Setting(text));
    if config.audiences.is_empty() {
        return setting("at least one audience must be named");
    }
    if config.audiences.iter().any(|audience| Terms::new(&config.issuer, audience).is_err()) {
        return setting("issuer and audiences must be 1 to 256 visible ASCII characters each");
    }
    if !(1..=LIFETIME_SECONDS_MAX).contains(&config.grant_seconds_max) {
        return setting("a grant's lifetime must be 1 to 86400 seconds");
    }
    if config.key_lead_seconds > KEY_LEAD_SECONDS_MAX {
        return setting("the lead time of keys must be at most 604800 seconds");
    }
    if !config.keys_folder.is_dir() {
        let reason = "it is no folder: `ringfence control init` makes it".to_owned();
        return Err(ControlError::Content { path: config.keys_folder.clone(), reason });
    }
    Ok(())
}

fn system_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
