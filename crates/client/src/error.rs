//! Why an operation did not come to its answer.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// An operation that failed. A program that failed is no error: it is an [`ExecResult`](crate::ExecResult).
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The base URL cannot be used.
    #[error("the base URL {url:?} cannot be used: {reason}")]
    Url {
        /// The URL as given.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The token cannot be sent as a header.
    #[error("the bearer token {reason}")]
    Token {
        /// What is wrong with it; never the token itself.
        reason: &'static str,
    },
    /// Certificates that were given cannot be used.
    #[error("the certificates cannot be used: {reason}")]
    Certificates {
        /// What is wrong with them.
        reason: String,
    },
    /// A local file could not be read or written.
    #[error("cannot use the local file {}", path.display())]
    Local {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// What was fetched could not be written to where it was to go.
    #[error("cannot write what was fetched")]
    Output(#[source] std::io::Error),
    /// Nothing usable came back over the connection.
    #[error("{operation} got no answer")]
    Transport {
        /// The operation of the contract.
        operation: &'static str,
        /// What happened on the way.
        #[source]
        source: TransportError,
    },
    /// 404: the session or the file does not exist (any more).
    #[error("{operation}: not found: {detail}")]
    NotFound {
        /// The operation of the contract.
        operation: &'static str,
        /// The backend's own words.
        detail: String,
    },
    /// 503: the backend has no room now. Nothing was leased and nothing ran.
    #[error("{operation}: temporarily unavailable: {detail}")]
    Unavailable {
        /// The operation of the contract.
        operation: &'static str,
        /// When to come back, where the backend says so in whole seconds.
        retry_after: Option<Duration>,
        /// The backend's own words.
        detail: String,
    },
    /// Any other status that is no success.
    #[error("{operation}: refused with {status}: {detail}")]
    Refused {
        /// The operation of the contract.
        operation: &'static str,
        /// The HTTP status.
        status: u16,
        /// The backend's own words.
        detail: String,
    },
    /// The answer says success and is not what the contract describes.
    #[error("{operation}: the answer does not follow the contract: {reason}")]
    Answer {
        /// The operation of the contract.
        operation: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system gave no random bytes.
    #[error("no random bytes for a multipart boundary: {0}")]
    Random(getrandom::Error),
}

impl ClientError {
    /// The HTTP status that the backend answered, where it answered one that is no success.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            ClientError::NotFound { .. } => Some(404),
            ClientError::Unavailable { .. } => Some(503),
            ClientError::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// What happened to a request on its way, or to its answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The connection was never made, so nothing was sent.
    #[error("cannot connect to {to}")]
    Connect {
        /// Host and port.
        to: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The connection broke, or what came is no HTTP. The request may have been carried out.
    #[error("the connection broke or carried no HTTP")]
    Broken {
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The base URL is of the other scheme, as far as can be told: over https there was no TLS, or over http an answer that
    /// is no HTTP.
    #[error("{to} does not speak {spoken}: its URL may begin with {other}://")]
    Scheme {
        /// Host and port.
        to: String,
        /// The scheme of the base URL.
        spoken: &'static str,
        /// The other one.
        other: &'static str,
        /// What came.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No (whole) answer in time. The request may have been carried out.
    #[error("no whole answer within {} s", after.as_secs_f64())]
    Timeout {
        /// How long was waited.
        after: Duration,
    },
    /// The answer is larger than what this client reads.
    #[error("the answer is larger than {bytes_max} bytes")]
    TooLarge {
        /// The bound.
        bytes_max: usize,
    },
    /// The request cannot be put into HTTP (such as a path that is no URI).
    #[error("the request cannot be put into HTTP")]
    Request {
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
