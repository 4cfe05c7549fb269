//! Reading one field at a time, so that a refusal can name it.

use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::limits::QUOTED_CHARS_MAX;

/// Why a request body is refused, in words that tell the caller what to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The tool kind is none of the contract's.
    UnknownTool(String),
    /// The body, or a field of it, is not what it should be.
    Malformed(String),
}

impl Refusal {
    /// The words.
    #[must_use]
    pub fn detail(&self) -> &str {
        match self {
            Refusal::UnknownTool(detail) | Refusal::Malformed(detail) => detail,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.detail())
    }
}

impl std::error::Error for Refusal {}

/// `deserialize_with` for a field that may be absent: an explicit null stays visible as `Some("null")`.
pub(crate) fn present<'de: 'a, 'a, D: Deserializer<'de>>(de: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(de).map(Some)
}

/// Parses a JSON object into a struct of raw fields; `what` names it in a refusal ("the body", "`input`").
pub(crate) fn object<'a, T: Deserialize<'a>>(text: &'a str, what: &str) -> Result<T, Refusal> {
    // A struct of optional fields would be read out of an array as well: only an object is meant here.
    match text.trim_ascii_start().as_bytes().first() {
        Some(b'{') => serde_json::from_str(text).map_err(|why| malformed(format!("{what} is no JSON object: {why}"))),
        Some(_) => Err(malformed(format!("{what} must be a JSON object"))),
        None => Err(malformed(format!("{what} is empty; it must be a JSON object"))),
    }
}

/// The body as text.
pub(crate) fn utf8(body: &[u8]) -> Result<&str, Refusal> {
    std::str::from_utf8(body)
        .map_err(|why| malformed(format!("the body must be UTF-8 (first wrong byte at {})", why.valid_up_to())))
}

/// A field that must be there.
pub(crate) fn required<'a>(raw: Option<&'a RawValue>, name: &str, shape: &str) -> Result<&'a RawValue, Refusal> {
    raw.ok_or_else(|| malformed(format!("`{name}` is missing; it must be {shape}")))
}

/// A field where null means the same as absence.
pub(crate) fn nullable(raw: Option<&RawValue>) -> Option<&RawValue> {
    raw.filter(|raw| raw.get() != "null")
}

/// A string of any length.
pub(crate) fn string(raw: &RawValue, name: &str) -> Result<String, Refusal> {
    if !raw.get().starts_with('"') {
        return Err(wrong(raw, name, "a string"));
    }
    serde_json::from_str(raw.get()).map_err(|why| malformed(format!("`{name}` is no valid string: {why}")))
}

/// A string of at least one character.
pub(crate) fn text(raw: &RawValue, name: &str) -> Result<String, Refusal> {
    let text = string(raw, name)?;
    if text.is_empty() {
        return Err(malformed(format!("`{name}` is empty; it must be a string of at least one character")));
    }
    Ok(text)
}

/// A whole number of seconds, at least 1. One that does not fit is as large as can be: it will be clamped.
pub(crate) fn seconds(raw: &RawValue, name: &str) -> Result<u64, Refusal> {
    let digits = raw.get();
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(wrong(raw, name, "an integer, at least 1"));
    }
    match digits.parse().unwrap_or(u64::MAX) {
        0 => Err(wrong(raw, name, "an integer, at least 1")),
        seconds => Ok(seconds),
    }
}

/// A whole number of either sign. One that does not fit is as large as can be.
pub(crate) fn integer(raw: &RawValue, name: &str) -> Result<i64, Refusal> {
    let text = raw.get();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(wrong(raw, name, "an integer"));
    }
    Ok(text.parse().unwrap_or(if negative { i64::MIN } else { i64::MAX }))
}

/// A truth value.
pub(crate) fn boolean(raw: &RawValue, name: &str) -> Result<bool, Refusal> {
    match raw.get() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(wrong(raw, name, "true or false")),
    }
}

/// The refusal of a value, which is quoted in part.
pub(crate) fn wrong(raw: &RawValue, name: &str, expected: &str) -> Refusal {
    malformed(format!("`{name}` must be {expected}, not {}", quoted(raw.get())))
}

/// The beginning of a refused value.
pub(crate) fn quoted(value: &str) -> String {
    match value.char_indices().nth(QUOTED_CHARS_MAX) {
        None => value.to_owned(),
        Some((end, _)) => format!("{}...", value.get(..end).unwrap_or_default()),
    }
}

pub(crate) fn malformed(detail: impl Into<String>) -> Refusal {
    Refusal::Malformed(detail.into())
}

/// For `skip_serializing_if`, which hands a reference.
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}
