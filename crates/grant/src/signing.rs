//! Private keys, and signing with them.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::Signer as _;
use zeroize::Zeroizing;

use crate::error::{GrantError, KeyError};
use crate::grant::Grant;
use crate::jws::{self, SIGNATURE_BYTES, Token};
use crate::keyset::{Algorithm, Material, PublicKey, is_key_id};
use crate::limits::{PRIVATE_KEY_BYTES_MAX, TOKEN_BYTES_MAX};
use crate::{claims, json, jwk};

/// A control plane's private key. It shows itself in no Debug and is wiped when dropped.
pub struct SigningKey {
    secret: Secret,
    public: PublicKey,
}

enum Secret {
    Ed25519(Box<ed25519_dalek::SigningKey>),
    P256(Box<p256::ecdsa::SigningKey>),
}

impl SigningKey {
    /// A fresh key. Its id is its thumbprint (RFC 7638).
    ///
    /// # Errors
    /// When the kernel gives no random bytes.
    pub fn generate(algorithm: Algorithm) -> Result<Self, KeyError> {
        let mut seed = Zeroizing::new([0_u8; 32]);
        loop {
            getrandom::fill(seed.as_mut()).map_err(|_| KeyError::Random)?;
            // For P-256 one draw in 2^32 is outside the group's order: draw again.
            if let Ok(secret) = Secret::new(algorithm, &seed) {
                return Ok(SigningKey::with_id(secret, None));
            }
        }
    }

    /// Reads a private JWK (`kty`, `crv`, `d`, the public members, optional `kid`). The public members must be those
    /// of `d`.
    ///
    /// # Errors
    /// When the document is too large, no such JWK, or public and private part do not belong together.
    pub fn from_jwk(document: &[u8]) -> Result<Self, KeyError> {
        if document.len() > PRIVATE_KEY_BYTES_MAX {
            return Err(KeyError::TooLarge { bytes_max: PRIVATE_KEY_BYTES_MAX });
        }
        let jwk = json::object(document).ok_or(KeyError::Malformed("it is no plain JSON object"))?;
        let algorithm = match (jwk.text("kty"), jwk.text("crv")) {
            (Some("OKP"), Some("Ed25519")) => Algorithm::EdDsa,
            (Some("EC"), Some("P-256")) => Algorithm::Es256,
            _ => return Err(KeyError::Malformed("it is neither an Ed25519 nor a P-256 key")),
        };
        let secret = Secret::new(algorithm, &Zeroizing::new(jwk::coordinate(&jwk, "d")?))?;
        if secret.public() != jwk::material(&jwk, algorithm)? {
            return Err(KeyError::Unusable("its public part is not that of its private part"));
        }
        match jwk.text("kid") {
            Some(kid) if !is_key_id(kid) => Err(KeyError::Unusable("its id is not 1 to 128 visible ASCII characters")),
            kid => Ok(SigningKey::with_id(secret, kid)),
        }
    }

    /// The private JWK, to be kept in a file that only the control plane can read.
    #[must_use]
    pub fn to_jwk(&self) -> Zeroizing<String> {
        let d = Zeroizing::new(self.secret.encoded());
        let public = jwk::required_members(&self.public.material);
        let (kid, algorithm) = (&self.public.key_id, self.public.algorithm().name());
        Zeroizing::new(format!(r#"{{{public},"kid":"{kid}","alg":"{algorithm}","use":"sig","d":"{}"}}"#, d.as_str()))
    }

    /// The public part, to be published.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    fn with_id(secret: Secret, key_id: Option<&str>) -> Self {
        let material = secret.public();
        let key_id = key_id.map_or_else(|| jwk::thumbprint(&material), str::to_owned);
        SigningKey { secret, public: PublicKey { key_id, material } }
    }

    fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        match &self.secret {
            Secret::Ed25519(key) => key.sign(message).to_bytes(),
            // Deterministic (RFC 6979): no randomness is needed to sign.
            Secret::P256(key) => {
                let signature: p256::ecdsa::Signature = key.sign(message);
                signature.to_bytes().into()
            }
        }
    }
}

impl Secret {
    fn new(algorithm: Algorithm, seed: &[u8; 32]) -> Result<Self, KeyError> {
        match algorithm {
            Algorithm::EdDsa => Ok(Secret::Ed25519(Box::new(ed25519_dalek::SigningKey::from_bytes(seed)))),
            Algorithm::Es256 => p256::ecdsa::SigningKey::from_slice(seed)
                .map(|key| Secret::P256(Box::new(key)))
                .map_err(|_| KeyError::Unusable("its private part is outside the group's order")),
        }
    }

    fn public(&self) -> Material {
        match self {
            Secret::Ed25519(key) => Material::Ed25519(key.verifying_key()),
            Secret::P256(key) => Material::P256(*key.verifying_key()),
        }
    }

    fn encoded(&self) -> String {
        match self {
            Secret::Ed25519(key) => URL_SAFE_NO_PAD.encode(key.as_bytes()),
            Secret::P256(key) => URL_SAFE_NO_PAD.encode(Zeroizing::new(key.to_bytes()).as_slice()),
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl Grant {
    /// Signs the grant.
    ///
    /// # Errors
    /// When a claim breaks a rule of the format, or the token would be longer than a token may be.
    pub fn sign(&self, key: &SigningKey) -> Result<Token, GrantError> {
        self.check()?;
        let text = claims::write(self).map_err(|_| GrantError::TooLarge)?;
        let input = jws::signing_input(key.public.algorithm(), &key.public.key_id, &text);
        let signature = key.sign(input.as_bytes());
        let token = jws::seal(input, &signature);
        if token.len() > TOKEN_BYTES_MAX {
            return Err(GrantError::TooLarge);
        }
        Ok(Token::new(token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeySet;

    #[test]
    fn private_keys_survive_their_document_and_hide_themselves() {
        for algorithm in [Algorithm::EdDsa, Algorithm::Es256] {
            let key = SigningKey::generate(algorithm).unwrap();
            let document = key.to_jwk();
            let again = SigningKey::from_jwk(document.as_bytes()).unwrap();
            assert_eq!(again.public(), key.public());
            assert_eq!(again.sign(b"m"), key.sign(b"m"));
            let secret = key.secret.encoded();
            assert!(document.contains(&secret));
            assert!(!format!("{key:?}").contains(&secret));
            assert!(!KeySet::new(vec![key.public().clone()]).unwrap().to_json().contains(&secret));
        }
    }

    #[test]
    fn a_private_key_of_another_public_key_is_refused() {
        let (one, other) =
            (SigningKey::generate(Algorithm::EdDsa).unwrap(), SigningKey::generate(Algorithm::EdDsa).unwrap());
        let mixed = one.to_jwk().replace(&one.secret.encoded(), &other.secret.encoded());
        assert!(matches!(SigningKey::from_jwk(mixed.as_bytes()), Err(KeyError::Unusable(_))));
    }

    /// The example key of RFC 8037, A.1 to A.3.
    #[test]
    fn the_thumbprint_is_that_of_the_standard() {
        let jwk = br#"{"kty":"OKP","crv":"Ed25519","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
            "x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
        let key = SigningKey::from_jwk(jwk).unwrap();
        assert_eq!(key.public().key_id(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    }
}
