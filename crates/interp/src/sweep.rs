//! Who reads an interpreter's pipes when, and which calls last.
//!
//! A call that ends at once never has its pipes watched and arms no timer: its output is read once, when its answer
//! is there. One task looks round every [`SWEEP_TICK`] while calls run, and tells each call that has seen
//! [`LATE_TICKS`] of its rounds that it lasts: then the pipes are watched and the deadline counts. Between calls,
//! after [`REST_TICKS`], a task of the interpreter's own takes what background threads write. Once every interpreter
//! has its watch the round ends: at rest nothing wakes.

use std::sync::{Arc, Mutex, Weak};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::limits::{LATE_TICKS, REST_TICKS, SWEEP_TICK};
use crate::pipes::{Background, Leftovers, Pair, lock};

/// An interpreter's pipes. During a call the call reads them; at rest a task waits for what background threads
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
            self.background.absorb(&self.pair, None);
            std::mem::replace(&mut turn.listed, true)
        };
        if !listed {
            sweep.list(Arc::downgrade(self));
        }
    }

    /// The call reads no longer.
    pub(crate) fn end_call(&self) {
        let mut turn = lock(&self.turn);
        turn.in_call = false;
        turn.ticks = 0;
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
        if turn.in_call {
            if turn.ticks == LATE_TICKS {
                self.late.notify_one();
            }
            return true;
        }
        if turn.ticks < REST_TICKS {
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
        let Ok(watch) = self.pair.watch() else { return };
        while !self.pair.ended() {
            watch.readable(&self.pair).await;
            let turn = lock(&self.turn);
            if turn.in_call && !turn.retired {
                return;
            }
            self.background.absorb(&self.pair, Some(&watch));
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
