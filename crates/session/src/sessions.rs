//! The table of sessions, and the room's front.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ringfence_interp::{Cell, Interp, LeaseError};
use ringfence_op::{Call, Fault, Outcome, SessionId, WorkspaceId};
use ringfence_workspace::Workspace;
use tokio::sync::Notify;

use crate::calls;
use crate::config::{Counts, Handle, Lease, SessionConfig};
use crate::detached::Detached;
use crate::fair::Room;
use crate::files::Files;
use crate::guards::{Counted, Lent, Reserved};
use crate::images::{self, Images};
use crate::lifetime::{Expiry, clamp};
use crate::limits::TEARDOWN_WAIT_MAX;
use crate::refusal::{crowded, draining, no_cell, no_memory, no_zygote};
use crate::session::{Clock, Place, Session, Terms};

/// All sessions. Clones are handles to the same ones.
#[derive(Debug, Clone)]
pub struct Sessions {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) interp: Interp,
    pub(crate) config: SessionConfig,
    pub(crate) images: Images,
    pub(crate) clock: Clock,
    pub(crate) table: Mutex<Table>,
    /// Calls that run or wait.
    pub(crate) calls: AtomicUsize,
    /// Notified when no call runs any more, and when a cell is gone.
    pub(crate) calmer: Notify,
    /// Notified when a session comes that ends before the moment the reaper waits for.
    pub(crate) sooner: Arc<Notify>,
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) sessions: HashMap<SessionId, Arc<Session>>,
    /// Leases under way.
    pub(crate) creating: usize,
    /// Cells under destruction.
    pub(crate) ending: usize,
    pub(crate) draining: bool,
    /// Sessions and leases under way of each workspace that has any: never more entries than there may be sessions.
    pub(crate) held: HashMap<WorkspaceId, usize>,
    /// When the reaper wakes by itself.
    pub(crate) next_look: Option<Duration>,
}

impl Sessions {
    /// Starts with no session; needs a tokio runtime.
    #[must_use]
    pub fn start(interp: Interp, mut config: SessionConfig) -> Self {
        let images = Images::new(std::mem::take(&mut config.images), config.absent.take());
        let inner = Arc::new(Inner {
            interp,
            config,
            images,
            clock: Clock::start(),
            table: Mutex::default(),
            calls: AtomicUsize::new(0),
            calmer: Notify::new(),
            sooner: Arc::new(Notify::new()),
        });
        tokio::spawn(reap(Arc::downgrade(&inner), Arc::clone(&inner.sooner), inner.clock));
        Sessions { inner }
    }

    /// Leases a session. A tenant has its share and its ceiling of them. Hints never make it fail: an unknown image is the default one, times are clamped.
    ///
    /// # Errors
    /// `Capacity` when there is no room, none for this tenant, no zygote that is this tenant's alone, no cell could be made, or
    /// the server shuts down; `House` when the keeper is gone.
    pub async fn create(&self, lease: Lease) -> Result<Handle, Fault> {
        let inner = &self.inner;
        let place = Reserved::new(inner, lease.tenant.as_ref())?;
        let workspace = lease.tenant.as_ref().map(|tenant| &tenant.workspace);
        let (image, cell) = inner.lease_cell(lease.image.as_deref(), workspace).await?;
        let of_image = inner.interp.image_limits(image);
        let terms = Terms {
            id: SessionId::random().map_err(|error| Fault::house(error.to_string()))?,
            image: inner.interp.image_name(image).as_deref().unwrap_or_default().to_owned(),
            idle: clamp(lease.idle, inner.config.idle_default, inner.config.idle_max),
            lifetime: clamp(lease.lifetime, inner.config.lifetime_default, inner.config.lifetime_max),
            owner: lease.tenant.map(|tenant| tenant.workspace),
            limits: of_image.within(&inner.config.cell),
            timeout_max: of_image.timeout_max(inner.config.calls.timeout_max),
        };
        let root = cell.workspace().try_clone_to_owned().map_err(Fault::house)?;
        let workspace = Workspace::new(root, cell.owner_id(), inner.config.calls.output_bytes_max);
        let session = Session::new(terms, cell, workspace, inner.clock, inner.config.calls.queue_calls_max);
        let handle = inner.describe(&session);
        place.fill(session)?;
        Ok(handle)
    }

