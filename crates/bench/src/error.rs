//! Why a work gave no figure.

use std::io;

use thiserror::Error;

/// Why a measurement could not be taken.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The base URL cannot be used.
    #[error("'{0}' is no base URL of the form http://host:port")]
    Url(String),
    /// The connection failed or was cut.
    #[error("the connection to the backend failed")]
    Connection(#[from] io::Error),
    /// What came is no HTTP/1.1 answer.
    #[error("the backend's answer is not HTTP/1.1: {0}")]
    Answer(&'static str),
    /// The operation answered another status than the contract's.
    #[error("{operation} answered {status}: {body}")]
    Status {
        /// Which operation.
        operation: &'static str,
        /// What it answered.
        status: u16,
        /// The start of the body.
        body: String,
    },
    /// The operation answered the right status with something else than was asked for.
    #[error("{operation} answered {seen}, not {wanted}")]
    Wrong {
        /// Which operation.
        operation: &'static str,
        /// What was wanted.
        wanted: String,
        /// What came.
        seen: String,
    },
    /// No work has this name.
    #[error("there is no work named '{0}'; see `ringfence bench --list`")]
    UnknownWork(String),
}
