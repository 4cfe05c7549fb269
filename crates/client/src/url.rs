//! The base URL, and the parts of a path that need escaping.

use std::fmt::{self, Write};

use hyper::Uri;

use crate::ClientError;

/// Where a backend is: `http://host[:port][/prefix]`, or https.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    /// `scheme://host:port/prefix`, without a slash at its end.
    text: String,
    authority: String,
}

impl BaseUrl {
    /// Parses a base URL.
    ///
    /// # Errors
    /// When it is no `http` or `https` URL, or carries user information, a query or a fragment.
    pub fn parse(text: &str) -> Result<Self, ClientError> {
        let wrong = |reason| ClientError::Url { url: without_user(text), reason };
        // Wherever it stands: what is before it may be a password with a slash in it.
        if text.contains('@') {
            return Err(wrong("a user or password in it is not supported: use a bearer token"));
        }
        let uri: Uri = text.parse().map_err(|_| wrong("it is no URL"))?;
        let (scheme, port) = match uri.scheme_str() {
            Some("http") => ("http", ":80"),
            Some("https") => ("https", ":443"),
            _ => return Err(wrong("it must begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
        if uri.query().is_some() || text.contains('#') {
            return Err(wrong("it must have no query and no fragment"));
        }
        let prefix = uri.path().trim_end_matches('/');
        let port = if authority.port().is_some() { "" } else { port };
        Ok(BaseUrl { text: format!("{scheme}://{authority}{prefix}"), authority: format!("{authority}{port}") })
    }

    /// The URL of a path and query (which begin with a slash and are escaped already).
    #[must_use]
    pub fn join(&self, path_and_query: &str) -> String {
        format!("{}{path_and_query}", self.text)
    }

    /// Whether it begins with `https://`.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.text.starts_with("https:")
    }

    /// Host and port.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The text without what stands before an `@`, which may be a password, with a slash in it as well.
fn without_user(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
    match rest.rsplit_once('@') {
        Some((_, host)) if scheme.is_empty() => format!("...@{host}"),
        Some((_, host)) => format!("{scheme}://...@{host}"),
        None => text.to_owned(),
    }
}

/// A text as one segment of a path, escaped so that nothing in it ends or leaves the segment.
#[must_use]
pub fn path_segment(text: &str) -> String {
    match text {
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        _ => escaped(text, b"-_.~"),
    }
}

/// A text as the value of a query parameter.
#[must_use]
pub fn query_value(text: &str) -> String {
    escaped(text, b"-_.~/")
}

fn escaped(text: &str, kept: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_are_made_plain() {
        for (text, joined) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/sessions"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/sessions"),
            ("http://host/a/b/", "http://host/a/b/sessions"),
            ("http://[::1]:9", "http://[::1]:9/sessions"),
        ] {
            assert_eq!(BaseUrl::parse(text).unwrap().join("/sessions"), joined);
        }
        assert_eq!(BaseUrl::parse("http://host/x").unwrap().authority(), "host:80");
        let over_tls = BaseUrl::parse("https://host/x/").unwrap();
        assert_eq!((over_tls.join("/a").as_str(), over_tls.authority()), ("https://host/x/a", "host:443"));
    }

    #[test]
    fn what_cannot_be_used_is_refused_and_shows_no_password() {
        for (text, part) in [
            ("ftp://host", "http://"),
            ("host:8080", "http://"),
            ("", "no URL"),
            ("http://u:hush@host", "bearer"),
            ("http://u:hu/sh@host", "bearer"),
            ("http://u:hush@hush@host", "bearer"),
            ("http:/u:hush@host", "bearer"),
            ("u:hush@host:80", "bearer"),
            ("http://host?x=1", "query"),
        ] {
            let said = BaseUrl::parse(text).unwrap_err().to_string();
            assert!(said.contains(part), "{text}: {said}");
            assert!(!said.contains("hush") && !said.contains("u:"), "{said}");
        }
    }

    #[test]
    fn what_would_end_a_segment_is_escaped() {
        assert_eq!(path_segment("a/../b?c#d%"), "a%2F..%2Fb%3Fc%23d%25");
        assert_eq!(path_segment(".."), "%2E%2E");
        assert_eq!(query_value("a b/c&d=\u{e9}+"), "a%20b/c%26d%3D%C3%A9%2B");
    }
}
