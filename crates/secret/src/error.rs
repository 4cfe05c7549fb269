//! Why a secret cannot be read or made.

use std::path::PathBuf;

use thiserror::Error;

/// Why a secret cannot be read or made. No text holds what is in a file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The file cannot be read or made.
    #[error("{} cannot be read or written", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is no private file, or does not hold what it should.
    #[error("{}: {reason}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong with it, without what stands in it.
        reason: String,
    },
}
