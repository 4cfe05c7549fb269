//! A blocking keep-alive HTTP/1.1 connection, plain or over TLS, as thin as a client that measures or attacks must
//! be.
//!
//! May know: nothing. Never knows: the contract, JSON, which backend answers.
//!
//! **Invariants.** Over https a server is believed only with a certificate of its name that leads to a known root. Every
//! wait and every buffer is bounded. An answer is given whole or not at all.

mod address;
mod connection;
mod limits;
mod tls;

pub use address::{Address, Stream};
pub use connection::{Answer, Connection, ProbeError, multipart_file, percent_encoded};
