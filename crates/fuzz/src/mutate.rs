//! The short run: a corpus, and mutations of it that are the same in every run.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Target;
use crate::limits::{CHANGES_MAX, INPUT_BYTES_MAX};

/// Where the corpus of a target of this room is.
#[must_use]
pub fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name)
}

/// The seeds of a folder, in the order of their names.
fn seeds(folder: &Path) -> std::io::Result<Vec<Vec<u8>>> {
    let entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    let found = paths.into_iter().map(fs::read).collect::<Result<Vec<_>, _>>()?;
    if found.is_empty() {
        return Err(std::io::Error::other(format!("{} is empty", folder.display())));
    }
    Ok(found)
}

/// Runs a target over a corpus, beginnings of each seed, and `mutations` inputs made of it; returns how many. What
/// fails is kept in a file that standard error names.
///
/// # Errors
/// When the corpus cannot be read, or is empty.
pub fn exercise(corpus: &Path, target: Target, mutations: u64) -> std::io::Result<u64> {
    let seeds = seeds(corpus)?;
    let mut runs = 0;
    let mut run = |input: &[u8]| {
        let shown = Shown(input);
        target(input);
        std::mem::forget(shown);
        runs += 1;
    };
    for seed in &seeds {
        run(seed);
        (0..seed.len().min(512)).filter_map(|end| seed.get(..end)).step_by(7).for_each(&mut run);
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..mutations {
        run(&random.mutation(&seeds));
    }
    Ok(runs)
}

/// Keeps the input of a target that panics in a file beside the machine's other temporary ones.
struct Shown<'a>(&'a [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        let path = std::env::temp_dir().join(format!("ringfence-fuzz-{}-{}", std::process::id(), self.0.len()));
        // The panic itself is the report; the file is for whoever mends it.
        let _ = fs::write(&path, self.0).map(|()| eprintln!("the input that failed: {}", path.display()));
    }
}

/// xorshift64*: the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`, 0 where there is none.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 16).unwrap_or(0).checked_rem(end).unwrap_or(0)
    }

    fn mutation(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = self.seed(seeds).to_vec();
        for _ in 0..=self.next() % CHANGES_MAX {
            self.change(&mut bytes, seeds);
        }
        bytes.truncate(INPUT_BYTES_MAX);
        bytes
    }

    fn seed<'a>(&mut self, seeds: &'a [Vec<u8>]) -> &'a [u8] {
        seeds.get(self.below(seeds.len())).map(Vec::as_slice).unwrap_or_default()
    }

    fn change(&mut self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        const TELLING: &[u8] = &[0, 1, 0x7f, 0x80, 0xff, b'/', b'.', b'"', b'\\', b'\r', b'\n', b'-', b'0', b'9', b'{'];
        let at = self.below(bytes.len() + 1);
        match self.next() % 8 {
            0 => {
                let bit = 1 << (self.next() % 8);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= bit;
                }
            }
            1 => {
                let telling = TELLING.get(self.below(TELLING.len())).copied().unwrap_or(0);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = telling;
                }
            }
            2 => bytes.truncate(at),
            3 => {
                let end = (at + self.below(64)).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let end = (at + self.below(600)).min(bytes.len());
                let twice = bytes.get(at..end).unwrap_or_default().to_vec();
                bytes.splice(at..at, twice);
            }
            5 => {
                let telling = TELLING.get(self.below(TELLING.len())).copied().unwrap_or(0);
                bytes.insert(at, telling);
            }
            6 => {
                let other = self.seed(seeds);
                let from = self.below(other.len() + 1);
                let tail = other.get(from..).unwrap_or_default();
                bytes.truncate(at);
                bytes.extend_from_slice(tail);
            }
            _ => {
                let length = [1, 2, 4, 8].get(self.below(4)).copied().unwrap_or(1);
                let number = self.next().to_le_bytes();
                for (place, byte) in bytes.iter_mut().skip(at).take(length).zip(number) {
                    *place = byte;
                }
            }
        }
    }
}
