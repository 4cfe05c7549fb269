//! What is written beside an image: its facts, where it comes from, what its root is made of.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ringfence_op::ImageLimits;
use serde::{Deserialize, Serialize};

use crate::ImageError;
use crate::limits::MANIFEST_BYTES_MAX;
use crate::python::Python;

/// Raised whenever a build of the same inputs makes something else, or a manifest is written another way.
pub(crate) const FORMAT: u32 = 2;
/// The manifest's name in an image's folder. It is written last.
pub(crate) const MANIFEST: &str = "manifest.json";

/// An image, as its manifest tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The store's format.
    pub format: u32,
    /// The digest of everything that the image is made from: 64 lower-case hexadecimal digits.
    pub id: String,
    /// Where it comes from.
    pub source: Source,
    /// What the code of a session finds.
    pub facts: Facts,
    /// What its root is made of.
    pub root: Root,
    /// The digest of every file, link, mode and owner in its folder.
    pub content: String,
    /// Bytes of its files; those that it shares with the image that it was made from count too.
    pub bytes: u64,
}

/// Where an image comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A declaration.
    Declared {
        /// The image that it was made on, if that is not the machine itself.
        base: Option<String>,
        /// Pinned packages that it added, `name==version`.
        packages: Vec<String>,
    },
    /// An OCI image.
    Oci {
        /// What was asked for: an archive's or a folder's path, or a reference of a registry.
        reference: String,
        /// The digest of its manifest, `sha256:...`.
        digest: String,
    },
}

/// What the code of a session finds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The Python of `code_execution`.
    pub interpreter: Interpreter,
    /// The C library of its programs.
    pub libc: Libc,
    /// Languages that there is something for, such as `python` and `bash`.
    pub languages: Vec<String>,
    /// Modules that are imported before a session begins, beside those of the standard library.
    pub preloads: Vec<String>,
    /// Variables beside those that every image has.
    pub environment: BTreeMap<String, String>,
    /// The shell, as a path in the root.
    pub shell: PathBuf,
    /// What its sessions may use, where that is less than what the server's may.
    #[serde(default, skip_serializing_if = "ImageLimits::is_empty")]
    pub limits: ImageLimits,
}

/// The Python of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interpreter {
    /// There is one.
    Python {
        /// Its path in the root.
        path: PathBuf,
        /// Its version, as far as it is known: `3.11.7`, or `3.11` where it was never run.
        version: String,
    },
    /// There is none that serves, and this is why.
    None(String),
}

impl Interpreter {
    /// Whether there is one.
    #[must_use]
    pub fn is_there(&self) -> bool {
        matches!(self, Interpreter::Python { .. })
    }
}

impl Default for Interpreter {
    fn default() -> Self {
        Interpreter::None("it holds no Python".to_owned())
    }
}

/// The C library of an image's programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Libc {
    /// The GNU C library.
    Glibc,
    /// musl.
    Musl,
    /// Its shell is linked statically, or there is nothing to tell by.
    #[default]
    None,
}

impl fmt::Display for Libc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Libc::Glibc => "glibc",
            Libc::Musl => "musl",
            Libc::None => "none",
        })
    }
}

/// What a root is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Root {
    /// The machine's own `/usr` and a Python of it; the image's folder may hold `venv`, `matplotlib` and `files`.
    Host {
        /// The machine's Python.
        python: Python,
        /// Programs of the machine that are seen as `/opt/ringfence/bin/NAME`.
        programs: BTreeMap<String, PathBuf>,
        /// Further folders of the machine, seen at their own place.
        folders: Vec<PathBuf>,
        /// Places of the files in `files`: its entries are named by their number here.
        files: Vec<PathBuf>,
    },
    /// The folder `root` of the image's folder.
    Folder,
}

/// The one thing that every format's manifest has.
#[derive(Deserialize)]
struct AnyFormat {
    format: u32,
}

impl Manifest {
    /// Whether it is the OCI image of that digest: `sha256:...`, or a reference that ends in `@sha256:...`.
    pub(crate) fn goes_by(&self, digest: &str) -> bool {
        match &self.source {
            Source::Oci { digest: own, .. } => digest.rsplit('@').next() == Some(own),
            Source::Declared { .. } => false,
        }
    }

    /// Reads the manifest of the image in `folder`.
    ///
    /// # Errors
    /// When there is none that can be read; [`ImageError::OtherFormat`] when another version of this program wrote it.
    pub(crate) fn read(folder: &Path) -> Result<Self, ImageError> {
        let path = folder.join(MANIFEST);
        let file = File::open(&path).map_err(ImageError::file("open", &path))?;
        Self::parse(file, &path)
    }

    /// As [`Self::read`], of a file that is open.
    pub(crate) fn parse(file: File, path: &Path) -> Result<Self, ImageError> {
        let mut text = Vec::new();
        file.take(MANIFEST_BYTES_MAX).read_to_end(&mut text).map_err(ImageError::file("read", path))?;
        let broken = |source: serde_json::Error| ImageError::file("understand", path)(source.into());
        let any: AnyFormat = serde_json::from_slice(&text).map_err(broken)?;
        if any.format != FORMAT {
            return Err(ImageError::OtherFormat { path: path.to_owned(), format: any.format, ours: FORMAT });
        }
        serde_json::from_slice(&text).map_err(broken)
    }
}
