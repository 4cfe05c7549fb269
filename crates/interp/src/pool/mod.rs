//! The warm pool: cells made ahead of time, each with an interpreter that serves, so that a lease waits for nothing.
//!
//! [`brain`] decides; in here is what carries its effects out.

#[cfg(test)]
mod apart_tests;
mod brain;
#[cfg(test)]
mod brain_tests;
mod lines;
mod renewal;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_op::{ImageLimits, RootSpec, WorkspaceId};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use crate::cell::Cell;
use crate::error::LeaseError;
use crate::interp::Shared;
use crate::keeper_link::{News, Origin};
use crate::limits::{LEASE_WAIT_MAX, OTHERS_READY_MAX};
use crate::pipes::{Background, lock};
use crate::worker::Worker;
use brain::{Brain, CellId, Effect, Message, SetId, Target, Ticket};
pub use renewal::Renewal;

/// The pool.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    state: Mutex<State>,
    ready: watch::Sender<Readiness>,
    /// Nothing is made any more.
    closed: watch::Sender<bool>,
}

/// What it keeps ready, and of how old a zygote.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolConfig {
    /// Cells of the first image that are kept ready.
    pub(crate) size: usize,
    /// The same where demand is high.
    pub(crate) most: usize,
    /// When a zygote is replaced.
    pub(crate) renewal: Renewal,
    /// How many sets of zygotes there may be that are one workspace's; `None` is one set of each image for all.
    pub(crate) apart: Option<usize>,
}

/// How the pool stands, for whoever waits for its first cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// Cells that wait for a lease.
    pub(crate) ready: usize,
    /// Attempts to make a cell that failed.
    pub(crate) failures: u64,
}

#[derive(Debug)]
struct State {
    brain: Brain,
    images: Vec<Known>,
    /// Cells of an image that is not the first which are kept ready.
    others_ready: usize,
    cells: HashMap<CellId, Cell>,
    waiting: HashMap<Ticket, oneshot::Sender<Result<Cell, LeaseError>>>,
    /// Of each set, what waits for its zygote's age, and for a rest.
    ages: HashMap<SetId, AbortHandle>,
    rests: HashMap<SetId, AbortHandle>,
    last_id: u64,
    last_error: Option<LeaseError>,
}

/// What is known of an image here.
#[derive(Debug)]
struct Known {
    name: Arc<str>,
    has_python: bool,
    limits: ImageLimits,
}

impl Pool {
    /// A pool that keeps so many cells of the first image ready, and one (unless that is none) of each other image that
    /// is in use. It begins to fill at once.
    pub(crate) fn start(
        shared: Arc<Shared>,
        images: &[RootSpec],
        config: PoolConfig,
        news: mpsc::UnboundedReceiver<News>,
    ) -> Arc<Self> {
        let PoolConfig { size, most, renewal, apart } = config;
        let others_ready = size.min(OTHERS_READY_MAX);
        let target = |index| match index {
            0 => Target { least: size, most: most.max(size) },
            _ => Target { least: others_ready, most: others_ready },
        };
        let mut brain = Brain::new(renewal, apart);
        for (index, root) in images.iter().enumerate() {
            brain.add(target(index), root.python.is_some());
        }
        let state = State {
            brain,
            images: images.iter().map(|root| Known::new(&root.image, root.python.is_some(), root.limits)).collect(),
            others_ready,
            cells: HashMap::new(),
            waiting: HashMap::new(),
            ages: HashMap::new(),
            rests: HashMap::new(),
            last_id: 0,
            last_error: None,
        };
        let (ready, closed) = (watch::Sender::default(), watch::Sender::default());
        let pool = Arc::new(Pool { shared, state: Mutex::new(state), ready, closed });
        pool.tell(Message::Start);
        pool.follow(news);
        pool
    }

