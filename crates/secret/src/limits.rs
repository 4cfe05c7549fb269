//! The bounds of files with secrets.

/// The largest file of a secret, bytes.
pub const SECRET_BYTES_MAX: usize = 16 << 10;
