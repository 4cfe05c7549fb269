//! A file that nobody sees until it is whole.
//!
//! It has no name (`O_TMPFILE`) until it is published, so that neither a lost daemon nor a refused upload leaves
//! anything, and no program of the session can touch it. Where the file system has no such files, it has a hidden
//! random name that listings leave out.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::error::FileError;
use crate::limits::TEMP_NAME_TRIES_MAX;
use crate::root::{Place, Root, open_at, stat_of};

/// How the hidden names begin.
const PREFIX: &str = ".ringfence-upload-";

/// Whether a name is one of ours: never listed, never reported.
pub(crate) fn is_temp_name(name: &[u8]) -> bool {
    name.starts_with(PREFIX.as_bytes())
}

/// A file under construction. Dropped, it leaves nothing.
#[derive(Debug)]
pub(crate) struct Temp {
    file: File,
    named: Option<Named>,
}

/// A hidden name, taken back when it is dropped.
#[derive(Debug)]
struct Named {
    dir: OwnedFd,
    name: String,
    gone: bool,
}

impl Temp {
    /// A new empty file on the workspace's file system.
    pub(crate) fn new(root: &Root) -> Result<Self, FileError> {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        match open_at(root.fd(), b".", flags, Mode::from_raw_mode(0o600), ResolveFlags::empty()) {
            Ok(fd) => Ok(Temp { file: fd.into(), named: None }),
            // open(2), O_TMPFILE: file systems without it, and kernels that take the flag for O_DIRECTORY.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => Temp::with_name(root),
            Err(errno) => Err(FileError::from_errno(errno, "making a temporary file")),
        }
    }

    fn with_name(root: &Root) -> Result<Self, FileError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        for _ in 0..TEMP_NAME_TRIES_MAX {
            let name = random_name()?;
            match open_at(root.fd(), name.as_bytes(), flags, Mode::from_raw_mode(0o600), ResolveFlags::NO_SYMLINKS) {
                Ok(fd) => {
                    let dir = root
                        .fd()
                        .try_clone_to_owned()
                        .map_err(|error| FileError::from_io(error, "holding the root"))?;
                    return Ok(Temp { file: fd.into(), named: Some(Named { dir, name, gone: false }) });
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(FileError::from_errno(errno, "making a temporary file")),
            }
        }
        Err(FileError::Busy)
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its mode, its owner and its place, in one step that is either seen whole or not at all.
    /// Where `replace` is false and something is there, it is refused. Answers what the file is now, or `None` where
    /// its content was changed by somebody else on the way.
    pub(crate) fn publish(
        mut self,
        root: &Root,
        place: &Place,
        mode: Mode,
        replace: bool,
    ) -> Result<Option<Stat>, FileError> {
        place.file_or_nothing()?;
        let before = stat_of(self.file.as_fd())?;
        root.hand_over(self.file.as_fd(), mode)?;
        let moved = match self.named.take() {
            Some(named) => named.move_to(place, replace),
            None => self.link(place, replace),
        };
        moved.map_err(|errno| FileError::from_errno(errno, "putting a file in its place"))?;
        let after = stat_of(self.file.as_fd())?;
        let same = (before.st_size, before.st_mtime, before.st_mtime_nsec)
            == (after.st_size, after.st_mtime, after.st_mtime_nsec);
        Ok(same.then_some(after))
    }

    fn link(&self, place: &Place, replace: bool) -> Result<(), Errno> {
        // open(2), O_TMPFILE: the way that needs no CAP_DAC_READ_SEARCH goes through /proc.
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let link_as = |name: &[u8]| fs::linkat(CWD, own.as_str(), &place.dir, name, AtFlags::SYMLINK_FOLLOW);
        match link_as(&place.name) {
            Err(Errno::EXIST) if replace => {}
            other => return other,
        }
        for _ in 0..TEMP_NAME_TRIES_MAX {
            let name = random_name().map_err(|_| Errno::IO)?;
            match link_as(name.as_bytes()) {
                Ok(()) => {
                    let dir =
                        place.dir.try_clone().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
                    return Named { dir, name, gone: false }.move_to(place, true);
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::AGAIN)
    }
}

impl Named {
    fn move_to(mut self, place: &Place, replace: bool) -> Result<(), Errno> {
        let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        fs::renameat_with(&self.dir, self.name.as_str(), &place.dir, place.name.as_slice(), flags)?;
        self.gone = true;
        Ok(())
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if !self.gone {
            // Gone already where a program of the session removed it.
            let _ = fs::unlinkat(&self.dir, self.name.as_str(), AtFlags::empty());
        }
    }
}

fn random_name() -> Result<String, FileError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| FileError::House {
        doing: "drawing a temporary name",
        source: std::io::Error::other(error.to_string()),
    })?;
    Ok(format!("{PREFIX}{:016x}", u64::from_ne_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Last;
    use std::io::Write;

    fn root() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let fd = File::open(dir.path()).unwrap().into();
        let own = rustix::process::geteuid().as_raw();
        (dir, Root::new(fd, own))
    }

    #[test]
    fn named_and_unnamed_files_behave_alike() {
        for make in [Temp::new as fn(&Root) -> Result<Temp, FileError>, Temp::with_name] {
            let (dir, root) = root();
            drop(make(&root).unwrap());
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "a dropped file left something");
            for (replace, text) in [(false, "one"), (true, "two")] {
                let temp = make(&root).unwrap();
                temp.file().write_all(text.as_bytes()).unwrap();
                let place = root.place(b"f", Last::Follow).unwrap();
                temp.publish(&root, &place, place.mode(), replace).unwrap();
                assert_eq!(std::fs::read_to_string(dir.path().join("f")).unwrap(), text);
            }
            let place = root.place(b"f", Last::Follow).unwrap();
            let refused = make(&root).unwrap().publish(&root, &place, place.mode(), false);
            assert!(matches!(refused, Err(FileError::Exists)));
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }
}
