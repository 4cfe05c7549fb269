//! Bounds of this room.

use std::time::Duration;

/// Wheels that are fetched at the same time.
pub(crate) const DOWNLOADS_AT_ONCE: usize = 4;
/// How often pip may try one request again.
pub(crate) const PIP_RETRIES: u32 = 2;
/// The last lines of pip's output that an error carries.
pub(crate) const TAIL_LINES_MAX: usize = 12;
/// The most of a log that is read for them, bytes.
pub(crate) const TAIL_BYTES_MAX: u64 = 16 << 10;
/// How long one process waits for another that builds the same image.
pub(crate) const OTHER_BUILD_WAIT_MAX: Duration = Duration::from_secs(3600);
/// How often it looks.
pub(crate) const OTHER_BUILD_POLL: Duration = Duration::from_millis(200);
/// The largest manifest that is read, bytes.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 64 << 10;
/// The largest start-up script whose first line is rewritten, bytes.
pub(crate) const SCRIPT_BYTES_MAX: u64 = 256 << 10;
