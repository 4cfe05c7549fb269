//! The held root of a workspace, and how a path is opened beneath it.
//!
//! Every name is resolved by `openat2(2)` below a held descriptor, with `RESOLVE_BENEATH`, `RESOLVE_NO_MAGICLINKS`
//! and `RESOLVE_NO_XDEV`. Reading lets the kernel walk the whole path. Writing walks it here, one component at a
//! time and never through a link, since the folder and the name that are written must be known. The walk also
//! resolves links that name the root as programs in the cell do (`/workspace/...`), which the kernel refuses.
//!
//! A program may change any name between two steps. What it can reach by that is another file of its own workspace:
//! each step starts at a descriptor inside, names one component, and follows nothing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfence_op::WorkspacePath;
use ringfence_weaken::{Mitigation, holds};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use crate::error::FileError;
use crate::limits::{FOLDER_DEPTH_MAX, LINKS_FOLLOWED_MAX, OPEN_TRIES_MAX, WALK_STEPS_MAX};

const CONFINED: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_XDEV);

/// How a regular file is opened for reading: never waiting for a FIFO's other end, never taking a terminal.
pub(crate) const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// The held root and whose files are in it.
#[derive(Debug)]
pub(crate) struct Root {
    fd: OwnedFd,
    /// `None` where what we make belongs to the owner already.
    give_to: Option<(Uid, Gid)>,
}

/// Whether a link in the last place is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    Follow,
    Keep,
}

/// A walked path: the folder, held, and the name in it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) dir: OwnedFd,
    /// One component; `.` where the path ended in a folder that has no name of its own here (the root).
    pub(crate) name: Vec<u8>,
    /// The path from the root without links.
    pub(crate) plain: Vec<u8>,
    /// What is there now, links not followed; `None` where there is nothing.
    pub(crate) found: Option<Stat>,
    /// Folders that were made on the way, outermost first.
    pub(crate) made: Vec<Vec<u8>>,
}

impl Place {
    /// The mode bits that a file written here gets: those of the file that it replaces, else 0644.
    pub(crate) fn mode(&self) -> Mode {
        Mode::from_raw_mode(self.found.as_ref().map_or(0o644, |stat| stat.st_mode & 0o777))
    }

    /// Refuses a place where something other than a regular file is.
    pub(crate) fn file_or_nothing(&self) -> Result<(), FileError> {
        self.found.as_ref().map_or(Ok(()), regular)
    }
}

