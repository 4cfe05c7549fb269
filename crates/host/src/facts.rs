//! What was found on this host.

use std::io;

use ringfence_sys::process::Single;
use serde::Serialize;

use crate::cell::{self, CellTrial};

/// What this host offers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Whether a cell's namespaces and mounts can be made.
    pub cell: CellTrial,
}

impl Facts {
    /// Looks, and tries in child processes. The calling process must have one thread. `id_base` is the first host id
    /// of the range that a server started as root would take.
    ///
    /// # Errors
    /// Where the process has several threads, or not even a pipe can be made.
    pub fn find(id_base: u32) -> io::Result<Facts> {
        let single = Single::claim()?;
        Ok(Facts { cell: cell::try_it(&single, id_base)? })
    }
}
