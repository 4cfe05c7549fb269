//! Bounds of this room.

use std::time::Duration;

/// How long the trial's cell may take to be made.
pub(crate) const TRIAL_WAIT_MAX: Duration = Duration::from_secs(10);
/// Bytes that are read of one of the kernel's files.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;
/// How long `runsc` may take to say what it is.
pub(crate) const RUNSC_WAIT_MAX: Duration = Duration::from_secs(10);
/// Bytes that are taken of what it says.
pub(crate) const RUNSC_BYTES_MAX: u64 = 64 << 10;
/// Parts of `/proc` that are named as covered.
pub(crate) const COVERED_MAX: usize = 64;
