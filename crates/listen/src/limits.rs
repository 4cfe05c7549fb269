//! The bounds of the accept loop that its users do not choose.

use std::time::Duration;

/// The pause after the kernel refused a new connection (no descriptors, no memory).
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
