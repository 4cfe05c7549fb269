//! The bounds of what an attack on the door sends and waits for.

use std::time::Duration;

/// Connections of one attack.
pub(crate) const DOOR_CONNECTIONS_MAX: usize = 512;
/// Bytes that each of them sends.
pub(crate) const DOOR_SENT_BYTES_MAX: usize = 64 << 20;
/// Bytes that are read of what it is answered.
pub(crate) const DOOR_ANSWER_BYTES_MAX: usize = 1 << 20;
/// How long an answer, or the end of a connection, is waited for.
pub(crate) const DOOR_WAIT_MAX: Duration = Duration::from_secs(60);
/// The pause between two pieces of what drips.
pub(crate) const DRIP_PAUSE: Duration = Duration::from_millis(250);
/// Nothing for so long after an answer: the connection was left open.
pub(crate) const QUIET_AFTER: Duration = Duration::from_secs(1);
