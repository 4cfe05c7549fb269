//! A tar stream into a folder.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use ringfence_op::{Fault, WorkspacePath};
use rustix::fs::{AtFlags, Mode, linkat, statat, symlinkat, unlinkat};

use super::header::{self, BLOCK_BYTES, Header, kind, pax_records, until_nul};
use super::stays_inside;
use crate::error::FileError;
use crate::limits::{ARCHIVE_CHUNK_BYTES, ARCHIVE_ENTRIES_MAX, ARCHIVE_HEADER_BYTES_MAX};
use crate::root::{Last, Place, is_dir, join, regular};
use crate::temp::Temp;
use crate::workspace::Inner;

/// What an unpacked archive held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Files and links written.
    pub files: u64,
    /// Bytes of their content.
    pub bytes: u64,
}

pub(crate) fn unpack(
    inner: &Inner,
    path: &WorkspacePath,
    from: &mut dyn Read,
    bytes_max: u64,
) -> Result<Unpacked, Fault> {
    let folder = path.as_str().as_bytes();
    make_folder(inner, folder).map_err(|error| error.fault(path.as_str()))?;
    let mut unpacker = Unpacker { inner, folder, from, bytes_max, headers: 0, done: Unpacked::default() };
    loop {
        let header = unpacker.next_header().map_err(|error| error.fault("archive"))?;
        let Some(header) = header else { return Ok(unpacker.done) };
        let name = String::from_utf8_lossy(&header.name).into_owned();
        unpacker.write(&header).map_err(|error| error.fault(&name))?;
    }
}

struct Unpacker<'a> {
    inner: &'a Inner,
    folder: &'a [u8],
    from: &'a mut dyn Read,
    bytes_max: u64,
    headers: usize,
    done: Unpacked,
}

