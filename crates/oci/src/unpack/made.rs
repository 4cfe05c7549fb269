//! Which paths of the root this layer has touched, so that what it removes is of the layers below.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

/// Paths, as numbers: two of them are taken for one with a chance of 2^-64, by nobody's choice (the key is random).
pub(super) struct Made {
    state: RandomState,
    own: HashSet<u64>,
    above: HashSet<u64>,
}

impl Made {
    pub(super) fn new() -> Self {
        Made { state: RandomState::new(), own: HashSet::new(), above: HashSet::new() }
    }

    /// Marks a path; false where it was marked already.
    pub(super) fn mark(&mut self, path: &[u8]) -> bool {
        for (at, byte) in path.iter().enumerate() {
            if *byte == b'/' {
                self.above.insert(self.state.hash_one(path.get(..at)));
            }
        }
        self.own.insert(self.state.hash_one(Some(path)))
    }

    /// Whether this layer has an entry of that path.
    pub(super) fn is_own(&self, path: &[u8]) -> bool {
        self.own.contains(&self.state.hash_one(Some(path)))
    }

    /// Whether it has entries beneath it.
    pub(super) fn is_above(&self, path: &[u8]) -> bool {
        self.above.contains(&self.state.hash_one(Some(path)))
    }
}
