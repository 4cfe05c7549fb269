//! A typed, async client of the code-execution contract, version 1, and of ringfence's additions to it.
//!
//! ```no_run
//! # async fn walk() -> Result<(), ringfence_client::ClientError> {
//! use ringfence_client::{Client, LeaseOptions, ToolCall};
//!
//! let client = Client::new("http://127.0.0.1:8080")?;
//! let lease = client.lease(&LeaseOptions::default()).await?;
//! let done = lease.run(&ToolCall::python("print(6 * 7)")).await?;
//! assert_eq!(done.stdout, "42\n");
//! lease.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! May know: the contract's JSON shapes, read leniently. Never knows: the server, sessions other than through HTTP.
//!
//! **Invariants.**
//! - An Execute is sent at most once: it is tried again only where the connection was never made.
//! - A [`BearerToken`] shows itself in no Debug, Display or error.
//! - Every wait and every buffer has a bound ([`limits`]); an answer larger than its bound is an error, never a crash.
//! - Unknown fields and unknown result-block types are kept or ignored, never refused (contract, Extension policy).
//! - Dropping a [`Lease`] never blocks.
//! - Over https, a server is believed only with a certificate of its name that leads to a known root.

mod answers;
mod body;
mod call;
mod client;
mod download;
mod error;
mod lease;
pub mod limits;
pub mod raw;
mod refusal;
mod session;
mod tls;
mod token;
mod transport;
mod upload;
mod url;

pub use answers::{Background, ExecResult, FileEntry, Health, ProducedFile, SessionHandle, StoredFile, Usage};
pub use call::{LeaseOptions, ToolCall};
pub use client::{Client, ClientBuilder};
pub use download::Download;
pub use error::{ClientError, TransportError};
pub use lease::Lease;
pub use session::Session;
pub use token::BearerToken;
pub use url::{BaseUrl, path_segment, query_value};