impl Root {
    pub(crate) fn new(fd: OwnedFd, owner_id: u32) -> Self {
        let own = rustix::process::geteuid().as_raw() == owner_id;
        Root { fd, give_to: (!own).then(|| (Uid::from_raw(owner_id), Gid::from_raw(owner_id))) }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Opens what `path` names, links followed as far as they stay inside.
    pub(crate) fn open(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, FileError> {
        match open_at(self.fd(), path, flags, Mode::empty(), ResolveFlags::empty()) {
            Err(Errno::XDEV) => {
                let place = self.place(path, Last::Follow)?;
                open_at(place.dir.as_fd(), &place.name, flags | OFlags::NOFOLLOW, Mode::empty(), ResolveFlags::empty())
            }
            other => other,
        }
        .map_err(|errno| FileError::from_errno(errno, "opening a file of a workspace"))
    }

    /// Opens a regular file for reading and says what it is; whatever else is there is refused.
    pub(crate) fn open_file(&self, path: &[u8]) -> Result<(OwnedFd, Stat), FileError> {
        let fd = self.open(path, READ)?;
        let stat = stat_of(fd.as_fd())?;
        regular(&stat)?;
        Ok((fd, stat))
    }

    /// Opens a directory for listing.
    pub(crate) fn open_dir(&self, path: &[u8]) -> Result<OwnedFd, FileError> {
        let held = self.open(path, OFlags::PATH)?;
        if !is_dir(&stat_of(held.as_fd())?) {
            return Err(FileError::NotAFile(crate::error::NOT_DIRECTORY));
        }
        open_at(held.as_fd(), b".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty(), ResolveFlags::empty())
            .map_err(|errno| FileError::from_errno(errno, "opening a folder of a workspace"))
    }

    /// Walks to the folder that holds what `path` names; every folder on the way must exist.
    pub(crate) fn place(&self, path: &[u8], last: Last) -> Result<Place, FileError> {
        let mut made = Vec::new();
        self.walk(path, last, None, &mut made)
    }

    /// The same, and makes missing folders (mode 0755, the session's own). On an error those are gone again.
    pub(crate) fn place_making_folders(&self, path: &[u8], last: Last) -> Result<Place, FileError> {
        let mut made = Vec::new();
        match self.walk(path, last, Some(FOLDER_DEPTH_MAX), &mut made) {
            Ok(place) => Ok(Place { made, ..place }),
            Err(error) => {
                self.unmake(&made);
                Err(error)
            }
        }
    }

    /// Removes folders that were made on the way, those that are still empty.
    pub(crate) fn unmake(&self, made: &[Vec<u8>]) {
        for path in made.iter().rev() {
            if let Ok(place) = self.place(path, Last::Keep) {
                // Not empty, or gone: then it is the session's own business by now.
                let _ = fs::unlinkat(&place.dir, place.name.as_slice(), AtFlags::REMOVEDIR);
            }
        }
    }

    /// Gives a file that we made its mode and its owner. The mode first: after that it may be somebody else's.
    pub(crate) fn hand_over(&self, fd: BorrowedFd<'_>, mode: Mode) -> Result<(), FileError> {
        let done = fs::fchmod(fd, mode).and_then(|()| match self.give_to {
            Some((uid, gid)) => fs::fchown(fd, Some(uid), Some(gid)),
            None => Ok(()),
        });
        done.map_err(|errno| FileError::House { doing: "handing a file to the session's user", source: errno.into() })
    }

    /// Gives a name that we made (a link) its owner, without following it.
    pub(crate) fn hand_over_link(&self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<(), FileError> {
        match self.give_to {
            Some((uid, gid)) => fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|errno| FileError::from_errno(errno, "handing a link to the session's user")),
            None => Ok(()),
        }
    }

    fn walk(
        &self,
        path: &[u8],
        last: Last,
        make_depth_max: Option<usize>,
        made: &mut Vec<Vec<u8>>,
    ) -> Result<Place, FileError> {
        let mut todo = components(path);
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut dir = self.folder(&names)?;
        let mut links = 0;
        let mut steps = 0;
        while let Some(part) = todo.pop() {
            steps += 1;
            if steps > WALK_STEPS_MAX {
                return Err(FileError::Malformed("the path, with the links on it, is too long".to_owned()));
            }
            if part == b".." {
                names.pop().ok_or(FileError::Escapes)?;
                dir = self.folder(&names)?;
                continue;
            }
            let at_end = todo.is_empty();
            match open_at(dir.as_fd(), &part, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty(), ResolveFlags::empty()) {
                Ok(fd) => {
                    let stat = stat_of(fd.as_fd())?;
                    if is_link(&stat) && (!at_end || last == Last::Follow) {
                        links += 1;
                        if links > LINKS_FOLLOWED_MAX {
                            return Err(FileError::from_errno(Errno::LOOP, "following links"));
                        }
                        if follow(fd.as_fd(), &mut todo)? {
                            names.clear();
                            dir = self.folder(&names)?;
                        }
                    } else if at_end {
                        return Ok(found(dir, names, part, Some(stat)));
                    } else if is_dir(&stat) {
                        names.push(part);
                        dir = fd;
                    } else {
                        return Err(FileError::Unknown);
                    }
                }
                Err(Errno::NOENT) if at_end => return Ok(found(dir, names, part, None)),
                Err(Errno::NOENT) if make_depth_max.is_some() => {
                    if make_depth_max.is_some_and(|max| names.len() >= max) {
                        return Err(FileError::Malformed(format!("folders are made {FOLDER_DEPTH_MAX} deep at most")));
                    }
                    if self.make_folder(dir.as_fd(), &part)? {
                        made.push(joined(&names, &part));
                    }
                    // Looked at again, as whatever is there now: the name is not ours alone.
                    todo.push(part);
                }
                Err(errno) => return Err(FileError::from_errno(errno, "walking a path of a workspace")),
            }
        }
        let stat = stat_of(dir.as_fd())?;
        Ok(Place { dir, name: b".".to_vec(), plain: names.join(&b'/'), found: Some(stat), made: Vec::new() })
    }

    /// A folder by its plain path.
    fn folder(&self, names: &[Vec<u8>]) -> Result<OwnedFd, FileError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        open_at(self.fd(), &names.join(&b'/'), flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
            .map_err(|errno| FileError::from_errno(errno, "opening a folder of a workspace"))
    }

    /// Makes one folder; false where something of that name came up meanwhile.
    pub(crate) fn make_folder(&self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<bool, FileError> {
        match fs::mkdirat(dir, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(false),
            Err(errno) => return Err(FileError::from_errno(errno, "making a folder")),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let handed = open_at(dir, name, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
            .map_err(|errno| FileError::from_errno(errno, "opening a folder just made"))
            .and_then(|fd| self.hand_over(fd.as_fd(), Mode::from_raw_mode(0o755)));
        if let Err(error) = handed {
            let _ = fs::unlinkat(dir, name, AtFlags::REMOVEDIR);
            return Err(error);
        }
        Ok(true)
    }
}

/// `openat2(2)`, confined below `dir`, close-on-exec, tried again a bounded number of times.
pub(crate) fn open_at(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
    more: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let path: &[u8] = if path.is_empty() { b"." } else { path };
    let confined = if holds(Mitigation::PathsBeneathTheRoot) { CONFINED } else { ResolveFlags::empty() };
    let mut tries = 0;
    loop {
        tries += 1;
        match fs::openat2(dir, path, flags | OFlags::CLOEXEC, mode, confined | more) {
            Err(Errno::AGAIN | Errno::INTR) if tries < OPEN_TRIES_MAX => {}
            other => return other,
        }
    }
}

pub(crate) fn stat_of(fd: BorrowedFd<'_>) -> Result<Stat, FileError> {
    fs::fstat(fd).map_err(|errno| FileError::from_errno(errno, "asking what a file is"))
}

/// Refuses what is no regular file, in words.
pub(crate) fn regular(stat: &Stat) -> Result<(), FileError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        _ if !holds(Mitigation::RegularFilesOnly) => Ok(()),
        FileType::Directory => Err(FileError::NotAFile(crate::error::IS_DIRECTORY)),
        FileType::Fifo => Err(FileError::NotAFile("it is a FIFO, not a file")),
        FileType::Socket => Err(FileError::NotAFile("it is a socket, not a file")),
        FileType::Symlink => Err(FileError::NotAFile("it is a symbolic link, not a file")),
        _ => Err(FileError::NotAFile("it is a device, not a file")),
    }
}

pub(crate) fn is_dir(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

pub(crate) fn is_link(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

/// `folder/name`, or `name` at the root.
pub(crate) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(folder.len() + 1 + name.len());
    path.extend_from_slice(folder);
    if !folder.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

fn joined(names: &[Vec<u8>], name: &[u8]) -> Vec<u8> {
    join(&names.join(&b'/'), name)
}

fn found(dir: OwnedFd, names: Vec<Vec<u8>>, name: Vec<u8>, stat: Option<Stat>) -> Place {
    let plain = joined(&names, &name);
    Place { dir, name, plain, found: stat, made: Vec::new() }
}

/// The components of a path, last one first.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/').rev().filter(|part| !matches!(*part, b"" | b".")).map(<[u8]>::to_vec).collect()
}

/// Puts a link's target before what is still to be walked. True where it starts at the root again.
fn follow(link: BorrowedFd<'_>, todo: &mut Vec<Vec<u8>>) -> Result<bool, FileError> {
    let target = fs::readlinkat(link, "", Vec::new())
        .map_err(|errno| FileError::from_errno(errno, "reading a link"))?
        .into_bytes();
    let rooted = target.first() == Some(&b'/');
    let relative = if rooted {
        target
            .strip_prefix(WorkspacePath::ROOT_IN_CELL.as_bytes())
            .filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
            .ok_or(FileError::Escapes)?
    } else {
        &target
    };
    todo.extend(components(relative));
    Ok(rooted)
}
