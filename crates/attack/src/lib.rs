//! Attacks a backend with the programs of `security/`, and tells which were held; and what the tier `confined` does not
//! promise, with a program for each that shows it.
//!
//! May know: the contract's paths and field names. Never knows: how a backend holds its sessions.
//!
//! **Invariants.** An attack counts as held only when its own refusal was met, in time, and the attacked server and
//! a second session answer afterwards. What could not be run is failed, never left out.

mod catalogue;
mod door;
mod limits;
mod runner;
mod target;
mod weakness;

pub use catalogue::{Attack, CatalogueError, Class, catalogue};
pub use runner::{ClassTotal, Finding, Report, run};
pub use target::{CannotAttack, first_contact};
pub use weakness::{Ids, Weakness, sandbox_weaknesses, weaknesses};
