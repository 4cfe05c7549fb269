//! The control plane: workspaces and their policy, tokens of gateways, grants, signing keys, and usage.
//!
//! ```text
//! request -> serve (connections) -> api (credential, body, one file per subject) -> store (SQLite | PostgreSQL)
//!                                                       |
//!                                                       +-> keyring (private keys in files) -> a signed grant
//! ```
//!
//! May know: `grant`, ids of `op`, `listen`, `secret`, `tls`, `usage`. Never knows: sessions, backends, code, files or
//! results: those never pass here.
//!
//! **Invariants.**
//! - A grant says what the workspace's policy says, or less. It is signed in the transaction that records it, and is
//!   kept nowhere.
//! - A change and its line of the audit are one transaction; an audit line holds ids, never a secret or a grant.
//! - A token is stored as its SHA-256 alone and shown once. Private keys are in files of mode 0600, never in the
//!   database, which holds public keys and times.
//! - What is published of keys depends on the database and the clock alone: a restart or another replica makes no hole.
//! - A usage record counts once, by its id, however often and in whatever batch it comes; what is answered with 2xx is
//!   on the disk.
//! - Every body, page, name and wait has a bound ([`limits`]).
//! - Secrets stand in no argument, log, error, answer (but the one that makes them) or Debug.

mod api;
mod config;
mod date;
mod error;
mod keyring;
pub mod limits;
mod policy;
mod prune;
mod random;
mod serve;
mod store;
mod token;

pub use api::openapi;
pub use config::{Clock, Config, DatabaseUrl, Keep};
pub use error::ControlError;
pub use policy::{Policy, PolicyFault};
pub use prune::Pruned;
pub use serve::Control;
pub use store::backup;
pub use token::make_admin_token;
