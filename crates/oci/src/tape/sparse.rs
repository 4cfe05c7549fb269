//! Maps of sparse files: GNU's own, and pax 0.0, 0.1 and 1.0.

use super::header::{BLOCK_BYTES, decimal, field, unsigned};
use crate::limits::SPARSE_RUNS_MAX;

/// Where the stored bytes of a sparse file belong; between them are holes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sparse {
    /// The size of the file.
    pub(crate) bytes: u64,
    /// Offset and length of each run of data, in rising order.
    pub(crate) runs: Vec<(u64, u64)>,
}

const TOO_MANY: &str = "its map of a sparse file is too long";
const NO_NUMBER: &str = "its map of a sparse file has a number that is none";

impl Sparse {
    /// Whether the runs rise, lie in the file and add up to what is stored.
    pub(super) fn check(&self, stored: u64) -> Result<(), &'static str> {
        let (mut end, mut sum) = (0_u64, 0_u64);
        for (offset, length) in &self.runs {
            let next = offset.checked_add(*length).filter(|next| *offset >= end && *next <= self.bytes);
            end = next.ok_or("its map of a sparse file overlaps, or leaves the file")?;
            sum = sum.saturating_add(*length);
        }
        if sum == stored { Ok(()) } else { Err("its map of a sparse file does not fit its content") }
    }

    /// One more block of GNU's map: 21 runs. True where another block follows.
    pub(super) fn extend(&mut self, block: &[u8; BLOCK_BYTES]) -> Result<bool, &'static str> {
        self.slots(block, 0, 21)?;
        Ok(field(block, 504, 1) != [0])
    }

    fn slots(&mut self, block: &[u8; BLOCK_BYTES], at: usize, count: usize) -> Result<(), &'static str> {
        for at in (at..).step_by(24).take(count) {
            // An empty slot ends the map.
            if field(block, at, 1) == [0] {
                break;
            }
            let offset = unsigned(field(block, at, 12)).ok_or(NO_NUMBER)?;
            push(&mut self.runs, offset, unsigned(field(block, at + 12, 12)).ok_or(NO_NUMBER)?)?;
        }
        Ok(())
    }
}

fn push(runs: &mut Vec<(u64, u64)>, offset: u64, length: u64) -> Result<(), &'static str> {
    if runs.len() >= SPARSE_RUNS_MAX {
        return Err(TOO_MANY);
    }
    runs.push((offset, length));
    Ok(())
}

/// The beginning of GNU's map in the header itself: four runs. True where blocks of it follow.
pub(super) fn of_header(block: &[u8; BLOCK_BYTES]) -> Result<(Sparse, bool), &'static str> {
    let mut sparse = Sparse { bytes: unsigned(field(block, 483, 12)).ok_or(NO_NUMBER)?, runs: Vec::new() };
    sparse.slots(block, 386, 4)?;
    Ok((sparse, field(block, 482, 1) != [0]))
}

/// What pax records say of a sparse file.
#[derive(Debug, Clone, Default)]
pub(super) struct Records {
    pub(super) name: Option<Vec<u8>>,
    version: (Option<u64>, Option<u64>),
    bytes: Option<u64>,
    offset: Option<u64>,
    runs: Vec<(u64, u64)>,
}

impl Records {
    /// Takes a record of a sparse file; leaves any other.
    pub(super) fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let number = || decimal(value).ok_or(NO_NUMBER);
        let Some(key) = key.strip_prefix(b"GNU.sparse.") else { return Ok(()) };
        match key {
            b"major" => self.version.0 = Some(number()?),
            b"minor" => self.version.1 = Some(number()?),
            b"name" => self.name = Some(value.to_vec()),
            b"size" | b"realsize" => self.bytes = Some(number()?),
            // 0.0: pairs of records in their order.
            b"offset" => self.offset = Some(number()?),
            b"numbytes" => {
                let offset = self.offset.take().ok_or("a run of a sparse file without its offset")?;
                push(&mut self.runs, offset, number()?)?;
            }
            // 0.1: one record of all.
            b"map" => {
                let mut numbers = value.split(|byte| *byte == b',').map(|text| decimal(text).ok_or(NO_NUMBER));
                while let Some(offset) = numbers.next() {
                    push(&mut self.runs, offset?, numbers.next().ok_or(NO_NUMBER)??)?;
                }
            }
            b"numblocks" => {}
            _ => return Err("an unknown record of a sparse file"),
        }
        Ok(())
    }

    /// Whether the map is in the content (1.0).
    pub(super) fn is_one(&self) -> bool {
        self.version == (Some(1), Some(0))
    }

    /// The map of 0.0 and 0.1; `None` where the file is not sparse.
    pub(super) fn sparse(&self) -> Result<Option<Sparse>, &'static str> {
        match (self.version, self.bytes) {
            ((None | Some(0), None | Some(0 | 1)), Some(bytes)) => Ok(Some(Sparse { bytes, runs: self.runs.clone() })),
            ((None, None), None) if self.runs.is_empty() && self.name.is_none() => Ok(None),
            _ => Err("its sparse file is of a kind that is not known"),
        }
    }
}

/// The map of pax 1.0 as it is read: a count, then offset and length in turn, each a line.
#[derive(Default)]
pub(super) struct Lines {
    rest: Vec<u8>,
    numbers: Vec<u64>,
}

impl Lines {
    pub(super) fn is_whole(&self) -> bool {
        self.numbers.first().is_some_and(|count| self.numbers.len() as u64 > count * 2)
    }

    pub(super) fn take(&mut self, block: &[u8; BLOCK_BYTES]) -> Result<(), &'static str> {
        for byte in block {
            if self.is_whole() {
                break;
            }
            if *byte != b'\n' {
                self.rest.push(*byte);
                continue;
            }
            let number = decimal(&self.rest).ok_or(NO_NUMBER)?;
            if self.numbers.is_empty() && number > SPARSE_RUNS_MAX as u64 {
                return Err(TOO_MANY);
            }
            self.numbers.push(number);
            self.rest.clear();
        }
        if self.rest.len() > 20 { Err(NO_NUMBER) } else { Ok(()) }
    }

    pub(super) fn sparse(&self, records: &Records) -> Result<Sparse, &'static str> {
        let pairs = self.numbers.get(1..).unwrap_or_default().chunks_exact(2);
        let runs = pairs.filter_map(|pair| Some((*pair.first()?, *pair.get(1)?))).collect();
        Ok(Sparse { bytes: records.bytes.ok_or("its sparse file has no size")?, runs })
    }
}
