//! The front door: checks grants, injects tenancy, routes by the session id alone, and meters.
//!
//! ```text
//! request -> dispatch (route, smuggling) -> admit (grant) -> lease | execute | session | files
//!                                                              |          |
//!                    backends (list, DNS, health, choice) <----+          +----> usage (spool -> control plane)
//! ```
//!
//! May know: `grant`, ids of `op`, `listen`, `secret`, `tally`, `tls`, `usage`, the contract's JSON as far as it must read
//! it. Never knows: cells, interpreters, the server, what a program printed. Code, files and results pass through and are
//! never kept, logged or sent elsewhere.
//!
//! **Invariants.**
//! - Nothing reaches a backend without a grant that holds now; one that ends during an operation does not end it.
//! - What a backend is told of the tenant comes from the grant alone: no header of a client passes unless it is on a
//!   list, and the grant itself never goes to a backend.
//! - A session id names a backend of the list and a session of one workspace, sealed with the gates' key; whatever
//!   else is sent as one is 404. No id makes the gate connect to an address that is not in its list.
//! - The gate keeps no state of sessions: any gate with the same key serves any session, and can be killed.
//! - Files stream both ways. What is held whole (calls, results) has a bound each, and all together ([`limits`]).
//! - A result is what a backend said, whole, or an error: 502 where the outcome is not known, 503 where nothing ran.
//!   An Execute is sent at most once.
//! - With usage on, no lease or call is sent before its beginning is recorded, and no client hears of an outcome
//!   before its end is.
//! - Secrets come from files that nobody else can read, and stand in no log, error or Debug.

mod admit;
mod answer;
mod backends;
mod body;
mod config;
mod dispatch;
mod envelope;
mod error;
mod execute;
mod files;
mod headers;
mod ident;
mod keys;
mod lease;
pub mod limits;
mod members;
mod metrics;
mod relay;
mod secret;
mod serve;
mod session;
mod shared;
mod upstream;
mod url;
mod usage;

pub use admit::Clock;
pub use config::{GateConfig, Pace, Policy, TlsConfig, UsageConfig};
pub use error::GateError;
pub use serve::Gate;
