//! The edits of a workspace that can be taken back.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use super::text::Splice;
use crate::limits::{UNDO_BYTES_MAX, UNDO_STEPS_MAX};

/// What takes an edit back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Back {
    /// The edit changed the file: this changes it back.
    Change(Splice),
    /// The edit made the file, and these folders for it.
    Remove {
        /// Plain paths, outermost first.
        made: Vec<Vec<u8>>,
    },
}

#[derive(Debug)]
struct Step {
    plain: Vec<u8>,
    back: Back,
    /// Digest of the file as the edit left it.
    left: u128,
    bytes: usize,
}

/// A stack for each file, in one log so that it is bounded as a whole: the oldest steps are forgotten first.
///
/// Only what an edit took out is kept, beside a digest of what it left. The digest has keys of its own, so that no
/// program can make another content that passes for it.
#[derive(Debug, Default)]
pub(crate) struct UndoLog {
    steps: VecDeque<Step>,
    bytes: usize,
    keys: [RandomState; 2],
}

impl UndoLog {
    /// Remembers how to take an edit back that left `content`.
    pub(crate) fn push(&mut self, plain: &[u8], back: Back, content: &[u8]) {
        let kept = match &back {
            Back::Change(splice) => splice.added.len(),
            Back::Remove { made } => made.iter().map(Vec::len).sum(),
        };
        let step = Step { plain: plain.to_vec(), back, left: self.digest(content), bytes: kept + plain.len() };
        self.bytes += step.bytes;
        self.steps.push_back(step);
        while self.steps.len() > UNDO_STEPS_MAX || self.bytes > UNDO_BYTES_MAX {
            let Some(oldest) = self.steps.pop_front() else { break };
            self.bytes -= oldest.bytes;
        }
    }

    /// How the last edit of a file is taken back, and whether `content` is what it left. `None` without an edit.
    pub(crate) fn last(&self, plain: &[u8], content: &[u8]) -> Option<(&Back, bool)> {
        let step = self.steps.iter().rev().find(|step| step.plain == plain)?;
        Some((&step.back, step.left == self.digest(content)))
    }

    /// Whether an edit of the file is remembered.
    pub(crate) fn knows(&self, plain: &[u8]) -> bool {
        self.steps.iter().any(|step| step.plain == plain)
    }

    /// Forgets the last edit of a file, after it was taken back.
    pub(crate) fn pop(&mut self, plain: &[u8]) {
        if let Some(at) = self.steps.iter().rposition(|step| step.plain == plain)
            && let Some(step) = self.steps.remove(at)
        {
            self.bytes -= step.bytes;
        }
    }

    fn digest(&self, content: &[u8]) -> u128 {
        let [one, two] = &self.keys;
        (u128::from(one.hash_one(content)) << 64) | u128::from(two.hash_one(content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(bytes: usize) -> Back {
        Back::Change(Splice { at: 0, removed: 0, added: vec![b'x'; bytes] })
    }

    #[test]
    fn each_file_has_a_stack_of_its_own() {
        let mut log = UndoLog::default();
        log.push(b"a", change(1), b"1");
        log.push(b"b", change(2), b"2");
        log.push(b"a", change(3), b"3");
        assert_eq!(log.last(b"a", b"3"), Some((&change(3), true)));
        assert_eq!(log.last(b"a", b"4"), Some((&change(3), false)));
        log.pop(b"a");
        assert_eq!(log.last(b"a", b"1"), Some((&change(1), true)));
        log.pop(b"a");
        assert_eq!(log.last(b"a", b""), None);
        assert!(log.knows(b"b") && !log.knows(b"a"));
    }

    #[test]
    fn the_log_is_bounded_in_steps_and_bytes() {
        let mut log = UndoLog::default();
        for _ in 0..2 * UNDO_STEPS_MAX {
            log.push(b"f", change(1), b"");
        }
        assert_eq!(log.steps.len(), UNDO_STEPS_MAX);
        log.push(b"g", change(UNDO_BYTES_MAX - 10), b"");
        assert!(log.bytes <= UNDO_BYTES_MAX && log.knows(b"g"));
        log.push(b"h", change(UNDO_BYTES_MAX + 1), b"");
        assert_eq!((log.bytes, log.steps.len()), (0, 0), "what does not fit is forgotten");
    }
}
