//! The folders of a workspace that are watched, and a look at those of them alone in which something happened.

use std::collections::{HashMap, HashSet};
use std::hash::RandomState;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::Stat;

use super::hub::{Dirty, hub};
use super::scan::{self, Budget, Read};
use crate::tree::open_folder;

/// Watches, each with its folder as it was last read.
#[derive(Debug, Default)]
pub(super) struct Folders {
    by_watch: HashMap<i32, Read>,
}

/// Why a look at some folders does not tell all that happened.
#[derive(Debug)]
pub(super) struct NotEnough;

impl Folders {
    pub(super) fn insert(&mut self, watch: i32, read: Read) {
        self.by_watch.insert(watch, read);
    }

    pub(super) fn watches(&self) -> impl Iterator<Item = i32> {
        self.by_watch.keys().copied()
    }

    /// Those watches that `other` has not.
    pub(super) fn without<'a>(&'a self, other: &'a Folders) -> impl Iterator<Item = i32> + 'a {
        self.watches().filter(|watch| !other.by_watch.contains_key(watch))
    }

    /// Watches and reads anew the folders whose watches have fired, and hands every visible regular file in them to
    /// `each`.
    ///
    /// # Errors
    /// Where a folder came, went or was put in another's place, more must be read than these. All that is watched by
    /// then is kept here.
    pub(super) fn look_again(
        &mut self,
        fired: &HashSet<i32>,
        root: BorrowedFd<'_>,
        keys: &RandomState,
        dirty: &Dirty,
        mut each: impl FnMut(&[u8], &[u8], &Stat),
    ) -> Result<(), NotEnough> {
        let mut budget = Budget::of_a_look();
        for watch in fired {
            let before = self.by_watch.remove(watch).ok_or(NotEnough)?;
            let dir = open_folder(root, &before.path).map_err(|_| NotEnough)?;
            let watch = hub().watch(dir.as_fd(), dirty).map_err(|_| NotEnough)?;
            if self.by_watch.contains_key(&watch) {
                // What was under this path before is not what is there now.
                return Err(NotEnough);
            }
            let path = before.path.clone();
            let each = |name: &[u8], stat: &Stat| each(&path, name, stat);
            let read = scan::read_folder(&dir, keys, &mut budget, |_| {}, each);
            let same = matches!(read, Ok(Some(subfolders)) if subfolders == before.subfolders);
            self.by_watch.insert(watch, before);
            if !same {
                return Err(NotEnough);
            }
        }
        Ok(())
    }
}
