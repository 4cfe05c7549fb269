//! Public keys and sets of them (JWKS).

use std::fmt;

use p256::ecdsa::signature::Verifier as _;

use crate::error::{KeyError, Refusal};
use crate::json::{self, Json};
use crate::jwk;
use crate::jws::SIGNATURE_BYTES;
use crate::limits::{KEY_ID_BYTES_MAX, KEY_SET_BYTES_MAX, KEYS_MAX};

/// The two accepted signature algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// EdDSA with Ed25519 (RFC 8037): what is signed with unless there is a reason.
    EdDsa,
    /// ECDSA with P-256 and SHA-256 (RFC 7518): for key stores that have no Ed25519.
    Es256,
}

impl Algorithm {
    /// The `alg` of JWS.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::EdDsa => "EdDSA",
            Algorithm::Es256 => "ES256",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Algorithm::EdDsa, Algorithm::Es256].into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// A key that grants are verified with.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    pub(crate) key_id: String,
    pub(crate) material: Material,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Material {
    Ed25519(ed25519_dalek::VerifyingKey),
    P256(p256::ecdsa::VerifyingKey),
}

impl PublicKey {
    /// `kid`: 1 to 128 visible ASCII characters.
    #[must_use]
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// The one algorithm of this key.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        match self.material {
            Material::Ed25519(_) => Algorithm::EdDsa,
            Material::P256(_) => Algorithm::Es256,
        }
    }

    pub(crate) fn verify(&self, signed: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> Result<(), Refusal> {
        let held = match &self.material {
            // Strict: no small-order points, so that a signature holds for one message and one key.
            Material::Ed25519(key) => {
                key.verify_strict(signed, &ed25519_dalek::Signature::from_bytes(signature)).is_ok()
            }
            Material::P256(key) => p256::ecdsa::Signature::from_slice(signature)
                .is_ok_and(|signature| key.verify(signed, &signature).is_ok()),
        };
        if held { Ok(()) } else { Err(Refusal::Signature) }
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicKey")
            .field("key_id", &self.key_id)
            .field("algorithm", &self.algorithm())
            .finish_non_exhaustive()
    }
}

/// 1 to 128 visible ASCII characters, without quote and backslash, so that it stands in JSON as it is.
pub(crate) fn is_key_id(text: &str) -> bool {
    crate::grant::is_name(text, KEY_ID_BYTES_MAX) && !text.contains(['"', '\\'])
}

/// Keys that grants are verified with: 1 to [`KEYS_MAX`], all ids different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySet(Vec<PublicKey>);

impl KeySet {
    /// A set of these keys.
    ///
    /// # Errors
    /// When there is none, there are too many, or two have the same id.
    pub fn new(keys: Vec<PublicKey>) -> Result<Self, KeyError> {
        if keys.is_empty() {
            return Err(KeyError::Empty);
        }
        if keys.len() > KEYS_MAX {
            return Err(KeyError::TooMany);
        }
        for (index, key) in keys.iter().enumerate() {
            if keys.iter().skip(index + 1).any(|other| other.key_id == key.key_id) {
                return Err(KeyError::Twice);
            }
        }
        Ok(KeySet(keys))
    }

    /// Reads a JWKS document. Keys of other kinds, for other uses or without a `kid` are ignored; a key that should be
    /// usable and is not makes the whole document refused, so that a reader keeps the set that it had.
    ///
    /// # Errors
    /// When the document is too large, no JWKS, holds a private or symmetric key, a malformed key, a `kid` twice, or
    /// no usable key.
    pub fn parse(document: &[u8]) -> Result<Self, KeyError> {
        if document.len() > KEY_SET_BYTES_MAX {
            return Err(KeyError::TooLarge { bytes_max: KEY_SET_BYTES_MAX });
        }
        let set = json::object(document).ok_or(KeyError::Malformed("it is no plain JSON object"))?;
        let Some(Json::List(list)) = set.member("keys") else {
            return Err(KeyError::Malformed("it has no list `keys`"));
        };
        if list.len() > KEYS_MAX {
            return Err(KeyError::TooMany);
        }
        let mut keys = Vec::new();
        for item in list {
            let Json::Object(jwk) = item else { return Err(KeyError::Malformed("a key is no object")) };
            if jwk.member("d").is_some() {
                return Err(KeyError::Private);
            }
            keys.extend(jwk::public(jwk)?);
        }
        KeySet::new(keys)
    }

    /// The JWKS document to publish. It holds public parts only.
    #[must_use]
    pub fn to_json(&self) -> String {
        let keys: Vec<String> = self.0.iter().map(jwk::publish).collect();
        format!(r#"{{"keys":[{}]}}"#, keys.join(","))
    }

    /// The key of that id.
    #[must_use]
    pub fn key(&self, key_id: &str) -> Option<&PublicKey> {
        self.0.iter().find(|key| key.key_id == key_id)
    }

    /// All keys.
    #[must_use]
    pub fn keys(&self) -> &[PublicKey] {
        &self.0
    }
}
