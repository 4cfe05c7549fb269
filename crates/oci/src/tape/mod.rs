//! A tar archive as a stream of entries: ustar, GNU and pax, sparse files of all four kinds.
//!
//! Read here rather than by a library, since a hostile archive is refused where readers differ: a size that is
//! negative or wider than 63 bits, content after a link, a global header that renames what follows, headers without
//! a bound.

mod header;
mod sparse;

use std::io::{self, Read};

use crate::OciError;
use crate::limits::HEADER_BYTES_MAX;
use header::{BLOCK_BYTES, Header, pax_records, until_nul};
pub(crate) use sparse::Sparse;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    HardLink,
    Symlink,
    Directory,
    /// Character or block, with its numbers.
    Device {
        block: bool,
        major: u64,
        minor: u64,
    },
    Fifo,
    /// Something that no image needs, by its type byte.
    Other(u8),
}

/// One entry, with what the headers before it say of it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// As written; neither empty nor with a NUL in it.
    pub(crate) name: Vec<u8>,
    /// What a link points to.
    pub(crate) link: Vec<u8>,
    pub(crate) kind: Kind,
    /// Bytes of content as they come in the archive, without a sparse file's map.
    pub(crate) stored: u64,
    /// Where they belong, for a sparse file.
    pub(crate) sparse: Option<Sparse>,
    pub(crate) mode: u32,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    /// Seconds and nanoseconds since 1970.
    pub(crate) modified: (i64, u32),
}

impl Entry {
    /// The size of the file that it becomes.
    pub(crate) fn bytes(&self) -> u64 {
        self.sparse.as_ref().map_or(self.stored, |sparse| sparse.bytes)
    }
}

/// Reads the entries of an archive one after the other.
pub(crate) struct Tape<R> {
    from: R,
    /// What it is, for errors.
    what: String,
    /// Content of the current entry that was not read yet, and the zeros behind it.
    left: u64,
    padding: u64,
    /// Bytes of headers before the entry that is being read.
    headers: u64,
    /// The name of the last entry, for errors.
    last: Vec<u8>,
}

/// What extended headers say of the entry that follows.
#[derive(Default)]
struct Said {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    modified: Option<(i64, u32)>,
    sparse: sparse::Records,
}

impl<R: Read> Tape<R> {
    pub(crate) fn new(from: R, what: impl Into<String>) -> Self {
        Tape { from, what: what.into(), left: 0, padding: 0, headers: 0, last: Vec::new() }
    }

    /// The stream, for what follows the archive in it.
    pub(crate) fn into_inner(self) -> R {
        self.from
    }

