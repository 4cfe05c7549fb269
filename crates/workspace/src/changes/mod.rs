//! Which files a call created or changed.
//!
//! A gate first: inotify says whether anything happened in a visible folder since the last look, for the price of one
//! `read(2)`. Only where something did, or where not everything can be watched, is the tree read, and each regular
//! file's inode, size, modification and change time held against the last look. What the daemon writes itself is
//! noted at once, so that no call is said to have made it.
//!
//! Not seen: what a program writes through a shared memory mapping alone, which neither makes an event nor, on a
//! tmpfs, changes a time.

mod hub;
mod ids;
mod scan;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ringfence_op::{ProducedFile, WorkspacePath};
use rustix::fs::Stat;

use crate::limits::{SCAN_ENTRIES_MAX, WATCHED_FOLDERS_MAX};
use hub::{Dirty, hub};
pub(crate) use ids::IdBook;
use scan::Found;

/// The files of one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    /// Figures first, then the newest, at most as many as were asked for.
    pub files: Vec<ProducedFile>,
    /// How many more there were.
    pub omitted: u64,
}

/// What was there at the last look.
#[derive(Debug)]
pub(crate) struct Changes {
    /// Per path a digest of its inode, size and times; both are hashes, so that a file costs 16 bytes.
    known: HashMap<u64, u64>,
    keys: RandomState,
    watches: HashSet<i32>,
    /// Every visible folder is watched, so that no event means no change.
    all_watched: bool,
    dirty: Dirty,
    ids: IdBook,
}

impl Changes {
    /// A workspace as it is now; what is in it already is nobody's.
    pub(crate) fn new(root: BorrowedFd<'_>) -> Self {
        let mut changes = Changes {
            known: HashMap::new(),
            keys: RandomState::new(),
            watches: HashSet::new(),
            all_watched: false,
            dirty: Arc::new(AtomicBool::new(true)),
            ids: IdBook::default(),
        };
        changes.since_last(root, 0);
        changes
    }

    /// What changed since the last look: at most `files_max` of it by name, the rest counted.
    pub(crate) fn since_last(&mut self, root: BorrowedFd<'_>, files_max: usize) -> Changed {
        hub().drain();
        // Cleared before the folders are watched and read: what happens from here on is for the next look.
        let happened = self.dirty.swap(false, Ordering::AcqRel);
        if self.all_watched && !happened {
            return Changed::default();
        }
        let found = self.scan(root, files_max);
        let omitted = found.changed_count() - found.kept() as u64;
        let files = found
            .into_paths()
            .filter_map(|path| String::from_utf8(path).ok())
            .filter_map(|text| WorkspacePath::parse(&text).ok())
            .map(|path| self.produced(path))
            .collect();
        Changed { files, omitted }
    }

    /// Whether nothing can have changed since the last look, for the price of one `read(2)`.
    pub(crate) fn is_quiet(&self) -> bool {
        hub().drain();
        self.all_watched && !self.dirty.load(Ordering::Acquire)
    }

    /// Remembers a file that the daemon wrote, as it left it.
    pub(crate) fn note(&mut self, plain: &[u8], stat: &Stat) {
        let (path, stamp) = (self.keys.hash_one(plain), self.stamp(stat));
        self.known.insert(path, stamp);
    }

    /// A file as a result names it.
    pub(crate) fn produced(&mut self, path: WorkspacePath) -> ProducedFile {
        ProducedFile { file_id: self.ids.id(&path), path }
    }

    /// The path behind a file id.
    pub(crate) fn path_of(&self, file_id: &str) -> Option<WorkspacePath> {
        self.ids.path(file_id)
    }

