//! A blocking keep-alive HTTP/1.1 connection, as thin as a client that measures or attacks must be.
//!
//! May know: nothing. Never knows: the contract, JSON, which backend answers.
//!
//! **Invariants.** Every wait and every buffer is bounded. An answer is given whole or not at all.

mod connection;
mod limits;

pub use connection::{Address, Answer, Connection, ProbeError, multipart_file, percent_encoded};
