//! What the root of a cell looks like: said by the image room, built by the jail.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ImageLimits;

/// A read-only root, put together from folders of the host, and the facts of the image on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootSpec {
    /// The image's name, as the handle reports it.
    pub image: String,
    /// Folders or files of the host that are seen, read-only, at a place of their own.
    pub binds: Vec<Bind>,
    /// Symbolic links (such as `/bin` to `usr/bin`).
    pub symlinks: Vec<RootSymlink>,
    /// Small files written into the root (such as `/etc/passwd`).
    pub files: Vec<RootFile>,
    /// Symbolic links made in each cell's own `/tmp` (such as a cache that a program wants beside its own).
    pub tmp_symlinks: Vec<RootSymlink>,
    /// The environment of the interpreter and of shell commands, whole.
    pub environment: Vec<(String, String)>,
    /// The shell, as a path in the root, started as `shell -c command`.
    pub shell: PathBuf,
    /// The Python interpreter, as a path in the root; `None` where the image has none.
    pub python: Option<PathBuf>,
    /// Modules that the zygote imports before it forks.
    pub preloads: Vec<String>,
    /// What its cells may use, where that is less than what the server's may.
    pub limits: ImageLimits,
}

impl RootSpec {
    /// A root with nothing in it, whose shell would be `/bin/sh`.
    pub fn empty(image: impl Into<String>) -> RootSpec {
        RootSpec {
            image: image.into(),
            binds: Vec::new(),
            symlinks: Vec::new(),
            files: Vec::new(),
            tmp_symlinks: Vec::new(),
            environment: Vec::new(),
            shell: PathBuf::from("/bin/sh"),
            python: None,
            preloads: Vec::new(),
            limits: ImageLimits::default(),
        }
    }
}

/// One folder or file of the host that is seen in the root, read-only, with everything mounted below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bind {
    /// Absolute path on the host.
    pub source: PathBuf,
    /// Absolute path in the root; missing parents are made, mode 0755.
    pub target: PathBuf,
}

/// A symbolic link of the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootSymlink {
    /// Absolute path of the link itself.
    pub link: PathBuf,
    /// What it points to.
    pub target: PathBuf,
}

/// A small file of the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootFile {
    /// Absolute path in the root.
    pub path: PathBuf,
    /// Its content.
    pub content: String,
}
