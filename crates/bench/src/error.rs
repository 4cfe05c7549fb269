//! Why a work gave no figure.

use std::io;

use ringfence_probe::ProbeError;
use thiserror::Error;

/// Why a measurement could not be taken.
#[derive(Debug, Error)]
pub enum BenchError {
    /// There is no answer.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The answer cannot be read as the contract's.
    #[error("the backend's answer cannot be read: {0}")]
    Answer(&'static str),
    /// The floor's own server could not be started.
    #[error("the floor's server could not be started")]
    Floor(#[from] io::Error),
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
