//! What a spool's folder holds when it is opened.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use ringfence_usage::Record;

use super::line::{self, Mark};
use crate::error::GateError;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Numbers and sizes of the segments, in order.
    pub(super) segments: Vec<(u64, u64)>,
    /// What began and did not end.
    pub(super) open: Vec<Record>,
    /// Torn or damaged lines. One at the end of the last segment is what a killed process leaves.
    pub(super) damaged: u64,
}

/// The file of a segment.
pub(super) fn segment_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:020}.usage"))
}

/// Reads a folder.
pub(super) fn read(folder: &Path) -> Result<Found, GateError> {
    let failed = |source| GateError::File { path: folder.to_owned(), source };
    let mut found = Found::default();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".usage")).and_then(|number| number.parse().ok());
        if let Some(number) = number {
            found.segments.push((number, entry.metadata().map_err(failed)?.len()));
        }
    }
    found.segments.sort_unstable();
    let mut open: HashMap<String, Record> = HashMap::new();
    for (number, _) in &found.segments {
        let path = segment_path(folder, *number);
        let failed = |source| GateError::File { path: path.clone(), source };
        let mut reader = BufReader::new(File::open(&path).map_err(failed)?);
        while let Some(line) = line::next(&mut reader).map_err(failed)? {
            match line.says {
                Some((Mark::Begin, record)) => {
                    open.insert(record.id.clone(), record);
                }
                Some((Mark::End, record)) => {
                    open.remove(&record.id);
                }
                None => found.damaged += 1,
            }
        }
    }
    found.open = open.into_values().collect();
    found.open.sort_by_key(|record| record.at_ms);
    Ok(found)
}