    /// Leases that say one of these names get the image of that number from now on, unless it is another's name.
    pub fn learn(&self, names: impl IntoIterator<Item = String>, image: u32) {
        self.inner.images.learn(names, image);
    }

    /// Undoes [`Self::learn`] for one name: leases that say it ask [`crate::Absent`] again.
    pub fn forget(&self, name: &str) {
        self.inner.images.forget(name);
    }

    /// Runs one call. The call goes on when the returned future is dropped: the session is usable as soon as it ends.
    ///
    /// # Errors
    /// `UnknownSession`, also when the session ends while the call runs; `Capacity` when too many calls wait in it or
    /// the wait was too long. What a program does is never an error.
    pub async fn execute(&self, id: SessionId, mut call: Call) -> Result<Outcome, Fault> {
        let session = self.inner.find(id)?;
        call.timeout = call.timeout.min(session.terms.timeout_max);
        let hold = session.hold();
        let Some(place) = session.enter() else {
            return Err(crowded("too many calls wait in this session"));
        };
        let counted = Counted::new(&self.inner);
        Detached::new(async move {
            let outcome = counted.inner.run_call(&session, place, &call).await;
            drop((hold, counted));
            outcome
        })
        .await
    }

    /// Releases a session: answered at once, torn down behind. A call that runs in it is ended.
    ///
    /// # Errors
    /// `UnknownSession`.
    pub fn destroy(&self, id: SessionId) -> Result<(), Fault> {
        let session = self.inner.lookup(id).ok_or_else(Fault::unknown_session)?;
        self.inner.end(&session);
        Ok(())
    }

    /// Interrupts the program that runs in a session, as ctrl-C does; `false` where none runs. Calls that wait behind
    /// it are not touched. Answered at once, and no activity of its own.
    ///
    /// # Errors
    /// `UnknownSession`.
    pub fn interrupt(&self, id: SessionId) -> Result<bool, Fault> {
        self.inner.find(id).map(|session| session.interrupt())
    }

    /// The handles of all sessions, or of those of one workspace, the oldest first; as many as there may be sessions at
    /// the most.
    #[must_use]
    pub fn handles(&self, owner: Option<&WorkspaceId>) -> Vec<Handle> {
        let sessions = self.inner.sessions_of(owner);
        let alive = sessions.iter().filter(|session| session.expired().is_none() && !session.is_dead());
        let mut handles: Vec<_> = alive.map(|session| self.inner.describe(session)).collect();
        handles.sort_by_key(|handle| handle.created);
        handles
    }

    /// The handle of a session; asking for it is no activity.
    ///
    /// # Errors
    /// `UnknownSession`.
    pub fn handle(&self, id: SessionId) -> Result<Handle, Fault> {
        self.inner.find(id).map(|session| self.inner.describe(&session))
    }

    /// The files of a session, for as long as the caller needs them: the session is not idle until it is dropped.
    ///
    /// # Errors
    /// `UnknownSession`.
    pub fn files(&self, id: SessionId) -> Result<Files, Fault> {
        let session = self.inner.find(id)?;
        Ok(Files::of(&session))
    }

    /// Whether a session is there for a workspace. A session belongs to the one that leased it for good, and ids are
    /// never used again: what is asked of the session afterwards need not ask again.
    ///
    /// # Errors
    /// `UnknownSession`, in the same words for another's session and for none.
    pub fn admit(&self, id: SessionId, owner: &WorkspaceId) -> Result<(), Fault> {
        let session = self.inner.lookup(id).ok_or_else(Fault::unknown_session)?;
        if session.terms.owner.as_ref() == Some(owner) { Ok(()) } else { Err(Fault::unknown_session()) }
    }

    /// How many sessions a workspace has, leases under way counted in.
    #[must_use]
    pub fn count_of(&self, owner: &WorkspaceId) -> usize {
        self.inner.table().held.get(owner).copied().unwrap_or(0)
    }

