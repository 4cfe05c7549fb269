//! Session ids and correlation ids.

use std::fmt;

use crate::random::random_bytes;

/// A session's id: 128 random bits as 32 lower-case hexadecimal digits. It addresses a session and is no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(u128);

impl SessionId {
    /// A fresh id.
    ///
    /// # Errors
    /// When the kernel gives no random bytes.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(SessionId(u128::from_ne_bytes(bytes)))
    }

    /// Parses an id from a request; `None` for whatever is not exactly 32 lower-case hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 32 || !digits.iter().all(|d| matches!(d, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(SessionId)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A call's correlation id: the caller's own text (any string, bounded), or a generated one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolUseId(String);

impl ToolUseId {
    /// The longest id that is accepted, bytes.
    pub const BYTES_MAX: usize = 1024;

    /// The caller's id; `None` when it is empty or longer than [`Self::BYTES_MAX`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        (!text.is_empty() && text.len() <= Self::BYTES_MAX).then(|| ToolUseId(text.to_owned()))
    }

    /// A generated id, in the form that Anthropic's API uses for server tools.
    ///
    /// # Errors
    /// When the kernel gives no random bytes.
    pub fn random() -> Result<Self, getrandom::Error> {
        let number = u128::from_ne_bytes(random_bytes()?) >> 32;
        Ok(ToolUseId(format!("srvtoolu_{number:024x}")))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_survives_its_text() {
        let id = SessionId::random().unwrap();
        assert_eq!(SessionId::parse(&id.to_string()), Some(id));
    }

    #[test]
    fn a_generated_correlation_id_has_its_form() {
        let [one, two] = [ToolUseId::random().unwrap(), ToolUseId::random().unwrap()];
        assert_ne!(one, two);
        let digits = one.as_str().strip_prefix("srvtoolu_").unwrap();
        assert_eq!(digits.len(), 24);
        assert!(digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')));
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for wrong in ["", "nope", "+0000000000000000000000000000001", "0000000000000000000000000000000G"] {
            assert_eq!(SessionId::parse(wrong), None, "{wrong}");
        }
        assert_eq!(SessionId::parse(&"a".repeat(300)), None);
        assert_eq!(SessionId::parse(&"A".repeat(32)), None);
    }
}
