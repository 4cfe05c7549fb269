//! What reads hostile bytes, as targets of fuzzers: functions of bytes that panic where a promise does not hold.
//!
//! For: one body of each target for the short run (`cargo test -p ringfence-fuzz`: the corpus and mutations of it with
//! fixed seeds, on any compiler) and for the long one (`crates/fuzz/run SECONDS [TARGET...]`: libFuzzer, guided by
//! coverage). May know: the rooms whose parsers it feeds. Never knows: sessions, processes, the network.
//!
//! A parser that is private to its room is reached through that room's `fuzzing` module, public and hidden from the
//! documentation. It is no feature: a feature would give each room two builds, one beside the workspace and one alone.
//!
//! **Invariants.**
//! - A target depends on its bytes alone, and removes the folders that it makes.
//! - Each target asserts more than that it answers: what was parsed and written again is the same, content is never
//!   more than came in, a path never leaves, a folder beside the workspace is as it was.
//! - `corpus/TARGET/` holds seeds and every input that once failed, named for what it did.

mod bytes;
mod files;
pub mod limits;
mod mutate;
mod text;

pub use mutate::{corpus, exercise};

/// A target: it panics where a promise does not hold.
pub type Target = fn(&[u8]);

/// All targets, by the name of their corpus.
pub const TARGETS: &[(&str, Target)] = &[
    ("frames", bytes::frames),
    ("form", bytes::form),
    ("head", bytes::head),
    ("body", text::body),
    ("path", text::path),
    ("grant", text::grant),
    ("document", text::document),
    ("reference", text::reference),
    ("editor", files::editor),
    ("archive", files::archive),
    ("tape", files::tape),
    ("layer", files::layer),
];

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}