    /// A cell of the image for this workspace: a ready one, or the next that is made.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        image: usize,
        workspace: Option<&WorkspaceId>,
    ) -> Result<Cell, LeaseError> {
        let (answer, wait) = oneshot::channel();
        let ticket = self.enqueue(image, workspace, answer);
        let mut cancel = Cancel { pool: self, ticket: Some(ticket) };
        let answer = tokio::time::timeout(LEASE_WAIT_MAX, wait).await;
        if answer.is_ok() {
            cancel.ticket = None;
        }
        answer.map_err(|_| LeaseError::TimedOut)?.map_err(|_| LeaseError::Closed)?
    }

    /// A further image, of which nothing is kept ready before it is leased. Its index.
    pub(crate) fn add_image(&self, name: &str, has_python: bool, limits: ImageLimits) -> usize {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        state.brain.add(Target { least: state.others_ready, most: state.others_ready }, has_python);
        state.images.push(Known::new(name, has_python, limits));
        state.images.len() - 1
    }

    pub(crate) fn image_name(&self, image: usize) -> Option<Arc<str>> {
        lock(&self.state).images.get(image).map(|known| Arc::clone(&known.name))
    }

    pub(crate) fn image_limits(&self, image: usize) -> ImageLimits {
        lock(&self.state).images.get(image).map(|known| known.limits).unwrap_or_default()
    }

    /// How the pool stands, and when that changes.
    pub(crate) fn readiness(&self) -> watch::Receiver<Readiness> {
        self.ready.subscribe()
    }

    /// Takes the reason of the last failure, if one is still untold.
    pub(crate) fn take_error(&self) -> Option<LeaseError> {
        lock(&self.state).last_error.take()
    }

    /// Hands out nothing more and gives up what is ready or in the making.
    pub(crate) fn close(self: &Arc<Self>) {
        self.tell(Message::Close);
        self.closed.send_replace(true);
    }

    /// Sets of zygotes that are one workspace's, or are to be.
    pub(crate) fn apart(&self) -> usize {
        lock(&self.state).brain.apart()
    }

    /// Whether memory is short, as far as it was looked at.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        lock(&self.state).brain.is_short()
    }

    /// Takes the keeper's news to the brain, as long as there are any.
    fn follow(self: &Arc<Self>, mut told: mpsc::UnboundedReceiver<News>) {
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(news) = told.recv().await {
                let Some(pool) = pool.upgrade() else { return };
                pool.tell(match news {
                    News::Ready { set, zygote } => Message::TookOver { set, zygote },
                    News::NotRenewed { set, errno } => Message::NotRenewed { set, errno },
                    News::Gone { set, cell } => Message::Gone { set, cell },
                });
            }
        });
    }

    fn enqueue(
        self: &Arc<Self>,
        image: usize,
        workspace: Option<&WorkspaceId>,
        answer: oneshot::Sender<Result<Cell, LeaseError>>,
    ) -> Ticket {
        // Files are read for it: before the lock, for which every lease waits.
        let short = self.shared.memory.is_short();
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        state.last_id += 1;
        let ticket = state.last_id;
        state.waiting.insert(ticket, answer);
        // A cell can die while it waits: it is looked at before it is handed out.
        while let Some((set, cell)) = state.brain.next_ready(image, workspace)
            && state.cells.get(&cell).is_none_or(Cell::is_spoiled)
        {
            self.step(state, Message::Spoiled { set, cell });
        }
        self.tell_of_memory(state, short);
        self.step(state, Message::Lease { image, workspace: workspace.cloned(), ticket });
        ticket
    }

    /// Tells the brain where memory has run short. That it is short no longer the brain asks for itself.
    fn tell_of_memory(self: &Arc<Self>, state: &mut State, short: bool) {
        if short && !state.brain.is_short() {
            tracing::warn!("memory is short: sessions are refused until it is not");
            self.step(state, Message::Memory { short: true });
        }
    }

    /// Does something with the pool, if it is still there, after a while.
    fn after(self: &Arc<Self>, wait: Duration, then: impl FnOnce(&Arc<Self>) + Send + 'static) -> AbortHandle {
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            if let Some(pool) = pool.upgrade() {
                then(&pool);
            }
        })
        .abort_handle()
    }

    fn tell_after(self: &Arc<Self>, wait: Duration, message: Message) {
        let _runs_on = self.after(wait, move |pool| pool.tell(message));
    }

    fn tell(self: &Arc<Self>, message: Message) {
        self.step(&mut lock(&self.state), message);
    }

    /// Takes a message to the brain and carries out what it says. Nothing in here waits.
    fn step(self: &Arc<Self>, state: &mut State, message: Message) {
        for effect in state.brain.step(message) {
            match effect {
                Effect::Make { image, set } => {
                    state.last_id += 1;
                    tokio::spawn(Arc::clone(self).make(image, set, state.last_id));
                }
                Effect::Hand { ticket, cell } => {
                    // A caller that left in this moment drops the cell, which destroys it.
                    if let (Some(answer), Some(cell)) = (state.waiting.remove(&ticket), state.cells.remove(&cell)) {
                        let _ = answer.send(Ok(cell));
                    }
                }
                Effect::Refuse { ticket } => {
                    if let Some(answer) = state.waiting.remove(&ticket) {
                        let _ = answer.send(Err(state.last_error.take().unwrap_or(LeaseError::Closed)));
                    }
                }
                Effect::Destroy { cell } => drop(state.cells.remove(&cell)),
                Effect::RefuseShort { ticket } => {
                    if let Some(answer) = state.waiting.remove(&ticket) {
                        let _ = answer.send(Err(LeaseError::ShortOfMemory));
                    }
                }
                Effect::RefuseFull { ticket, sets } => {
                    if let Some(answer) = state.waiting.remove(&ticket) {
                        let _ = answer.send(Err(LeaseError::ZygotesTaken { sets }));
                    }
                }
                Effect::Watch { set, wait } => {
                    let rest = self.after(wait, move |pool| pool.tell(Message::Looked { set }));
                    replace(&mut state.rests, set, rest);
                }
                Effect::Lull { set, wait } => self.tell_after(wait, Message::Lulled { set }),
                Effect::LookAtMemory(wait) => drop(self.after(wait, |pool| {
                    let short = pool.shared.memory.is_short();
                    pool.tell(Message::Memory { short });
                })),
                // Behind the destructions: the keeper takes requests in order.
                Effect::Rest { set } => self.shared.keeper.rest(set),
                Effect::End { set } => {
                    self.shared.keeper.rest(set);
                    let timers = [state.ages.remove(&set), state.rests.remove(&set)];
                    timers.into_iter().flatten().for_each(|timer| timer.abort());
                }
                Effect::Renew { set } => self.shared.keeper.renew(set),
                Effect::RenewLater { set, errno, wait, first } => {
                    if first {
                        let image = state.brain.image_of(set).and_then(|image| state.images.get(image));
                        let image = image.map_or("", |known| &known.name);
                        tracing::warn!(
                            image,
                            errno,
                            "a zygote could not be replaced: the one before goes on, and it is tried again"
                        );
                    }
                    self.tell_after(wait, Message::RenewAgain { set });
                }
                Effect::Age { set, zygote, wait } => {
                    let age = self.after(wait, move |pool| pool.tell(Message::Aged { set, zygote }));
                    replace(&mut state.ages, set, age);
                }
                Effect::Sleep(wait) => self.tell_after(wait, Message::Woke),
            }
        }
        let ready = state.brain.ready();
        self.ready.send_if_modified(|readiness| std::mem::replace(&mut readiness.ready, ready) != ready);
    }

    async fn make(self: Arc<Self>, image: usize, set: SetId, id: CellId) {
        let mut closed = self.closed.subscribe();
        let made = tokio::select! {
            made = self.make_cell(image, set, id) => made,
            // It may wait for a zygote that imports for minutes, and nobody waits for it.
            _ = closed.wait_for(|closed| *closed) => return,
        };
        let short = self.shared.memory.is_short();
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        match made {
            Ok((cell, origin)) => {
                state.cells.insert(id, cell);
                self.tell_of_memory(state, short);
                self.step(state, Message::Made { set, cell: id, origin });
            }
            Err(error) => {
                tracing::warn!(%error, source = std::error::Error::source(&error).map(tracing::field::display), "a cell could not be made");
                state.last_error = Some(error);
                self.step(state, Message::Failed { set });
                self.ready.send_modify(|readiness| readiness.failures += 1);
            }
        }
    }

    async fn make_cell(&self, image: usize, set: SetId, id: CellId) -> Result<(Cell, Origin), LeaseError> {
        let keeper = &self.shared.keeper;
        // From here on the cell is on its way: whatever fails, it is destroyed.
        let guard = Unmade { pool: self, id, armed: true };
        let made = keeper.make(id, number_of(image), set).await?;
        let background = Background::new();
        let has_python = lock(&self.state).images.get(image).is_some_and(|known| known.has_python);
        let worker = if has_python {
            Some(Worker::start(keeper, id, made.events.clone(), Arc::clone(&background)).await?)
        } else {
            None
        };
        let origin = worker.as_ref().map(Worker::origin).unwrap_or_default();
        let cell = Cell::new(Arc::clone(&self.shared), id, made, background, worker)?;
        guard.disarm();
        Ok((cell, origin))
    }
}

impl Known {
    fn new(name: &str, has_python: bool, limits: ImageLimits) -> Known {
        Known { name: Arc::from(name), has_python, limits }
    }
}

/// A timer in the place of the one before.
fn replace(timers: &mut HashMap<SetId, AbortHandle>, set: SetId, timer: AbortHandle) {
    if let Some(before) = timers.insert(set, timer) {
        before.abort();
    }
}

/// An image's index as the keeper takes it.
fn number_of(image: usize) -> u32 {
    u32::try_from(image).unwrap_or(u32::MAX)
}

/// A caller that waits; when it leaves, it is taken off the list.
struct Cancel<'a> {
    pool: &'a Arc<Pool>,
    ticket: Option<Ticket>,
}

impl Drop for Cancel<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let mut guard = lock(&self.pool.state);
            guard.waiting.remove(&ticket);
            self.pool.step(&mut guard, Message::Cancel { ticket });
        }
    }
}

/// A cell that is made but not yet in anyone's hands.
struct Unmade<'a> {
    pool: &'a Pool,
    id: CellId,
    armed: bool,
}

impl Unmade<'_> {
    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Unmade<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.pool.shared.keeper.destroy(self.id);
        }
    }
}
