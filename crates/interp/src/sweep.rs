//! Who reads an interpreter's pipes when, and which calls last.
//!
//! A call that ends at once never has its pipes watched and arms no timer: its output is read once, when its answer
//! is there. One task looks round every [`SWEEP_TICK`] while calls run, and tells each call that has seen
//! [`LATE_TICKS`] of its rounds that it lasts: then the pipes are watched and the deadline counts. Between calls,
//! after [`REST_TICKS`], a task of the interpreter's own takes what background threads write. What has seen that many
//! rounds is looked at no more until its call ends or another begins: at rest, and while long calls run, nothing wakes.

use std::sync::{Arc, Mutex, Weak};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::limits::{DRAIN_BYTES_MAX, LATE_TICKS, READ_BYTES, REST_TICKS, SWEEP_TICK};
use crate::pipes::{Background, Leftovers, Pair, lock};

/// An interpreter's pipes. During a call of its own the call reads them; at rest a task waits for what background threads
/// write, so that they never block on a full pipe. Whoever reads holds the turn.
#[derive(Debug)]
pub(crate) struct WorkerPipes {
    pair: Pair,
    background: Arc<Background>,
    turn: Mutex<Turn>,
    late: Notify,
}

#[derive(Debug, Default)]
struct Turn {
    in_call: bool,
    listed: bool,
    /// The interpreter is gone.
    retired: bool,
    /// Rounds since the last call began or ended.
    ticks: u32,
    watch: Option<AbortHandle>,
}

impl WorkerPipes {
    /// At rest, not yet watched.
    pub(crate) fn new(pair: Pair, background: Arc<Background>) -> Arc<Self> {
        Arc::new(WorkerPipes { pair, background, turn: Mutex::default(), late: Notify::new() })
    }

    /// The pipes, for the call that holds the turn.
    pub(crate) fn pair(&self) -> &Pair {
        &self.pair
    }

    /// Resolves when the running call lasts; now and then early, for one that comes right after one that did.
    pub(crate) async fn late(&self) {
        self.late.notified().await;
    }

    /// Takes what came since the last call aside; from here on the call reads.
    pub(crate) fn begin_call(self: &Arc<Self>, sweep: &Arc<Sweep>) {
        let listed = {
            let mut turn = lock(&self.turn);
            turn.in_call = true;
            turn.ticks = 0;
            if let Some(watch) = turn.watch.take() {
                watch.abort();
            }
            self.background.absorb(&self.pair, None, DRAIN_BYTES_MAX);
            std::mem::replace(&mut turn.listed, true)
        };
        if !listed {
            sweep.list(Arc::downgrade(self));
        }
    }

    /// Takes what came since the last call aside, for a call that is not the interpreter's: whoever reads at rest goes
    /// on, so that background threads do not block while a shell command runs.
    pub(crate) fn begin_beside(&self) {
        let turn = lock(&self.turn);
        if !turn.in_call {
            self.background.absorb(&self.pair, None, DRAIN_BYTES_MAX);
        }
    }

    /// The call reads no longer; nothing after one that was not the interpreter's.
    pub(crate) fn end_call(self: &Arc<Self>, sweep: &Arc<Sweep>) {
        let listed = {
            let mut turn = lock(&self.turn);
            if !std::mem::take(&mut turn.in_call) {
                return;
            }
            turn.ticks = 0;
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
        turn.retired = true;
        let watch = turn.watch.take().unwrap_or_else(|| self.spawn_watch());
        leftovers.keep(watch);
    }

    /// One round. Whether the pipes must stay on the sweep's list.
    fn tick(self: &Arc<Self>) -> bool {
        let mut turn = lock(&self.turn);
        if turn.retired {
            return false;
        }
        turn.ticks = turn.ticks.saturating_add(1);
        if turn.in_call && turn.ticks == LATE_TICKS {
            self.late.notify_one();
        }
        if turn.ticks < REST_TICKS {
            return true;
        }
        turn.listed = false;
        if !turn.in_call && turn.watch.is_none() && !self.pair.ended() {
            turn.watch = Some(self.spawn_watch());
        }
        false
    }

    fn spawn_watch(self: &Arc<Self>) -> AbortHandle {
        tokio::spawn(Arc::clone(self).absorb_at_rest()).abort_handle()
    }

    async fn absorb_at_rest(self: Arc<Self>) {
        let Ok(watch) = self.pair.watch() else { return };
        while !self.pair.ended() {
            watch.readable(&self.pair).await;
            let turn = lock(&self.turn);
            if turn.in_call && !turn.retired {
                return;
            }
            self.background.absorb(&self.pair, Some(&watch), READ_BYTES);
        }
    }

    /// Nobody reads any more.
    pub(crate) fn close(&self) {
        let mut turn = lock(&self.turn);
        turn.retired = true;
        if let Some(watch) = turn.watch.take() {
            watch.abort();
        }
    }
}

/// Pipes of calls that run, and of those that ended lately. One task for all of them, and none at rest.
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
            tokio::time::sleep(SWEEP_TICK).await;
            let mut list = lock(&self.list);
            list.retain(|pipes| pipes.upgrade().is_some_and(|pipes| pipes.tick()));
            if list.is_empty() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::pipe::fcntl_setpipe_size;

    use super::*;
    use crate::pipes::Streams;

    /// Pipes as large as a program can make them, and the program's end of its fd 1.
    fn large() -> (Arc<WorkerPipes>, std::os::fd::OwnedFd) {
        let (pair, [out, _err]) = Pair::new().unwrap();
        fcntl_setpipe_size(&out, DRAIN_BYTES_MAX).unwrap();
        (WorkerPipes::new(pair, Background::new()), out)
    }

    fn background_bytes(pipes: &WorkerPipes) -> usize {
        pipes.background.deliver().map_or(0, |background| background.stdout.len())
    }

    fn left_in(pipes: &WorkerPipes) -> u64 {
        let mut streams = Streams::new(1);
        streams.drain(&pipes.pair);
        streams.out.total()
    }

    #[tokio::test]
    async fn what_a_large_pipe_held_before_a_call_is_not_the_calls_own() {
        let (pipes, out) = large();
        rustix::io::write(&out, &vec![b'x'; DRAIN_BYTES_MAX]).unwrap();
        pipes.begin_call(&Arc::default());
        assert!(background_bytes(&pipes) > 0);
        assert_eq!(left_in(&pipes), 0);
    }

    #[tokio::test]
    async fn a_call_beside_leaves_the_reading_to_those_who_read_at_rest() {
        let (pipes, out) = large();
        let sweep = Arc::default();
        pipes.begin_call(&sweep);
        pipes.end_call(&sweep);
        rustix::io::write(&out, b"before").unwrap();
        pipes.begin_beside();
        assert_eq!(background_bytes(&pipes), 6);
        while pipes.tick() {}
        rustix::io::write(&out, b"meanwhile").unwrap();
        while background_bytes(&pipes) == 0 {
            tokio::task::yield_now().await;
        }
        pipes.end_call(&sweep);
    }

    #[tokio::test]
    async fn a_call_that_lasts_is_told_so_and_left_alone() {
        let (pipes, _out) = large();
        let sweep = Arc::default();
        pipes.begin_call(&sweep);
        while pipes.tick() {}
        pipes.late().await;
        assert!(!lock(&pipes.turn).listed, "nothing looks at it any more");
        pipes.end_call(&sweep);
        assert!(lock(&pipes.turn).listed, "until it is at rest, and watched");
    }
}
