//! From an `Authorization` field to a grant that may be acted on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use ringfence_grant::limits::TOKEN_BYTES_MAX;
use ringfence_grant::{Grant, Refusal, Terms};
use sha2::{Digest, Sha256};

use crate::answer::Denial;
use crate::keys::Keys;
use crate::limits::VERIFIED_MAX;

/// POSIX seconds.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The system's clock.
pub(crate) fn system_clock() -> Clock {
    Arc::new(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        // A clock before 1970 makes every grant one of the future.
        since.map_or(0, |since| since.as_secs())
    })
}

/// Checks grants.
pub(crate) struct Admission {
    pub(crate) terms: Terms,
    pub(crate) keys: Arc<Keys>,
    pub(crate) clock: Clock,
    verified: Mutex<Verified>,
}

/// Grants whose signature was held against a key set, by the SHA-256 of the token. Two generations: the older one is
/// dropped when the newer one is full.
#[derive(Default)]
struct Verified {
    keys_generation: u64,
    new: HashMap<[u8; 32], Arc<Grant>>,
    old: HashMap<[u8; 32], Arc<Grant>>,
}

impl Admission {
    pub(crate) fn new(terms: Terms, keys: Arc<Keys>, clock: Clock) -> Self {
        Admission { terms, keys, clock, verified: Mutex::default() }
    }

    /// The grant of a request.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<Arc<Grant>, Denial> {
        let token = bearer(headers)?;
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Denial::Grant(Refusal::TooLarge));
        }
        let current = self.keys.current().ok_or(Denial::NoKeys)?;
        let now = (self.clock)();
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(grant) = self.remembered(current.generation, &digest) {
            // Its times are asked anew at each use; all else cannot have changed.
            self.terms.check_time(&grant, now).map_err(Denial::Grant)?;
            return Ok(grant);
        }
        match self.terms.verify(token, &current.set, now) {
            Ok(grant) => Ok(self.remember(current.generation, digest, Arc::new(grant))),
            Err(refusal) => {
                if refusal == Refusal::UnknownKey {
                    self.keys.ask();
                }
                Err(Denial::Grant(refusal))
            }
        }
    }

    fn remembered(&self, keys_generation: u64, digest: &[u8; 32]) -> Option<Arc<Grant>> {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if verified.keys_generation != keys_generation {
            return None;
        }
        verified.new.get(digest).or_else(|| verified.old.get(digest)).cloned()
    }

    fn remember(&self, keys_generation: u64, digest: [u8; 32], grant: Arc<Grant>) -> Arc<Grant> {
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if verified.keys_generation != keys_generation {
            // What another key set vouched for is worth nothing.
            *verified = Verified { keys_generation, ..Verified::default() };
        }
        if verified.new.len() >= VERIFIED_MAX {
            verified.old = std::mem::take(&mut verified.new);
        }
        verified.new.insert(digest, Arc::clone(&grant));
        grant
    }
}

/// The one bearer token of a request (RFC 6750, 2.1).
fn bearer(headers: &HeaderMap) -> Result<&str, Denial> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(Denial::NoGrant)?;
    if values.next().is_some() {
        return Err(Denial::BadCredential);
    }
    let (scheme, token) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or(Denial::NoGrant)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Denial::NoGrant);
    }
    let token = token.trim_start_matches(' ');
    if token.is_empty() || token.contains([' ', ',', '\t']) {
        return Err(Denial::BadCredential);
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn one_bearer_token_is_taken() {
        let read = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_static(value));
            }
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(read(&["Bearer a.b.c"]).unwrap(), "a.b.c");
        assert_eq!(read(&["bearer  a"]).unwrap(), "a");
        for values in [&[][..], &["Basic abc"], &["Bearer"], &["a.b.c"]] {
            assert!(matches!(read(values), Err(Denial::NoGrant)), "{values:?}");
        }
        for values in
            [&["Bearer a", "Bearer a"][..], &["Bearer a", "Basic b"], &["Bearer a b"], &["Bearer a,b"], &["Bearer  "]]
        {
            assert!(matches!(read(values), Err(Denial::BadCredential)), "{values:?}");
        }
    }
}
