//! Why TLS cannot be set up.

use std::path::PathBuf;

use ringfence_secret::SecretError;
use thiserror::Error;

/// Why TLS cannot be set up. No text holds a private key.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file does not hold what it should.
    #[error("{}: {reason}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A file cannot be read, is too large, or others can use a private key.
    #[error(transparent)]
    File(#[from] SecretError),
    /// Certificate and key cannot be used, or do not belong together.
    #[error("the certificate {} and its key cannot be used", path.display())]
    Identity {
        /// The certificate's file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// An authority's certificate cannot be used.
    #[error("the authorities of {} cannot be used", path.display())]
    Authority {
        /// Its file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// What a peer's certificate is checked by cannot be set up.
    #[error("certificates of peers cannot be checked")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
    /// The name that a peer's certificate must have is none.
    #[error("{0:?} is no name that a certificate can have")]
    Name(String),
    /// The library has no protocol version for its algorithms.
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
}
