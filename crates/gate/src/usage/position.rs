//! How far the spool is shipped, in a file that is replaced whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::GateError;

/// A place in the spool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Place {
    /// Number of the segment.
    pub(super) segment: u64,
    /// Bytes into it, always at the beginning of a line.
    pub(super) offset: u64,
}

/// A batch that was or is about to be sent, and is not known to be taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pending {
    /// The batch's idempotency key.
    pub(super) key: String,
    /// Where it ends.
    pub(super) end: Place,
}

/// What is shipped, and what is under way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    pub(super) shipped: Place,
    pub(super) pending: Option<Pending>,
}

const NAME: &str = "shipped.json";

impl Position {
    /// Reads it from the spool's folder; the beginning where there is none yet.
    pub(super) fn read(folder: &Path) -> Result<Self, GateError> {
        let path = folder.join(NAME);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Position::default()),
            Err(source) => return Err(GateError::File { path, source }),
        };
        // It is replaced whole, so what does not parse was not written by a gate: to guess would lose or double.
        serde_json::from_str(&text).map_err(|error| GateError::Content { path, reason: error.to_string() })
    }

    /// Writes it down for good.
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let path = folder.join("shipped.json.new");
        let mut file = File::create(&path)?;
        file.write_all(serde_json::to_string(self)?.as_bytes())?;
        file.sync_all()?;
        fs::rename(&path, folder.join(NAME))?;
        File::open(folder)?.sync_all()
    }
}
