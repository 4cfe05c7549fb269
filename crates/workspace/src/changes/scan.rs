//! One look at all visible files of a workspace, and the best few of those that changed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{BuildHasher, RandomState};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, Stat};

use crate::limits::SCAN_ENTRIES_MAX;
use crate::root::join;
use crate::tree::{Folder, each_entry, open_folder};

/// Folders that programs fill for themselves and that are not hidden.
const CACHES: [&[u8]; 2] = [b"__pycache__", b"node_modules"];
/// What people look at first.
const FIGURES: [&str; 7] = ["png", "svg", "jpg", "jpeg", "gif", "webp", "pdf"];

/// Whether a name, of a file or of a folder with all that is in it, is left out of results.
pub(super) fn is_left_out(name: &[u8]) -> bool {
    name.starts_with(b".") || CACHES.contains(&name)
}

/// Hands every visible folder to `watch` before it is read, and every visible regular file to `each` as (folder's
/// path, name, what it is). Follows no link and leaves the file system of the root never. False where it broke off.
pub(super) fn visit(
    root: BorrowedFd<'_>,
    mut watch: impl FnMut(BorrowedFd<'_>),
    mut each: impl FnMut(&[u8], &[u8], &Stat),
) -> bool {
    let mut entries = 0;
    let mut whole = true;
    let mut todo = vec![Folder::top()];
    while let Some(folder) = todo.pop() {
        let path = folder.path();
        // A folder that cannot be opened is gone, or so deep that no caller's path reaches what is in it.
        let Ok(dir) = open_folder(root, &path) else { continue };
        watch(dir.as_fd());
        let read = each_entry(&dir, |entry| {
            entries += 1;
            if entries > SCAN_ENTRIES_MAX {
                return ControlFlow::Break(());
            }
            if is_left_out(entry.name) {
                return ControlFlow::Continue(());
            }
            match entry.kind {
                FileType::Directory => todo.push(Folder::child(&path, entry.name)),
                FileType::RegularFile => {
                    if let Some(stat) = entry.stat()
                        && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
                    {
                        each(&path, entry.name, &stat);
                    }
                }
                _ => {}
            }
            ControlFlow::Continue(())
        });
        match read {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return false,
            Err(_) => whole = false,
        }
    }
    whole
}

/// The hash of `folder/name`, as that of the joined path.
pub(super) fn join_hash(keys: &RandomState, folder: &[u8], name: &[u8]) -> u64 {
    keys.hash_one(join(folder, name).as_slice())
}

/// The changed files: the most wanted by name, the others by number.
pub(super) struct Found {
    best: BinaryHeap<Reverse<Candidate>>,
    max: usize,
    changed: u64,
}

impl Found {
    pub(super) fn new(max: usize) -> Self {
        Found { best: BinaryHeap::new(), max, changed: 0 }
    }

    pub(super) fn add(&mut self, folder: &[u8], name: &[u8], stat: &Stat) {
        // A path that JSON or a request cannot carry cannot be named, so it is only counted.
        self.changed += 1;
        let nameable = std::str::from_utf8(name).is_ok() && std::str::from_utf8(folder).is_ok();
        let length = folder.len() + 1 + name.len();
        if self.max == 0 || !nameable || length > ringfence_op::WorkspacePath::BYTES_MAX {
            return;
        }
        let candidate = Candidate {
            figure: is_figure(name),
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            path: Reverse(join(folder, name)),
        };
        if self.best.len() >= self.max {
            if self.best.peek().is_some_and(|Reverse(worst)| *worst >= candidate) {
                return;
            }
            self.best.pop();
        }
        self.best.push(Reverse(candidate));
    }

    pub(super) fn changed_count(&self) -> u64 {
        self.changed
    }

    pub(super) fn kept(&self) -> usize {
        self.best.len()
    }

    /// The paths, most wanted first.
    pub(super) fn into_paths(self) -> impl Iterator<Item = Vec<u8>> {
        self.best.into_sorted_vec().into_iter().map(|Reverse(candidate)| candidate.path.0)
    }
}

/// Ordered by how much it is wanted: figures, then the newer, then the first by name.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    figure: bool,
    modified: (i64, i64),
    path: Reverse<Vec<u8>>,
}

fn is_figure(name: &[u8]) -> bool {
    let end = name.rsplit(|byte| *byte == b'.').next().filter(|end| end.len() < name.len());
    end.is_some_and(|end| FIGURES.iter().any(|figure| end.eq_ignore_ascii_case(figure.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_wanted_come_first_and_the_rest_is_counted() {
        let mut stat = rustix::fs::stat("/").unwrap();
        let mut found = Found::new(4);
        for (name, seconds) in
            [("old.csv", 1), ("new.csv", 9), ("a.PNG", 2), ("b.svg", 3), ("png", 8), ("mid.csv", 5), ("z.csv", 9)]
        {
            stat.st_mtime = seconds;
            found.add(b"out", name.as_bytes(), &stat);
        }
        assert_eq!((found.changed_count(), found.kept()), (7, 4));
        let paths: Vec<_> = found.into_paths().map(|path| String::from_utf8(path).unwrap()).collect();
        assert_eq!(paths, ["out/b.svg", "out/a.PNG", "out/new.csv", "out/z.csv"]);
    }

    #[test]
    fn hidden_files_and_caches_are_left_out() {
        for name in [".env", ".git", ".cache", "__pycache__", "node_modules", ".ringfence-upload-0"] {
            assert!(is_left_out(name.as_bytes()), "{name}");
        }
        for name in ["env", "cache", "a.b", "pycache"] {
            assert!(!is_left_out(name.as_bytes()), "{name}");
        }
    }
}
