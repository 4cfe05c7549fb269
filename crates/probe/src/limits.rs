//! Bounds of a connection.

use std::time::Duration;

/// Longest wait for an answer.
pub(crate) const ANSWER_WAIT_MAX: Duration = Duration::from_secs(120);
/// Longest head of an answer, bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Longest body that is kept, bytes; longer ones are only counted.
pub(crate) const BODY_KEPT_BYTES_MAX: usize = 8 << 20;
/// Size of the read buffer, bytes.
pub(crate) const READ_BYTES: usize = 256 * 1024;
