//! The held root, and the kernel's calls beneath it.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::OciError;

/// Beneath the descriptor, over no link of any kind and no mount.
const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// The folder that layers are applied to.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

impl Folder {
    pub(super) fn open(path: &Path) -> Result<Self, OciError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = fs::open(path, flags, Mode::empty());
        opened.map(Folder).map_err(|error| OciError::file("open the folder", path)(error.into()))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Opens a folder by its path without links; the root for an empty one.
    pub(super) fn folder(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        open_at(self.fd(), path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
    }
}

/// `openat2(2)` beneath `dir`, close-on-exec.
fn open_at(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let path: &[u8] = if path.is_empty() { b"." } else { path };
    loop {
        match fs::openat2(dir, path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode, CONFINED) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Opens one folder in another.
pub(super) fn step(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    open_at(dir, name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
}

/// Sets a folder's mode by a descriptor, the one way that what pulls images may; by its name where it cannot be read.
pub(super) fn set_mode(folder: BorrowedFd<'_>, mode: Mode) -> Result<(), Errno> {
    match open_at(folder, b".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) {
        Ok(open) => fs::fchmod(open, mode),
        Err(Errno::ACCESS) => fs::chmodat(folder, ".", mode, AtFlags::empty()),
        Err(error) => Err(error),
    }
}

/// Makes a new file, of nobody else's to read yet.
pub(super) fn new_file(dir: BorrowedFd<'_>, name: &[u8]) -> Result<File, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    open_at(dir, name, flags, Mode::from_raw_mode(0o600)).map(File::from)
}

/// What is there; links are not followed. `None` where there is nothing.
pub(super) fn look(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Stat>, Errno> {
    match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn is_dir(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

pub(super) fn is_link(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

/// The names in a folder.
pub(super) fn names(dir: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>, Errno> {
    let listed = open_at(dir, b".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    let mut names = Vec::new();
    for entry in Dir::new(listed)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if !matches!(name.as_slice(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}
