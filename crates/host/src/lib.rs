//! What this host offers, and which tier that allows.
//!
//! [`Facts::find`] looks and tries; [`can`] answers for one tier whether these facts are enough for it, and what is
//! missing; [`choose`] takes the tier that a server runs with.
//!
//! May know: `op`, `sys`, the kernel's files. Never knows: how sessions are held, images, HTTP.
//!
//! **Invariants.** What a tier rests on is tried in a child process, never guessed from a version or a setting; files
//! are read to say *why* something failed, and what lifts it. Looking changes nothing on the host and leaves nothing
//! behind. A tier that this build does not have is never offered.

mod cell;
mod facts;
mod tier;

pub use cell::{CellTrial, TrialStep};
pub use facts::Facts;
pub use tier::{BUILT, Choice, Missing, NoTier, can, choose};
