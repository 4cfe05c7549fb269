//! The bearer token.

use std::fmt;

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The token that every request must carry, kept as its hash alone.
#[derive(Clone)]
pub struct BearerToken {
    hash: [u8; 32],
}

/// A token that no request could carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a bearer token must be one or more visible ASCII characters without spaces")]
pub struct TokenRefused;

impl BearerToken {
    /// The token as its owner wrote it; white space around it (a file's last newline) is taken off.
    ///
    /// # Errors
    /// When it is empty or holds what no header can carry.
    pub fn new(token: &[u8]) -> Result<Self, TokenRefused> {
        let token = token.trim_ascii();
        match !token.is_empty() && token.iter().all(u8::is_ascii_graphic) {
            true => Ok(BearerToken { hash: Sha256::digest(token).into() }),
            false => Err(TokenRefused),
        }
    }

    /// Whether exactly one credential was sent and it is this one. Takes the same time for every wrong token.
    pub(crate) fn admits(&self, headers: &HeaderMap) -> bool {
        let mut sent = headers.get_all(AUTHORIZATION).iter();
        let (Some(credential), None) = (sent.next(), sent.next()) else { return false };
        let Some((scheme, token)) = credential.as_bytes().split_first_chunk::<7>() else { return false };
        if !scheme.eq_ignore_ascii_case(b"bearer ") {
            return false;
        }
        let hash: [u8; 32] = Sha256::digest(token.trim_ascii()).into();
        self.hash.ct_eq(&hash).into()
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn the_token_alone_admits() {
        let token = BearerToken::new(b" s3cret\n").unwrap();
        for good in ["Bearer s3cret", "bearer s3cret", "BEARER  s3cret"] {
            assert!(token.admits(&sent(&[good])), "{good}");
        }
        for bad in ["", "s3cret", "Basic s3cret", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3cretx", "Bearers3cret"]
        {
            assert!(!token.admits(&sent(&[bad])), "{bad}");
        }
        assert!(!token.admits(&sent(&[])));
        assert!(!token.admits(&sent(&["Bearer s3cret", "Bearer s3cret"])));
    }

    #[test]
    fn debug_hides_it() {
        assert_eq!(format!("{:?}", BearerToken::new(b"s3cret").unwrap()), "BearerToken(..)");
    }

    #[test]
    fn what_no_header_can_carry_is_no_token() {
        for wrong in [&b""[..], b" \n", b"a b", b"a\nb", b"\xff"] {
            assert_eq!(BearerToken::new(wrong).err(), Some(TokenRefused), "{wrong:?}");
        }
    }
}
