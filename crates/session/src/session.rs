//! One session: its clocks, its queue, the place of its cell, its workspace.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use ringfence_interp::{Cell, InterruptHandle};
use ringfence_op::{CellLimits, SessionId, WorkspaceId};
use ringfence_workspace::Workspace;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::lifetime::{Expiry, Lifetimes};
use crate::queue::{Entered, Queue, Ticket};

/// What is fixed when a session is made.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) id: SessionId,
    pub(crate) image: String,
    pub(crate) idle: Duration,
    pub(crate) lifetime: Duration,
    /// Whose it is; `None` where the server is not shared.
    pub(crate) owner: Option<WorkspaceId>,
    /// What its cell may use.
    pub(crate) limits: CellLimits,
    /// Longer timeouts of its calls are clamped to this.
    pub(crate) timeout_max: Duration,
}

/// The time that the clocks of all sessions run by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    base: Instant,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) terms: Terms,
    pub(crate) created: SystemTime,
    pub(crate) workspace: Workspace,
    clock: Clock,
    interrupt: InterruptHandle,
    state: Mutex<State>,
    ended: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    life: Lifetimes,
    last_activity: SystemTime,
    queue: Queue,
    waiters: HashMap<Ticket, oneshot::Sender<()>>,
    /// Not there while a call has it, and once the session has ended.
    cell: Option<Cell>,
    ended: bool,
}

impl Clock {
    /// A clock that starts now.
    pub(crate) fn start() -> Self {
        Clock { base: Instant::now() }
    }

    /// The span since its start.
    pub(crate) fn now(self) -> Duration {
        self.base.elapsed()
    }

    /// The moment at which that span is over.
    pub(crate) fn at(self, span: Duration) -> Instant {
        self.base + span
    }
}

impl Session {
    /// A session in its cell.
    pub(crate) fn new(terms: Terms, cell: Cell, workspace: Workspace, clock: Clock, waiting_max: usize) -> Arc<Self> {
        let now = SystemTime::now();
        let interrupt = cell.interrupt_handle();
        let state = State {
            life: Lifetimes::new(terms.idle, terms.lifetime, clock.now()),
            last_activity: now,
            queue: Queue::new(waiting_max),
            waiters: HashMap::new(),
            cell: Some(cell),
            ended: false,
        };
        Arc::new(Session {
            terms,
            created: now,
            workspace,
            clock,
            interrupt,
            state: Mutex::new(state),
            ended: watch::Sender::new(false),
        })
    }

    /// When it was last used.
    pub(crate) fn last_activity(&self) -> SystemTime {
        self.state().last_activity
    }

    /// Which clock ran out, if one did.
    pub(crate) fn expired(&self) -> Option<Expiry> {
        self.state().life.expired(self.clock.now())
    }

    /// When its clocks must be looked at again.
    pub(crate) fn look_again(&self) -> Duration {
        self.state().life.look_again(self.clock.now())
    }

    /// Whether its cell is known to be dead.
    pub(crate) fn is_dead(&self) -> bool {
        self.state().cell.as_ref().is_some_and(Cell::died)
    }

    /// Keeps the idle clock still until the hold is dropped.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        let mut state = self.state();
        state.life.hold(self.clock.now());
        state.last_activity = SystemTime::now();
        Hold { session: Arc::clone(self) }
    }

    /// Gets in line for the turn; `None` when the line is full.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Place> {
        let mut state = self.state();
        match state.queue.enter() {
            Entered::Run => Some(Place::Turn(Turn { session: Arc::clone(self) })),
            Entered::Full => None,
            Entered::Wait(ticket) => {
                let (call, called) = oneshot::channel();
                state.waiters.insert(ticket, call);
                Some(Place::Line(Waiting { session: Arc::clone(self), ticket, called, has_turn: false }))
            }
        }
    }

    /// The cell, for whoever has the turn; `None` once the session has ended.
    pub(crate) fn take_cell(&self) -> Option<Cell> {
        self.state().cell.take()
    }

    /// Gives the cell back; it comes back itself when the session has ended meanwhile.
    pub(crate) fn put_back(&self, cell: Cell) -> Option<Cell> {
        let mut state = self.state();
        if state.ended {
            return Some(cell);
        }
        state.cell = Some(cell);
        None
    }

    /// Interrupts the program that runs; `false` where none does. Waits for nothing.
    pub(crate) fn interrupt(&self) -> bool {
        self.interrupt.interrupt()
    }

    /// Ends it: the cell if no call has it. Whoever runs or waits in it hears of it.
    pub(crate) fn end(&self) -> Option<Cell> {
        let cell = {
            let mut state = self.state();
            state.ended = true;
            state.cell.take()
        };
        self.ended.send_replace(true);
        cell
    }

    /// Resolves when the session has ended.
    pub(crate) async fn ended(&self) {
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    fn pass_turn(&self) {
        let mut state = self.state();
        while let Some(next) = state.queue.leave() {
            if state.waiters.remove(&next).is_some_and(|call| call.send(()).is_ok()) {
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While it lives, its session is not idle.
#[derive(Debug)]
pub struct Hold {
    session: Arc<Session>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.session.state();
        state.life.release(self.session.clock.now());
        state.last_activity = SystemTime::now();
    }
}

/// Where a call is in its session's line.
#[derive(Debug)]
pub(crate) enum Place {
    /// It may run.
    Turn(Turn),
    /// It waits.
    Line(Waiting),
}

/// The right to run; dropping it passes it on.
#[derive(Debug)]
pub(crate) struct Turn {
    session: Arc<Session>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.session.pass_turn();
    }
}

/// A place in the line; dropping it leaves the line.
#[derive(Debug)]
pub(crate) struct Waiting {
    session: Arc<Session>,
    ticket: Ticket,
    called: oneshot::Receiver<()>,
    has_turn: bool,
}

impl Waiting {
    /// Waits for the turn.
    pub(crate) async fn turn(mut self) -> Turn {
        // The sender stays in the session, which lives as long as this does: the channel cannot close first.
        let _ = (&mut self.called).await;
        self.has_turn = true;
        Turn { session: Arc::clone(&self.session) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.has_turn {
            return;
        }
        let had_turn = {
            let mut state = self.session.state();
            state.waiters.remove(&self.ticket);
            !state.queue.give_up(self.ticket)
        };
        if had_turn {
            self.session.pass_turn();
        }
    }
}