    /// Numbers of the moment.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let table = self.inner.table();
        Counts {
            sessions: table.sessions.len(),
            sessions_max: self.inner.config.sessions_max,
            calls: self.inner.calls.load(Ordering::Relaxed),
            ending: table.ending,
            warm: self.inner.interp.ready(),
            zygotes_apart: self.inner.interp.zygotes_apart(),
            draining: table.draining,
        }
    }

    /// Whether leases are taken.
    ///
    /// # Errors
    /// `Capacity` while the server shuts down, and while memory is short, in the words of a lease that is refused for it.
    /// That all sessions are taken does not count: one more ends by itself.
    pub fn ready(&self) -> Result<(), Fault> {
        let inner = &self.inner;
        if inner.table().draining {
            return Err(draining());
        }
        if inner.interp.is_short_of_memory() {
            return Err(no_memory(&inner.table(), inner.clock));
        }
        Ok(())
    }

    /// From here on no lease is taken.
    pub fn begin_drain(&self) {
        self.inner.table().draining = true;
    }

    /// Takes no more leases, refuses those that wait for a cell, gives running calls `grace` to end, ends every session,
    /// and waits, bounded, until the last cell is gone.
    pub async fn shutdown(&self, grace: Duration) {
        self.begin_drain();
        let inner = &self.inner;
        inner.interp.close();
        let idle = inner.calm(|inner| inner.calls.load(Ordering::Acquire) == 0);
        let _ = tokio::time::timeout(grace, idle).await;
        let sessions: Vec<_> = inner.table().sessions.values().cloned().collect();
        for session in sessions {
            inner.end(&session);
        }
        let gone = inner.calm(|inner| {
            let table = inner.table();
            table.ending == 0 && table.creating == 0 && inner.calls.load(Ordering::Acquire) == 0
        });
        if tokio::time::timeout(TEARDOWN_WAIT_MAX, gone).await.is_err() {
            tracing::warn!("sessions were still being torn down at the end");
        }
        inner.interp.shutdown().await;
    }
}

impl Table {
    /// The state of the server as a lease of `workspace` finds it.
    pub(crate) fn room(&self, workspace: &WorkspaceId, max: usize) -> Room {
        let own = self.held.get(workspace).copied().unwrap_or(0);
        Room { taken: self.sessions.len() + self.creating, max, own, others: self.held.len() - usize::from(own > 0) }
    }

    /// A workspace has one session less.
    pub(crate) fn let_go(&mut self, owner: Option<&WorkspaceId>) {
        let Some(owner) = owner else { return };
        match self.held.get_mut(owner) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.held.remove(owner)),
        }
    }
}

impl Inner {
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sessions_of(&self, owner: Option<&WorkspaceId>) -> Vec<Arc<Session>> {
        let table = self.table();
        let wanted = |session: &&Arc<Session>| owner.is_none() || session.terms.owner.as_ref() == owner;
        table.sessions.values().filter(wanted).cloned().collect()
    }

    fn lookup(&self, id: SessionId) -> Option<Arc<Session>> {
        self.table().sessions.get(&id).cloned()
    }

    /// A session that lives. One whose time is over, or whose cell is dead, is ended here and now.
    fn find(self: &Arc<Self>, id: SessionId) -> Result<Arc<Session>, Fault> {
        let session = self.lookup(id).ok_or_else(Fault::unknown_session)?;
        if session.expired().is_some() || session.is_dead() {
            self.end(&session);
            return Err(Fault::unknown_session());
        }
        Ok(session)
    }

