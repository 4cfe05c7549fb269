//! What a front door demands of a grant, and holding one against it.

use crate::error::{GrantError, Refusal};
use crate::grant::{Grant, is_name};
use crate::keyset::KeySet;
use crate::limits::{NAME_BYTES_MAX, SKEW_SECONDS_DEFAULT, SKEW_SECONDS_MAX};
use crate::{claims, json, jws};

/// Whose grants are accepted, for whom, and how far clocks may differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    issuer: String,
    audience: String,
    skew_seconds: u64,
}

impl Terms {
    /// Grants of `issuer` for `audience`, with a skew of [`SKEW_SECONDS_DEFAULT`].
    ///
    /// # Errors
    /// When one of them is not 1 to 256 visible ASCII characters.
    pub fn new(issuer: &str, audience: &str) -> Result<Self, GrantError> {
        for (name, value) in [("iss", issuer), ("aud", audience)] {
            if !is_name(value, NAME_BYTES_MAX) {
                return Err(GrantError::Claim(name));
            }
        }
        Ok(Terms { issuer: issuer.to_owned(), audience: audience.to_owned(), skew_seconds: SKEW_SECONDS_DEFAULT })
    }

    /// The same with another skew; more than [`SKEW_SECONDS_MAX`] is taken as that.
    #[must_use]
    pub fn with_skew(mut self, seconds: u64) -> Self {
        self.skew_seconds = seconds.min(SKEW_SECONDS_MAX);
        self
    }

    /// Holds a token against the format, the keys and these terms, in the order that `docs/grant.md` gives. `now` is
    /// POSIX seconds.
    ///
    /// # Errors
    /// Why the token is not to be acted on.
    pub fn verify(&self, token: &str, keys: &KeySet, now: u64) -> Result<Grant, Refusal> {
        let parts = jws::parse(token)?;
        let key = keys.key(&parts.key_id).ok_or(Refusal::UnknownKey)?;
        if key.algorithm() != parts.algorithm {
            return Err(Refusal::Algorithm);
        }
        key.verify(parts.signed, &parts.signature)?;
        let bytes = jws::decode(parts.claims, "its claims are no base64url")?;
        let object = json::object(&bytes).ok_or(Refusal::Malformed("its claims are no plain JSON object"))?;
        let grant = claims::read(&object, &self.audience)?;
        if grant.issuer != self.issuer {
            return Err(Refusal::Issuer);
        }
        if grant.audience != self.audience {
            return Err(Refusal::Audience);
        }
        self.check_time(&grant, now)?;
        Ok(grant)
    }

    /// Whether a grant, verified before, is valid at `now`: what is to be asked again at each use.
    ///
    /// # Errors
    /// When it is not valid yet, or no more.
    pub fn check_time(&self, grant: &Grant, now: u64) -> Result<(), Refusal> {
        let latest = now.saturating_add(self.skew_seconds);
        if grant.not_before > latest || grant.issued_at > latest {
            return Err(Refusal::NotYetValid);
        }
        if grant.expires_at.saturating_add(self.skew_seconds) <= now {
            return Err(Refusal::Expired);
        }
        Ok(())
    }
}
