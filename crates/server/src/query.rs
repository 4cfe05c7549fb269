//! The query of a request.

use percent_encoding::percent_decode;
use ringfence_weaken::{Mitigation, holds};

use crate::limits::QUERY_BYTES_MAX;
use crate::refusal::{Refusal, malformed};

/// The named parameters of a query, decoded (`%xx`, and `+` for a space). Others are passed over.
///
/// # Errors
/// A query that is too long; a parameter that comes twice, is no UTF-8, or has a `%` without two digits after it.
pub(crate) fn parameters<const N: usize>(
    query: Option<&str>,
    names: [&str; N],
) -> Result<[Option<String>; N], Refusal> {
    let query = query.unwrap_or_default();
    if query.len() > QUERY_BYTES_MAX && holds(Mitigation::QueryBytes) {
        return Err(malformed(format!("the query is longer than {QUERY_BYTES_MAX} bytes")));
    }
    let mut found = [const { None }; N];
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some((slot, name)) = found.iter_mut().zip(names).find(|(_, known)| *known == name) else { continue };
        let value = decode(value).ok_or_else(|| malformed(format!("`{name}` is no percent-encoded UTF-8 text")))?;
        if slot.replace(value).is_some() {
            return Err(malformed(format!("`{name}` is given more than once")));
        }
    }
    Ok(found)
}

/// A flag: absent is false.
pub(crate) fn flag(value: Option<&str>, name: &str) -> Result<bool, Refusal> {
    match value {
        None | Some("false" | "0") => Ok(false),
        Some("true" | "1") => Ok(true),
        Some(_) => Err(malformed(format!("`{name}` must be true or false"))),
    }
}

/// One component or value, decoded.
fn decode(value: &str) -> Option<String> {
    if !value.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Some(value.to_owned());
    }
    let escapes = value.as_bytes().iter().enumerate().filter(|(_, byte)| **byte == b'%');
    for (at, _) in escapes {
        if !value.as_bytes().get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return None;
        }
    }
    let spaced = value.replace('+', " ");
    percent_decode(spaced.as_bytes()).decode_utf8().ok().map(|text| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let [path, flag] =
            parameters(Some("x=1&path=caf%C3%A9+a%2Bb%20%26%0A&recursive=true"), ["path", "recursive"]).unwrap();
        assert_eq!((path.as_deref(), flag.as_deref()), (Some("café a+b &\n"), Some("true")));
        assert_eq!(parameters(None, ["path"]).unwrap(), [None]);
        assert_eq!(parameters(Some("path"), ["path"]).unwrap(), [Some(String::new())]);
        assert_eq!(parameters(Some("path=%252e%00"), ["path"]).unwrap(), [Some("%2e\0".to_owned())]);
    }

    #[test]
    fn what_cannot_be_decoded_is_refused() {
        for query in ["path=%", "path=%f", "path=%zz", "path=%ff", "path=a&path=b", "path=%+1"] {
            assert!(parameters(Some(query), ["path"]).is_err(), "{query}");
        }
        assert!(parameters(Some(&"x".repeat(QUERY_BYTES_MAX + 1)), ["path"]).is_err());
        assert!(flag(Some("yes"), "recursive").is_err());
    }
}
