//! What files there are.

use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::Arc;

use ringfence_op::WorkspacePath;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use crate::error::FileError;
use crate::limits::{LIST_ENTRIES_MAX, LIST_LINKS_MAX, LIST_PATH_BYTES_MAX, LIST_VISITED_MAX};
use crate::opened::{modified_seconds, size_of};
use crate::root::{Root, join, regular, stat_of};
use crate::tree::{Entry, Folder, each_entry, open_folder};

/// One file of a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct FileEntry {
    /// Its path from the workspace's root; GetFile serves it.
    pub path: WorkspacePath,
    /// Its size in bytes; of a link inside the workspace, that of the file it leads to.
    pub size_bytes: u64,
    /// When it was last written, POSIX seconds with their fraction.
    pub modified: f64,
}

/// The files of one folder, or of the tree below it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listing {
    /// Regular files, and links to regular files of the workspace, sorted by path.
    pub files: Vec<FileEntry>,
    /// How many files have a name that JSON cannot carry (it is no UTF-8), or a path too long to be asked for.
    pub unlistable: u64,
    /// The folder holds more than a listing may have ([`LIST_ENTRIES_MAX`] and its siblings): this is not all.
    pub truncated: bool,
}

pub(crate) fn list(root: &Root, path: &WorkspacePath, recursive: bool) -> Result<Listing, FileError> {
    let start = root.open_dir(path.as_str().as_bytes())?;
    let mut lister =
        Lister { root, base: path.as_str(), listing: Listing::default(), path_bytes: 0, visited: 0, links: 0 };
    let mut todo = vec![Folder::top()];
    while let Some(folder) = todo.pop() {
        let below = folder.path();
        let dir = match open_folder(start.as_fd(), &below) {
            Ok(dir) => dir,
            // Gone, replaced or too deep meanwhile: then it is no folder of this tree.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::ACCESS | Errno::AGAIN) => continue,
            Err(Errno::NAMETOOLONG) => {
                lister.listing.unlistable += 1;
                continue;
            }
            Err(errno) => return Err(FileError::from_errno(errno, "opening a folder of a workspace")),
        };
        let read = each_entry(&dir, |entry| {
            if entry.kind == FileType::Directory && recursive {
                todo.push(Folder::child(&below, entry.name));
            }
            lister.see(&below, &entry)
        })?;
        if read.is_break() {
            lister.listing.truncated = true;
            break;
        }
    }
    lister.listing.files.sort_by(|one, two| one.path.cmp(&two.path));
    Ok(lister.listing)
}

struct Lister<'a> {
    root: &'a Root,
    base: &'a str,
    listing: Listing,
    path_bytes: usize,
    visited: usize,
    links: usize,
}

impl Lister<'_> {
    fn see(&mut self, below: &Arc<[u8]>, entry: &Entry<'_>) -> ControlFlow<()> {
        self.visited += 1;
        if self.visited > LIST_VISITED_MAX {
            return ControlFlow::Break(());
        }
        if !matches!(entry.kind, FileType::RegularFile | FileType::Symlink) {
            return ControlFlow::Continue(());
        }
        let full = join(self.base.as_bytes(), &join(below, entry.name));
        let Some(path) = std::str::from_utf8(&full).ok().and_then(|text| WorkspacePath::parse(text).ok()) else {
            self.listing.unlistable += 1;
            return ControlFlow::Continue(());
        };
        let stat = match entry.kind {
            FileType::RegularFile => entry.stat(),
            _ if self.links >= LIST_LINKS_MAX => {
                self.listing.truncated = true;
                None
            }
            _ => {
                self.links += 1;
                self.root.open(&full, OFlags::PATH).and_then(|fd| stat_of(fd.as_fd())).ok()
            }
        };
        let Some(stat) = stat.filter(|stat| regular(stat).is_ok()) else {
            return ControlFlow::Continue(());
        };
        self.path_bytes += full.len();
        if self.listing.files.len() >= LIST_ENTRIES_MAX || self.path_bytes > LIST_PATH_BYTES_MAX {
            return ControlFlow::Break(());
        }
        self.listing.files.push(FileEntry { path, size_bytes: size_of(&stat), modified: modified_seconds(&stat) });
        ControlFlow::Continue(())
    }
}
