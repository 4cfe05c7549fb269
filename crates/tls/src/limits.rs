//! The bounds of TLS.

use std::time::Duration;

/// The largest file of certificates, bytes: a chain, or the few authorities that are taken.
pub const CERTIFICATES_BYTES_MAX: usize = 256 << 10;

/// How long a handshake may take.
pub const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);
