//! The spool: segments of lines, appended to before and after each lease and call.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_usage::{Outcome, Record};
use rustix::fs::{FlockOperation, flock};
use thiserror::Error;
use tokio::sync::Notify;

use super::line::{self, Mark};
use super::position::{Place, Position};
use super::recover::{self, segment_path};
use crate::error::GateError;
use crate::limits::{RECORD_BYTES_MAX, SEGMENT_BYTES_MAX, SYNC_PAUSE};

/// Why a lease or a call is not begun.
#[derive(Debug, Error)]
pub(crate) enum SpoolError {
    /// As much is waiting for the control plane as may.
    #[error("the spool is full")]
    Full,
    /// The disk does not take it.
    #[error("the spool cannot be written")]
    Write(#[source] io::Error),
    /// The gate ends.
    #[error("the spool is closed")]
    Closed,
    /// A part of the record is longer than it can be.
    #[error("the record is too long")]
    TooLong,
}

/// What began; to be ended once.
#[derive(Debug)]
#[must_use]
pub(crate) struct Ticket(());

/// The spool of one gate.
pub(crate) struct Spool {
    folder: PathBuf,
    bytes_max: u64,
    inner: Mutex<Inner>,
    /// Told when more of the spool is on the disk.
    pub(super) synced: Notify,
    /// Held while the position is written; true once nothing may be written any more.
    closed: Mutex<bool>,
    lock: File,
}

struct Inner {
    writer: Option<Arc<File>>,
    number: u64,
    offset: u64,
    /// Bytes of each segment that is there.
    sizes: BTreeMap<u64, u64>,
    /// The segment in which each open one began.
    open: HashMap<String, u64>,
    /// Ends that the disk did not take yet; as many as are open at most.
    backlog: VecDeque<(String, Vec<u8>)>,
    /// Files with bytes that are not synced yet.
    unsynced: Vec<Arc<File>>,
    /// What is on the disk for certain.
    synced: Place,
    /// Nothing is appended any more: another process may have the spool.
    closed: bool,
}

impl Spool {
    /// Opens a folder, makes it where it is not there, and ends what a killed process left open.
    pub(crate) fn open(folder: &Path, bytes_max: u64) -> Result<Arc<Self>, GateError> {
        let failed = |source| GateError::File { path: folder.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let lock_path = folder.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock_path);
        let lock = lock.map_err(|source| GateError::File { path: lock_path, source })?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| GateError::SpoolInUse { path: folder.to_owned() })?;
        let found = recover::read(folder)?;
        let last = found.segments.last().map_or(0, |(number, _)| *number);
        let inner = Inner {
            writer: None,
            number: last,
            offset: 0,
            sizes: found.segments.into_iter().collect(),
            open: HashMap::new(),
            backlog: VecDeque::new(),
            unsynced: Vec::new(),
            // Whatever was found is on the disk, or lost already.
            synced: Place { segment: last + 1, offset: 0 },
            closed: false,
        };
        let (folder, inner) = (folder.to_owned(), Mutex::new(inner));
        let spool =
            Arc::new(Spool { folder, bytes_max, inner, synced: Notify::new(), closed: Mutex::new(false), lock });
        if found.damaged > 0 || !found.open.is_empty() {
            let (torn, unfinished) = (found.damaged, found.open.len());
            tracing::warn!(torn, unfinished, "the usage spool was left by a process that was killed");
        }
        for record in found.open {
            let ended = Record { outcome: Outcome::Unknown, wall_ms: None, status: None, ..record };
            let text = line::write(Mark::End, &ended);
            let text = text.ok_or_else(|| failed(io::Error::from(io::ErrorKind::InvalidData)))?;
            spool.append(&mut spool.inner(), &text).map_err(failed)?;
        }
        Ok(spool)
    }

    /// Records that something begins. Nothing is to be done before this succeeded.
    pub(crate) fn begin(&self, record: &Record) -> Result<Ticket, SpoolError> {
        let text = line::write(Mark::Begin, record).ok_or(SpoolError::TooLong)?;
        let mut inner = self.inner();
        if inner.closed {
            return Err(SpoolError::Closed);
        }
        self.write_backlog(&mut inner).map_err(SpoolError::Write)?;
        // Room for the end of everything that began is kept free.
        let ends = (inner.open.len() as u64 + 1) * RECORD_BYTES_MAX as u64;
        if inner.sizes.values().sum::<u64>() + text.len() as u64 + ends > self.bytes_max {
            return Err(SpoolError::Full);
        }
        let number = self.append(&mut inner, &text).map_err(SpoolError::Write)?;
        inner.open.insert(record.id.clone(), number);
        Ok(Ticket(()))
    }

    /// Records how it ended. What the disk does not take now is kept, and nothing new is begun until it is written.
    pub(crate) fn end(&self, _ticket: Ticket, record: &Record) {
        let mut inner = self.inner();
        if inner.closed {
            // It was cut off at the end of the gate: at the next start it is ended as `unknown`.
            return;
        }
        let Some(text) = line::write(Mark::End, record) else {
            // Only texts that the gate bounds itself are in a record: at the next start it is ended as `unknown`.
            tracing::error!(record = record.id, "a usage record is too long to be written");
            return;
        };
        inner.backlog.push_back((record.id.clone(), text));
        if let Err(error) = self.write_backlog(&mut inner) {
            tracing::error!(%error, "the usage spool cannot be written: nothing new is begun");
        }
    }

