//! Reading an archive of images once, from its beginning to its end.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::ImportOptions;
use crate::error::shown;
use crate::limits::{ARCHIVE_FILES_MAX, LINKS_FOLLOWED_MAX, RATIO_FREE_BYTES};
use crate::stream::{Bounds, Compression, Counted};
use crate::tape::{Entry, Kind, Tape};
use crate::{Blobs, Digest, OciError, Progress};

/// What the names in an archive stand for.
#[derive(Default)]
pub(super) struct Files {
    by_name: HashMap<Vec<u8>, Named>,
}

enum Named {
    Blob(Digest),
    /// The same as another name: older `docker save` writes shared layers once.
    Link(Vec<u8>),
}

impl Files {
    /// The blob of that name, links followed.
    pub(super) fn find(&self, name: &[u8]) -> Option<Digest> {
        let mut name = name;
        for _ in 0..LINKS_FOLLOWED_MAX {
            match self.by_name.get(name)? {
                Named::Blob(digest) => return Some(*digest),
                Named::Link(target) => name = target,
            }
        }
        None
    }
}

/// Keeps every file that may be a blob or a document, by its digest.
pub(super) fn stage(
    file: File,
    packed: u64,
    path: &Path,
    blobs: &Blobs,
    options: &ImportOptions,
    progress: &mut dyn Progress,
) -> Result<Files, OciError> {
    let what = format!("the archive {}", path.display());
    // A pipe does not know its length, and its ratio is not looked at.
    let packed = if packed == 0 { u64::MAX } else { packed };
    let bounds =
        Bounds { bytes_max: options.bytes_max, packed, ratio_max: options.ratio_max, ratio_free: RATIO_FREE_BYTES };
    progress.step(&what, None);
    let (_, counted) = Counted::new(file, what.as_str(), bounds, progress)?;
    let mut tape = Tape::new(counted, what);
    let mut files = Files::default();
    match read(&mut tape, blobs, options, &mut files) {
        Ok(()) => Ok(files),
        // The bound's own words, where a bound ended it.
        Err(error) => Err(tape.into_inner().refusal().unwrap_or(error)),
    }
}

fn read(
    tape: &mut Tape<Counted<'_>>,
    blobs: &Blobs,
    options: &ImportOptions,
    files: &mut Files,
) -> Result<(), OciError> {
    let mut count = 0;
    while let Some(entry) = tape.next()? {
        let name = plain_name(&entry.name)?;
        if entry.kind == Kind::Directory || !may_matter(&name) {
            continue;
        }
        count += 1;
        if count > ARCHIVE_FILES_MAX {
            let what = "the number of files in the archive".to_owned();
            return Err(OciError::TooLarge { what, max: ARCHIVE_FILES_MAX.to_string() });
        }
        let named = match entry.kind {
            Kind::File if entry.sparse.is_some() => return Err(OciError::entry(&entry.name, "it is sparse")),
            Kind::File => Named::Blob(keep(tape, &entry, &name, blobs, options)?),
            Kind::Symlink => Named::Link(target_name(&name, &entry)?),
            Kind::HardLink => Named::Link(plain_name(&entry.link)?),
            _ => return Err(OciError::entry(&entry.name, "it is no file, folder or link")),
        };
        if files.by_name.insert(name, named).is_some() {
            return Err(OciError::entry(&entry.name, "it is there twice"));
        }
    }
    Ok(())
}

fn keep(
    tape: &mut Tape<Counted<'_>>,
    entry: &Entry,
    name: &[u8],
    blobs: &Blobs,
    options: &ImportOptions,
) -> Result<Digest, OciError> {
    let expected = match name.strip_prefix(b"blobs/sha256/") {
        Some(hex) => {
            let digest = std::str::from_utf8(hex).ok().and_then(Digest::from_hex);
            Some(digest.ok_or_else(|| OciError::entry(&entry.name, "its name is no digest"))?)
        }
        None => None,
    };
    let what = shown(&entry.name);
    Ok(blobs.put(&mut Content(tape), &what, expected.as_ref(), options.bytes_max, &mut ())?.digest)
}

/// The content of the current entry, as a stream.
struct Content<'a, 'b>(&'a mut Tape<Counted<'b>>);

impl Read for Content<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(io::Error::other)
    }
}

/// Blobs of a layout, and what the writers of Docker's archives name: everything at the top, and `<id>/layer.tar`.
fn may_matter(name: &[u8]) -> bool {
    let slashes = name.iter().filter(|byte| **byte == b'/').count();
    match slashes {
        0 => !name.is_empty(),
        1 => name.ends_with(b"/layer.tar"),
        _ => name.starts_with(b"blobs/sha256/"),
    }
}

/// A name without `.` and doubled slashes; one that leads elsewhere is refused.
fn plain_name(name: &[u8]) -> Result<Vec<u8>, OciError> {
    if name.starts_with(b"/") {
        return Err(OciError::entry(name, "its name is absolute"));
    }
    let parts: Vec<&[u8]> = name.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
    if parts.contains(&b"..".as_slice()) {
        return Err(OciError::entry(name, "its name has `..` in it"));
    }
    Ok(parts.join(&b'/'))
}

/// What a symbolic link in an archive means, by its text.
fn target_name(name: &[u8], entry: &Entry) -> Result<Vec<u8>, OciError> {
    let outside = || OciError::entry(&entry.name, "it links to outside of the archive");
    let mut parts: Vec<&[u8]> = name.split(|byte| *byte == b'/').collect();
    parts.pop();
    if entry.link.starts_with(b"/") {
        return Err(outside());
    }
    for part in entry.link.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop().ok_or_else(outside)?),
            part => parts.push(part),
        }
    }
    Ok(parts.join(&b'/'))
}

/// How a kept blob is compressed, by its first bytes.
pub(super) fn compression(blobs: &Blobs, digest: &Digest) -> Result<Compression, OciError> {
    let read = |source| OciError::Read { what: format!("the blob {digest}"), source };
    crate::stream::decoded(blobs.file(digest)?).map(|(compression, _)| compression).map_err(read)
}
