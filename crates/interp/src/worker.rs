//! A worker: one interpreter in a cell, and the calls that it runs.
//!
//! What comes over the frame socket is hostile. A `Done` with the nonce of the running call is the only thing that
//! is taken for an answer; everything else costs the session its interpreter.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Waker};

use crate::watched::{Watched, watch_reads, watch_writes};
use ringfence_frame::worker::{Ended, FromWorker, Hints, Run, decode_from_worker, encode_run};
use ringfence_weaken::{Mitigation, holds};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::LeaseError;
use crate::interrupt::Interrupts;
use crate::keeper_link::{CellEvents, KeeperLink, Origin, Started};
use crate::limits::{DEATH_WAIT_MAX, FRAME_READ_BYTES, HELLO_WAIT_MAX, READ_BYTES};
use crate::pipes::{Background, Pair, PairWatch, Streams};
use crate::sweep::WorkerPipes;
use crate::verdict::Death;

/// One interpreter.
#[derive(Debug)]
pub(crate) struct Worker {
    frame: Watched,
    /// Bytes of frames that are not taken yet.
    inbox: Vec<u8>,
    pipes: Arc<WorkerPipes>,
    /// Its process id as the keeper knows it.
    keeper_pid: u32,
    /// Its process id in the cell, by its own account: it is only ever used inside that cell.
    cell_pid: u32,
    origin: Origin,
    events: watch::Receiver<CellEvents>,
}

/// How the wait for a call's end went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    /// The answer.
    Done { return_code: i32, ended: Ended, hints: Hints, cpu_us: u64 },
    /// The interpreter is dead.
    Died(Death),
    /// Something that is no answer came, or the socket was closed.
    Violated,
    /// The deadline passed first.
    Deadline,
    /// A caller interrupts.
    Asked,
    /// The cell is lost.
    CellLost,
}

/// A call under way.
pub(crate) struct Running<'a> {
    worker: &'a mut Worker,
    streams: &'a mut Streams,
    nonce: u64,
    /// The Run frame and how much of it is sent.
    frame: Vec<u8>,
    sent: usize,
    /// The pipes, watched: only where the call lasts.
    watch: Option<PairWatch>,
    /// The socket once more, watched for room: only where the frame is longer than the socket takes at once.
    room: Option<Watched>,
}

impl Worker {
    /// Has an interpreter forked into the cell and waits until it serves.
    pub(crate) async fn start(
        keeper: &KeeperLink,
        cell: u64,
        events: watch::Receiver<CellEvents>,
        background: Arc<Background>,
    ) -> Result<Self, LeaseError> {
        let (ours, theirs) = frame_sockets().map_err(LeaseError::io("make a worker's socket"))?;
        let (pair, [out, err]) = Pair::new().map_err(LeaseError::io("make a worker's pipes"))?;
        let Started { pid: keeper_pid, origin } = keeper.spawn_worker(cell, vec![theirs, out, err]).await?;
        let mut worker = Worker {
            frame: watch_reads(ours).map_err(LeaseError::io("watch a worker's socket"))?,
            inbox: Vec::with_capacity(FRAME_READ_BYTES),
            pipes: WorkerPipes::new(pair, background),
            keeper_pid,
            cell_pid: 0,
            origin,
            events,
        };
        worker.cell_pid =
            tokio::time::timeout(HELLO_WAIT_MAX, worker.hello()).await.map_err(|_| LeaseError::NoHello)??;
        Ok(worker)
    }

    /// Its process id in the cell.
    pub(crate) fn cell_pid(&self) -> u32 {
        self.cell_pid
    }

    /// The zygote that it was forked from.
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// Its pipes.
    pub(crate) fn pipes(&self) -> &Arc<WorkerPipes> {
        &self.pipes
    }

    /// How it died, if it did.
    pub(crate) fn death(&self) -> Option<Death> {
        self.events.borrow().death(self.keeper_pid).map(Death::from_wait)
    }

    /// Whether it can take a call: alive, and silent since the last one, as far as the runtime has heard. What it says
    /// afterwards, it says in the call that comes.
    pub(crate) fn is_sound(&mut self) -> bool {
        if self.death().is_some() || !self.inbox.is_empty() {
            return false;
        }
        if self.frame.poll_read_ready(&mut Context::from_waker(Waker::noop())).is_pending() {
            return true;
        }
        let mut byte = [0; 1];
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        matches!(rustix::net::recv(self.frame.get_ref(), &mut byte[..], flags), Err(Errno::AGAIN | Errno::INTR))
    }

