//! `http` and `https` URLs of the configuration.

use hyper::Uri;

use crate::error::GateError;

/// `http[s]://host:port[/prefix]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    /// TLS is spoken.
    pub(crate) secure: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Empty, or `/...` without a slash at its end.
    pub(crate) prefix: String,
}

impl Url {
    /// Parses a URL without user, query and fragment.
    pub(crate) fn parse(what: &'static str, text: &str) -> Result<Self, GateError> {
        // What stands before an `@` may be a password: then nothing of the text is shown.
        let value = if text.contains('@') { "..." } else { text };
        let wrong = |reason| GateError::Value { what, value: value.to_owned(), reason };
        let uri: Uri = text.parse().map_err(|_| wrong("is no URL"))?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("must begin with http:// or https://")),
        };
        if text.contains('@') || uri.query().is_some() || text.contains('#') {
            return Err(wrong("must have no user, no query and no fragment"));
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("names no host"))?;
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        Ok(Url { secure, host: host.to_owned(), port, prefix })
    }

    /// The same at another host and port.
    pub(crate) fn at(&self, address: std::net::SocketAddr) -> Self {
        let host = match address.ip() {
            std::net::IpAddr::V4(ip) => ip.to_string(),
            std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        };
        Url { secure: self.secure, host, port: address.port(), prefix: self.prefix.clone() }
    }

    /// The URI of a path and query below it.
    pub(crate) fn join(&self, path_and_query: &str) -> Option<Uri> {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}:{}{}{path_and_query}", self.host, self.port, self.prefix).parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_strictly_and_show_no_password() {
        let joined = |text: &str| Url::parse("x", text).unwrap().join("/sessions?a=b").unwrap().to_string();
        assert_eq!(joined("http://h:8080"), "http://h:8080/sessions?a=b");
        assert_eq!(joined("http://[::1]:9/a/"), "http://[::1]:9/a/sessions?a=b");
        assert_eq!(joined("https://h/a"), "https://h:443/a/sessions?a=b");
        for wrong in ["", "h:1", "httpss://h", "http://u:hush@h", "http://h?x", "http://h/#x", "ftp://h"] {
            let error = Url::parse("x", wrong).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hush"), "{error}");
        }
    }
}
