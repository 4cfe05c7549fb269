//! What a gate is told.

use std::path::PathBuf;
use std::time::Duration;

use ringfence_tls::{ClientTls, ServerTls};

use crate::admit::Clock;
use crate::limits::SPOOL_BYTES_DEFAULT;

/// The configuration of a gate, as texts and paths; [`crate::Gate::start`] checks them.
#[derive(Clone)]
pub struct GateConfig {
    /// `iss` of the grants that are accepted.
    pub issuer: String,
    /// `aud` of the grants that are accepted: this gate.
    pub audience: String,
    /// How far the clocks of the control plane and the gate may differ, seconds; at most 60.
    pub skew_seconds: u64,
    /// Where the key set (JWKS) comes from: a path, or an `http[s]://` URL.
    pub keys: String,
    /// The file of the keys that seal session ids, mode 0600; the same at every gate of the deployment.
    pub id_keys_file: PathBuf,
    /// Backends as `NAME=URL`; a URL `dns+http://...` is every address of its host.
    pub backends: Vec<String>,
    /// A file of more backends, read again when it changes: lines `NAME URL [draining]`.
    pub backends_file: Option<PathBuf>,
    /// The file of the secret that proves the gate to the backends, mode 0600.
    pub backend_token_file: Option<PathBuf>,
    /// TLS, each way.
    pub tls: TlsConfig,
    /// Where usage goes; `None` records none.
    pub usage: Option<UsageConfig>,
    /// What is bounded and clamped.
    pub policy: Policy,
    /// How often things are looked at.
    pub pace: Pace,
    /// POSIX seconds; `None` is the system's clock.
    pub clock: Option<Clock>,
}

/// Where TLS is spoken; by default nowhere.
#[derive(Clone, Default)]
pub struct TlsConfig {
    /// What the gate's own listener shows and asks for; `None` is plain HTTP.
    pub listener: Option<ServerTls>,
    /// Who backends with `https` URLs must be, and what the gate shows them.
    pub backends: Option<ClientTls>,
    /// Who the control plane must be where the key set or usage has an `https` URL.
    pub control: Option<ClientTls>,
}

/// Where usage goes.
#[derive(Debug, Clone)]
pub struct UsageConfig {
    /// The folder of the spool, for this gate alone.
    pub spool: PathBuf,
    /// Where batches are posted: an `http[s]://` URL.
    pub url: String,
    /// The file of the bearer token that is sent with them, mode 0600.
    pub token_file: Option<PathBuf>,
    /// What this gate calls itself in a batch: 1 to 64 visible ASCII characters.
    pub gate: String,
    /// The largest spool, bytes. When it is full, leases and calls are refused with 503.
    pub spool_bytes_max: u64,
}

impl UsageConfig {
    /// A spool of the default size.
    #[must_use]
    pub fn new(spool: PathBuf, url: String) -> Self {
        let spool_bytes_max = SPOOL_BYTES_DEFAULT;
        UsageConfig { spool, url, token_file: None, gate: "gate".to_owned(), spool_bytes_max }
    }
}

/// What is sent where a grant has a ceiling and the request names no value; and how long a call is waited for.
#[derive(Debug, Clone)]
pub struct Policy {
    /// `timeout_seconds` of a call that names none, where the grant has a ceiling.
    pub timeout_seconds_default: u64,
    /// `idle_timeout_seconds` of a lease that names none, where the grant has a ceiling.
    pub idle_timeout_seconds_default: u64,
    /// `max_lifetime_seconds` of a lease that names none, where the grant has a ceiling.
    pub max_lifetime_seconds_default: u64,
    /// How long beyond its timeout a call is waited for: its wait in the session's queue, transport and teardown.
    pub call_headroom: Duration,
    /// How long running operations may go on after the gate is told to end.
    pub drain: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            timeout_seconds_default: 30,
            idle_timeout_seconds_default: 300,
            max_lifetime_seconds_default: 3600,
            call_headroom: Duration::from_secs(60),
            drain: Duration::from_secs(60),
        }
    }
}

/// How often things are looked at, and how long what was seen is believed.
#[derive(Debug, Clone)]
pub struct Pace {
    /// Health of each backend.
    pub health_every: Duration,
    /// The file of backends, and DNS names.
    pub resolve_every: Duration,
    /// The key set.
    pub keys_every: Duration,
    /// A key set that could not be confirmed for this long is not trusted any more.
    pub keys_stale_max: Duration,
    /// How long records are gathered into a batch.
    pub usage_gather: Duration,
    /// The pause after a batch that failed; it doubles.
    pub usage_pause_first: Duration,
    /// The longest such pause.
    pub usage_pause_max: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            health_every: Duration::from_secs(1),
            resolve_every: Duration::from_secs(5),
            keys_every: Duration::from_secs(60),
            // A control plane that is down for a day, and a morning to mend it.
            keys_stale_max: Duration::from_secs(48 * 3600),
            usage_gather: Duration::from_secs(1),
            usage_pause_first: Duration::from_secs(1),
            usage_pause_max: Duration::from_secs(60),
        }
    }
}
