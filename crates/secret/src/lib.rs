//! Secrets in files that nobody but their owner can use: read, and made.
//!
//! For: every part of the program that is given a token or a key by the path of a file; and, without the rule of who can
//! use it, certificates and lists beside them. May know: nothing. Never knows: what a file is for, and who asks for it.
//!
//! **Invariants.**
//! - A file is read when it is a regular one, of mode 0600 or less, and small; nothing is waited for, whatever stands
//!   under the path.
//! - No error shows what is in a file.
//! - What was read is wiped when it is dropped.

mod error;
pub mod limits;

use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use zeroize::Zeroizing;

pub use error::SecretError;
use limits::SECRET_BYTES_MAX;

/// Reads a small regular file that nobody but its owner can use (mode 0600 or less).
///
/// # Errors
/// Names the file and what is wrong with it, never what is in it.
pub fn read_private(path: &Path) -> Result<Zeroizing<String>, SecretError> {
    let failed = |source| SecretError::File { path: path.to_owned(), source };
    let wrong = |reason: String| SecretError::Content { path: path.to_owned(), reason };
    let (file, metadata) = open_regular(path)?;
    if metadata.mode() & 0o077 != 0 {
        let mode = metadata.mode() & 0o777;
        return Err(wrong(format!("others can use it (mode {mode:04o}): `chmod 600` it")));
    }
    let mut text = Zeroizing::new(String::with_capacity(SECRET_BYTES_MAX + 1));
    file.take(SECRET_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() > SECRET_BYTES_MAX {
        return Err(wrong(format!("it is larger than {SECRET_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// Reads a regular file of at most `bytes_max` bytes that others may read as well.
///
/// # Errors
/// Names the file and what is wrong with it.
pub fn read_regular(path: &Path, bytes_max: usize) -> Result<Vec<u8>, SecretError> {
    let (file, _) = open_regular(path)?;
    let mut bytes = Vec::new();
    let read = file.take((bytes_max as u64).saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|source| SecretError::File { path: path.to_owned(), source })?;
    if bytes.len() > bytes_max {
        let reason = format!("it is larger than {bytes_max} bytes");
        return Err(SecretError::Content { path: path.to_owned(), reason });
    }
    Ok(bytes)
}

fn open_regular(path: &Path) -> Result<(File, Metadata), SecretError> {
    let failed = |source| SecretError::File { path: path.to_owned(), source };
    // A FIFO would be waited for without this.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits();
    let flags = i32::try_from(nonblocking).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(SecretError::Content { path: path.to_owned(), reason: "it is no regular file".to_owned() });
    }
    Ok((file, metadata))
}

/// The one line of a private file: at least `bytes_min` and one characters of printable ASCII without spaces. One line's
/// end is taken off.
///
/// # Errors
/// As [`read_private`].
pub fn read_line(path: &Path, bytes_min: usize) -> Result<Zeroizing<String>, SecretError> {
    let text = read_private(path)?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    let wrong = |reason: String| Err(SecretError::Content { path: path.to_owned(), reason });
    if line.is_empty() || !line.bytes().all(|byte| byte.is_ascii_graphic()) {
        return wrong("it must hold one line of printable ASCII characters without spaces".to_owned());
    }
    if line.len() < bytes_min {
        return wrong(format!("its line must have at least {bytes_min} characters"));
    }
    Ok(Zeroizing::new(line.to_owned()))
}

/// Makes a file of mode 0600 that was not there, and syncs it with its folder, so that it outlives a power failure.
///
/// # Errors
/// When it is there already, or cannot be written.
pub fn create_private(path: &Path, content: &[u8]) -> Result<(), SecretError> {
    let failed = |source| SecretError::File { path: path.to_owned(), source };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    if let Err(source) = written {
        // A half key must not be found later.
        let _ = std::fs::remove_file(path);
        return Err(failed(source));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

/// The same for an empty file that may be there.
///
/// # Errors
/// When it is not there and cannot be made.
pub fn ensure_private(path: &Path) -> Result<(), SecretError> {
    match create_private(path, b"") {
        Err(SecretError::File { source, .. }) if source.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_private_files_are_read_and_no_error_shows_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let read = |content: &str, mode: u32| {
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            read_line(&path, 4)
        };
        for good in ["hush", "hush\n", "hush\r\n"] {
            assert_eq!(read(good, 0o600).unwrap().as_str(), "hush");
        }
        assert_eq!(read("hush", 0o400).unwrap().as_str(), "hush");
        let large = "h".repeat(SECRET_BYTES_MAX + 1);
        for (content, mode) in [
            ("hush", 0o640),
            ("hush", 0o604),
            ("", 0o600),
            ("\n", 0o600),
            ("hush\n\n", 0o600),
            ("hush hush", 0o600),
            (&large, 0o600),
            ("hus", 0o600),
        ] {
            let error = read(content, mode).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hus"), "{error:?}");
        }
        assert!(read_line(folder.path(), 1).is_err());
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(matches!(read_private(&path), Err(SecretError::Content { .. })));
        assert!(matches!(read_regular(&path, 1), Err(SecretError::Content { .. })));
        assert!(matches!(read_private(Path::new("/dev/null")), Err(SecretError::Content { .. })));
    }

    #[test]
    fn a_made_file_is_private_and_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made");
        create_private(&path, b"x").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(create_private(&path, b"y").is_err());
        ensure_private(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"x");
    }
}
