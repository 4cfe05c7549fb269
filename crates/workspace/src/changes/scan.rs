//! A look at the visible files of a workspace or of one of its folders, and the best few of those that changed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FileType, Stat};

use crate::error::FileError;
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

/// A visible folder as it was read.
#[derive(Debug)]
pub(super) struct Read {
    /// Below the root.
    pub(super) path: Arc<[u8]>,
    /// Of the names and inodes of the visible folders in it.
    pub(super) subfolders: u64,
}

/// How many entries may still be looked at.
pub(super) struct Budget(usize);

impl Budget {
    /// That of one look.
    pub(super) fn of_a_look() -> Self {
        Budget(SCAN_ENTRIES_MAX)
    }
}

/// Hands every visible folder to `watch` before it is read and to `done` when it was, and every visible regular file to
/// `each` as (folder's path, name, what it is). Follows no link and leaves the file system of the root never. False where
/// it broke off.
pub(super) fn visit<W>(
    root: BorrowedFd<'_>,
    keys: &RandomState,
    mut watch: impl FnMut(BorrowedFd<'_>) -> W,
    mut done: impl FnMut(W, Read),
    mut each: impl FnMut(&[u8], &[u8], &Stat),
) -> bool {
    let mut budget = Budget::of_a_look();
    let mut whole = true;
    let mut todo = vec![Folder::top()];
    while let Some(folder) = todo.pop() {
        let path = folder.path();
        // A folder that cannot be opened is gone, or so deep that no caller's path reaches what is in it.
        let Ok(dir) = open_folder(root, &path) else { continue };
        let watched = watch(dir.as_fd());
        let read = read_folder(
            &dir,
            keys,
            &mut budget,
            |name| todo.push(Folder::child(&path, name)),
            |name, stat| each(&path, name, stat),
        );
        let subfolders = match read {
            Ok(subfolders) => subfolders,
            Err(_) => {
                whole = false;
                Some(0)
            }
        };
        done(watched, Read { path, subfolders: subfolders.unwrap_or(0) });
        if subfolders.is_none() {
            return false;
        }
    }
    whole
}

/// Hands every visible folder in `dir` and every visible regular file to the caller: a digest of the folders' names and
/// inodes, in whatever order they are read; `None` where the budget was used up.
pub(super) fn read_folder(
    dir: &OwnedFd,
    keys: &RandomState,
    budget: &mut Budget,
    mut subfolder: impl FnMut(&[u8]),
    mut each: impl FnMut(&[u8], &Stat),
) -> Result<Option<u64>, FileError> {
    let mut subfolders = 0u64;
    let read = each_entry(dir, |entry| {
        match budget.0.checked_sub(1) {
            Some(left) => budget.0 = left,
            None => return ControlFlow::Break(()),
        }
        if is_left_out(entry.name) {
            return ControlFlow::Continue(());
        }
        match entry.kind {
            FileType::Directory => {
                subfolders = subfolders.wrapping_add(keys.hash_one((entry.name, entry.inode)));
                subfolder(entry.name);
            }
            FileType::RegularFile => {
                if let Some(stat) = entry.stat()
                    && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
                {
                    each(entry.name, &stat);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    Ok(read.is_continue().then_some(subfolders))
}

/// The hash of a path, in one piece or as `folder/name`.
pub(super) fn path_hash(keys: &RandomState, folder: &[u8], name: &[u8]) -> u64 {
    let mut hasher = keys.build_hasher();
    hasher.write(folder);
    if !folder.is_empty() {
        hasher.write(b"/");
    }
    hasher.write(name);
    hasher.finish()
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
