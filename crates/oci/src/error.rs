//! Why an image could not be read, fetched or unpacked.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::Digest;

/// Why an operation of this room failed. Nothing of it holds a secret.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OciError {
    /// A file or folder of the machine's.
    #[error("cannot {what} {}", path.display())]
    File {
        /// What was being done to it.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Reading what an archive, a layer or a registry sends.
    #[error("cannot read {what}")]
    Read {
        /// What was being read.
        what: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A digest of another algorithm, or none at all.
    #[error("`{text}` is no digest: `sha256:` and 64 hexadecimal digits are")]
    NoDigest {
        /// What was said.
        text: String,
    },
    /// Content is not what its name says.
    #[error("{what} has the digest {found}, not {expected}: it is damaged or forged")]
    WrongDigest {
        /// Of what.
        what: String,
        /// What was announced.
        expected: Digest,
        /// What it is.
        found: Digest,
    },
    /// Content is longer or shorter than announced.
    #[error("{what} has {found} bytes, not {expected}: it is damaged or forged")]
    WrongSize {
        /// Of what.
        what: String,
        /// What was announced, bytes.
        expected: u64,
        /// What came, bytes.
        found: u64,
    },
    /// A bound was met.
    #[error("{what} is over the limit of {max}")]
    TooLarge {
        /// What.
        what: String,
        /// The bound, with its unit.
        max: String,
    },
    /// A blob is named but not there.
    #[error("{what} {digest} is missing")]
    MissingBlob {
        /// What it would have been.
        what: &'static str,
        /// Which.
        digest: Digest,
    },
    /// An entry of an archive or layer is refused. Nothing was written outside the target.
    #[error("the entry `{entry}` is refused: {why}")]
    Entry {
        /// Its name, as one short line.
        entry: String,
        /// What is wrong with it.
        why: String,
    },
    /// An entry of a layer could not be written.
    #[error("cannot {what} for the entry `{entry}`")]
    Write {
        /// Its name, as one short line.
        entry: String,
        /// What was being done.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A document or an archive is not what it should be.
    #[error("{what} is not understood: {why}")]
    Malformed {
        /// What.
        what: String,
        /// Why.
        why: String,
    },
    /// The archive or folder holds no image.
    #[error(
        "{} holds no image: neither an OCI layout (index.json) nor what `docker save` writes (manifest.json)", path.display()
    )]
    NoImage {
        /// Which.
        path: PathBuf,
    },
    /// It holds several, and none was named.
    #[error("there are several images; name one of: {}", names.join(", "))]
    SeveralImages {
        /// Their names or digests.
        names: Vec<String>,
    },
    /// It does not hold the named one.
    #[error("there is no image `{wanted}`; there is: {}", names.join(", "))]
    NoSuchImage {
        /// What was asked for.
        wanted: String,
        /// What there is.
        names: Vec<String>,
    },
    /// The image is for other machines.
    #[error("the image is for {}; this machine is {wanted}", found.join(", "))]
    OtherPlatform {
        /// What this machine needs, as `linux/amd64`.
        wanted: String,
        /// What there is.
        found: Vec<String>,
    },
    /// A name of an image is not well formed.
    #[error("`{text}` is no image reference: {why}")]
    Reference {
        /// What was given.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A registry would have been asked without encryption.
    #[error("{host} would be asked over plain HTTP, which is for this machine alone unless it is allowed")]
    Plain {
        /// The host.
        host: String,
    },
    /// The registry wants other credentials, or there is no such repository.
    #[error("{host} refuses access to {repository}{said}")]
    Denied {
        /// The registry.
        host: String,
        /// The repository.
        repository: String,
        /// Its own words, after a colon; may be empty.
        said: String,
    },
    /// The registry does not have it.
    #[error("{host} has no {what}")]
    Absent {
        /// The registry.
        host: String,
        /// What was asked for.
        what: String,
    },
    /// The registry answered something else than what was asked for.
    #[error("{host} answered {status} when asked for {what}{said}")]
    Status {
        /// Who.
        host: String,
        /// The HTTP status.
        status: u16,
        /// What was asked for.
        what: String,
        /// Its own words, after a colon; may be empty.
        said: String,
    },
    /// The registry answered in a way that makes no sense.
    #[error("{host} answered wrongly when asked for {what}: {why}")]
    Answer {
        /// Who.
        host: String,
        /// What was asked for.
        what: String,
        /// What is wrong.
        why: String,
    },
    /// The registry could not be talked to.
    #[error("cannot fetch {what} from {host}")]
    Transport {
        /// Who.
        host: String,
        /// What was asked for.
        what: String,
        /// Why.
        #[source]
        source: Box<ureq::Error>,
    },
    /// The time for the whole pull is over.
    #[error("the pull took longer than {seconds} s; what was fetched is kept, and another try goes on from there")]
    OutOfTime {
        /// The bound.
        seconds: u64,
    },
    /// Another process or thread fetches the same blob and does not come to an end.
    #[error("another pull is fetching {digest} and does not come to an end")]
    Busy {
        /// Which blob.
        digest: Digest,
    },
    /// The file of registry credentials.
    #[error("the credentials in {} are not understood: {why}", path.display())]
    Credentials {
        /// Which file.
        path: PathBuf,
        /// What is wrong; never what it says.
        why: &'static str,
    },
    /// A program that keeps credentials.
    #[error("the credential helper `{program}` failed for {host}: {why}")]
    Helper {
        /// Its name.
        program: String,
        /// For which registry.
        host: String,
        /// What went wrong; never what it printed.
        why: String,
    },
    /// The caller gave it up.
    #[error("it was given up")]
    Cancelled,
}

impl OciError {
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OciError {
        move |source| OciError::File { what, path: path.to_owned(), source }
    }

    pub(crate) fn entry(name: &[u8], why: impl Into<String>) -> OciError {
        OciError::Entry { entry: shown(name), why: why.into() }
    }

    pub(crate) fn malformed(what: impl Into<String>, why: impl Into<String>) -> OciError {
        OciError::Malformed { what: what.into(), why: why.into() }
    }

    /// What the operator can do about it.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            OciError::Denied { .. } => Some("log in with `docker login` or its like, or check the image's name"),
            OciError::Plain { .. } => Some("use a registry with TLS, or allow plain HTTP for this host by name"),
            OciError::NoImage { .. } => Some("if it is a root filesystem, import it as one"),
            OciError::TooLarge { .. } => Some("take a smaller image, or raise the limit"),
            OciError::Transport { .. } | OciError::OutOfTime { .. } => {
                Some("check the network and the proxy's settings, and try again: it goes on where it stopped")
            }
            OciError::WrongDigest { .. } | OciError::WrongSize { .. } => Some("get the image again from its source"),
            _ => None,
        }
    }
}

/// The most of a name that an error shows, characters.
const SHOWN_CHARS_MAX: usize = 200;

/// Bytes of strangers as one short line.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut line = String::new();
    for (count, letter) in text.chars().enumerate() {
        if count == SHOWN_CHARS_MAX {
            line.push_str("...");
            break;
        }
        if letter.is_control()
            || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            line.extend(letter.escape_default());
        } else {
            line.push(letter);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_name_is_one_short_line() {
        assert_eq!(shown(b"a/b\n\0\xff"), "a/b\\n\\u{0}\u{fffd}");
        assert_eq!(shown(&[b'x'; 5000]).len(), SHOWN_CHARS_MAX + 3);
    }
}
