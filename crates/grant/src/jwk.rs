//! One key as a JWK (RFC 7517, RFC 8037 for Ed25519, RFC 7518 for P-256), and its thumbprint (RFC 7638).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::error::KeyError;
use crate::json::{Json, Object};
use crate::keyset::{Algorithm, Material, PublicKey, is_key_id};

/// Reads a JWK's public part: `None` for a key of another kind or for another use, which is to be ignored (RFC 7517, 5).
/// A key that claims to be one of ours and is not well-formed is an error.
pub(crate) fn public(jwk: &Object) -> Result<Option<PublicKey>, KeyError> {
    if jwk.text("kty") == Some("oct") {
        return Err(KeyError::Private);
    }
    let algorithm = match (jwk.text("kty"), jwk.text("crv")) {
        (Some("OKP"), Some("Ed25519")) => Algorithm::EdDsa,
        (Some("EC"), Some("P-256")) => Algorithm::Es256,
        _ => return Ok(None),
    };
    if !is_for_signatures(jwk, algorithm) {
        return Ok(None);
    }
    let Some(key_id) = jwk.text("kid") else { return Ok(None) };
    if !is_key_id(key_id) {
        return Err(KeyError::Unusable("its id is longer than it may be, or holds other than visible ASCII"));
    }
    Ok(Some(PublicKey { key_id: key_id.to_owned(), material: material(jwk, algorithm)? }))
}

/// The public material, checked to be a point that signatures may be held against.
pub(crate) fn material(jwk: &Object, algorithm: Algorithm) -> Result<Material, KeyError> {
    let x = coordinate(jwk, "x")?;
    match algorithm {
        Algorithm::EdDsa => {
            let key = ed25519_dalek::VerifyingKey::from_bytes(&x)
                .map_err(|_| KeyError::Unusable("it is no point of Ed25519"))?;
            if key.is_weak() {
                return Err(KeyError::Unusable("it is a point of small order"));
            }
            Ok(Material::Ed25519(key))
        }
        Algorithm::Es256 => {
            let y = coordinate(jwk, "y")?;
            let point = p256::EncodedPoint::from_affine_coordinates(&x.into(), &y.into(), false);
            p256::ecdsa::VerifyingKey::from_encoded_point(&point)
                .map(Material::P256)
                .map_err(|_| KeyError::Unusable("it is no point of P-256"))
        }
    }
}

/// `use`, `key_ops` and `alg`, where they are there, allow verifying with this algorithm.
fn is_for_signatures(jwk: &Object, algorithm: Algorithm) -> bool {
    let allowed = |name, value| jwk.member(name).is_none() || jwk.text(name) == Some(value);
    let operations = match jwk.member("key_ops") {
        None => true,
        Some(Json::List(list)) => list.iter().any(|item| matches!(item, Json::Text(text) if text == "verify")),
        Some(_) => false,
    };
    allowed("use", "sig") && allowed("alg", algorithm.name()) && operations
}

/// A member of exactly 32 bytes in base64url.
pub(crate) fn coordinate(jwk: &Object, name: &str) -> Result<[u8; 32], KeyError> {
    let text = jwk.text(name).ok_or(KeyError::Unusable("a coordinate is missing"))?;
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| KeyError::Unusable("a coordinate is no base64url"))?;
    bytes.try_into().map_err(|_| KeyError::Unusable("a coordinate has another length than 32 bytes"))
}

/// The members that name the key, without braces, in the order of RFC 7638.
pub(crate) fn required_members(material: &Material) -> String {
    match material {
        Material::Ed25519(key) => {
            format!(r#""crv":"Ed25519","kty":"OKP","x":"{}""#, URL_SAFE_NO_PAD.encode(key.as_bytes()))
        }
        Material::P256(key) => {
            let point = key.to_encoded_point(false);
            let text = |part: Option<&p256::FieldBytes>| part.map(|part| URL_SAFE_NO_PAD.encode(part));
            // An uncompressed point that is a key is not the identity, so it has both coordinates.
            let (x, y) = (text(point.x()).unwrap_or_default(), text(point.y()).unwrap_or_default());
            format!(r#""crv":"P-256","kty":"EC","x":"{x}","y":"{y}""#)
        }
    }
}

/// The key's id unless its owner gave it another: SHA-256 of its required members.
pub(crate) fn thumbprint(material: &Material) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(format!("{{{}}}", required_members(material))))
}

/// The JWK as it is published.
pub(crate) fn publish(key: &PublicKey) -> String {
    let algorithm = key.algorithm().name();
    format!(r#"{{{},"kid":"{}","alg":"{algorithm}","use":"sig"}}"#, required_members(&key.material), key.key_id)
}
