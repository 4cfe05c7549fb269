//! The one table of mutable state: leases, the queue of each session, its clocks, its end.
//!
//! May know: `interp` (cells and how calls run in them), `workspace` (files), `op`. Never knows: HTTP, JSON, how a
//! cell is held.
//!
//! What decides is pure and has the time handed in ([`lifetime`], [`queue`], [`fair`]); [`sessions`] carries it out.
//!
//! **Invariants.**
//! - One call at a time runs in a session, in the order in which they came; the line behind it is bounded.
//! - A session is idle only when nothing runs, waits or is transferred in it.
//! - A call that was begun goes on when whoever asked for it goes away; it ends with its session at the latest.
//! - A session belongs to the workspace that leased it, for good.
//! - A workspace above its fair share never takes the last free places.
//! - A session that is not in the table is never found again, and its cell is destroyed.
//! - At rest nothing wakes: one task sleeps until the first session can end.

mod calls;
mod config;
mod detached;
mod fair;
mod files;
mod guards;
mod images;
mod lifetime;
mod limits;
mod queue;
mod refusal;
mod session;
mod sessions;

pub use config::{Absent, Counts, Handle, Lease, SessionConfig, Sharing};
pub use files::Files;
pub use ringfence_workspace::{Archive, OpenedFile, Upload};
pub use session::Hold;
pub use sessions::Sessions;