    /// Begins a call, whose output is read into `streams`; `None` when the source is longer than a frame may be.
    pub(crate) fn begin<'a>(&'a mut self, run: Run<'_>, streams: &'a mut Streams) -> Option<Running<'a>> {
        let mut frame = Vec::new();
        encode_run(run, &mut frame).ok()?;
        Some(Running { worker: self, streams, nonce: run.nonce, frame, sent: 0, watch: None, room: None })
    }

    /// Waits, bounded, until it is dead.
    pub(crate) async fn dead_within(&mut self, wait: std::time::Duration) -> bool {
        let pid = self.keeper_pid;
        let dead = self.events.wait_for(|events| events.lost || events.death(pid).is_some());
        tokio::time::timeout(wait, dead).await.is_ok()
    }

    async fn hello(&mut self) -> Result<u32, LeaseError> {
        loop {
            tokio::select! {
                biased;
                ready = self.frame.readable() => {
                    let mut guard = ready.map_err(LeaseError::io("wait for a worker"))?;
                    let read = guard.try_io(|fd| recv_into(fd.get_ref(), &mut self.inbox));
                    if matches!(read, Ok(Ok(0) | Err(_))) {
                        drop(guard);
                        return Err(self.why_silent().await);
                    }
                    match decode_from_worker(&self.inbox) {
                        Ok(None) => {}
                        Ok(Some((FromWorker::Hello { pid, .. }, taken))) if pid > 1 => {
                            self.inbox.drain(..taken);
                            return Ok(pid);
                        }
                        _ => return Err(LeaseError::NoHello),
                    }
                }
                changed = self.events.changed() => {
                    changed.map_err(|_| LeaseError::KeeperGone)?;
                    let events = self.events.borrow();
                    if events.lost {
                        return Err(LeaseError::CellLost);
                    }
                    if let Some(status) = events.death(self.keeper_pid) {
                        return Err(LeaseError::WorkerDied { status });
                    }
                }
            }
        }
    }

    /// The socket closed before Hello: mostly because it died, which is heard of a moment later.
    async fn why_silent(&mut self) -> LeaseError {
        self.dead_within(DEATH_WAIT_MAX).await;
        match self.events.borrow().death(self.keeper_pid) {
            Some(status) => LeaseError::WorkerDied { status },
            None => LeaseError::NoHello,
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.death().is_none() {
            self.pipes.close();
        }
    }
}

