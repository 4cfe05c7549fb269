//! The blobs of an import on their way: new ones apart, those that are there already, those of a layout's folder.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use crate::document::Descriptor;
use crate::limits::DOCUMENT_BYTES_MAX;
use crate::resolve::Source;
use crate::{Blobs, Digest, OciError, Progress};

/// Blobs that an image is put together from.
pub(super) struct Kept<'a> {
    pub(super) new: &'a Blobs,
    pub(super) old: &'a Blobs,
    /// Where more of them are: `blobs/sha256/<hex>` in there.
    pub(super) layout: Option<&'a Path>,
}

impl Kept<'_> {
    /// The size of a blob that is here, bytes.
    pub(super) fn size(&self, digest: &Digest) -> Result<Option<u64>, OciError> {
        for blobs in [self.new, self.old] {
            match blobs.size(digest) {
                Err(OciError::MissingBlob { .. }) => {}
                found => return found.map(Some),
            }
        }
        Ok(None)
    }

    fn copy(&self, descriptor: &Descriptor, what: &'static str, progress: &mut dyn Progress) -> Result<u64, OciError> {
        let missing = OciError::MissingBlob { what, digest: descriptor.digest };
        let Some(layout) = self.layout else { return Err(missing) };
        let path = layout.join("blobs/sha256").join(descriptor.digest.hex());
        let mut file = match open(&path) {
            Err(OciError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Err(missing),
            other => other?,
        };
        let name = format!("{what} {}", descriptor.digest);
        progress.step(&name, Some(descriptor.size));
        Ok(self.new.put(&mut file, &name, Some(&descriptor.digest), descriptor.size, progress)?.bytes)
    }
}

impl Source for Kept<'_> {
    fn manifest(&mut self, descriptor: &Descriptor) -> Result<Vec<u8>, OciError> {
        if descriptor.size > DOCUMENT_BYTES_MAX {
            let max = format!("{DOCUMENT_BYTES_MAX} bytes");
            return Err(OciError::TooLarge { what: format!("the manifest {}", descriptor.digest), max });
        }
        self.blob(descriptor, "the manifest", &mut ())?;
        self.content(&descriptor.digest)
    }

    fn blob(
        &mut self,
        descriptor: &Descriptor,
        what: &'static str,
        progress: &mut dyn Progress,
    ) -> Result<(), OciError> {
        let found = match self.size(&descriptor.digest)? {
            Some(bytes) => bytes,
            None => self.copy(descriptor, what, progress)?,
        };
        if found != descriptor.size {
            let what = format!("{what} {}", descriptor.digest);
            return Err(OciError::WrongSize { what, expected: descriptor.size, found });
        }
        Ok(())
    }

    fn content(&self, digest: &Digest) -> Result<Vec<u8>, OciError> {
        match self.new.read(digest, DOCUMENT_BYTES_MAX) {
            Err(OciError::MissingBlob { .. }) => self.old.read(digest, DOCUMENT_BYTES_MAX),
            other => other,
        }
    }

    fn keep(&mut self, mut content: &[u8]) -> Result<Digest, OciError> {
        Ok(self.new.put(&mut content, "a manifest", None, DOCUMENT_BYTES_MAX, &mut ())?.digest)
    }
}

/// Opens a regular file of a folder that strangers may have filled; never waits.
pub(super) fn open(path: &Path) -> Result<File, OciError> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(OciError::file("open", path))?;
    if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Ok(file);
    }
    Err(OciError::File { what: "use", path: path.to_owned(), source: io::Error::other("it is no regular file") })
}
