//! The bearer token that callers must show.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::limits::TOKEN_BYTES_MAX;

/// A token, never shown by Debug, never empty, and the file that it came from.
pub(crate) struct Token {
    text: String,
    path: PathBuf,
}

impl Token {
    /// Reads the token from a file that nobody else may read. One newline at its end is taken off.
    ///
    /// # Errors
    /// Names the file and what is wrong with it, never what is in it.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let about = || format!("the token file {}", path.display());
        let file = File::open(path).with_context(about)?;
        let metadata = file.metadata().with_context(about)?;
        if !metadata.is_file() {
            bail!("{} is no regular file", about());
        }
        if metadata.mode() & 0o077 != 0 {
            let mode = metadata.mode() & 0o777;
            bail!("{} can be used by others (mode {mode:04o}): `chmod 600 {}`", about(), path.display());
        }
        let mut text = String::new();
        file.take(TOKEN_BYTES_MAX + 2).read_to_string(&mut text).with_context(about)?;
        let token = text.strip_suffix('\n').unwrap_or(&text);
        let token = token.strip_suffix('\r').unwrap_or(token);
        if token.is_empty() {
            bail!("{} is empty", about());
        }
        if token.len() as u64 > TOKEN_BYTES_MAX || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!(
                "{} must hold one line of at most {TOKEN_BYTES_MAX} printable ASCII characters without spaces",
                about()
            );
        }
        Ok(Token { text: token.to_owned(), path: path.to_owned() })
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
    }
}