    fn write_backlog(&self, inner: &mut Inner) -> io::Result<()> {
        while let Some((id, text)) = inner.backlog.pop_front() {
            if let Err(error) = self.append(inner, &text) {
                inner.backlog.push_front((id, text));
                return Err(error);
            }
            inner.open.remove(&id);
        }
        Ok(())
    }

    /// Appends a line; returns the number of the segment that it is in.
    fn append(&self, inner: &mut Inner, text: &[u8]) -> io::Result<u64> {
        if inner.offset + text.len() as u64 > SEGMENT_BYTES_MAX {
            inner.writer = None;
        }
        let file = match &inner.writer {
            Some(file) => Arc::clone(file),
            None => self.next_segment(inner)?,
        };
        if let Err(error) = (&*file).write_all(text) {
            // Half a line may be there: readers step over it, but what follows must not be glued to it.
            inner.writer = None;
            return Err(error);
        }
        inner.offset += text.len() as u64;
        let (number, offset) = (inner.number, inner.offset);
        inner.sizes.insert(number, offset);
        if !inner.unsynced.iter().any(|other| Arc::ptr_eq(other, &file)) {
            inner.unsynced.push(file);
        }
        Ok(number)
    }

    fn next_segment(&self, inner: &mut Inner) -> io::Result<Arc<File>> {
        let number = inner.number + 1;
        let path = segment_path(&self.folder, number);
        let file = OpenOptions::new().create_new(true).append(true).mode(0o600).open(path);
        // The number is taken even where the file could not be made: it may have been.
        inner.number = number;
        inner.offset = 0;
        let file = Arc::new(file?);
        inner.sizes.insert(number, 0);
        inner.writer = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Syncs what was appended since the last time; returns whether there was anything.
    fn sync(&self) -> io::Result<bool> {
        let (files, place) = {
            let mut inner = self.inner();
            let place = Place { segment: inner.number, offset: inner.offset };
            (std::mem::take(&mut inner.unsynced), place)
        };
        if files.is_empty() {
            return Ok(false);
        }
        for file in &files {
            if let Err(error) = file.sync_data() {
                self.inner().unsynced.extend(files.iter().cloned());
                return Err(error);
            }
        }
        // The names of new segments as well.
        File::open(&self.folder)?.sync_all()?;
        self.inner().synced = place;
        self.synced.notify_one();
        Ok(true)
    }

    /// Syncs for as long as the spool lives. Where the disk does not, nothing more is shipped, and it is tried again.
    pub(crate) fn keep_synced(self: &Arc<Self>) -> Result<(), GateError> {
        let weak = Arc::downgrade(self);
        let run = move || {
            while let Some(spool) = weak.upgrade() {
                if let Err(error) = spool.sync() {
                    tracing::error!(%error, "the usage spool cannot be synced");
                }
                drop(spool);
                std::thread::sleep(SYNC_PAUSE);
            }
        };
        std::thread::Builder::new().name("usage-sync".to_owned()).spawn(run).map(drop).map_err(GateError::Thread)
    }

    /// Syncs, and lets go of the folder: from here on nothing is written to it.
    pub(crate) fn close(&self) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        *closed = true;
        self.inner().closed = true;
        if let Err(error) = self.sync() {
            tracing::error!(%error, "the usage spool cannot be synced");
        }
        // Whoever opens it next finds the lock free, although tasks that end may still hold this.
        let _unlocked = flock(&self.lock, FlockOperation::Unlock);
    }

    /// Writes down how far it is shipped, unless it is closed.
    pub(super) fn write_position(&self, position: &Position) -> io::Result<()> {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if *closed {
            return Err(io::Error::other("the spool is closed"));
        }
        position.write(&self.folder)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// How far may be shipped, and the segments that are there up to it.
    pub(super) fn readable(&self) -> (Place, Vec<(u64, u64)>) {
        let inner = self.inner();
        let upto = inner.synced;
        let sizes = inner.sizes.iter().filter(|(number, _)| **number <= upto.segment);
        (upto, sizes.map(|(number, bytes)| (*number, *bytes)).collect())
    }

    /// What it holds, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.inner().sizes.values().sum()
    }

    /// Removes the segments before this place, oldest first, up to the first in which something open began.
    pub(super) fn forget(&self, shipped: Place) {
        let mut inner = self.inner();
        if inner.closed {
            return;
        }
        let keep_from = inner.open.values().copied().min().unwrap_or(u64::MAX).min(shipped.segment);
        let gone: Vec<u64> = inner.sizes.range(..keep_from).map(|(number, _)| *number).collect();
        for number in gone {
            if let Err(error) = fs::remove_file(segment_path(&self.folder, number)) {
                tracing::warn!(%error, segment = number, "a shipped segment cannot be removed");
                // Newer ones stay too: an end must not go before its begin.
                return;
            }
            inner.sizes.remove(&number);
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
