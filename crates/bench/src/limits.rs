//! Bounds of the bench itself.

/// Size of the file that transfers move, bytes.
pub(crate) const TRANSFER_BYTES: usize = 100 * 1000 * 1000;
