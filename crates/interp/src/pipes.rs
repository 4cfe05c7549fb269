//! The pipes that carry what programs write, and what is kept of it between calls.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::watched::{Shared, watch_shared};
use ringfence_op::BackgroundOutput;
use ringfence_weaken::{Mitigation, holds};
use rustix::pipe::PipeFlags;
use tokio::io::Interest;
use tokio::task::AbortHandle;

use crate::limits::{BACKGROUND_BYTES_MAX, DRAIN_BYTES_MAX, LEFTOVERS_MAX, READ_BYTES};
use crate::output::HeadTail;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The read end of one pipe. Nobody hears of what is written to it until it is [watched](Pair::watch): short calls
/// read it once, at their end.
#[derive(Debug)]
pub(crate) struct Pipe {
    fd: Arc<OwnedFd>,
    ended: AtomicBool,
}

impl Pipe {
    /// A pipe: our end, non-blocking, and the write end for the program, blocking as programs expect.
    pub(crate) fn new() -> io::Result<(Pipe, OwnedFd)> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&read, true)?;
        Ok((Pipe { fd: Arc::new(read), ended: AtomicBool::new(false) }, write))
    }

    /// Whether every writer is gone and everything was read.
    pub(crate) fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Takes what waits, at most about `bytes_max`, without waiting.
    fn take(&self, watch: Option<&Shared>, scratch: &mut Vec<u8>, into: &mut HeadTail, bytes_max: usize) {
        let mut taken = 0;
        while !self.ended() && taken < bytes_max {
            scratch.clear();
            match self.read(watch, scratch) {
                Ok(0) => self.ended.store(true, Ordering::Relaxed),
                Ok(length) => {
                    into.push(scratch);
                    taken += length;
                    if length < READ_BYTES {
                        return;
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => self.ended.store(true, Ordering::Relaxed),
            }
        }
    }

    /// One read. A read that does not fill the buffer has emptied the pipe: then the runtime's note that the pipe
    /// is readable, where there is one, is taken back. The note is looked at before the read, so a write that comes
    /// after the read makes a new one.
    fn read(&self, watch: Option<&Shared>, scratch: &mut Vec<u8>) -> rustix::io::Result<usize> {
        let mut result = None;
        if let Some(watch) = watch {
            let _ = watch.try_io(Interest::READABLE, |fd| {
                let read = rustix::io::read(fd, rustix::buffer::spare_capacity(scratch));
                result = Some(read);
                match read {
                    Ok(READ_BYTES) | Ok(0) | Err(rustix::io::Errno::INTR) => Ok(()),
                    _ => Err(io::ErrorKind::WouldBlock.into()),
                }
            });
        }
        // Without a note nothing was tried; the data may be there before the runtime has heard of it.
        result.unwrap_or_else(|| rustix::io::read(&self.fd, rustix::buffer::spare_capacity(scratch)))
    }
}

/// Both pipes of a pair, watched by the runtime until this is dropped.
#[derive(Debug)]
pub(crate) struct PairWatch {
    out: Shared,
    err: Shared,
}

impl PairWatch {
    /// Waits until there is something to read; for ever once both have ended.
    pub(crate) async fn readable(&self, pair: &Pair) {
        tokio::select! {
            () = readable(&self.out, &pair.out) => {}
            () = readable(&self.err, &pair.err) => {}
        }
    }
}

async fn readable(watch: &Shared, pipe: &Pipe) {
    if pipe.ended() {
        return pending().await;
    }
    if watch.readable().await.is_err() {
        pipe.ended.store(true, Ordering::Relaxed);
    }
}

/// What was written between calls, or beside them, bounded; delivered with the next call.
#[derive(Debug)]
pub(crate) struct Background {
    streams: Mutex<Streams>,
}

thread_local! {
    /// What pipes are read with, one after the other: room for [`READ_BYTES`]. What it still holds then is no use to anybody.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One call's two streams.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) out: HeadTail,
    pub(crate) err: HeadTail,
}

impl Streams {
    /// Empty streams that keep `bytes_max` each.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let bytes_max = if holds(Mitigation::OutputBytes) { bytes_max } else { usize::MAX >> 1 };
        Streams { out: HeadTail::new(bytes_max), err: HeadTail::new(bytes_max) }
    }

    /// Takes what waits in both pipes, at most about `bytes_max` of each.
    pub(crate) fn take(&mut self, pair: &Pair, watch: Option<&PairWatch>, bytes_max: usize) {
        let (out, err) = (watch.map(|watch| &watch.out), watch.map(|watch| &watch.err));
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            scratch.reserve_exact(READ_BYTES);
            pair.out.take(out, scratch, &mut self.out, bytes_max);
            pair.err.take(err, scratch, &mut self.err, bytes_max);
        });
    }

    /// Takes what is left in both once a call has ended.
    pub(crate) fn drain(&mut self, pair: &Pair) {
        self.take(pair, None, DRAIN_BYTES_MAX);
    }

    /// The same once a command has ended, with a last look at whether anybody still holds its pipes: mostly nobody does,
    /// and then there are no leftovers.
    pub(crate) fn drain_to_end(&mut self, pair: &Pair) {
        self.drain(pair);
        if !pair.ended() {
            self.take(pair, None, READ_BYTES);
        }
    }
}

