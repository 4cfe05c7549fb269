//! Digests: of texts, of files, of whole folders.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::ImageError;

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 of bytes, lower-case hexadecimal.
pub(crate) fn digest_of(bytes: impl AsRef<[u8]>) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// The SHA-256 of a file.
pub(crate) fn digest_of_file(path: &Path) -> Result<String, ImageError> {
    let mut file = File::open(path).map_err(ImageError::file("open", path))?;
    let mut hasher = Sha256::new();
    io::copy(&mut file, &mut hasher).map_err(ImageError::file("read", path))?;
    Ok(hexadecimal(&hasher.finalize()))
}

/// What a folder holds, and how much.
pub(crate) struct Content {
    /// The digest of every path, kind, mode, owner, link and byte in it.
    pub(crate) digest: String,
    /// Bytes of its files.
    pub(crate) bytes: u64,
}

/// Looks through a folder, all of it but the file `except` at its top. Times are not part of it; no link is followed.
pub(crate) fn content_of(folder: &Path, except: &str) -> Result<Content, ImageError> {
    let mut hasher = Sha256::new();
    let mut bytes = 0;
    let mut waiting = vec![folder.to_owned()];
    let mut buffer = vec![0; 256 << 10];
    while let Some(path) = waiting.pop() {
        let metadata = fs::symlink_metadata(&path).map_err(ImageError::file("look at", &path))?;
        let place = path.strip_prefix(folder).unwrap_or(&path);
        hasher.update(place.as_os_str().as_bytes());
        hasher.update([0]);
        for number in [u64::from(metadata.mode()), metadata.uid().into(), metadata.gid().into()] {
            hasher.update(number.to_le_bytes());
        }
        if metadata.is_dir() {
            let mut inside = Vec::new();
            for entry in fs::read_dir(&path).map_err(ImageError::file("list", &path))? {
                inside.push(entry.map_err(ImageError::file("list", &path))?.path());
            }
            inside.sort();
            waiting.extend(inside.into_iter().rev().filter(|one| *one != folder.join(except)));
        } else if metadata.is_symlink() {
            let target = fs::read_link(&path).map_err(ImageError::file("read", &path))?;
            hasher.update(target.as_os_str().as_bytes());
        } else if metadata.is_file() {
            hasher.update(metadata.len().to_le_bytes());
            bytes += metadata.len();
            let mut file = File::open(&path).map_err(ImageError::file("open", &path))?;
            loop {
                let length = file.read(&mut buffer).map_err(ImageError::file("read", &path))?;
                if length == 0 {
                    break;
                }
                hasher.update(buffer.get(..length).unwrap_or_default());
            }
        }
        hasher.update([0]);
    }
    Ok(Content { digest: hexadecimal(&hasher.finalize()), bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn any_change_is_seen_but_that_of_the_excepted_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        fs::write(at("sub/file"), "one").unwrap();
        fs::write(at("manifest"), "x").unwrap();
        std::os::unix::fs::symlink("file", at("sub/link")).unwrap();
        let digest = || content_of(folder.path(), "manifest").unwrap().digest;
        let mut seen = vec![digest()];
        fs::write(at("manifest"), "y").unwrap();
        assert_eq!(digest(), seen[0]);
        let changes: [&dyn Fn(); 5] = [
            &|| fs::write(at("sub/file"), "two").unwrap(),
            &|| fs::set_permissions(at("sub/file"), fs::Permissions::from_mode(0o755)).unwrap(),
            &|| fs::rename(at("sub/file"), at("sub/other")).unwrap(),
            &|| fs::create_dir(at("sub/empty")).unwrap(),
            &|| {
                fs::remove_file(at("sub/link")).unwrap();
                std::os::unix::fs::symlink("other", at("sub/link")).unwrap();
            },
        ];
        for change in changes {
            change();
            let now = digest();
            assert!(!seen.contains(&now));
            seen.push(now);
        }
        assert_eq!(content_of(folder.path(), "manifest").unwrap().bytes, 3);
    }
}
