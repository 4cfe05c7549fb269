//! Bounds on what a request may hold. The size of the whole body is bounded by who reads it.

/// The longest `image` hint that is looked at, bytes. A longer one names no image, and is ignored as such.
pub const IMAGE_BYTES_MAX: usize = 1024;

/// The longest part of a refused value that is repeated in a refusal, characters.
pub const QUOTED_CHARS_MAX: usize = 80;