    /// The next entry; what is left of the one before is skipped. `None` at the end of the archive.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, OciError> {
        self.skip()?;
        self.headers = 0;
        let mut said = Said::default();
        loop {
            let Some(header) = self.header()? else { return Ok(None) };
            match header.kind {
                b'x' | b'X' => {
                    let content = self.extension(header.size)?;
                    self.pax(&content, &mut said)?;
                }
                b'g' => {
                    let content = self.extension(header.size)?;
                    self.pax_global(&content)?;
                }
                b'L' => said.name = Some(until_nul(&self.extension(header.size)?).to_vec()),
                b'K' => said.link = Some(until_nul(&self.extension(header.size)?).to_vec()),
                _ => return self.entry(header, said).map(Some),
            }
        }
    }

    fn entry(&mut self, header: Header, said: Said) -> Result<Entry, OciError> {
        let name = said.sparse.name.clone().or(said.name).unwrap_or(header.name);
        self.last.clone_from(&name);
        if name.is_empty() || name.contains(&0) {
            return Err(OciError::entry(&name, "it has no name, or one with a NUL in it"));
        }
        let link = said.link.unwrap_or(header.link);
        let size = said.size.unwrap_or(header.size);
        let kind = match header.kind {
            b'0' | 0 | b'7' if name.ends_with(b"/") => Kind::Directory,
            b'0' | 0 | b'7' | b'S' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' | b'4' => Kind::Device { block: header.kind == b'4', major: header.device.0, minor: header.device.1 },
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            other => Kind::Other(other),
        };
        if kind != Kind::File && size != 0 {
            return Err(OciError::entry(&name, "it has content and is no file"));
        }
        self.left = size;
        self.padding = size.next_multiple_of(BLOCK_BYTES as u64) - size;
        let sparse = match kind {
            Kind::File => self.sparse(header.kind == b'S', &header.block, &said.sparse)?,
            _ => None,
        };
        if let Some(sparse) = &sparse {
            sparse.check(self.left).map_err(|why| OciError::entry(&self.last, why))?;
        }
        Ok(Entry {
            name,
            link,
            kind,
            stored: self.left,
            sparse,
            mode: header.mode,
            uid: said.uid.unwrap_or(header.uid),
            gid: said.gid.unwrap_or(header.gid),
            modified: said.modified.unwrap_or((header.modified, 0)),
        })
    }

    /// Reads content of the current entry; 0 at its end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, OciError> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(piece) = buffer.get_mut(..wanted).filter(|piece| !piece.is_empty()) else { return Ok(0) };
        loop {
            match self.from.read(piece) {
                Ok(0) => return Err(self.truncated()),
                Ok(count) => {
                    self.left -= count as u64;
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.unreadable(source)),
            }
        }
    }

    fn header(&mut self) -> Result<Option<Header>, OciError> {
        let mut block = [0; BLOCK_BYTES];
        self.fill(&mut block)?;
        self.count(BLOCK_BYTES as u64)?;
        Header::parse(&block).map_err(|why| match self.last.as_slice() {
            [] => OciError::malformed(&self.what, why),
            last => OciError::malformed(format!("{} after the entry `{}`", self.what, crate::error::shown(last)), why),
        })
    }

    /// The content of an extended header.
    fn extension(&mut self, size: u64) -> Result<Vec<u8>, OciError> {
        self.count(size)?;
        let mut content = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        self.fill(&mut content)?;
        let mut padding = vec![0; content.len().next_multiple_of(BLOCK_BYTES) - content.len()];
        self.fill(&mut padding)?;
        Ok(content)
    }

    fn count(&mut self, bytes: u64) -> Result<(), OciError> {
        self.headers = self.headers.saturating_add(bytes);
        if self.headers > HEADER_BYTES_MAX {
            let why = format!("the headers of the entry after it are over {HEADER_BYTES_MAX} bytes");
            return Err(OciError::entry(&self.last, why));
        }
        Ok(())
    }

    fn pax(&self, content: &[u8], said: &mut Said) -> Result<(), OciError> {
        let refused = |why: &str| OciError::entry(&self.last, format!("{why}, in an extended header after it"));
        for (key, value) in pax_records(content).ok_or_else(|| refused("a damaged record"))? {
            let number = || header::decimal(value).ok_or_else(|| refused("a number that is none"));
            match key {
                b"path" => said.name = Some(value.to_vec()),
                b"linkpath" => said.link = Some(value.to_vec()),
                b"size" => said.size = Some(number()?),
                b"uid" => said.uid = Some(number()?),
                b"gid" => said.gid = Some(number()?),
                b"mtime" => said.modified = Some(header::time(value).ok_or_else(|| refused("a time that is none"))?),
                _ => {
                    said.sparse.take(key, value).map_err(refused)?;
                }
            }
        }
        Ok(())
    }

    /// A header for all that follows: comments are, names and sizes are not to be believed.
    fn pax_global(&self, content: &[u8]) -> Result<(), OciError> {
        let records = pax_records(content);
        let harmless = |key: &[u8]| !matches!(key, b"path" | b"linkpath" | b"size") && !key.starts_with(b"GNU.sparse");
        match records {
            Some(records) if records.iter().all(|(key, _)| harmless(key)) => Ok(()),
            _ => Err(OciError::entry(&self.last, "a global header after it is damaged, or would rename what follows")),
        }
    }

    /// The map of a sparse file, read from wherever its format has it.
    fn sparse(
        &mut self,
        old: bool,
        block: &[u8; BLOCK_BYTES],
        records: &sparse::Records,
    ) -> Result<Option<Sparse>, OciError> {
        if old {
            return self.sparse_of_blocks(block).map(Some);
        }
        if records.is_one() {
            return self.sparse_of_content(records).map(Some);
        }
        records.sparse().map_err(|why| OciError::entry(&self.last, why))
    }

    /// GNU's own type `S`: runs in the header, then in blocks of their own.
    fn sparse_of_blocks(&mut self, block: &[u8; BLOCK_BYTES]) -> Result<Sparse, OciError> {
        let refused = |last: &[u8], why: &str| OciError::entry(last, why);
        let (mut sparse, mut more) = sparse::of_header(block).map_err(|why| refused(&self.last, why))?;
        while more {
            let mut block = [0; BLOCK_BYTES];
            self.fill(&mut block)?;
            self.count(BLOCK_BYTES as u64)?;
            more = sparse.extend(&block).map_err(|why| refused(&self.last, why))?;
        }
        Ok(sparse)
    }

    /// pax 1.0: the map is lines of numbers at the beginning of the content, in whole blocks.
    fn sparse_of_content(&mut self, records: &sparse::Records) -> Result<Sparse, OciError> {
        let mut map = sparse::Lines::default();
        while !map.is_whole() {
            let mut block = [0; BLOCK_BYTES];
            if self.left < BLOCK_BYTES as u64 {
                return Err(OciError::entry(&self.last, "its map of a sparse file is cut off"));
            }
            self.fill(&mut block)?;
            self.left -= BLOCK_BYTES as u64;
            self.count(BLOCK_BYTES as u64)?;
            map.take(&block).map_err(|why| OciError::entry(&self.last, why))?;
        }
        map.sparse(records).map_err(|why| OciError::entry(&self.last, why))
    }

    fn skip(&mut self) -> Result<(), OciError> {
        let left = self.left + self.padding;
        (self.left, self.padding) = (0, 0);
        let skipped = io::copy(&mut (&mut self.from).take(left), &mut io::sink());
        match skipped {
            Ok(count) if count == left => Ok(()),
            Ok(_) => Err(self.truncated()),
            Err(source) => Err(self.unreadable(source)),
        }
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), OciError> {
        self.from.read_exact(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.truncated(),
            _ => self.unreadable(error),
        })
    }

    fn truncated(&self) -> OciError {
        let what = format!("{} after the entry `{}`", self.what, crate::error::shown(&self.last));
        OciError::malformed(what, "it ends before its end")
    }

    fn unreadable(&self, source: io::Error) -> OciError {
        let what = format!("{} after the entry `{}`", self.what, crate::error::shown(&self.last));
        OciError::Read { what, source }
    }
}