impl Background {
    /// Nothing yet.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Background { streams: Mutex::new(Streams::new(BACKGROUND_BYTES_MAX)) })
    }

    /// What came since the last time; `None` when that is nothing.
    pub(crate) fn deliver(&self) -> Option<BackgroundOutput> {
        let streams = {
            let mut streams = lock(&self.streams);
            if streams.out.is_empty() && streams.err.is_empty() {
                return None;
            }
            std::mem::replace(&mut *streams, Streams::new(BACKGROUND_BYTES_MAX))
        };
        Some(BackgroundOutput { stdout: streams.out.into_text(), stderr: streams.err.into_text() })
    }

    /// Takes what waits in a pair, at most about `bytes_max` of each stream.
    pub(crate) fn absorb(&self, pair: &Pair, watch: Option<&PairWatch>, bytes_max: usize) {
        lock(&self.streams).take(pair, watch, bytes_max);
    }
}

/// The pipes of fd 1 and fd 2 of one program.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) out: Pipe,
    pub(crate) err: Pipe,
}

impl Pair {
    /// Our ends, and the program's (fd 1, fd 2).
    pub(crate) fn new() -> io::Result<(Pair, [OwnedFd; 2])> {
        let (out, out_write) = Pipe::new()?;
        let (err, err_write) = Pipe::new()?;
        Ok((Pair { out, err }, [out_write, err_write]))
    }

    /// Has the runtime watch both.
    ///
    /// # Errors
    /// When the kernel has no more room for watches, or the process none for a descriptor.
    pub(crate) fn watch(&self) -> io::Result<PairWatch> {
        Ok(PairWatch { out: watch_shared(&self.out.fd)?, err: watch_shared(&self.err.fd)? })
    }

    /// Whether both have ended.
    pub(crate) fn ended(&self) -> bool {
        self.out.ended() && self.err.ended()
    }
}

/// Pipes of ended commands and dead interpreters that processes in the background still hold: drained until they
/// end, so that the holders neither block nor are killed by writing. Bounded; the oldest is given up.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    tasks: VecDeque<AbortHandle>,
}

impl Leftovers {
    /// Keeps draining the pair unless it has ended.
    pub(crate) fn adopt(&mut self, pair: Pair, background: &Arc<Background>) {
        if pair.ended() {
            return;
        }
        let background = Arc::clone(background);
        let task = tokio::spawn(async move {
            let Ok(watch) = pair.watch() else { return };
            while !pair.ended() {
                watch.readable(&pair).await;
                background.absorb(&pair, Some(&watch), READ_BYTES);
            }
        });
        self.keep(task.abort_handle());
    }

    /// Keeps a task that drains.
    pub(crate) fn keep(&mut self, task: AbortHandle) {
        self.tasks.retain(|task| !task.is_finished());
        if self.tasks.len() >= LEFTOVERS_MAX
            && let Some(oldest) = self.tasks.pop_front()
        {
            oldest.abort();
        }
        self.tasks.push_back(task);
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
