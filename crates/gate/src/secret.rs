//! Secrets from files that nobody else can read.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hyper::header::HeaderValue;
use zeroize::Zeroizing;

use crate::error::GateError;
use crate::limits::SECRET_BYTES_MAX;

/// Reads a file that must be a regular one, of mode 0600 or less, and small.
pub(crate) fn read_private(path: &Path) -> Result<Zeroizing<String>, GateError> {
    let failed = |source| GateError::File { path: path.to_owned(), source };
    let wrong = |reason: String| GateError::Content { path: path.to_owned(), reason };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(wrong("it is no regular file".to_owned()));
    }
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

/// A bearer secret, ready to be sent. It shows itself in no Debug.
#[derive(Clone)]
pub(crate) struct Bearer(HeaderValue);

impl Bearer {
    /// Reads the one line of a file.
    pub(crate) fn read(path: &Path) -> Result<Self, GateError> {
        let text = read_private(path)?;
        let secret = text.strip_suffix('\n').unwrap_or(&text);
        if secret.is_empty() || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            let reason = "it must hold one line of printable ASCII characters without spaces".to_owned();
            return Err(GateError::Content { path: path.to_owned(), reason });
        }
        let line = Zeroizing::new(format!("Bearer {secret}"));
        // Visible ASCII was checked, which any header value may hold.
        let mut value = HeaderValue::from_str(&line).unwrap_or(HeaderValue::from_static(""));
        value.set_sensitive(true);
        Ok(Bearer(value))
    }

    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_private_file_gives_its_line_and_nothing_shows_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let read = |content: &str, mode: u32| {
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Bearer::read(&path)
        };
        let bearer = read("hush\n", 0o600).unwrap();
        assert_eq!(bearer.header().to_str().unwrap(), "Bearer hush");
        assert!(!format!("{bearer:?} {:?}", bearer.header()).contains("hush"));
        let large = "h".repeat(SECRET_BYTES_MAX + 1);
        for (content, mode) in [("hush", 0o640), ("hush", 0o604), ("", 0o600), ("hush hush", 0o600), (&large, 0o600)] {
            let error = read(content, mode).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
        }
        assert!(Bearer::read(folder.path()).is_err());
    }
}
