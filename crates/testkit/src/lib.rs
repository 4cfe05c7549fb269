//! What tests of the whole share: the real program on a port of its own, a plain blocking client, a leak counter, a real
//! PostgreSQL.
//!
//! May know: the program from outside, its ready lines, the contract's HTTP, `probe`. Never knows: any other room.
//!
//! **Invariants.** A [`Server`] that goes out of scope is stopped and waited for. Every wait has a bound and says what
//! it waited for. What a test counts as left behind is looked for in the kernel, not asked of the server.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on ends by a panic that says why"
)]

mod authority;
mod client;
mod container;
mod leaks;
mod postgres;
mod server;

pub use authority::Authority;
pub use client::{Answer, Client, Session};
pub use container::Container;
pub use leaks::{Footprint, cgroups_of, daemon_descriptors, descendants, eventually, mounts};
pub use postgres::Postgres;
pub use server::{Server, ServerOptions, User, shared_state_dir};
