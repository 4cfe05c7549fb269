//! What an image is, once it has been imported or pulled: facts, and blobs by digest.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Digest;

/// An image whose blobs are all in the [`crate::Blobs`] that it was imported or pulled into.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The image's identity: the digest of its manifest. For an archive without one (an older `docker save`, a plain
    /// root filesystem) a manifest was written from what there is, the same from the same content.
    pub manifest_digest: Digest,
    /// The digest of its configuration: what Docker calls the image id.
    pub config_digest: Digest,
    /// What the configuration says.
    pub config: ImageConfig,
    /// Lowest first.
    pub layers: Vec<Layer>,
    /// The names that the source gives it, as written there (`name:tag`); may be empty. Of an archive's those that are
    /// of visible letters of ASCII; a pull's are the reference and the one with its digest.
    pub names: Vec<String>,
}

impl Found {
    /// Every blob that the image needs, without repetition: manifest, configuration, layers.
    #[must_use]
    pub fn blobs(&self) -> Vec<Digest> {
        let layers = self.layers.iter().map(|layer| layer.digest);
        let mut all: Vec<Digest> = [self.manifest_digest, self.config_digest].into_iter().chain(layers).collect();
        let mut seen = std::collections::HashSet::new();
        all.retain(|digest| seen.insert(*digest));
        all
    }
}

/// What an image says of itself. Hostile: every text is the image maker's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// As Go names it: `amd64`, `arm64`.
    pub architecture: String,
    /// `linux`.
    pub os: String,
    /// `NAME=value` each; entries that are not so are dropped.
    pub env: Vec<String>,
    /// Where programs start; empty where the image does not say.
    pub working_dir: String,
    /// `user`, `uid`, `user:group`; empty where the image does not say.
    pub user: String,
    /// The program that is started, with its first arguments.
    pub entrypoint: Vec<String>,
    /// Further arguments, or the program where there is no entrypoint.
    pub cmd: Vec<String>,
    /// Facts by name.
    pub labels: BTreeMap<String, String>,
    /// When it was made, RFC 3339, as written.
    pub created: Option<String>,
}

/// One layer of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Of the blob, as it is kept.
    pub digest: Digest,
    /// The blob's size, bytes.
    pub bytes: u64,
    /// As the manifest says.
    pub media_type: String,
    /// The digest of the layer's tar without compression; verified when it is unpacked.
    pub diff_id: Digest,
}

/// Which machines an image is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// As Go names it: `linux`.
    pub os: String,
    /// As Go names it: `amd64`, `arm64`.
    pub architecture: String,
    /// `v8` and the like; may be empty.
    pub variant: String,
}

impl Platform {
    /// That of this machine.
    #[must_use]
    pub fn here() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", ""),
            "x86" => ("386", ""),
            "aarch64" => ("arm64", "v8"),
            "arm" => ("arm", "v7"),
            "powerpc64" if cfg!(target_endian = "little") => ("ppc64le", ""),
            "loongarch64" => ("loong64", ""),
            other => (other, ""),
        };
        Platform { os: "linux".to_owned(), architecture: architecture.to_owned(), variant: variant.to_owned() }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.os, self.architecture)?;
        if !self.variant.is_empty() {
            write!(formatter, "/{}", self.variant)?;
        }
        Ok(())
    }
}

/// Hears what an operation is doing, and may end it. `()` hears nothing.
pub trait Progress {
    /// A step begins, such as `layer sha256:...`; `total` bytes where it is known.
    fn step(&mut self, what: &str, total: Option<u64>) {
        let _ = (what, total);
    }
    /// So many bytes of the step are done by now.
    fn bytes(&mut self, done: u64) {
        let _ = done;
    }
    /// Whether the operation is to be given up: looked at every few hundred kilobytes.
    fn cancelled(&mut self) -> bool {
        false
    }
}

impl Progress for () {}
