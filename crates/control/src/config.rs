//! What the control plane is told.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_tls::ServerTls;
use zeroize::Zeroizing;

use crate::error::ControlError;

/// POSIX milliseconds.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The configuration of a control plane; [`crate::Control::start`] checks it.
#[derive(Clone)]
pub struct Config {
    /// Where everything but private keys is kept.
    pub database: DatabaseUrl,
    /// The folder of private keys, for the control plane alone: one file `KID.jwk` of mode 0600 for each.
    pub keys_folder: PathBuf,
    /// The file of the admin's token, mode 0600.
    pub admin_token_file: PathBuf,
    /// `iss` of the grants.
    pub issuer: String,
    /// The front doors that grants are made for (`aud`); the first unless a request names another of them.
    pub audiences: Vec<String>,
    /// How long a grant is valid at most, and unless a request asks for less, seconds.
    pub grant_seconds_max: u64,
    /// How long the next key is published before it signs, seconds.
    pub key_lead_seconds: u64,
    /// How long things are kept.
    pub keep: Keep,
    /// What the listener shows; `None` is plain HTTP.
    pub tls: Option<ServerTls>,
    /// `None` is the system's clock.
    pub clock: Option<Clock>,
}

/// How long a running control plane keeps things, days; for ever, where nothing is said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Keep {
    /// Single records of usage. Older ones are rolled up into the totals of their day, and taken no more.
    pub usage_days: Option<u64>,
    /// Lines of the audit.
    pub audit_days: Option<u64>,
}

/// The URL of a database, which may hold a password: it shows itself in no Debug.
#[derive(Clone)]
pub struct DatabaseUrl(pub(crate) Dialect);

#[derive(Clone)]
pub(crate) enum Dialect {
    Sqlite(PathBuf),
    Postgres(Zeroizing<String>),
}

impl DatabaseUrl {
    /// The SQLite database in a file, which is made where it is not there.
    #[must_use]
    pub fn sqlite(path: &Path) -> Self {
        DatabaseUrl(Dialect::Sqlite(path.to_owned()))
    }

    /// Takes `sqlite:PATH`, `postgres://...` or `postgresql://...`.
    ///
    /// # Errors
    /// For another form. The error does not hold the text.
    pub fn parse(text: &str) -> Result<Self, ControlError> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() || path.starts_with(':') || path.contains('?') {
                return Err(ControlError::DatabaseUrl("after `sqlite:` stands the path of a file, and nothing else"));
            }
            return Ok(DatabaseUrl::sqlite(Path::new(path)));
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(DatabaseUrl(Dialect::Postgres(Zeroizing::new(text.to_owned()))));
        }
        Err(ControlError::DatabaseUrl("it has another scheme"))
    }

    /// Reads it from a file of mode 0600.
    ///
    /// # Errors
    /// Names the file, never what is in it.
    pub fn read(path: &Path) -> Result<Self, ControlError> {
        DatabaseUrl::parse(&ringfence_secret::read_line(path, 1)?)
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Dialect::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Dialect::Postgres(_) => f.write_str("postgres://(hidden)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_or_refused_and_never_shown() {
        for good in ["sqlite:/var/lib/x.db", "sqlite:x.db", "postgres://u:hush@h/d", "postgresql:///d?host=/run"] {
            let url = DatabaseUrl::parse(good).unwrap();
            assert!(!format!("{url:?}").contains("hush"));
        }
        for wrong in ["", "hush", "sqlite:", "sqlite::memory:", "sqlite:x?mode=ro", "mysql://hush"] {
            let error = DatabaseUrl::parse(wrong).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
        }
    }

    #[test]
    fn a_fifo_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(matches!(DatabaseUrl::read(&path), Err(ControlError::Secret(_))));
    }
}
