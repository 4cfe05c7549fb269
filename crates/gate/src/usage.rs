//! Usage: one record for each lease and each call, kept on disk until the control plane has it.
//!
//! Theory of operation. Before a lease or a call is sent to a backend, its *begin* is appended to the spool; when its
//! outcome is known, before the client hears of it, its *end* is. Both are single `write`s, so that they outlive the
//! death of the process; a thread syncs them to the disk some times a second. What began and never ended, because the
//! gate was killed, gets its end when the spool is opened next, with the outcome `unknown`. A task ships ends in
//! batches. What a batch holds is written down before it is sent first, and that it was taken afterwards; so a batch
//! that is sent again, also by the next process, is the same, under the same key. Records have ids of their own.

mod id;
mod line;
mod position;
mod recover;
mod ship;
mod spool;

pub(crate) use id::{now_ms, uuid};
pub(crate) use ship::{Destination, Shipper};
pub(crate) use spool::{Spool, Ticket};
