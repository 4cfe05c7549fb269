//! Interpreters in cells: the zygote and worker programs, the worker's handle, how a call runs, the warm pool.
//!
//! May know: `jail` (a started keeper), `frame`, `op`, `weaken`, tokio. Never knows: sessions, HTTP, how a cell is built.
//!
//! Three links lead to a cell: the keeper's socket (make, fork an interpreter, destroy; [`keeper_link`]), init's
//! socket (shell commands, signals, killing; [`init_link`]) and the interpreter's frame socket with two pipes beside
//! it ([`worker`]). A [`Cell`] puts them together and runs one call after another.
//!
//! **Invariants.**
//! - Nothing that a program writes or sends is taken for an answer of ours: a call ends by its nonce, by its death
//!   or by its time.
//! - The answer of a call leaves within its timeout and three seconds more.
//! - What a program writes is held in bounded memory, and no program blocks for ever on a pipe that we hold.
//! - A cell that was handed out is never handed out again.
//! - A dropped [`Cell`] is destroyed.

mod bash;
mod cell;
mod error;
#[cfg(test)]
mod fake;
mod init_link;
mod interp;
mod interrupt;
mod keeper_link;
pub mod limits;
mod memory;
mod meters;
mod output;
mod pipes;
mod pool;
mod python;
mod sweep;
#[cfg(test)]
mod tests;
mod verdict;
mod watched;
mod worker;

pub use cell::Cell;
pub use error::LeaseError;
pub use interp::{Interp, InterpConfig};
pub use interrupt::InterruptHandle;
pub use memory::Memory;
pub use output::{HeadTail, cap_text};
pub use pool::Renewal;

/// The program of the zygotes; travels in the keeper's configuration.
pub const ZYGOTE_SOURCE: &str = include_str!("../python/zygote.py");
/// What the zygotes run beside it where sessions have no namespaces; travels likewise.
pub const GUARD_SOURCE: &str = include_str!("../python/guard.py");
/// The same where each session is a gVisor sandbox.
pub const SANDBOX_SOURCE: &str = concat!(include_str!("../python/guard.py"), include_str!("../python/sandbox.py"));
/// The program of the workers; travels in the keeper's configuration.
pub const WORKER_SOURCE: &str = concat!(
    include_str!("../python/ground.py"),
    include_str!("../python/tracebacks.py"),
    include_str!("../python/library.py"),
    include_str!("../python/figures.py"),
    include_str!("../python/worker.py"),
);
