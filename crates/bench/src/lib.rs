//! Measures a backend of contract version 1 over HTTP: latencies, rates, transfers, density.
//!
//! May know: the contract's paths and field names. Never knows: which backend answers, or how it is built; so the
//! same figures can be taken of any backend, and of two of them in one run.
//!
//! **Invariants.** A work that fails is reported as failed with its reason and gives no figure. Rounds of the two
//! backends alternate, so that a noisy machine disturbs both. Nothing here asserts a figure.

mod backend;
mod charts;
mod error;
mod floor;
mod growth;
mod limits;
mod machine;
mod report;
mod rounds;
mod soak;
mod work;

pub use error::BenchError;
pub use report::{Figure, Report, Row};
pub use rounds::{Options, run};
pub use work::{Soak, Work, works};
