//! The pipes that carry what programs write, and what is kept of it between calls.

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::watched::{Watched, watch_reads};
use ringfence_op::BackgroundOutput;
use rustix::pipe::PipeFlags;
use tokio::io::Interest;
use tokio::task::AbortHandle;

use crate::limits::{BACKGROUND_BYTES_MAX, DRAIN_BYTES_MAX, IDLE_DRAIN_DELAY, LEFTOVERS_MAX, READ_BYTES};
use crate::output::HeadTail;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The read end of one pipe.
#[derive(Debug)]
pub(crate) struct Pipe {
    fd: Watched,
    ended: AtomicBool,
}

impl Pipe {
    /// A pipe: our end, non-blocking, and the write end for the program, blocking as programs expect.
    pub(crate) fn new() -> io::Result<(Pipe, OwnedFd)> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&read, true)?;
        Ok((Pipe { fd: watch_reads(read)?, ended: AtomicBool::new(false) }, write))
    }

    /// Whether every writer is gone and everything was read.
    pub(crate) fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Waits until there is something to read; for ever once the pipe has ended.
    pub(crate) async fn readable(&self) {
        if self.ended() {
            return pending().await;
        }
        if self.fd.readable().await.is_err() {
            self.ended.store(true, Ordering::Relaxed);
        }
    }

    /// Takes what waits, at most about `bytes_max`, without waiting.
    pub(crate) fn take(&self, scratch: &mut Vec<u8>, into: &mut HeadTail, bytes_max: usize) {
        let mut taken = 0;
        scratch.clear();
        scratch.reserve_exact(READ_BYTES);
        while !self.ended() && taken < bytes_max {
            scratch.clear();
            match self.read(scratch) {
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
    fn read(&self, scratch: &mut Vec<u8>) -> rustix::io::Result<usize> {
        let mut result = None;
        let _ = self.fd.try_io(Interest::READABLE, |fd| {
            let read = rustix::io::read(fd, rustix::buffer::spare_capacity(scratch));
            result = Some(read);
            match read {
                Ok(READ_BYTES) | Ok(0) | Err(rustix::io::Errno::INTR) => Ok(()),
                _ => Err(io::ErrorKind::WouldBlock.into()),
            }
        });
        // Without a note nothing was tried; the data may be there before the runtime has heard of it.
        result.unwrap_or_else(|| rustix::io::read(self.fd.get_ref(), rustix::buffer::spare_capacity(scratch)))
    }
}

/// What was written between calls, or beside them, bounded; delivered with the next call.
#[derive(Debug)]
pub(crate) struct Background {
    streams: Mutex<Streams>,
}

/// One call's two streams, and a buffer to read with.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) out: HeadTail,
    pub(crate) err: HeadTail,
    scratch: Vec<u8>,
}

impl Streams {
    /// Empty streams that keep `bytes_max` each.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Streams { out: HeadTail::new(bytes_max), err: HeadTail::new(bytes_max), scratch: Vec::new() }
    }

    /// Takes what waits in a pipe of fd 1.
    pub(crate) fn take_out(&mut self, pipe: &Pipe, bytes_max: usize) {
        pipe.take(&mut self.scratch, &mut self.out, bytes_max);
    }

    /// Takes what waits in a pipe of fd 2.
    pub(crate) fn take_err(&mut self, pipe: &Pipe, bytes_max: usize) {
        pipe.take(&mut self.scratch, &mut self.err, bytes_max);
    }

    /// Takes what is left in both once a call has ended.
    pub(crate) fn drain(&mut self, pair: &Pair) {
        self.take_out(&pair.out, DRAIN_BYTES_MAX);
        self.take_err(&pair.err, DRAIN_BYTES_MAX);
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

    fn absorb(&self, pair: &Pair) {
        let mut streams = lock(&self.streams);
        streams.take_out(&pair.out, READ_BYTES);
        streams.take_err(&pair.err, READ_BYTES);
        // At rest a session holds no buffer for reading.
        streams.scratch = Vec::new();
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

    fn ended(&self) -> bool {
        self.out.ended() && self.err.ended()
    }

    async fn readable(&self) {
        tokio::select! {
            () = self.out.readable() => {}
            () = self.err.readable() => {}
        }
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
            while !pair.ended() {
                pair.readable().await;
                background.absorb(&pair);
            }
        });
        self.keep(task.abort_handle());
    }

    fn keep(&mut self, task: AbortHandle) {
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

/// An interpreter's pipes. During a call the call reads them; at rest, after [`IDLE_DRAIN_DELAY`], a task waits for
/// what background threads write, so that they never block on a full pipe. Whoever reads holds the turn.
#[derive(Debug)]
pub(crate) struct WorkerPipes {
    pair: Pair,
    background: Arc<Background>,
    turn: Mutex<Turn>,
}

#[derive(Debug, Default)]
struct Turn {
    in_call: bool,
    listed: bool,
    watch: Option<AbortHandle>,
}

impl WorkerPipes {
    /// At rest, not yet watched.
    pub(crate) fn new(pair: Pair, background: Arc<Background>) -> Arc<Self> {
        Arc::new(WorkerPipes { pair, background, turn: Mutex::default() })
    }

    /// The pipes, for the call that holds the turn.
    pub(crate) fn pair(&self) -> &Pair {
        &self.pair
    }

    /// Takes what came since the last call aside; from here on the call reads.
    pub(crate) fn begin_call(&self) {
        let mut turn = lock(&self.turn);
        turn.in_call = true;
        if let Some(watch) = turn.watch.take() {
            watch.abort();
        }
        self.background.absorb(&self.pair);
    }

    /// The call reads no longer; the sweep sees to it that the pipes are watched if no other call comes soon.
    pub(crate) fn end_call(self: &Arc<Self>, sweep: &Arc<Sweep>) {
        let listed = {
            let mut turn = lock(&self.turn);
            turn.in_call = false;
            std::mem::replace(&mut turn.listed, true)
        };
        if !listed {
            sweep.list(Arc::downgrade(self));
        }
    }

    /// The interpreter is gone: the pipes are watched until their last holder is gone too, as leftovers.
    pub(crate) fn retire(self: &Arc<Self>, leftovers: &mut Leftovers) {
        if self.pair.ended() {
            return;
        }
        let mut turn = lock(&self.turn);
        turn.in_call = false;
        turn.listed = true;
        let watch = turn.watch.take().unwrap_or_else(|| self.spawn_watch());
        leftovers.keep(watch);
    }

    /// Begins the watch if no call runs. Whether the pipes must stay on the sweep's list.
    fn watch(self: &Arc<Self>) -> bool {
        let mut turn = lock(&self.turn);
        if turn.in_call {
            return true;
        }
        turn.listed = false;
        if turn.watch.is_none() && !self.pair.ended() {
            turn.watch = Some(self.spawn_watch());
        }
        false
    }

    fn spawn_watch(self: &Arc<Self>) -> AbortHandle {
        tokio::spawn(Arc::clone(self).absorb_at_rest()).abort_handle()
    }

    async fn absorb_at_rest(self: Arc<Self>) {
        while !self.pair.ended() {
            self.pair.readable().await;
            let turn = lock(&self.turn);
            if turn.in_call {
                return;
            }
            self.background.absorb(&self.pair);
        }
    }

    /// Stops the watch.
    pub(crate) fn close(&self) {
        let mut turn = lock(&self.turn);
        turn.in_call = true;
        if let Some(watch) = turn.watch.take() {
            watch.abort();
        }
    }
}

/// Pipes that were in a call lately. One short-lived task for all of them, and none when no call ends.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    list: Mutex<Vec<Weak<WorkerPipes>>>,
}

impl Sweep {
    fn list(self: &Arc<Self>, pipes: Weak<WorkerPipes>) {
        let mut list = lock(&self.list);
        list.push(pipes);
        if list.len() == 1 {
            tokio::spawn(Arc::clone(self).run());
        }
    }

    async fn run(self: Arc<Self>) {
        loop {
            tokio::time::sleep(IDLE_DRAIN_DELAY).await;
            let mut list = lock(&self.list);
            list.retain(|pipes| pipes.upgrade().is_some_and(|pipes| pipes.watch()));
            if list.is_empty() {
                return;
            }
        }
    }
}
