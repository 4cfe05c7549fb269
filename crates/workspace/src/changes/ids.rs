//! File ids: the same for the same file of the same session, and servable.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use ringfence_op::WorkspacePath;

use crate::limits::{FILE_ID_PATH_BYTES_MAX, FILE_IDS_MAX};

/// The ids that a workspace has given out, the latest ones.
///
/// An id is drawn from the file's path with keys of this workspace: the file keeps it however often it is rewritten or
/// replaced, and the same path in another session has another one.
#[derive(Debug, Default)]
pub(crate) struct IdBook {
    keys: [RandomState; 2],
    paths: HashMap<String, WorkspacePath>,
    /// Least lately named first.
    order: VecDeque<String>,
    path_bytes: usize,
}

impl IdBook {
    /// The id of the file at `path`, remembered.
    pub(crate) fn id(&mut self, path: &WorkspacePath) -> String {
        let [one, two] = &self.keys;
        let id = format!("file_{:016x}{:016x}", one.hash_one(path), two.hash_one(path));
        if self.paths.contains_key(&id) {
            self.order.retain(|known| known != &id);
        } else {
            self.path_bytes += path.as_str().len();
            self.paths.insert(id.clone(), path.clone());
        }
        self.order.push_back(id.clone());
        while self.order.len() > FILE_IDS_MAX || self.path_bytes > FILE_ID_PATH_BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some(path) = self.paths.remove(&oldest) {
                self.path_bytes -= path.as_str().len();
            }
        }
        id
    }

    /// The path behind an id that was given out.
    pub(crate) fn path(&self, id: &str) -> Option<WorkspacePath> {
        self.paths.get(id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_stable_distinct_and_bounded() {
        let mut book = IdBook::default();
        let path = |n: usize| WorkspacePath::parse(&format!("f{n}")).unwrap();
        let first = book.id(&path(0));
        assert_eq!(book.id(&path(0)), first);
        assert_eq!(book.path(&first), Some(path(0)));
        assert_ne!(IdBook::default().id(&path(0)), first, "another session has other ids");
        for n in 1..FILE_IDS_MAX {
            book.id(&path(n));
        }
        assert_eq!(book.id(&path(0)), first);
        book.id(&path(FILE_IDS_MAX));
        assert_eq!(book.path(&first), Some(path(0)), "what was named lately is kept");
        assert_eq!(book.paths.len(), FILE_IDS_MAX);
        assert_eq!(book.order.len(), FILE_IDS_MAX);
    }

    #[test]
    fn long_paths_are_bounded_by_their_bytes() {
        let mut book = IdBook::default();
        for n in 0..1000 {
            let text = format!("{}{n}", format!("{}/", "d".repeat(250)).repeat(15));
            book.id(&WorkspacePath::parse(&text).unwrap());
        }
        assert!(book.path_bytes <= FILE_ID_PATH_BYTES_MAX);
        assert_eq!(book.paths.values().map(|path| path.as_str().len()).sum::<usize>(), book.path_bytes);
    }
}
