//! Why the control plane cannot start, or cannot do what was asked.

use std::path::PathBuf;

use ringfence_grant::{GrantError, KeyError};
use ringfence_secret::SecretError;
use thiserror::Error;

/// A failure of the control plane. No text holds a secret or a database URL.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ControlError {
    /// A file or folder cannot be read or made.
    #[error("{} cannot be read or written", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file holds something else than it should, or others can use it.
    #[error("{}: {reason}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong, without what stands in it.
        reason: String,
    },
    /// A file with a secret.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A private key cannot be used.
    #[error("the key file {} cannot be used", path.display())]
    KeyFile {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: KeyError,
    },
    /// A key in the database cannot be used.
    #[error("a key in the database cannot be used")]
    Key(#[source] KeyError),
    /// The database URL is none of this program's.
    #[error("the database URL must be sqlite:PATH or postgres://...: {0}")]
    DatabaseUrl(&'static str),
    /// The database does not do what it should.
    #[error("the database failed while {doing}")]
    Database {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: sqlx::Error,
    },
    /// A newer program has been here.
    #[error("the database has schema version {found}; this program knows up to {known}")]
    Newer {
        /// The database's.
        found: i64,
        /// The newest that is known.
        known: i64,
    },
    /// A row of the database holds what this program did not write.
    #[error("the database holds an unreadable {0}")]
    Row(&'static str),
    /// A setting is out of its bounds.
    #[error("{0}")]
    Setting(&'static str),
    /// No key may sign now, or its private part is not in the folder of keys.
    #[error("there is no key to sign with")]
    NoKey,
    /// A grant cannot be made.
    #[error("the grant cannot be made")]
    Grant(#[source] GrantError),
    /// The kernel gives no random bytes.
    #[error("no random bytes")]
    Random,
    /// The listening socket failed.
    #[error("the listening socket failed")]
    Listen(#[source] std::io::Error),
    /// A backup is asked of a database that has tools of its own for it.
    #[error("only SQLite is backed up by this command; for PostgreSQL use `pg_dump`")]
    BackupOfPostgres,
}

impl ControlError {
    /// Whether it may be gone a moment later: the database is away or busy.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            ControlError::NoKey => true,
            ControlError::Database { source, .. } => match source {
                sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::Io(_) | sqlx::Error::Tls(_) => true,
                // PostgreSQL: connections (08), resources (53), shutdown (57), serialization and deadlock (40).
                // SQLite: BUSY (5) and LOCKED (6), with their extended codes.
                sqlx::Error::Database(error) => error.code().is_some_and(|code| {
                    ["08", "53", "57", "40"].iter().any(|class| code.len() == 5 && code.starts_with(class))
                        || code
                            .parse::<u32>()
                            .is_ok_and(|code| code.to_string().len() < 5 && matches!(code & 0xff, 5 | 6))
                }),
                _ => false,
            },
            _ => false,
        }
    }

    /// For `map_err`.
    pub(crate) fn database(doing: &'static str) -> impl FnOnce(sqlx::Error) -> ControlError {
        move |source| ControlError::Database { doing, source }
    }
}