impl Unpacker<'_> {
    /// The next entry, with what the headers before it say of it. `None` at the end of the archive.
    fn next_header(&mut self) -> Result<Option<Header>, FileError> {
        let (mut name, mut link, mut size) = (None, None, None);
        loop {
            self.headers += 1;
            if self.headers > ARCHIVE_ENTRIES_MAX {
                return Err(FileError::TooLarge(format!("it has more than {ARCHIVE_ENTRIES_MAX} entries")));
            }
            let mut block = [0; BLOCK_BYTES];
            self.fill(&mut block)?;
            let Some(mut header) = header::parse(&block).map_err(malformed)? else { return Ok(None) };
            match header.kind {
                kind::PAX => {
                    let content = self.extension(header.size)?;
                    for (key, value) in
                        pax_records(&content).ok_or_else(|| malformed("an extended header is damaged"))?
                    {
                        match key {
                            b"path" => name = Some(value.to_vec()),
                            b"linkpath" => link = Some(value.to_vec()),
                            b"size" => size = Some(decimal(value)?),
                            key if key.starts_with(b"GNU.sparse") => return Err(malformed("it holds a sparse file")),
                            _ => {}
                        }
                    }
                }
                kind::PAX_GLOBAL => drop(self.extension(header.size)?),
                kind::LONG_NAME => name = Some(until_nul(&self.extension(header.size)?).to_vec()),
                kind::LONG_LINK => link = Some(until_nul(&self.extension(header.size)?).to_vec()),
                _ => {
                    header.name = name.unwrap_or(header.name);
                    header.link = link.unwrap_or(header.link);
                    header.size = size.unwrap_or(header.size);
                    return Ok(Some(header));
                }
            }
        }
    }

    fn write(&mut self, header: &Header) -> Result<(), FileError> {
        let name = inside(&header.name)?;
        let path = join(self.folder, &name);
        match header.kind {
            kind::DIRECTORY => return make_folder(self.inner, &path),
            _ if name.is_empty() => return Err(malformed("an entry has no name")),
            kind::FILE | kind::FILE_OLD | kind::FILE_CONTIGUOUS if header.name.ends_with(b"/") => {
                // How archives older than ustar say directory.
                return make_folder(self.inner, &path);
            }
            kind::FILE | kind::FILE_OLD | kind::FILE_CONTIGUOUS => self.write_file(header, &path)?,
            kind::SYMLINK | kind::HARD_LINK if header.size != 0 => return Err(malformed("a link has content")),
            kind::SYMLINK => self.write_link(&name, &path, &header.link)?,
            kind::HARD_LINK => self.write_hard_link(&path, &inside(&header.link)?)?,
            _ => return Err(FileError::NotAFile("it is no file, folder or link; nothing else is unpacked")),
        }
        self.done.files += 1;
        Ok(())
    }

    fn write_file(&mut self, header: &Header, path: &[u8]) -> Result<(), FileError> {
        if header.size > self.bytes_max.saturating_sub(self.done.bytes) {
            return Err(FileError::TooLarge(format!("the archive's content is more than {} bytes", self.bytes_max)));
        }
        let temp = Temp::new(&self.inner.root)?;
        let mut left = header.size;
        let mut chunk = vec![0; ARCHIVE_CHUNK_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX))];
        while left > 0 {
            let wanted = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let (piece, _) = chunk.split_at_mut(wanted);
            self.fill(piece)?;
            temp.file().write_all(piece).map_err(|error| FileError::from_io(error, "unpacking a file"))?;
            left -= wanted as u64;
        }
        self.skip_padding(header.size)?;
        // What the program cannot read or write itself would be of no use to it.
        let mode = Mode::from_raw_mode((header.mode & 0o777) | 0o600);
        let place = self.inner.root.place_making_folders(path, Last::Follow)?;
        match temp.publish(&self.inner.root, &place, mode, true) {
            Ok(Some(stat)) => self.inner.changes().note(&place.plain, &stat),
            Ok(None) => {}
            Err(error) => {
                self.inner.root.unmake(&place.made);
                return Err(error);
            }
        }
        self.done.bytes += header.size;
        Ok(())
    }

    fn write_link(&mut self, name: &[u8], path: &[u8], target: &[u8]) -> Result<(), FileError> {
        if !stays_inside(name, target) {
            return Err(FileError::Escapes);
        }
        self.write_name(path, |place| {
            symlinkat(target, &place.dir, place.name.as_slice())
                .map_err(|errno| FileError::from_errno(errno, "making a link"))?;
            self.inner.root.hand_over_link(place.dir.as_fd(), &place.name)
        })
    }

    fn write_hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<(), FileError> {
        let source = self.inner.root.place(&join(self.folder, target), Last::Keep)?;
        regular(source.found.as_ref().ok_or(FileError::Unknown)?)?;
        self.write_name(path, |place| {
            // Without AT_SYMLINK_FOLLOW: what is linked is what lies there, not what it leads to.
            linkat(&source.dir, source.name.as_slice(), &place.dir, place.name.as_slice(), AtFlags::empty())
                .map_err(|errno| FileError::from_errno(errno, "making a hard link"))?;
            if let Ok(stat) = statat(&place.dir, place.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
                let mut changes = self.inner.changes();
                changes.note(&place.plain, &stat);
                changes.note(&source.plain, &stat);
            }
            Ok(())
        })
    }

    /// Makes a name with `make`, in the place of what is there unless that is a folder.
    fn write_name(&self, path: &[u8], make: impl FnOnce(&Place) -> Result<(), FileError>) -> Result<(), FileError> {
        let place = self.inner.root.place_making_folders(path, Last::Keep)?;
        let cleared = match &place.found {
            Some(stat) if is_dir(stat) => Err(FileError::NotAFile(crate::error::IS_DIRECTORY)),
            Some(_) => unlinkat(&place.dir, place.name.as_slice(), AtFlags::empty())
                .map_err(|errno| FileError::from_errno(errno, "replacing a file")),
            None => Ok(()),
        };
        let made = cleared.and_then(|()| make(&place));
        if made.is_err() {
            self.inner.root.unmake(&place.made);
        }
        made
    }

    /// The content of a header that speaks of the next entry.
    fn extension(&mut self, size: u64) -> Result<Vec<u8>, FileError> {
        let size = usize::try_from(size)
            .ok()
            .filter(|size| *size <= ARCHIVE_HEADER_BYTES_MAX)
            .ok_or_else(|| FileError::TooLarge(format!("a header of it is over {ARCHIVE_HEADER_BYTES_MAX} bytes")))?;
        let mut content = vec![0; size];
        self.fill(&mut content)?;
        self.skip_padding(size as u64)?;
        Ok(content)
    }

    fn skip_padding(&mut self, size: u64) -> Result<(), FileError> {
        let over = usize::try_from(size % BLOCK_BYTES as u64).unwrap_or(0);
        let mut padding = [0; BLOCK_BYTES];
        let (padding, _) = padding.split_at_mut(if over == 0 { 0 } else { BLOCK_BYTES - over });
        self.fill(padding)
    }

    fn fill(&mut self, piece: &mut [u8]) -> Result<(), FileError> {
        self.from.read_exact(piece).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => malformed("it ends early"),
            _ => FileError::House { doing: "reading an archive", source: error },
        })
    }
}

/// The components of an entry's name, put together; an absolute one, or one with `..`, leaves.
fn inside(name: &[u8]) -> Result<Vec<u8>, FileError> {
    if name.contains(&0) {
        return Err(malformed("a name in it holds a NUL byte"));
    }
    if name.first() == Some(&b'/') || name.split(|byte| *byte == b'/').any(|part| part == b"..") {
        return Err(FileError::Escapes);
    }
    let parts: Vec<&[u8]> = name.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
    Ok(parts.join(&b'/'))
}

fn make_folder(inner: &Inner, path: &[u8]) -> Result<(), FileError> {
    let place = inner.root.place_making_folders(path, Last::Follow)?;
    match &place.found {
        Some(stat) if is_dir(stat) => Ok(()),
        Some(_) => Err(FileError::NotAFile(crate::error::NOT_DIRECTORY)),
        None => inner.root.make_folder(place.dir.as_fd(), &place.name).map(|_| ()),
    }
}

fn decimal(text: &[u8]) -> Result<u64, FileError> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(|| malformed("a size is no number"))
}

fn malformed(why: &'static str) -> FileError {
    FileError::Malformed(why.to_owned())
}
