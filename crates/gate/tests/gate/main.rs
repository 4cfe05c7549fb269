//! A gate on a real socket, between raw clients and raw backends.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test program may panic"
)]

mod broken;
mod front_door;
mod keys;
mod killed;
mod metrics;
mod restart;
mod support;
mod tls;
mod usage;
