//! What this host offers, and which tier that allows.
//!
//! [`Facts::find`] looks and tries; [`can`] answers for one tier whether these facts are enough for it, and what is
//! missing; [`choose`] takes the tier that a server runs with.
//!
//! May know: `frame`, `jail`, `op`, `sys`, the kernel's files. Never knows: sessions, images, HTTP.
//!
//! **Invariants.** What a tier rests on is tried in a child process, never guessed from a version or a setting: for
//! `cell` a keeper is started and makes a cell; for `gvisor` a program runs in a sandbox. Files are read to say *why* something failed, and what lifts it. Looking changes nothing on the host and leaves nothing
//! behind. A tier that this build does not have is never offered.

mod attempt;
mod cell;
mod cgroups;
mod confined;
mod container;
mod facts;
mod files;
mod gvisor;
mod limits;
mod namespaces;
mod report;
mod runsc;
mod seccomp;
mod tier;

pub use attempt::Tried;
pub use cell::{CellTrial, Limits};
pub use cgroups::Cgroups;
pub use facts::{Facts, Kernel, Look, User, UserNamespaceLimits};
pub use gvisor::GvisorTrial;
pub use namespaces::Namespaces;
pub use report::{Row, of_cell, rows};
pub use runsc::Runsc;
pub use seccomp::Seccomp;
pub use tier::{BUILT, Choice, Missing, NoTier, can, choose};
