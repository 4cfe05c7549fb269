//! Why a gate does not start, or ends.

use std::io;
use std::path::PathBuf;

use ringfence_grant::{GrantError, KeyError};
use ringfence_secret::SecretError;
use thiserror::Error;

/// Why a gate does not start, or ends. No variant holds a secret.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GateError {
    /// A file or folder cannot be used.
    #[error("{}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file's content, owner or mode is not what it must be.
    #[error("{}: {reason}", path.display())]
    Content {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it, and what to change.
        reason: String,
    },
    /// A file with a secret.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A value of the configuration.
    #[error("{what}: {value:?} {reason}")]
    Value {
        /// Which one.
        what: &'static str,
        /// What it is.
        value: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The key set of a file.
    #[error("the key set {}", path.display())]
    Keys {
        /// Its file.
        path: PathBuf,
        /// Why.
        #[source]
        source: KeyError,
    },
    /// Issuer or audience.
    #[error("the terms of the gate")]
    Terms(#[source] GrantError),
    /// Another process uses the spool.
    #[error("the usage spool {} is in use by another process", path.display())]
    SpoolInUse {
        /// Its folder.
        path: PathBuf,
    },
    /// The kernel gives no random bytes.
    #[error("no random bytes")]
    Random,
    /// The listening socket.
    #[error("the listening socket")]
    Listen(#[source] io::Error),
    /// A thread cannot be started.
    #[error("a thread of the gate")]
    Thread(#[source] io::Error),
}
