//! The name of a blob: the SHA-256 of its content.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::OciError;

/// A SHA-256 digest, shown and read as `sha256:<64 hexadecimal digits>`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Digest(Sha256::digest(bytes).into())
    }

    pub(crate) fn from_hasher(hasher: Sha256) -> Self {
        Digest(hasher.finalize().into())
    }

    /// The 64 digits without the algorithm: the blob's file name.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().fold(String::with_capacity(64), |mut text, byte| {
            text.push_str(&format!("{byte:02x}"));
            text
        })
    }

    /// Reads the digits without the algorithm; `None` where they are not 64 lower-case hexadecimal ones.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if text.len() != 64 || text.bytes().any(|byte| !matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()?;
        }
        Some(Digest(bytes))
    }
}

impl FromStr for Digest {
    type Err = OciError;

    fn from_str(text: &str) -> Result<Self, OciError> {
        text.strip_prefix("sha256:").and_then(Digest::from_hex).ok_or_else(|| OciError::NoDigest {
            // As much of it as a digest of any algorithm has.
            text: crate::error::shown(text.as_bytes()),
        })
    }
}

impl TryFrom<String> for Digest {
    type Error = OciError;

    fn try_from(text: String) -> Result<Self, OciError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_shown() {
        let digest = Digest::of(b"abc");
        assert_eq!(digest.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
        let json = serde_json::to_string(&digest).unwrap();
        assert_eq!(serde_json::from_str::<Digest>(&json).unwrap(), digest);
    }

    #[test]
    fn anything_else_is_refused() {
        let hex = Digest::of(b"").hex();
        for wrong in [
            hex.clone(),
            format!("sha512:{hex}{hex}"),
            format!("sha256:{}", hex.to_uppercase()),
            format!("sha256:{hex}0"),
            "sha256:".to_owned(),
            format!("sha256:../{}", &hex[3..]),
            format!("sha256:é{}", &hex[2..]),
        ] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }
}
