//! What of the host's disk a root is put together from.

use std::fs;
use std::path::{Path, PathBuf};

use ringfence_op::{Bind, RootSymlink};

/// Folders of programs and libraries. Where the host has a link (`/bin` to `usr/bin`), so has the root.
const TREES: [&str; 9] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/gnu"];

/// Pieces of `/etc` that programs need and that tell nothing of the host's users, network or secrets: the dynamic
/// linker, links to chosen programs, public certificates, fonts, the time zone, tables of types and names.
const ETC: [&str; 22] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/pki/ca-trust/extracted",
    "/etc/crypto-policies/back-ends",
    "/etc/fonts",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/mime.types",
    "/etc/magic",
    "/etc/terminfo",
    "/etc/protocols",
    "/etc/services",
    "/etc/os-release",
    "/etc/debian_version",
];

/// Binds and links of a root.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Folders and files.
    pub(crate) binds: Vec<Bind>,
    /// Links.
    pub(crate) symlinks: Vec<RootSymlink>,
}

impl Pieces {
    /// The host's programs, libraries and the chosen pieces of `/etc`, as far as they are there.
    pub(crate) fn of_host() -> Self {
        let mut pieces = Pieces::default();
        for tree in TREES {
            pieces.add(Path::new(tree));
        }
        for piece in ETC {
            pieces.add(Path::new(piece));
        }
        pieces
    }

    /// A folder at its own place, unless one that is there already holds it.
    pub(crate) fn add_folder(&mut self, folder: &Path) {
        let is_seen = self.binds.iter().any(|bind| folder.starts_with(&bind.target));
        // The whole disk is never bound, whatever a Python says its prefix is.
        if !is_seen && folder.parent().is_some() {
            self.bind(folder, folder);
        }
    }

    /// One folder or file of the host, read-only, at a place of the root.
    pub(crate) fn bind(&mut self, source: &Path, target: &Path) {
        self.binds.push(Bind { source: source.to_owned(), target: target.to_owned() });
    }

    /// One link of the root.
    pub(crate) fn link(&mut self, link: impl Into<PathBuf>, target: impl Into<PathBuf>) {
        self.symlinks.push(RootSymlink { link: link.into(), target: target.into() });
    }

    fn add(&mut self, path: &Path) {
        let Ok(metadata) = fs::symlink_metadata(path) else { return };
        if !metadata.is_symlink() {
            self.bind(path, path);
            return;
        }
        let (Ok(target), Ok(real)) = (fs::read_link(path), path.canonicalize()) else { return };
        // A link into what is seen stays a link; any other is replaced by what it leads to.
        if self.binds.iter().any(|bind| real.starts_with(&bind.target)) {
            self.link(path, target);
        } else {
            self.bind(&real, path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_etc_only_pieces_are_seen() {
        let pieces = Pieces::of_host();
        assert!(pieces.binds.iter().any(|bind| bind.target == Path::new("/usr")));
        for bind in &pieces.binds {
            assert_ne!(bind.source, Path::new("/etc"));
            for secret in
                ["/etc/passwd", "/etc/shadow", "/etc/ssl/private/key", "/etc/ssh", "/etc/hosts", "/home", "/root"]
            {
                assert!(!Path::new(secret).starts_with(&bind.source), "{} shows {secret}", bind.source.display());
            }
        }
    }

    #[test]
    fn a_folder_that_is_seen_already_is_not_bound_twice_and_the_disk_never() {
        let mut pieces = Pieces::of_host();
        let before = pieces.binds.len();
        pieces.add_folder(Path::new("/usr/lib/python3"));
        pieces.add_folder(Path::new("/"));
        assert_eq!(pieces.binds.len(), before);
        pieces.add_folder(Path::new("/opt/python"));
        assert_eq!(pieces.binds.len(), before + 1);
    }
}
