//! Which files a call created or changed.
//!
//! A gate first: inotify says whether anything happened in a visible folder since the last look, for the price of one
//! `read(2)`, and in which. Those folders are read, and each regular file's inode, size, modification and change time held
//! against the last look. The whole tree is read where that may not be all: where a folder came, went or moved, where a
//! file has several names, where events were lost, and where not everything can be watched. What the daemon writes itself
//! is noted at once, so that no call is said to have made it.
//!
//! Not seen: what a program writes through a shared memory mapping alone, which neither makes an event nor, on a
//! tmpfs, changes a time; and, until something happens in the file's folder, what it writes through another name of the
//! file that is in a hidden folder or gone by then, which makes no event in that folder.

mod folders;
mod hub;
mod ids;
mod scan;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use ringfence_op::{ProducedFile, WorkspacePath};
use rustix::fs::Stat;

use crate::limits::{SCAN_ENTRIES_MAX, WATCHED_FOLDERS_MAX};
use folders::{Folders, NotEnough};
use hub::{Dirty, News, hub, news};
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
    folders: Folders,
    /// Every visible folder is watched, so that no event means no change.
    all_watched: bool,
    /// A file has names besides the one that it was seen under: what is written through one of them makes no event where
    /// the others are.
    linked: bool,
    dirty: Dirty,
    ids: IdBook,
}

impl Changes {
    /// A workspace as it is now; what is in it already is nobody's.
    pub(crate) fn new(root: BorrowedFd<'_>) -> Self {
        let mut changes = Changes {
            known: HashMap::new(),
            keys: RandomState::new(),
            folders: Folders::default(),
            all_watched: false,
            linked: false,
            dirty: Arc::new(Mutex::default()),
            ids: IdBook::default(),
        };
        changes.since_last(root, 0);
        changes
    }

    /// What changed since the last look: at most `files_max` of it by name, the rest counted.
    pub(crate) fn since_last(&mut self, root: BorrowedFd<'_>, files_max: usize) -> Changed {
        hub().drain();
        // Cleared before the folders are watched and read: what happens from here on is for the next look.
        let happened = std::mem::take(&mut *news(&self.dirty));
        if self.all_watched && happened.is_none() {
            return Changed::default();
        }
        let found = self.look_where(&happened, root, files_max).unwrap_or_else(|NotEnough| self.scan(root, files_max));
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
        self.all_watched && news(&self.dirty).is_none()
    }

