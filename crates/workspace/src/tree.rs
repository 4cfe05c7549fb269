//! Reading a folder, and going down a tree of folders that changes meanwhile.

use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat, statat};
use rustix::io::Errno;

use crate::error::FileError;
use crate::root::{join, open_at};
use crate::temp::is_temp_name;

/// Bytes of the buffer that a folder is read through.
const DIRENT_BUFFER_BYTES: usize = 32 << 10;

/// A folder still to be read: its parent's path, shared with its siblings, and its name.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    parent: Arc<[u8]>,
    name: Box<[u8]>,
}

impl Folder {
    /// The folder that a walk starts at.
    pub(crate) fn top() -> Self {
        Folder { parent: Arc::from(&b""[..]), name: Box::from(&b""[..]) }
    }

    pub(crate) fn child(parent: &Arc<[u8]>, name: &[u8]) -> Self {
        Folder { parent: Arc::clone(parent), name: Box::from(name) }
    }

    /// Its path below the folder that the walk started at.
    pub(crate) fn path(&self) -> Arc<[u8]> {
        Arc::from(join(&self.parent, &self.name))
    }
}

/// Opens a folder of the tree below `start`, through no link.
pub(crate) fn open_folder(start: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
    open_at(start, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

/// What [`each_entry`] hands over for one name.
pub(crate) struct Entry<'a> {
    pub(crate) dir: BorrowedFd<'a>,
    pub(crate) name: &'a [u8],
    pub(crate) kind: FileType,
    /// Its inode, as the folder has it.
    pub(crate) inode: u64,
}

impl Entry<'_> {
    /// What it is now, links not followed; `None` where it is gone.
    pub(crate) fn stat(&self) -> Option<Stat> {
        statat(self.dir, self.name, AtFlags::SYMLINK_NOFOLLOW).ok()
    }
}

/// Calls `each` for every name of a folder but `.`, `..` and our own temporary names, in the kernel's order, until
/// it breaks.
pub(crate) fn each_entry(
    dir: &OwnedFd,
    mut each: impl FnMut(Entry<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, FileError> {
    let mut buffer = Vec::with_capacity(DIRENT_BUFFER_BYTES);
    let space: &mut [MaybeUninit<u8>] = buffer.spare_capacity_mut();
    let mut entries = RawDir::new(dir.as_fd(), space);
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(|errno| FileError::from_errno(errno, "reading a folder"))?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") || is_temp_name(name) {
            continue;
        }
        let mut kind = entry.file_type();
        if kind == FileType::Unknown {
            let Ok(stat) = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            kind = FileType::from_raw_mode(stat.st_mode);
        }
        if each(Entry { dir: dir.as_fd(), name, kind, inode: entry.ino() }).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}
