//! The name of an image in a registry.

use std::fmt;
use std::str::FromStr;

use crate::error::shown;
use crate::limits::{REPOSITORY_BYTES_MAX, TAG_BYTES_MAX};
use crate::{Digest, OciError};

/// Where images without a host in their name come from, and how Docker spells it.
const HUB: &str = "docker.io";
const HUB_INDEX: &str = "index.docker.io";
const HUB_SERVER: &str = "registry-1.docker.io";

/// `host/repository:tag@digest`, with Docker's defaults filled in: host `docker.io`, repository `library/NAME` there,
/// tag `latest` where there is no digest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reference {
    host: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// The registry as it is named: `docker.io`, `registry.example:5000`.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The repository: `library/debian`.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag; `None` where there is a digest alone.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest of the manifest or index; where there is one the tag is not looked at.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// The host that is really asked.
    pub(crate) fn server(&self) -> &str {
        if self.host == HUB { HUB_SERVER } else { &self.host }
    }

    /// What Docker's credentials are kept under.
    pub(crate) fn credential_key(&self) -> &str {
        if self.host == HUB { "https://index.docker.io/v1/" } else { &self.host }
    }

    /// What is asked for: the digest, else the tag.
    pub(crate) fn target(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => "latest".to_owned(),
        }
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        if Digest::from_hex(text).is_some() {
            return Err("64 hexadecimal digits are the id of an image, which registries do not know");
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse().map_err(|_| "its digest is not well formed")?)),
            None => (text, None),
        };
        // A colon before the last slash is that of a port.
        let (name, tag) = match rest.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (rest, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err("its tag is not well formed");
        }
        let (host, repository) = match name.split_once('/') {
            Some((host, path)) if is_host_like(host) => (host, path.to_owned()),
            _ => (HUB, name.to_owned()),
        };
        let host = if host == HUB_INDEX || host == HUB_SERVER { HUB } else { host };
        if !is_host(host) {
            return Err("its host is not well formed");
        }
        let repository =
            if host == HUB && !repository.contains('/') { format!("library/{repository}") } else { repository };
        if !is_repository(&repository) {
            return Err("its name is not well formed (lower-case letters, digits and single separators are)");
        }
        let tag = tag.map(str::to_owned).or_else(|| digest.is_none().then(|| "latest".to_owned()));
        Ok(Reference { host: host.to_owned(), repository, tag, digest })
    }
}

impl FromStr for Reference {
    type Err = OciError;

    fn from_str(text: &str) -> Result<Self, OciError> {
        Reference::parse(text).map_err(|why| OciError::Reference { text: shown(text.as_bytes()), why })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.host, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(formatter, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(formatter, "@{digest}")?;
        }
        Ok(())
    }
}

/// Whether the first part of a name is a host rather than a part of a repository on Docker Hub.
fn is_host_like(part: &str) -> bool {
    part == "localhost" || part.contains(['.', ':']) || part.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn is_host(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) => {
                if address.parse::<std::net::Ipv6Addr>().is_err() {
                    return false;
                }
                ("localhost", port.strip_prefix(':').or(port.is_empty().then_some("1")))
            }
            None => return false,
        },
        None => match host.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, Some("1")),
        },
    };
    let labels = name.split('.').all(|label| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    });
    let port = port.is_some_and(|port| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    labels && port && host.len() <= 255
}

/// Parts of lower-case letters and digits, joined inside by `.`, `_`, `__` or dashes (distribution specification).
fn is_repository(name: &str) -> bool {
    name.len() <= REPOSITORY_BYTES_MAX && name.split('/').all(is_repository_part)
}

fn is_repository_part(part: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = part.bytes().next().is_some_and(plain) && part.bytes().next_back().is_some_and(plain);
    let joins = part.split(|letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit());
    ends && joins.into_iter().all(|join| matches!(join, "" | "." | "_" | "__") || join.bytes().all(|byte| byte == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !tag.is_empty()
        && tag.len() <= TAG_BYTES_MAX
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn defaults_are_docker_s() {
        let digest = Digest::of(b"");
        for (text, whole) in [
            ("debian", "docker.io/library/debian:latest".to_owned()),
            ("python:3.12-slim", "docker.io/library/python:3.12-slim".to_owned()),
            ("someone/thing", "docker.io/someone/thing:latest".to_owned()),
            ("index.docker.io/library/debian", "docker.io/library/debian:latest".to_owned()),
            ("localhost/a", "localhost/a:latest".to_owned()),
            ("localhost:5000/a/b:c", "localhost:5000/a/b:c".to_owned()),
            ("registry.example/a__b/c-d.e:1_2", "registry.example/a__b/c-d.e:1_2".to_owned()),
            ("[::1]:5000/a", "[::1]:5000/a:latest".to_owned()),
            (&format!("r.example/a@{digest}"), format!("r.example/a@{digest}")),
            (&format!("a:b@{digest}"), format!("docker.io/library/a:b@{digest}")),
        ] {
            let reference: Reference = text.parse().unwrap();
            assert_eq!(reference.to_string(), whole);
            assert_eq!(whole.parse::<Reference>().unwrap(), reference, "the whole form reads the same");
        }
        let hub: Reference = "debian".parse().unwrap();
        assert_eq!((hub.server(), hub.target().as_str()), ("registry-1.docker.io", "latest"));
        assert_eq!(hub.credential_key(), "https://index.docker.io/v1/");
    }

    #[test]
    fn what_is_not_well_formed_is_refused() {
        let digest = Digest::of(b"");
        for text in [
            "",
            "/",
            "a/",
            "/a",
            "A",
            "a b",
            "a:",
            "a:b:c",
            "a@",
            "a@sha256:12",
            "a//b",
            "../a",
            "a/../b",
            "a/./b",
            "-a",
            "a-",
            "a..b",
            "a___b",
            "host.example:0/a",
            "host.example:99999/a",
            "host.example:x/a",
            "user@host.example/a",
            "http://host.example/a",
            "-.example/a",
            "[::1/a",
            "[zz]:1/a",
            "a:-b",
            "a\n",
            "é",
            "a.example/b?c",
            "a.example/b#c",
            "a.example/b%2fc",
        ] {
            assert!(text.parse::<Reference>().is_err(), "{text:?}");
        }
        assert!(digest.hex().parse::<Reference>().is_err());
        assert!(format!("a:{}", "b".repeat(129)).parse::<Reference>().is_err());
        assert!("a".repeat(256).parse::<Reference>().is_err());
    }

    proptest! {
        #[test]
        fn nothing_panics_and_what_is_read_is_safe_in_a_url(text in "\\PC{0,60}|[a-z0-9./:@_-]{0,60}") {
            if let Ok(reference) = text.parse::<Reference>() {
                let url = format!("{}/{}/{}", reference.host(), reference.repository(), reference.target());
                prop_assert!(url.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#%\\\"<>".contains(&byte)));
                prop_assert!(!reference.repository().split('/').any(|part| part.is_empty() || part == ".."));
            }
        }
    }
}
