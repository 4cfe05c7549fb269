//! The list of backends as the operator writes it.
//!
//! One a line: `NAME URL [draining]`; `#` begins a comment. A URL `http[s]://...` is one backend; `dns+http[s]://...` is
//! every address that its host name has, asked anew again and again.

use crate::error::GateError;
use crate::limits::BACKENDS_MAX;
use crate::url::Url;

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) url: Url,
    /// Every address of the host is a backend of its own.
    pub(crate) dns: bool,
    /// No new sessions.
    pub(crate) draining: bool,
}

/// 1 to 63 characters of `a-z 0-9 -`.
fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(allowed)
}

/// Reads `NAME=URL`, the form of the command line.
pub(crate) fn from_option(text: &str) -> Result<Listed, GateError> {
    let wrong = |reason| GateError::Value { what: "backend", value: shown(text), reason };
    let (name, url) = text.split_once('=').ok_or_else(|| wrong("must be NAME=URL"))?;
    entry(name, url, false)
}

/// Reads a file's text.
pub(crate) fn from_text(text: &str) -> Result<Vec<Listed>, GateError> {
    let mut list = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] => {}
            [name, url] => list.push(entry(name, url, false)?),
            [name, url, "draining"] => list.push(entry(name, url, true)?),
            _ => {
                let reason = "must be NAME URL, and `draining` where it takes no new sessions";
                return Err(GateError::Value { what: "backend", value: shown(line), reason });
            }
        }
    }
    Ok(list)
}

/// Holds a whole list against its rules.
pub(crate) fn check(list: &[Listed]) -> Result<(), GateError> {
    let wrong = |value: &str, reason| Err(GateError::Value { what: "backend", value: value.to_owned(), reason });
    if list.len() > BACKENDS_MAX {
        return wrong("", "are more than 256");
    }
    for (index, listed) in list.iter().enumerate() {
        if list.iter().skip(index + 1).any(|other| other.name == listed.name) {
            return wrong(&listed.name, "stands twice");
        }
    }
    Ok(())
}

fn entry(name: &str, url: &str, draining: bool) -> Result<Listed, GateError> {
    if !is_name(name) {
        let reason = "must be 1 to 63 characters of a-z 0-9 -";
        return Err(GateError::Value { what: "backend name", value: shown(name), reason });
    }
    let (dns, plain) = match url.strip_prefix("dns+") {
        Some(plain) => (true, plain),
        None => (false, url),
    };
    Ok(Listed { name: name.to_owned(), url: Url::parse("backend URL", plain)?, dns, draining })
}

/// What stands before an `@` may be a password.
fn shown(text: &str) -> String {
    if text.contains('@') { "...".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        let text =
            "# ours\nb1 http://10.0.0.1:8080\n\nb2 http://10.0.0.2:8080/x draining # soon gone\npool dns+http://h:80\n";
        let list = from_text(text).unwrap();
        let shown: Vec<_> = list.iter().map(|b| (b.name.as_str(), b.dns, b.draining, b.url.prefix.as_str())).collect();
        assert_eq!(shown, [("b1", false, false, ""), ("b2", false, true, "/x"), ("pool", true, false, "")]);
        assert!(check(&list).is_ok());
        assert_eq!(from_option("b1=http://10.0.0.1:8080").unwrap(), list[0]);
    }

    #[test]
    fn wrong_lists_are_refused() {
        for wrong in ["b1", "b1 http://h up", "B1 http://h", "b/1 http://h", "b1 http://h draining now"] {
            assert!(from_text(wrong).is_err(), "{wrong}");
        }
        assert!(from_option("b1 http://h").is_err());
        assert!(check(&from_text("a http://h\na http://i").unwrap()).is_err());
        let many: String = (0..257).map(|n| format!("b{n} http://h\n")).collect();
        assert!(check(&from_text(&many).unwrap()).is_err());
        assert!(!from_option("http://u:hush@h").unwrap_err().to_string().contains("hush"));
    }
}
