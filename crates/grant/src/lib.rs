//! Grants: the signed tokens by which a control plane lets a workspace use a backend through a front door.
//!
//! What a control plane calls: [`SigningKey`] (make, keep, publish), [`Grant::sign`]. What a front door calls:
//! [`KeySet::parse`], [`Terms::verify`]. The format is in `docs/grant.md`; `tests/vectors.json` holds good and bad
//! grants for other implementations.
//!
//! May know: ids of `op`. Never knows: files, sockets, HTTP, the clock (the caller says what time it is), sessions.
//!
//! **Invariants.**
//! - No byte of a token is decoded before its size is bounded, and no claim is parsed before its signature holds.
//! - The algorithm is a property of the key; a token's `alg` is only compared with it. There is no `none`, and no
//!   symmetric algorithm exists in this crate.
//! - A JSON object with a key twice, a nesting deeper than the format needs, or a critical extension is refused.
//! - No Debug, Display or error shows a token, a part of one, or a private key.
//! - A [`Grant`] that [`Terms::verify`] returns satisfies every rule of the format, and [`Grant::sign`] signs no other.

mod claims;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod grant;
mod json;
mod jwk;
mod jws;
mod keyset;
pub mod limits;
mod signing;
mod terms;

pub use error::{GrantError, KeyError, Refusal};
pub use grant::{Ceilings, Grant, GrantId, Tools};
pub use jws::Token;
pub use keyset::{Algorithm, KeySet, PublicKey};
pub use signing::SigningKey;
pub use terms::Terms;

/// The `typ` of a grant's header (RFC 8725, 3.11: a type of its own, so that no other JWT passes for one).
pub const TYPE: &str = "ringfence-grant+jwt";