    fn scan(&mut self, root: BorrowedFd<'_>, files_max: usize) -> Found {
        let mut found = Found::new(files_max);
        let mut seen = HashMap::with_capacity(self.known.len());
        let mut watches = HashSet::with_capacity(self.watches.len());
        let mut all_watched = true;
        let watch = |dir: BorrowedFd<'_>| {
            let wd =
                if watches.len() < WATCHED_FOLDERS_MAX { hub().watch(dir.as_fd(), &self.dirty).ok() } else { None };
            match wd {
                Some(wd) => drop(watches.insert(wd)),
                None => all_watched = false,
            }
        };
        let whole = scan::visit(root, watch, |folder, name, stat| {
            let path = scan::join_hash(&self.keys, folder, name);
            let stamp = self.stamp(stat);
            if self.known.get(&path) != Some(&stamp) {
                found.add(folder, name, stat);
            }
            seen.insert(path, stamp);
        });
        if whole || self.known.len() > 2 * SCAN_ENTRIES_MAX {
            self.known = seen;
        } else {
            // Not all was looked at: what is known of the rest still holds.
            self.known.extend(seen);
        }
        hub().forget(self.watches.difference(&watches).copied(), &self.dirty);
        self.watches = watches;
        self.all_watched = all_watched && whole;
        found
    }

    fn stamp(&self, stat: &Stat) -> u64 {
        self.keys.hash_one((
            stat.st_ino,
            stat.st_size,
            (stat.st_mtime, stat.st_mtime_nsec as i64),
            (stat.st_ctime, stat.st_ctime_nsec as i64),
        ))
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        hub().forget(self.watches.drain(), &self.dirty);
    }
}

/// Whether a result may name this file: no part of its path is hidden, and none is a cache.
pub(crate) fn is_visible(plain: &[u8]) -> bool {
    plain.split(|byte| *byte == b'/').all(|part| !scan::is_left_out(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::fs::File;

    fn names(changed: &Changed) -> Vec<&str> {
        changed.files.iter().map(|file| file.path.as_str()).collect()
    }

    #[test]
    fn the_gate_is_shut_until_something_happens_and_watches_end_with_the_workspace() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::create_dir_all(dir.path().join(".hidden/deep")).unwrap();
        let root = File::open(dir.path()).unwrap();
        let mut changes = Changes::new(root.as_fd());
        assert!(changes.all_watched);
        assert_eq!(hub().watches_of(&changes.dirty), 3);
        hub().drain();
        assert!(!changes.dirty.load(Ordering::Acquire));

        fs::write(dir.path().join(".hidden/deep/x"), "unseen").unwrap();
        hub().drain();
        assert!(!changes.dirty.load(Ordering::Acquire), "hidden folders are not watched");

        fs::write(dir.path().join("a/b/x"), "seen").unwrap();
        hub().drain();
        assert!(changes.dirty.load(Ordering::Acquire));
        assert_eq!(hub().watches_of(&changes.dirty), 2, "the watch that fired is gone");
        assert_eq!(names(&changes.since_last(root.as_fd(), 9)), ["a/b/x"]);
        assert_eq!(hub().watches_of(&changes.dirty), 3, "and back after the look");

        fs::remove_dir_all(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("y"), "").unwrap();
        assert_eq!(names(&changes.since_last(root.as_fd(), 9)), ["y"]);
        assert_eq!(hub().watches_of(&changes.dirty), 1);

        let dirty = Arc::clone(&changes.dirty);
        drop(changes);
        assert_eq!(hub().watches_of(&dirty), 0);
    }

    #[test]
    fn a_flood_of_writes_is_few_events() {
        let dir = tempfile::tempdir().unwrap();
        let root = File::open(dir.path()).unwrap();
        let mut changes = Changes::new(root.as_fd());
        for n in 0..10_000 {
            fs::write(dir.path().join(format!("f{}", n % 7)), n.to_string()).unwrap();
        }
        // Three events each without the gate, more than fs.inotify.max_queued_events holds; and no overflow: nobody else was marked for it.
        assert_eq!(changes.since_last(root.as_fd(), 99).files.len(), 7);
        assert_eq!(changes.since_last(root.as_fd(), 99), Changed::default());
    }

    #[test]
    fn more_folders_than_can_be_watched_are_scanned_each_time() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..WATCHED_FOLDERS_MAX + 5 {
            fs::create_dir(dir.path().join(format!("d{n}"))).unwrap();
        }
        let root = File::open(dir.path()).unwrap();
        let mut changes = Changes::new(root.as_fd());
        assert!(!changes.all_watched);
        assert_eq!(hub().watches_of(&changes.dirty), WATCHED_FOLDERS_MAX);
        for n in 0..WATCHED_FOLDERS_MAX + 5 {
            let path = format!("d{n}/x");
            fs::write(dir.path().join(&path), "").unwrap();
            if n % 100 == 0 || n >= WATCHED_FOLDERS_MAX {
                assert!(names(&changes.since_last(root.as_fd(), 200)).contains(&path.as_str()));
            }
        }
    }
}
