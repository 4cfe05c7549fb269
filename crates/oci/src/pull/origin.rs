//! Where requests may go: over TLS, or in plain to this machine and to named hosts; and no redirect from a stranger
//! into this machine.

use std::net::{IpAddr, Ipv6Addr};

use crate::OciError;
use crate::error::shown;

/// What may be talked to without TLS.
#[derive(Debug, Clone)]
pub(super) struct Plain {
    pub(super) hosts: Vec<String>,
    pub(super) loopback: bool,
}

impl Plain {
    fn allows(&self, authority: &str) -> bool {
        self.hosts.iter().any(|host| host.eq_ignore_ascii_case(authority))
            || self.loopback && is_loopback(host_of(authority))
    }
}

/// A server: what credentials belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    tls: bool,
    /// Host, and port where it is not the scheme's own; lower case.
    authority: String,
}

impl Origin {
    /// A registry by its name in a reference.
    pub(super) fn of_host(host: &str, plain: &Plain) -> Self {
        Origin::new(!plain.allows(host), host)
    }

    fn new(tls: bool, authority: &str) -> Self {
        let authority = authority.to_ascii_lowercase();
        let usual = if tls { ":443" } else { ":80" };
        Origin { tls, authority: authority.strip_suffix(usual).unwrap_or(&authority).to_owned() }
    }

    /// The server, and the rest, of an absolute URL. Refused where it is neither HTTP nor HTTPS, has a user in it, or
    /// is plain where plain is not allowed.
    pub(super) fn of_url(url: &str, plain: &Plain) -> Result<Self, OciError> {
        let odd = || OciError::Answer {
            host: shown(url.as_bytes()),
            what: "where to go on".to_owned(),
            why: "it is no address that is understood".to_owned(),
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(odd)?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(odd()),
        };
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        if authority.is_empty() || !authority.bytes().all(good) || url.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err(odd());
        }
        let origin = Origin::new(tls, authority);
        if !tls && !plain.allows(authority) {
            return Err(OciError::Plain { host: origin.authority });
        }
        Ok(origin)
    }

    /// Where a redirect from this server leads: an absolute URL.
    pub(super) fn redirect(&self, location: &str, plain: &Plain) -> Result<String, OciError> {
        let url = match location {
            rooted if rooted.starts_with('/') && !rooted.starts_with("//") => self.url(rooted),
            absolute => absolute.to_owned(),
        };
        let target = Origin::of_url(&url, plain)?;
        if self.tls && !target.tls {
            return Err(OciError::Plain { host: target.authority });
        }
        // A registry elsewhere has no business with services of this machine.
        if !is_inner(host_of(&self.authority)) && is_inner(host_of(&target.authority)) {
            return Err(OciError::Answer {
                host: self.authority.clone(),
                what: "a blob or manifest".to_owned(),
                why: format!("it redirects into this machine or its link, to {}", target.authority),
            });
        }
        Ok(url)
    }

    /// The URL of a path on it.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", if self.tls { "https" } else { "http" }, self.authority)
    }

    /// How errors name it.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    pub(super) fn is_loopback(&self) -> bool {
        is_loopback(host_of(&self.authority))
    }
}

fn host_of(authority: &str) -> &str {
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => authority.split(':').next().unwrap_or_default(),
    }
}

fn address(host: &str) -> Option<IpAddr> {
    match host.parse().ok()? {
        IpAddr::V6(address) => Some(address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)),
        v4 => Some(v4),
    }
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || address(host).is_some_and(|address| address.is_loopback())
}

/// Loopback, unspecified and link-local addresses, by name or number.
fn is_inner(host: &str) -> bool {
    let link_local = |address: Ipv6Addr| address.segments().first().is_some_and(|first| first & 0xffc0 == 0xfe80);
    is_loopback(host)
        || address(host).is_some_and(|address| {
            address.is_unspecified()
                || match address {
                    IpAddr::V4(address) => address.is_link_local(),
                    IpAddr::V6(address) => link_local(address),
                }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Plain {
        Plain { hosts: vec!["plain.example:5000".to_owned()], loopback: true }
    }

    #[test]
    fn tls_is_for_all_but_this_machine_and_named_hosts() {
        for (host, url) in [
            ("r.example", "https://r.example/x"),
            ("r.example:443", "https://r.example/x"),
            ("plain.example:5000", "http://plain.example:5000/x"),
            ("plain.example", "https://plain.example/x"),
            ("localhost:5000", "http://localhost:5000/x"),
            ("127.0.0.9:80", "http://127.0.0.9/x"),
            ("[::1]:5000", "http://[::1]:5000/x"),
            ("127.0.0.1.example", "https://127.0.0.1.example/x"),
        ] {
            assert_eq!(Origin::of_host(host, &plain()).url("/x"), url);
        }
        let strict = Plain { hosts: vec![], loopback: false };
        assert_eq!(Origin::of_host("localhost:5000", &strict).url("/"), "https://localhost:5000/");
    }

    #[test]
    fn redirects_go_up_not_down_and_not_in() {
        let from = Origin::of_host("r.example", &plain());
        for good in ["https://cdn.example/x?y=z", "/v2/x", "https://r.example:443/x", "https://10.0.0.1/x"] {
            from.redirect(good, &plain()).unwrap();
        }
        for bad in [
            "http://cdn.example/x",
            "http://plain.example:5000/x",
            "//cdn.example/x",
            "x",
            "",
            "ftp://cdn.example/x",
            "https://localhost/x",
            "https://127.1.2.3/",
            "https://[::1]/",
            "https://169.254.169.254/latest",
            "https://[::ffff:127.0.0.1]/",
            "https://0.0.0.0/",
            "https://[fe80::1]/",
            "http://localhost:1/x",
            "https://user@cdn.example/",
            "https://",
            "https:///x",
            "https://cdn.example/ x",
            "file:///etc/passwd",
        ] {
            assert!(from.redirect(bad, &plain()).is_err(), "{bad}");
        }
        let here = Origin::of_host("localhost:5000", &plain());
        assert_eq!(here.redirect("/x", &plain()).unwrap(), "http://localhost:5000/x");
        here.redirect("http://127.0.0.1:9/x", &plain()).unwrap();
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let origin = |url| Origin::of_url(url, &plain()).unwrap();
        assert_eq!(origin("https://A.example/x"), origin("https://a.example:443/y"));
        assert_ne!(origin("https://a.example/x"), origin("https://a.example:444/x"));
        assert_ne!(origin("https://localhost/x"), origin("http://localhost/x"));
    }
}
