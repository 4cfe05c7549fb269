//! The messages between daemon, keeper, zygote, init and worker, as bytes.
//!
//! May know: nothing. Never knows: sockets, descriptors, what a message leads to.
//!
//! Five links, each with its own message set, all little-endian, all bounded:
//!
//! | link | socket | messages | who is hostile |
//! | --- | --- | --- | --- |
//! | daemon - keeper | SEQPACKET | [`keeper`]: 64 bytes each | the daemon, once its HTTP side is broken |
//! | puller - keeper | SEQPACKET | [`puller`]: 64 bytes each, the keeper's; the puller sends roots of images | the puller, once a registry has broken it |
//! | keeper - zygote | SEQPACKET | [`zygote`]: 64 bytes each | nobody (no user code) |
//! | daemon - init | SEQPACKET | [`init`]: a 64-byte head, for `Spawn` followed by the command | nobody, but it lives in the cell |
//! | daemon - worker | STREAM | [`worker`]: length-prefixed frames | the worker: user code may write anything |
//!
//! Descriptors travel beside a message (SCM_RIGHTS); each message's documentation says which and in what order.
//!
//! **Invariants.** A decoder never panics, never allocates more than its bound, and refuses what it does not know.

pub mod init;
pub mod keeper;
mod packet;
pub mod puller;
pub mod worker;
pub mod zygote;

pub use packet::{DecodeError, PACKET_BYTES};
