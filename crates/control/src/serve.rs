//! Start, serving, end.

use std::future::Future;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use hyper_util::service::TowerToHyperService;
use ringfence_grant::limits::LIFETIME_SECONDS_MAX;
use ringfence_grant::{Algorithm, Terms};
use ringfence_listen::Bounds;
use ringfence_tls::ServerTls;

use crate::api::{self, App};
use crate::config::{Clock, Config, Keep};
use crate::error::ControlError;
use crate::keyring::{Added, Keyring};
use crate::limits::{
    ADMIN_TOKEN_BYTES_MIN, BODY_WAIT, CONNECTIONS_MAX, DRAIN_WAIT, HEAD_BYTES_MAX, HEAD_WAIT, HEADERS_MAX,
    KEY_LEAD_SECONDS_MAX,
};
use crate::prune::{self, Pruned};
use crate::store::Store;
use crate::token::hash;

/// A control plane that is connected to its database.
pub struct Control {
    app: Arc<App>,
    keep: Keep,
    tls: Option<ServerTls>,
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
        Ok(Control { app: Arc::new(app), keep: config.keep, tls: config.tls })
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

    /// Lets go of what is older than it must be kept, now.
    ///
    /// # Errors
    /// When the database does not do it. What was done until then stays done.
    pub async fn prune(&self) -> Result<Pruned, ControlError> {
        prune::prune(&self.app, self.keep, "command").await
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
        let bounds = Bounds {
            connections_max: CONNECTIONS_MAX,
            head_bytes_max: HEAD_BYTES_MAX,
            headers_max: HEADERS_MAX,
            head_wait: HEAD_WAIT,
            stall_max: BODY_WAIT,
        };
        let pruning =
            (self.keep != Keep::default()).then(|| tokio::spawn(prune::run(Arc::clone(&self.app), self.keep)));
        let service = TowerToHyperService::new(api::router(Arc::clone(&self.app)));
        let open = ringfence_listen::serve(listener, self.tls, bounds, service, shutdown).await;
        if let Some(pruning) = pruning {
            // A portion that is cut off is rolled back.
            pruning.abort();
        }
        let open = open.map_err(ControlError::Listen)?;
        let begun = Instant::now();
        let _in_time = tokio::time::timeout(DRAIN_WAIT, open.drain()).await;
        tracing::debug!(waited = ?begun.elapsed(), "drained");
        self.app.store.close().await;
        Ok(())
    }
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
    prune::check(config.keep)?;
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
