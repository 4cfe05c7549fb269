//! The bounds of this room.

use std::time::Duration;

/// The longest `Retry-After` that a full house gives; a caller that comes back sooner loses nothing.
pub(crate) const RETRY_AFTER_SECONDS_MAX: u32 = 60;
/// `Retry-After` where nothing better is known: a queue that is full, a cell that could not be made.
pub(crate) const RETRY_AFTER_SECONDS_DEFAULT: u32 = 2;
/// `Retry-After` while the server shuts down: another one has to come up first.
pub(crate) const RETRY_AFTER_SECONDS_DRAINING: u32 = 10;
/// How long the teardown of ended sessions is waited for at shutdown.
pub(crate) const TEARDOWN_WAIT_MAX: Duration = Duration::from_secs(30);
/// The shortest idle timeout and lifetime that a hint can ask for.
pub(crate) const LIFE_MIN: Duration = Duration::from_secs(1);
/// Names of images that the log is told of, each once: callers choose them.
pub(crate) const IMAGES_TOLD_MAX: usize = 64;
