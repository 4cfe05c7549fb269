//! The compact form (RFC 7515, 3.1): three parts of base64url without padding.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use crate::TYPE;
use crate::error::Refusal;
use crate::json;
use crate::keyset::Algorithm;
use crate::limits::{HEADER_BYTES_MAX, KEY_ID_BYTES_MAX, TOKEN_BYTES_MAX};

/// The bytes of a signature, with both algorithms.
pub(crate) const SIGNATURE_BYTES: usize = 64;

/// A signed grant. It is a credential: it shows itself in no Debug and is wiped when dropped.
#[derive(Clone)]
pub struct Token(Zeroizing<String>);

impl Token {
    pub(crate) fn new(text: String) -> Self {
        Token(Zeroizing::new(text))
    }

    /// The token, to be sent to the one who asked for it and to nobody else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

/// A token taken apart; of its claims nothing is decoded yet.
pub(crate) struct Parts<'a> {
    pub(crate) algorithm: Algorithm,
    pub(crate) key_id: String,
    pub(crate) signed: &'a [u8],
    pub(crate) claims: &'a str,
    pub(crate) signature: [u8; SIGNATURE_BYTES],
}

/// Takes a token apart and holds its header against the format.
pub(crate) fn parse(token: &str) -> Result<Parts<'_>, Refusal> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(Refusal::TooLarge);
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(Refusal::Malformed("it has no three parts"))?;
    let (header, claims) = signed.split_once('.').ok_or(Refusal::Malformed("it has no three parts"))?;
    if claims.contains('.') {
        return Err(Refusal::Malformed("it has no three parts"));
    }
    let (algorithm, key_id) = header_of(header)?;
    let signature = decode(signature, "its signature is no base64url")?
        .try_into()
        .map_err(|_| Refusal::Malformed("its signature has another length"))?;
    Ok(Parts { algorithm, key_id, signed: signed.as_bytes(), claims, signature })
}

fn header_of(encoded: &str) -> Result<(Algorithm, String), Refusal> {
    if encoded.len() > HEADER_BYTES_MAX.div_ceil(3) * 4 {
        return Err(Refusal::TooLarge);
    }
    let bytes = decode(encoded, "its header is no base64url")?;
    if bytes.len() > HEADER_BYTES_MAX {
        return Err(Refusal::TooLarge);
    }
    let header = json::object(&bytes).ok_or(Refusal::Malformed("its header is no plain JSON object"))?;
    if header.member("crit").is_some() {
        return Err(Refusal::Critical);
    }
    if header.names().any(|name| !matches!(name, "alg" | "typ" | "kid")) {
        return Err(Refusal::Parameter);
    }
    if header.text("typ") != Some(TYPE) {
        return Err(Refusal::Type);
    }
    let algorithm = header.text("alg").and_then(Algorithm::parse).ok_or(Refusal::Algorithm)?;
    let key_id = header.text("kid").filter(|kid| kid.len() <= KEY_ID_BYTES_MAX).ok_or(Refusal::UnknownKey)?;
    Ok((algorithm, key_id.to_owned()))
}

/// Decodes a part. Padding, white space and stray bits in the last character are refused, so that one token has one
/// spelling.
pub(crate) fn decode(part: &str, what: &'static str) -> Result<Vec<u8>, Refusal> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| Refusal::Malformed(what))
}

/// Header and claims as they are signed.
pub(crate) fn signing_input(algorithm: Algorithm, key_id: &str, claims: &str) -> String {
    // A key id that this crate made or took holds nothing that JSON would have to escape.
    let header = format!(r#"{{"alg":"{}","typ":"{TYPE}","kid":"{key_id}"}}"#, algorithm.name());
    format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims))
}

/// The whole token.
pub(crate) fn seal(mut signing_input: String, signature: &[u8; SIGNATURE_BYTES]) -> String {
    signing_input.push('.');
    URL_SAFE_NO_PAD.encode_string(signature, &mut signing_input);
    signing_input
}