impl Running<'_> {
    /// The worker that runs it.
    pub(crate) fn worker(&mut self) -> &mut Worker {
        self.worker
    }

    /// Waits until the call ends, the deadline passes or a caller interrupts, where that is heard; reads output
    /// meanwhile where the call lasts. May be called again.
    pub(crate) async fn until(&mut self, deadline: Instant, mut interrupts: Option<&mut Interrupts>) -> Finish {
        let pipes = Arc::clone(&self.worker.pipes);
        let (timer, late) = (tokio::time::sleep_until(deadline), pipes.late());
        tokio::pin!(timer, late);
        let mut closed = false;
        // What happened before is looked at first: only what changes from here on wakes us.
        self.worker.events.mark_changed();
        loop {
            if let Err(()) = self.send() {
                closed = true;
            }
            let lasts = self.watch.is_some();
            tokio::select! {
                biased;
                ready = self.worker.frame.readable(), if !closed => {
                    let Ok(mut guard) = ready else { return Finish::CellLost };
                    let read = guard.try_io(|fd| recv_into(fd.get_ref(), &mut self.worker.inbox));
                    if matches!(read, Ok(Ok(length)) if length < FRAME_READ_BYTES) {
                        // That was all; the next bytes are told anew.
                        guard.clear_ready();
                    }
                    match self.worker.take_done(self.nonce) {
                        Ok(Some(done)) => return done,
                        Ok(None) if matches!(read, Ok(Ok(0) | Err(_))) => closed = true,
                        Ok(None) => {}
                        Err(()) => return Finish::Violated,
                    }
                }
                () = written(self.watch.as_ref(), pipes.pair()) => {
                    self.streams.take(pipes.pair(), self.watch.as_ref(), READ_BYTES);
                }
                () = writable(self.room.as_ref()), if !closed => {}
                changed = self.worker.events.changed() => {
                    if changed.is_err() || self.worker.events.borrow().lost {
                        return Finish::CellLost;
                    }
                    if let Some(death) = self.worker.death() {
                        return self.last_words(death);
                    }
                }
                () = &mut late, if !lasts => match pipes.pair().watch() {
                    Ok(watch) => self.watch = Some(watch),
                    Err(_) => return Finish::CellLost,
                },
                () = &mut timer, if lasts || closed => {
                    return if closed { Finish::Violated } else { Finish::Deadline };
                }
                () = next(&mut interrupts) => return Finish::Asked,
            }
            if closed && timer.deadline() > Instant::now() + DEATH_WAIT_MAX {
                // A socket that closes is mostly the first that is seen of a death: wait a moment for the rest.
                timer.as_mut().reset(Instant::now() + DEATH_WAIT_MAX);
            }
        }
    }

    /// Takes what the program had written by the time the call ended.
    pub(crate) fn drain(&mut self) {
        self.streams.drain(self.worker.pipes.pair());
    }

    /// Sends what the socket takes of the Run frame.
    fn send(&mut self) -> Result<(), ()> {
        while let Some(rest) = self.frame.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match rustix::net::send(self.worker.frame.get_ref(), rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(length) => self.sent += length,
                Err(Errno::AGAIN) => return self.watch_room(),
                Err(Errno::INTR) => {}
                Err(_) => return Err(()),
            }
        }
        self.room = None;
        if !self.frame.is_empty() {
            self.frame = Vec::new();
            self.sent = 0;
        }
        Ok(())
    }

    fn watch_room(&mut self) -> Result<(), ()> {
        if self.room.is_none() {
            let socket = self.worker.frame.get_ref().try_clone().map_err(drop)?;
            self.room = Some(watch_writes(socket).map_err(drop)?);
        }
        Ok(())
    }

    /// The worker is dead; an answer that it had sent before still counts.
    fn last_words(&mut self, death: Death) -> Finish {
        while let Ok(length) = recv_into(self.worker.frame.get_ref(), &mut self.worker.inbox) {
            match self.worker.take_done(self.nonce) {
                Ok(Some(done)) => return done,
                Ok(None) if length > 0 => {}
                _ => break,
            }
        }
        Finish::Died(death)
    }
}

impl Worker {
    /// Takes the answer out of the inbox; `None` while it is incomplete.
    fn take_done(&mut self, wanted: u64) -> Result<Option<Finish>, ()> {
        match decode_from_worker(&self.inbox) {
            Ok(None) => Ok(None),
            Ok(Some((FromWorker::Done { nonce, return_code, ended, hints, cpu_us }, taken)))
                if nonce == wanted || !holds(Mitigation::AnswersByNonce) =>
            {
                self.inbox.drain(..taken);
                Ok(Some(Finish::Done { return_code, ended, hints, cpu_us }))
            }
            _ => Err(()),
        }
    }
}

/// The next interrupt; never one where none is heard.
async fn next(interrupts: &mut Option<&mut Interrupts>) {
    match interrupts {
        Some(interrupts) => interrupts.next().await,
        None => std::future::pending().await,
    }
}

/// Waits until the program has written something; for ever where nobody watches for that yet.
pub(crate) async fn written(watch: Option<&PairWatch>, pair: &Pair) {
    match watch {
        Some(watch) => watch.readable(pair).await,
        None => std::future::pending().await,
    }
}

/// Waits until the socket takes more; for ever where nobody waits for that.
async fn writable(room: Option<&Watched>) {
    let Some(room) = room else { return std::future::pending().await };
    if let Ok(mut guard) = room.writable().await {
        guard.clear_ready();
    }
}

/// Reads once; the inbox never holds more than two reads, since a frame is shorter than one.
fn recv_into(socket: &OwnedFd, inbox: &mut Vec<u8>) -> io::Result<usize> {
    let mut buffer = [0; FRAME_READ_BYTES];
    let (length, _) = loop {
        match rustix::net::recv(socket, &mut buffer[..], RecvFlags::DONTWAIT) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    inbox.extend_from_slice(buffer.get(..length).unwrap_or_default());
    Ok(length)
}

/// A stream socket pair: our end non-blocking, the worker's blocking.
fn frame_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::io::ioctl_fionbio(&pair.0, true)?;
    Ok(pair)
}
