//! A folder of blobs, each named by its digest.
//!
//! ```text
//! <folder>/sha256/<hex>       a whole, verified blob; mode 0600
//! <folder>/partial/<hex>      the beginning of one that is being fetched; kept for the next try
//! <folder>/partial/.new-<n>   one whose digest is not known yet
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::fs::{FlockOperation, OFlags, flock};
use sha2::{Digest as _, Sha256};

use crate::limits::{COPY_BYTES, POLL};
use crate::{Digest, OciError, Progress};

/// A folder of content-addressed blobs. Several processes may use it at once.
#[derive(Debug, Clone)]
pub struct Blobs {
    whole: PathBuf,
    partial: PathBuf,
}

/// A blob that was put in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Its name.
    pub digest: Digest,
    /// Its size, bytes.
    pub bytes: u64,
    /// Whether it was not there before.
    pub new: bool,
}

impl Blobs {
    /// Opens the folder, and makes it where it is missing (mode 0700).
    ///
    /// # Errors
    /// [`OciError::File`].
    pub fn open(folder: &Path) -> Result<Self, OciError> {
        let blobs = Blobs { whole: folder.join("sha256"), partial: folder.join("partial") };
        for folder in [&blobs.whole, &blobs.partial] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .map_err(OciError::file("create the folder", folder))?;
        }
        Ok(blobs)
    }

    /// Where a blob is, or would be.
    #[must_use]
    pub fn path(&self, digest: &Digest) -> PathBuf {
        self.whole.join(digest.hex())
    }

    /// Whether it is there.
    #[must_use]
    pub fn has(&self, digest: &Digest) -> bool {
        self.path(digest).is_file()
    }

    /// Opens a blob for reading. Its content was verified when it was put here; [`Blobs::verify`] does it again.
    ///
    /// # Errors
    /// [`OciError::MissingBlob`], [`OciError::File`].
    pub fn file(&self, digest: &Digest) -> Result<File, OciError> {
        let path = self.path(digest);
        match OpenOptions::new().read(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(&path) {
            Ok(file) => Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(OciError::MissingBlob { what: "the blob", digest: *digest })
            }
            Err(error) => Err(OciError::file("open", &path)(error)),
        }
    }

    /// The size of a blob that is there, bytes.
    ///
    /// # Errors
    /// [`OciError::MissingBlob`], [`OciError::File`].
    pub fn size(&self, digest: &Digest) -> Result<u64, OciError> {
        let metadata = self.file(digest)?.metadata();
        Ok(metadata.map_err(OciError::file("look at", &self.path(digest)))?.len())
    }

    /// The content of a small blob, verified.
    ///
    /// # Errors
    /// Also [`OciError::TooLarge`] over `bytes_max`, and [`OciError::WrongDigest`] where the file was damaged.
    pub fn read(&self, digest: &Digest, bytes_max: u64) -> Result<Vec<u8>, OciError> {
        let what = || format!("the blob {digest}");
        let content = read_bounded(&mut self.file(digest)?, bytes_max, &what())?;
        match Digest::of(&content) {
            found if found == *digest => Ok(content),
            found => Err(OciError::WrongDigest { what: what(), expected: *digest, found }),
        }
    }

    /// Keeps what `from` gives. Where `expected` is said, anything else is refused.
    ///
    /// # Errors
    /// [`OciError::TooLarge`], [`OciError::WrongDigest`], [`OciError::Read`] of `from`, [`OciError::File`],
    /// [`OciError::Cancelled`]. Nothing is left then.
    pub fn put(
        &self,
        from: &mut dyn Read,
        what: &str,
        expected: Option<&Digest>,
        bytes_max: u64,
        progress: &mut dyn Progress,
    ) -> Result<Stored, OciError> {
        let mut new = NewFile::create(&self.partial)?;
        let (hasher, bytes) = copy(from, &mut new.file, &new.path, what, bytes_max, progress)?;
        let digest = Digest::from_hasher(hasher);
        if let Some(expected) = expected.filter(|expected| **expected != digest) {
            return Err(OciError::WrongDigest { what: what.to_owned(), expected: *expected, found: digest });
        }
        let stored = Stored { digest, bytes, new: !self.has(&digest) };
        if stored.new {
            new.file.sync_all().map_err(OciError::file("sync", &new.path))?;
            self.place(&new.path, &digest)?;
            new.placed = true;
        }
        Ok(stored)
    }

    /// The beginning of a blob that is being fetched, for one writer alone: where another one is at it, that is waited
    /// for until `deadline`. `None` where the blob is whole by then.
    pub(crate) fn partial(&self, digest: &Digest, deadline: Instant) -> Result<Option<Partial>, OciError> {
        let path = self.partial.join(digest.hex());
        loop {
            if self.has(digest) {
                return Ok(None);
            }
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
            let file = options.open(&path).map_err(OciError::file("open", &path))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Whoever had it before may have put it in place meanwhile: then this file has lost its name.
                Ok(()) if same_file(&file, &path) => return Ok(Some(Partial { file, path, blobs: self.clone() })),
                Ok(()) | Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(POLL),
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(OciError::Busy { digest: *digest }),
                Err(error) => return Err(OciError::file("lock", &path)(error.into())),
            }
        }
    }

    /// Removes a blob; false where there was none.
    ///
    /// # Errors
    /// [`OciError::File`].
    pub fn remove(&self, digest: &Digest) -> Result<bool, OciError> {
        let path = self.path(digest);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(OciError::file("remove", &path)(error)),
        }
    }

    /// Every whole blob with its size in bytes, in no order.
    ///
    /// # Errors
    /// [`OciError::File`].
    pub fn list(&self) -> Result<Vec<(Digest, u64)>, OciError> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.whole).map_err(OciError::file("list", &self.whole))? {
            let entry = entry.map_err(OciError::file("list", &self.whole))?;
            if let Some(digest) = entry.file_name().to_str().and_then(Digest::from_hex) {
                let path = entry.path();
                all.push((digest, entry.metadata().map_err(OciError::file("look at", &path))?.len()));
            }
        }
        Ok(all)
    }

    /// Reads a blob whole and says whether its content still has its digest.
    ///
    /// # Errors
    /// [`OciError::MissingBlob`], [`OciError::File`], [`OciError::Cancelled`].
    pub fn verify(&self, digest: &Digest, progress: &mut dyn Progress) -> Result<bool, OciError> {
        let mut file = self.file(digest)?;
        let what = format!("the blob {digest}");
        let (hasher, _) = copy(&mut file, &mut io::sink(), &self.path(digest), &what, u64::MAX, progress)?;
        Ok(Digest::from_hasher(hasher) == *digest)
    }

    /// A place apart for the blobs of one import, on the same file system. Dropped, it is gone.
    pub(crate) fn staging(&self) -> Result<Staging, OciError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let folder = self.partial.join(format!(".import-{}-{count}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other.map_err(OciError::file("create the folder", &folder))?,
            }
            let lock = File::open(&folder).map_err(OciError::file("open", &folder))?;
            flock(&lock, FlockOperation::NonBlockingLockExclusive)
                .map_err(|error| OciError::file("lock", &folder)(error.into()))?;
            return Ok(Staging { blobs: Blobs::open(&folder)?, folder, _lock: lock });
        }
    }

    fn place(&self, from: &Path, digest: &Digest) -> Result<(), OciError> {
        let path = self.path(digest);
        fs::rename(from, &path).map_err(OciError::file("put in place", &path))?;
        File::open(&self.whole).and_then(|folder| folder.sync_all()).map_err(OciError::file("sync", &self.whole))
    }
}