    /// A cell of the image that is asked for, or of the default where that cannot be had.
    async fn lease_cell(&self, hint: Option<&str>, workspace: Option<&WorkspaceId>) -> Result<(u32, Cell), Fault> {
        let image = self.images.choose(hint);
        match self.interp.lease(image, workspace).await {
            Ok(cell) => Ok((image, cell)),
            Err(LeaseError::ShortOfMemory) => Err(no_memory(&self.table(), self.clock)),
            Err(LeaseError::ZygotesTaken { sets }) => Err(no_zygote(sets, &self.table(), self.clock)),
            Err(error) if image == images::DEFAULT || self.table().draining => Err(no_cell(error)),
            Err(error) => {
                let name = self.interp.image_name(image);
                let name = name.as_deref().unwrap_or_default();
                if self.images.is_news(&format!("no cell of {name}")) {
                    tracing::warn!(image = name, %error, "no cell of this image can be had: its sessions get the default one");
                }
                match self.interp.lease(images::DEFAULT, workspace).await {
                    Ok(cell) => Ok((images::DEFAULT, cell)),
                    Err(LeaseError::ZygotesTaken { sets }) => Err(no_zygote(sets, &self.table(), self.clock)),
                    Err(error) => Err(no_cell(error)),
                }
            }
        }
    }

    fn describe(&self, session: &Session) -> Handle {
        Handle {
            id: session.terms.id,
            created: session.created,
            last_activity: session.last_activity(),
            idle: session.terms.idle,
            lifetime: session.terms.lifetime,
            image: session.terms.image.clone(),
            tier: self.config.tier,
            limits: session.terms.limits.clone(),
            timeout_max: session.terms.timeout_max,
        }
    }

    async fn run_call(self: &Arc<Self>, session: &Arc<Session>, place: Place, call: &Call) -> Result<Outcome, Fault> {
        let limits = &self.config.calls;
        let _turn = calls::turn(session, place, limits.queue_wait_max).await?;
        let Some(cell) = session.take_cell() else { return Err(calls::ended_meanwhile()) };
        let mut lent = Lent { inner: self, session, cell: Some(cell), whole: false };
        let ran = {
            let Some(cell) = lent.cell.as_mut() else { return Err(calls::ended_meanwhile()) };
            tokio::select! {
                biased;
                () = session.ended() => return Err(calls::ended_meanwhile()),
                ran = calls::operate(&session.workspace, cell, call, limits.output_bytes_max) => ran,
            }
        };
        lent.whole = true;
        drop(lent);
        Ok(calls::conclude(&session.workspace, ran?, call, limits.produced_files_max).await)
    }

    pub(crate) fn end(self: &Arc<Self>, session: &Session) {
        let mut table = self.table();
        if table.sessions.remove(&session.terms.id).is_some() {
            table.let_go(session.terms.owner.as_ref());
        }
        drop(table);
        if let Some(cell) = session.end() {
            self.tear_down(cell);
        }
    }

    /// Destroys a cell behind.
    pub(crate) fn tear_down(self: &Arc<Self>, cell: Cell) {
        self.table().ending += 1;
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            if tokio::time::timeout(TEARDOWN_WAIT_MAX, cell.destroy()).await.is_err() {
                tracing::warn!("a cell is slow to go");
            }
            inner.table().ending -= 1;
            inner.calmer.notify_waiters();
        });
    }

    /// Ends what is over: when to look again.
    fn reap(self: &Arc<Self>) -> Option<Duration> {
        let sessions: Vec<_> = self.table().sessions.values().cloned().collect();
        for session in &sessions {
            let Some(expiry) = session.expired() else { continue };
            let clock = match expiry {
                Expiry::Idle => "idle",
                Expiry::Lifetime => "lifetime",
            };
            tracing::info!(session = %session.terms.id, clock, "a session has expired");
            self.end(session);
        }
        let mut table = self.table();
        table.next_look = table.sessions.values().map(|session| session.look_again()).min();
        table.next_look
    }

    /// Waits until `calm` holds.
    async fn calm(&self, calm: impl Fn(&Inner) -> bool) {
        loop {
            let notified = self.calmer.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if calm(self) {
                return;
            }
            notified.await;
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.sooner.notify_one();
    }
}

/// The reaper: sleeps until the first session can end, and at rest does not wake at all.
async fn reap(inner: Weak<Inner>, sooner: Arc<Notify>, clock: Clock) {
    while let Some(strong) = inner.upgrade() {
        let next = strong.reap();
        drop(strong);
        match next {
            None => sooner.notified().await,
            Some(next) => tokio::select! {
                () = tokio::time::sleep_until(clock.at(next)) => {}
                () = sooner.notified() => {}
            },
        }
    }
}
