//! The bearer token that callers must show.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use zeroize::Zeroizing;

use crate::limits::TOKEN_BYTES_MAX;

/// A token, never shown by Debug, never empty, and the file that it came from.
pub(crate) struct Token {
    text: Zeroizing<String>,
    path: PathBuf,
}

impl Token {
    /// Reads the token from a file that nobody else may use.
    ///
    /// # Errors
    /// Names the file and what is wrong with it, never what is in it.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let about = || format!("the token file {}", path.display());
        let text = ringfence_secret::read_line(path, 1).with_context(about)?;
        if text.len() > TOKEN_BYTES_MAX {
            bail!("{} must hold one line of at most {TOKEN_BYTES_MAX} characters", about());
        }
        Ok(Token { text, path: path.to_owned() })
    }

    /// The token itself, for the one comparison.
    pub(crate) fn reveal(&self) -> &str {
        &self.text
    }

    /// Where it came from.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
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
            Token::read(&path)
        };
        let token = read("s3cret\n", 0o600).unwrap();
        assert_eq!((token.reveal(), format!("{token:?}").as_str()), ("s3cret", "Token(..)"));
        assert_eq!(read("s3cret", 0o400).unwrap().reveal(), "s3cret");
        for (content, mode) in
            [("s3cret", 0o640), ("", 0o600), ("\n", 0o600), ("s3cret s3cret", 0o600), ("s3cret\n\n", 0o600)]
        {
            let error = format!("{:#}", read(content, mode).unwrap_err());
            assert!(error.contains("token file") && !error.contains("s3cret"), "{content:?} {mode:o}: {error}");
        }
        assert!(read(&"s".repeat(TOKEN_BYTES_MAX), 0o600).is_ok());
        assert!(read(&"s".repeat(TOKEN_BYTES_MAX + 1), 0o600).is_err());
    }

    #[test]
    fn a_fifo_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(Token::read(&path).is_err());
    }
}