    /// Remembers a file that the daemon wrote, as it left it.
    pub(crate) fn note(&mut self, plain: &[u8], stat: &Stat) {
        let (path, stamp) = (scan::path_hash(&self.keys, b"", plain), stamp(&self.keys, stat));
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

    /// Looks where something happened, if that tells all.
    fn look_where(&mut self, news: &News, root: BorrowedFd<'_>, files_max: usize) -> Result<Found, NotEnough> {
        if !self.all_watched || news.anywhere || self.linked || self.known.len() > 2 * SCAN_ENTRIES_MAX {
            return Err(NotEnough);
        }
        let mut found = Found::new(files_max);
        let (mut seen, mut linked) = (Vec::new(), false);
        let (keys, known) = (&self.keys, &self.known);
        self.folders.look_again(&news.folders, root, keys, &self.dirty, |folder, name, stat| {
            let (path, stamp) = (scan::path_hash(keys, folder, name), stamp(keys, stat));
            linked |= stat.st_nlink > 1;
            if known.get(&path) != Some(&stamp) {
                found.add(folder, name, stat);
                seen.push((path, stamp));
            }
        })?;
        if linked {
            return Err(NotEnough);
        }
        self.known.extend(seen);
        Ok(found)
    }

    /// Looks everywhere.
    fn scan(&mut self, root: BorrowedFd<'_>, files_max: usize) -> Found {
        let mut found = Found::new(files_max);
        let mut seen = HashMap::with_capacity(self.known.len());
        let (mut folders, mut watches, mut linked) = (Folders::default(), HashSet::new(), false);
        let (keys, known, dirty) = (&self.keys, &self.known, &self.dirty);
        let mut all_watched = true;
        let watch = |dir: BorrowedFd<'_>| {
            let room = watches.len() < WATCHED_FOLDERS_MAX;
            let watch = if room { hub().watch(dir, dirty).ok() } else { None };
            // One that is there already: a folder was moved meanwhile, and is come upon twice.
            all_watched &= watch.is_some_and(|watch| watches.insert(watch));
            watch
        };
        let done = |watch: Option<i32>, read| {
            if let Some(watch) = watch {
                folders.insert(watch, read);
            }
        };
        let whole = scan::visit(root, keys, watch, done, |folder, name, stat| {
            let (path, stamp) = (scan::path_hash(keys, folder, name), stamp(keys, stat));
            linked |= stat.st_nlink > 1;
            if known.get(&path) != Some(&stamp) {
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
        hub().forget(self.folders.without(&folders), &self.dirty);
        (self.folders, self.linked) = (folders, linked);
        self.all_watched = all_watched && whole;
        found
    }
}

/// What another state of a file differs in.
fn stamp(keys: &RandomState, stat: &Stat) -> u64 {
    keys.hash_one((
        stat.st_ino,
        stat.st_size,
        (stat.st_mtime, stat.st_mtime_nsec as i64),
        (stat.st_ctime, stat.st_ctime_nsec as i64),
    ))
}

impl Drop for Changes {
    fn drop(&mut self) {
        hub().forget(self.folders.watches(), &self.dirty);
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
    use std::os::fd::AsFd;
    use std::path::Path;

    use proptest::prelude::*;

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
        assert!(news(&changes.dirty).is_none());

        fs::write(dir.path().join(".hidden/deep/x"), "unseen").unwrap();
        hub().drain();
        assert!(news(&changes.dirty).is_none(), "hidden folders are not watched");

        fs::write(dir.path().join("a/b/x"), "seen").unwrap();
        hub().drain();
        assert!(!news(&changes.dirty).is_none());
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
    fn only_folders_in_which_something_happened_are_read() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a/1", "a/2", "b/1", "b/deep/1"] {
            fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
            fs::write(dir.path().join(name), "").unwrap();
        }
        let root = File::open(dir.path()).unwrap();
        let mut changes = Changes::new(root.as_fd());
        let mut look = |what: &dyn Fn(&Path)| {
            what(dir.path());
            // Whatever is read is new.
            changes.known.clear();
            let files = changes.since_last(root.as_fd(), 99).files;
            let mut names: Vec<_> = files.iter().map(|file| file.path.as_str().to_owned()).collect();
            names.sort();
            names
        };
        assert_eq!(look(&|at| fs::write(at.join("a/1"), "more").unwrap()), ["a/1", "a/2"]);
        assert_eq!(look(&|at| fs::write(at.join("b/new"), "").unwrap()), ["b/1", "b/new"]);
        assert_eq!(look(&|_| {}), [""; 0]);
        // A folder that comes, moves or goes has all read; so has a second name of a file, for as long as it is there.
        let all = ["a/1", "a/2", "b/1", "b/deep/1", "b/new"];
        assert_eq!(look(&|at| fs::create_dir(at.join("c")).unwrap()), all);
        assert_eq!(look(&|at| fs::rename(at.join("c"), at.join("b/c")).unwrap()), all);
        assert_eq!(look(&|at| fs::remove_dir(at.join("b/c")).unwrap()), all);
        assert_eq!(look(&|at| fs::hard_link(at.join("a/1"), at.join("a/3")).unwrap()).len(), 6);
        assert_eq!(look(&|at| fs::write(at.join("b/1"), "x").unwrap()).len(), 6);
        assert_eq!(
            look(&|at| fs::write(at.join("a/3"), "x").and_then(|()| fs::remove_file(at.join("a/3"))).unwrap()),
            all
        );
        assert_eq!(look(&|at| fs::write(at.join("b/deep/1"), "x").unwrap()), ["b/deep/1"]);
    }

    /// What a program does to files and folders.
    #[derive(Debug, Clone)]
    enum Act {
        Write(usize, usize),
        Folder(usize),
        Move(usize, usize),
        Exchange(usize, usize),
        Link(usize, usize),
        Remove(usize),
        Look,
    }

    /// Folders, each with files of two names; the hidden one is only moved to and from.
    const PLACES: [&str; 9] = ["a", "b", "a/c", "a/c/d", "b/c", "f", "a/f", "b/f", ".h"];

    fn act() -> impl Strategy<Value = Act> {
        let place = || 0..PLACES.len();
        let visible = || 0..PLACES.len() - 1;
        prop_oneof![
            3 => (visible(), 0usize..3).prop_map(|(place, size)| Act::Write(place, size)),
            2 => place().prop_map(Act::Folder),
            2 => (place(), place()).prop_map(|(one, two)| Act::Move(one, two)),
            1 => (place(), place()).prop_map(|(one, two)| Act::Exchange(one, two)),
            1 => (visible(), visible()).prop_map(|(one, two)| Act::Link(one, two)),
            1 => place().prop_map(Act::Remove),
            4 => Just(Act::Look),
        ]
    }

    fn carry_out(root: &Path, act: &Act) {
        let at = |place: &usize| root.join(PLACES[*place]);
        // What cannot be done is not done.
        match act {
            Act::Write(place, size) => drop(fs::write(at(place).join("x"), vec![b'x'; *size])),
            Act::Folder(place) => drop(fs::create_dir(at(place))),
            Act::Move(one, two) => drop(fs::rename(at(one), at(two))),
            Act::Exchange(one, two) => {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let _undone = rustix::fs::renameat_with(rustix::fs::CWD, at(one), rustix::fs::CWD, at(two), flags);
            }
            Act::Link(one, two) => drop(fs::hard_link(at(one).join("x"), at(two).join("y"))),
            Act::Remove(place) => drop(fs::remove_dir_all(at(place))),
            Act::Look => {}
        }
    }

    /// A look at all files, by whoever watches none.
    fn look_at_all(root: &File, known: &mut HashMap<Vec<u8>, u64>, keys: &RandomState) -> Vec<String> {
        let (mut seen, mut names) = (HashMap::new(), Vec::new());
        let whole = scan::visit(
            root.as_fd(),
            keys,
            |_| (),
            |(), _| {},
            |folder, name, stat| {
                let path = crate::root::join(folder, name);
                if known.get(&path) != Some(&stamp(keys, stat)) {
                    names.push(String::from_utf8(path.clone()).unwrap());
                }
                seen.insert(path, stamp(keys, stat));
            },
        );
        assert!(whole);
        *known = seen;
        names.sort();
        names
    }

    proptest! {
        #[test]
        fn a_look_at_some_folders_tells_what_a_look_at_all_does(acts in proptest::collection::vec(act(), 1..60)) {
            let dir = tempfile::tempdir().unwrap();
            let root = File::open(dir.path()).unwrap();
            let mut changes = Changes::new(root.as_fd());
            let (mut known, keys) = (HashMap::new(), RandomState::new());
            for act in acts.iter().chain([&Act::Look]) {
                carry_out(dir.path(), act);
                if matches!(act, Act::Look) {
                    let quiet = changes.is_quiet();
                    let seen = changes.since_last(root.as_fd(), 99);
                    let mut seen: Vec<_> = names(&seen).into_iter().map(str::to_owned).collect();
                    seen.sort();
                    prop_assert!(!quiet || seen.is_empty());
                    prop_assert_eq!(seen, look_at_all(&root, &mut known, &keys), "{:?}", acts);
                }
            }
        }
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
