//! The mitigations by name, and a build in which each can be left out, to prove that something misses it.
//!
//! For: `security/mitigations-off`. Whoever carries a mitigation out asks [`holds`] first. That is `true`, as a constant,
//! in every build but one with the feature `weakened`, which no other package turns on by default and which does not
//! compile without debug assertions: a release cannot have it. May know: nothing. Never knows: what a mitigation does;
//! `security/mitigations.toml` says that, and what notices when it is gone.
//!
//! A weakened program takes the names of what it leaves out from the variable `WEAKENED`, separated by commas, hands them
//! to the programs that it starts with an empty environment otherwise, and refuses a name that it does not know.
//!
//! **Invariant.** Without the feature there is no way to leave anything out: nothing is read, and no name is in the program.

#[cfg(all(feature = "weakened", not(debug_assertions)))]
compile_error!("the feature `weakened` is for proofs; no release has it");

mod names;

#[cfg(feature = "weakened")]
mod weakened;

pub use names::Mitigation;
#[cfg(feature = "weakened")]
pub use weakened::{environment, holds, kept_source, left_out};

/// Whether the mitigation is in force. Child-safe.
#[cfg(not(feature = "weakened"))]
#[must_use]
#[inline(always)]
pub const fn holds(_: Mitigation) -> bool {
    true
}

/// What a program that is started with an empty environment gets nevertheless: nothing.
#[cfg(not(feature = "weakened"))]
#[must_use]
pub const fn environment() -> Vec<std::ffi::CString> {
    Vec::new()
}

/// A program in Python as it is.
#[cfg(not(feature = "weakened"))]
#[must_use]
#[inline(always)]
pub const fn kept_source(source: String) -> String {
    source
}

/// The names of what is left out: none.
#[cfg(not(feature = "weakened"))]
#[must_use]
pub const fn left_out() -> Vec<&'static str> {
    Vec::new()
}
