//! Why a grant is refused, why a key is, and why a grant is not signed.

use thiserror::Error;

/// Why a token is no grant to act on. The texts are constants: no part of the token is in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Longer than [`crate::limits::TOKEN_BYTES_MAX`], or a part of it is longer than its own bound.
    #[error("the grant is too large")]
    TooLarge,
    /// Not three parts of base64url, of which the first is a JSON object.
    #[error("the grant is malformed: {0}")]
    Malformed(&'static str),
    /// The header holds something other than `alg`, `typ` and `kid`.
    #[error("the grant's header holds a parameter that this format does not have")]
    Parameter,
    /// The header holds `crit`: no critical extension is understood.
    #[error("the grant's header names a critical extension")]
    Critical,
    /// `typ` is not [`crate::TYPE`].
    #[error("the token is no grant: its type is another")]
    Type,
    /// `alg` is not one that is accepted, or not the key's.
    #[error("the grant's algorithm is not accepted for its key")]
    Algorithm,
    /// No key of that `kid` is in the key set.
    #[error("the grant is signed by an unknown key")]
    UnknownKey,
    /// The signature does not hold.
    #[error("the grant's signature does not hold")]
    Signature,
    /// A claim is missing, of the wrong type, or out of its bounds.
    #[error("the grant's claim `{0}` is missing or wrong")]
    Claim(&'static str),
    /// Another issuer's.
    #[error("the grant is of another issuer")]
    Issuer,
    /// For another audience.
    #[error("the grant is for another audience")]
    Audience,
    /// `nbf` or `iat` lies in the future.
    #[error("the grant is not valid yet")]
    NotYetValid,
    /// `exp` has passed.
    #[error("the grant has expired")]
    Expired,
}

impl Refusal {
    /// A stable name, for test vectors and counters.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Refusal::TooLarge => "too_large",
            Refusal::Malformed(_) => "malformed",
            Refusal::Parameter => "parameter",
            Refusal::Critical => "critical",
            Refusal::Type => "type",
            Refusal::Algorithm => "algorithm",
            Refusal::UnknownKey => "unknown_key",
            Refusal::Signature => "signature",
            Refusal::Claim(_) => "claim",
            Refusal::Issuer => "issuer",
            Refusal::Audience => "audience",
            Refusal::NotYetValid => "not_yet_valid",
            Refusal::Expired => "expired",
        }
    }
}

/// Why a grant is not signed, or one of its parts cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GrantError {
    /// A claim breaks a rule of the format.
    #[error("a grant cannot hold this `{0}`")]
    Claim(&'static str),
    /// Every claim is in its bounds, and the token as a whole is not.
    #[error("the grant would be longer than {} bytes", crate::limits::TOKEN_BYTES_MAX)]
    TooLarge,
    /// The kernel gives no random bytes.
    #[error("no random bytes for an id")]
    Random,
}

/// Why a key or a key set is not taken. The texts hold no key material.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The document is larger than its bound.
    #[error("the key document is larger than {bytes_max} bytes")]
    TooLarge {
        /// The bound.
        bytes_max: usize,
    },
    /// It is no JSON of the form that this crate reads.
    #[error("the key document is malformed: {0}")]
    Malformed(&'static str),
    /// There are more keys than [`crate::limits::KEYS_MAX`].
    #[error("the key set holds more than {} keys", crate::limits::KEYS_MAX)]
    TooMany,
    /// A key that should be usable is not: wrong length, not on its curve, or weak.
    #[error("a key of the set is unusable: {0}")]
    Unusable(&'static str),
    /// Two keys have the same `kid`.
    #[error("two keys of the set have the same id")]
    Twice,
    /// A set that is meant to be published holds a private key.
    #[error("the key set holds a private or symmetric key")]
    Private,
    /// No key of the set is one that grants may be signed with.
    #[error("the key set holds no key that grants may be signed with")]
    Empty,
    /// The kernel gives no random bytes.
    #[error("no random bytes for a key")]
    Random,
}