/// Blobs of one import, apart from the others until all of them are there.
pub(crate) struct Staging {
    pub(crate) blobs: Blobs,
    folder: PathBuf,
    _lock: File,
}

impl Staging {
    /// Moves those blobs over that are not there yet.
    pub(crate) fn commit(self, wanted: &[Digest], to: &Blobs) -> Result<(), OciError> {
        let missing = wanted.iter().filter(|digest| !to.has(digest));
        missing.into_iter().try_for_each(|digest| to.place(&self.blobs.path(digest), digest))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What cannot be removed now goes when the store is pruned.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The beginning of a blob, held by one writer. Dropped, it is kept.
#[derive(Debug)]
pub(crate) struct Partial {
    file: File,
    path: PathBuf,
    blobs: Blobs,
}

impl Partial {
    /// Hashes what is there and stands at its end. A beginning of more than `bytes_max` is thrown away.
    pub(crate) fn resume(&mut self, bytes_max: u64) -> Result<(Sha256, u64), OciError> {
        let length = self.file.metadata().map_err(OciError::file("look at", &self.path))?.len();
        if length > bytes_max {
            return Ok((self.restart()?, 0));
        }
        self.file.seek(SeekFrom::Start(0)).map_err(OciError::file("read", &self.path))?;
        let mut kept = (&self.file).take(length);
        copy(&mut kept, &mut io::sink(), &self.path, "the beginning of a blob", bytes_max, &mut ())
    }

    /// Forgets what is there.
    pub(crate) fn restart(&mut self) -> Result<Sha256, OciError> {
        self.file
            .set_len(0)
            .and_then(|()| self.file.seek(SeekFrom::Start(0)))
            .map_err(OciError::file("truncate", &self.path))?;
        Ok(Sha256::new())
    }

    pub(crate) fn append(&mut self, piece: &[u8]) -> Result<(), OciError> {
        self.file.write_all(piece).map_err(OciError::file("write", &self.path))
    }

    /// Puts it in place; its content has been found to have this digest.
    pub(crate) fn finish(self, digest: &Digest) -> Result<(), OciError> {
        self.file.sync_all().map_err(OciError::file("sync", &self.path))?;
        self.blobs.place(&self.path, digest)
    }

    /// Removes it: its content is not what was announced.
    pub(crate) fn discard(self) -> Result<(), OciError> {
        fs::remove_file(&self.path).map_err(OciError::file("remove", &self.path))
    }
}

/// A file without its name yet, removed unless it is placed.
struct NewFile {
    file: File,
    path: PathBuf,
    placed: bool,
}

impl NewFile {
    fn create(folder: &Path) -> Result<Self, OciError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!(".new-{}-{count}", std::process::id()));
            let file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other.map_err(OciError::file("create", &path))?,
            };
            flock(&file, FlockOperation::NonBlockingLockExclusive)
                .map_err(|error| OciError::file("lock", &path)(error.into()))?;
            return Ok(NewFile { file, path, placed: false });
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.placed {
            // What cannot be removed now goes when the store is pruned.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn same_file(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(held), Ok(named)) => (held.dev(), held.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

/// Copies and hashes; answers the hash so far and the bytes copied.
fn copy(
    from: &mut dyn Read,
    to: &mut dyn Write,
    path: &Path,
    what: &str,
    bytes_max: u64,
    progress: &mut dyn Progress,
) -> Result<(Sha256, u64), OciError> {
    let mut hasher = Sha256::new();
    let mut done = 0;
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok((hasher, done)),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(source) => return Err(OciError::Read { what: what.to_owned(), source }),
        };
        let piece = buffer.get(..count).unwrap_or_default();
        done += count as u64;
        if done > bytes_max {
            return Err(OciError::TooLarge { what: what.to_owned(), max: format!("{bytes_max} bytes") });
        }
        hasher.update(piece);
        to.write_all(piece).map_err(OciError::file("write", path))?;
        progress.bytes(done);
        if progress.cancelled() {
            return Err(OciError::Cancelled);
        }
    }
}

/// All of a small content.
pub(crate) fn read_bounded(from: &mut dyn Read, bytes_max: u64, what: &str) -> Result<Vec<u8>, OciError> {
    let mut content = Vec::new();
    from.take(bytes_max.saturating_add(1))
        .read_to_end(&mut content)
        .map_err(|source| OciError::Read { what: what.to_owned(), source })?;
    if content.len() as u64 > bytes_max {
        return Err(OciError::TooLarge { what: what.to_owned(), max: format!("{bytes_max} bytes") });
    }
    Ok(content)
}
