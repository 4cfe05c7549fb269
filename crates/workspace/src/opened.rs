//! A file that is being read.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;

/// The last second of the year 9999, the latest that an HTTP date can say.
const LATEST_SECONDS: i64 = 253_402_300_799;

/// A regular file of a workspace, open for reading, as it was when it was opened.
///
/// It is read in pieces with [`read_at`](Self::read_at), never past the announced size: a file that grows meanwhile
/// is sent up to that size, and one that shrinks ends early, so that the reader must cut its answer off.
#[derive(Debug)]
pub struct OpenedFile {
    file: File,
    size: u64,
    modified: SystemTime,
    etag: String,
}

impl OpenedFile {
    pub(crate) fn new(fd: OwnedFd, stat: &Stat) -> Self {
        let etag = format!(
            "\"{:x}-{:x}-{:x}.{:x}-{:x}.{:x}\"",
            stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec
        );
        let modified = modified_time(stat.st_mtime, stat.st_mtime_nsec as u32);
        OpenedFile { file: fd.into(), size: size_of(stat), modified, etag }
    }

    /// Its size in bytes when it was opened: the `Content-Length`.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// When it was last written; never before 1970 nor after the year 9999, whatever the program set.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        self.modified
    }

    /// A strong entity tag with its quotes, of inode, size, modification and change time.
    #[must_use]
    pub fn etag(&self) -> &str {
        &self.etag
    }

    /// Reads up to `buffer.len()` bytes at `offset`. 0 is the end: of the announced size, or, before that, of a file
    /// that has shrunk.
    ///
    /// # Errors
    /// When the kernel cannot read it.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = left.min(buffer.len());
        if wanted == 0 {
            return Ok(0);
        }
        let (piece, _) = buffer.split_at_mut(wanted);
        loop {
            match self.file.read_at(piece, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

/// The size of a file; a negative one, which the kernel never says, is 0.
pub(crate) fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Modification time as POSIX seconds with their fraction.
pub(crate) fn modified_seconds(stat: &Stat) -> f64 {
    stat.st_mtime as f64 + f64::from(stat.st_mtime_nsec as u32) / 1e9
}

fn modified_time(seconds: i64, nanoseconds: u32) -> SystemTime {
    let seconds = u64::try_from(seconds.min(LATEST_SECONDS)).unwrap_or(0);
    UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds.min(999_999_999))).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_no_http_date_can_say_are_clamped() {
        assert_eq!(modified_time(i64::MIN, 5), UNIX_EPOCH + Duration::from_nanos(5));
        assert_eq!(modified_time(i64::MAX, 0), UNIX_EPOCH + Duration::from_secs(253_402_300_799));
        assert_eq!(modified_time(7, u32::MAX), UNIX_EPOCH + Duration::new(7, 999_999_999));
    }
}
