//! A bearer credential that keeps itself out of logs.

use std::fmt;
use std::io::Read;
use std::path::Path;

use hyper::header::HeaderValue;

use crate::ClientError;
use crate::limits::TOKEN_BYTES_MAX;

/// A bearer credential, sent as `Authorization: Bearer ...`. It prints as hidden.
#[derive(Clone)]
pub struct BearerToken(HeaderValue);

impl BearerToken {
    /// Takes a token's text; white space around it is dropped.
    ///
    /// # Errors
    /// When nothing is left, or it holds what no header may hold.
    pub fn new(text: &str) -> Result<Self, ClientError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(ClientError::Token { reason: "is empty" });
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ClientError::Token { reason: "holds white space or characters outside ASCII" });
        }
        let mut value = HeaderValue::try_from(format!("Bearer {text}"))
            .map_err(|_| ClientError::Token { reason: "cannot be sent as a header" })?;
        value.set_sensitive(true);
        Ok(BearerToken(value))
    }

    /// Reads a token from a file (at most [`TOKEN_BYTES_MAX`] bytes).
    ///
    /// # Errors
    /// When the file cannot be read, or holds no usable token.
    pub fn from_file(path: &Path) -> Result<Self, ClientError> {
        let local = |source| ClientError::Local { path: path.to_owned(), source };
        let mut text = String::new();
        let bytes_max = TOKEN_BYTES_MAX as u64;
        std::fs::File::open(path).and_then(|file| file.take(bytes_max).read_to_string(&mut text)).map_err(local)?;
        BearerToken::new(&text)
    }

    /// The token's own text, for a client other than this one. Do not log it.
    #[must_use]
    pub fn expose(&self) -> &str {
        // It was made of ASCII, behind this prefix.
        self.0.to_str().ok().and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default()
    }

    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_hides_itself() {
        let token = BearerToken::new(" s3cret\n").unwrap();
        assert_eq!(format!("{token:?}"), "BearerToken(hidden)");
        assert!(!format!("{:?}", token.header()).contains("s3cret"));
        assert_eq!(token.header().to_str().unwrap(), "Bearer s3cret");
        assert_eq!(token.expose(), "s3cret");
    }

    #[test]
    fn what_no_header_may_hold_is_refused_without_being_shown() {
        for wrong in ["", "  \n", "hush\r\nX: y", "two words", "p\u{e4}ss"] {
            let error = BearerToken::new(wrong).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
        }
    }

    #[test]
    fn a_token_is_read_from_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "abc\n").unwrap();
        assert_eq!(BearerToken::from_file(&path).unwrap().header().to_str().unwrap(), "Bearer abc");
        let missing = BearerToken::from_file(&folder.path().join("none")).unwrap_err();
        assert!(missing.to_string().contains("none"), "{missing}");
    }
}
