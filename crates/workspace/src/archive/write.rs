//! A folder as a tar stream that is pulled.

use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, readlinkat};

use super::header::{self, BLOCK_BYTES, Header, kind};
use super::stays_inside;
use crate::limits::{ARCHIVE_CHUNK_BYTES, ARCHIVE_ENTRIES_MAX};
use crate::opened::OpenedFile;
use crate::root::{READ, open_at, regular, stat_of};
use crate::tree::{Folder, each_entry, open_folder};

/// A folder on its way out, as a tar stream: its folders, regular files and those symbolic links that stay in it, each
/// folder's names sorted, paths from the folder. What else is in it (FIFOs, sockets, links that lead out) is left out.
///
/// It is read piece by piece and holds one file open and the names still to come. An error is final: a file that
/// shrank, or more than [`ARCHIVE_ENTRIES_MAX`] entries, so that the stream must be cut off.
#[derive(Debug)]
pub struct Archive {
    start: OwnedFd,
    /// Still to come, next one last.
    todo: Vec<(Folder, FileType)>,
    entries: usize,
    left_out: u64,
    out: Vec<u8>,
    out_at: usize,
    file: Option<(OpenedFile, u64)>,
    ended: bool,
}

impl Archive {
    pub(crate) fn new(start: OwnedFd) -> Self {
        Archive {
            start,
            todo: vec![(Folder::top(), FileType::Directory)],
            entries: 0,
            left_out: 0,
            out: Vec::new(),
            out_at: 0,
            file: None,
            ended: false,
        }
    }

    /// How many entries had no place in the archive so far.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Puts the next piece into `out`; nothing put in is the end.
    fn step(&mut self) -> io::Result<()> {
        if let Some((opened, sent)) = &mut self.file {
            if *sent < opened.size() {
                self.out.resize(ARCHIVE_CHUNK_BYTES, 0);
                let read = opened.read_at(*sent, &mut self.out)?;
                if read == 0 {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file shrank while it was archived"));
                }
                self.out.truncate(read);
                *sent += read as u64;
                if *sent == opened.size() {
                    let over = usize::try_from(*sent % BLOCK_BYTES as u64).unwrap_or(0);
                    let padding = if over == 0 { 0 } else { BLOCK_BYTES - over };
                    self.out.resize(self.out.len() + padding, 0);
                }
                return Ok(());
            }
            self.file = None;
        }
        while self.out.is_empty() && !self.ended {
            match self.todo.pop() {
                Some((entry, what)) => self.enter(&entry.path(), what)?,
                None => {
                    self.out.resize(2 * BLOCK_BYTES, 0);
                    self.ended = true;
                }
            }
        }
        Ok(())
    }

    fn enter(&mut self, path: &Arc<[u8]>, what: FileType) -> io::Result<()> {
        match what {
            FileType::Directory => self.enter_folder(path),
            FileType::RegularFile => {
                let Ok(fd) = open_at(self.start.as_fd(), path, READ, Mode::empty(), ResolveFlags::NO_SYMLINKS) else {
                    return self.leave_out();
                };
                let Some(stat) = stat_of(fd.as_fd()).ok().filter(|stat| regular(stat).is_ok()) else {
                    return self.leave_out();
                };
                let opened = OpenedFile::new(fd, &stat);
                self.announce(path.to_vec(), Vec::new(), opened.size(), &stat, kind::FILE);
                self.file = Some((opened, 0));
                Ok(())
            }
            FileType::Symlink => self.enter_link(path),
            _ => self.leave_out(),
        }
    }

    fn enter_folder(&mut self, path: &Arc<[u8]>) -> io::Result<()> {
        let Ok(dir) = open_folder(self.start.as_fd(), path) else { return self.leave_out() };
        if !path.is_empty() {
            let Ok(stat) = stat_of(dir.as_fd()) else { return self.leave_out() };
            let name = [path, &b"/"[..]].concat();
            self.announce(name, Vec::new(), 0, &stat, kind::DIRECTORY);
        }
        let mut names = Vec::new();
        let room = ARCHIVE_ENTRIES_MAX.saturating_sub(self.entries);
        let read = each_entry(&dir, |entry| {
            if names.len() >= room {
                return ControlFlow::Break(());
            }
            names.push((entry.name.to_vec(), entry.kind));
            ControlFlow::Continue(())
        });
        if !matches!(read, Ok(ControlFlow::Continue(()))) {
            return Err(io::Error::other("a folder could not be read whole, or has too many entries for one archive"));
        }
        self.entries += names.len();
        names.sort_by(|one, two| two.0.cmp(&one.0));
        self.todo.extend(names.into_iter().map(|(name, what)| (Folder::child(path, &name), what)));
        Ok(())
    }

    fn enter_link(&mut self, path: &Arc<[u8]>) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let Ok(link) = open_at(self.start.as_fd(), path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) else {
            return self.leave_out();
        };
        let (Ok(stat), Ok(target)) = (stat_of(link.as_fd()), readlinkat(&link, "", Vec::new())) else {
            return self.leave_out();
        };
        if !stays_inside(path, target.as_bytes()) {
            return self.leave_out();
        }
        self.announce(path.to_vec(), target.into_bytes(), 0, &stat, kind::SYMLINK);
        Ok(())
    }

    fn announce(&mut self, name: Vec<u8>, link: Vec<u8>, size: u64, stat: &Stat, kind: u8) {
        let modified = u64::try_from(stat.st_mtime).unwrap_or(0);
        header::write(&Header { name, link, size, mode: stat.st_mode & 0o777, modified, kind }, &mut self.out);
    }

    /// Gone meanwhile, or nothing that an archive carries.
    fn leave_out(&mut self) -> io::Result<()> {
        self.left_out += 1;
        Ok(())
    }
}

impl Read for Archive {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.out_at >= self.out.len() {
            self.out.clear();
            self.out_at = 0;
            self.step()?;
            if self.out.is_empty() && self.ended {
                return Ok(0);
            }
        }
        let ready = self.out.get(self.out_at..).unwrap_or_default();
        let count = ready.len().min(buffer.len());
        for (slot, byte) in buffer.iter_mut().zip(ready) {
            *slot = *byte;
        }
        self.out_at += count;
        Ok(count)
    }
}
