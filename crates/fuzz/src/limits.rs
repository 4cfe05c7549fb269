//! Bounds of a short run.

/// Mutations of a corpus that a short run tries, for targets that only compute.
pub const MUTATIONS: u64 = 10_000;
/// The same for forms, which are read three times, once byte by byte.
pub const MUTATIONS_OF_FORMS: u64 = 2_000;
/// The same for targets that make files.
pub const MUTATIONS_WITH_FILES: u64 = 1_000;
/// The longest mutated input, bytes.
pub const INPUT_BYTES_MAX: usize = 64 << 10;
/// Changes that make one mutation, at most.
pub const CHANGES_MAX: u64 = 6;
/// What an unpacked archive may hold, bytes.
pub const UNPACKED_BYTES_MAX: u64 = 1 << 20;
/// Edits that one input asks for, at most.
pub const EDITS_MAX: usize = 16;
