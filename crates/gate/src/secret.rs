//! Bearer secrets that the gate sends.

use std::fmt;
use std::path::Path;

use hyper::header::HeaderValue;
use ringfence_secret::{SecretError, read_line};
use zeroize::Zeroizing;

/// A bearer secret, ready to be sent. It shows itself in no Debug.
#[derive(Clone)]
pub(crate) struct Bearer(HeaderValue);

impl Bearer {
    /// Reads the one line of a file.
    pub(crate) fn read(path: &Path) -> Result<Self, SecretError> {
        let line = Zeroizing::new(format!("Bearer {}", read_line(path, 1)?.as_str()));
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
        fs::write(&path, "hush\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let bearer = Bearer::read(&path).unwrap();
        assert_eq!(bearer.header().to_str().unwrap(), "Bearer hush");
        assert!(!format!("{bearer:?} {:?}", bearer.header()).contains("hush"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(Bearer::read(&path).is_err());
    }

    #[test]
    fn a_fifo_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(Bearer::read(&path).is_err());
        assert!(crate::ident::IdKeys::read(&path).is_err());
    }
}
