//! The table of sessions, and the room's front.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use ringfence_interp::{Cell, Interp, LeaseError};
use ringfence_op::{Call, CallLimits, CellLimits, Fault, FaultKind, Outcome, SessionId, Tier, WorkspacePath};
use ringfence_workspace::{Listing, OpenedFile, Upload, Workspace};
use tokio::sync::Notify;

use crate::calls;
use crate::lifetime::{Expiry, clamp};
use crate::limits::{
    RETRY_AFTER_SECONDS_DEFAULT, RETRY_AFTER_SECONDS_DRAINING, RETRY_AFTER_SECONDS_MAX, TEARDOWN_WAIT_MAX,
};
use crate::session::{Clock, Hold, Place, Session, Terms};

/// What the sessions of a server have in common.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Sessions at the same time.
    pub sessions_max: usize,
    /// The idle timeout of a lease that names none.
    pub idle_default: Duration,
    /// Longer idle timeouts are clamped to this.
    pub idle_max: Duration,
    /// The lifetime of a lease that names none.
    pub lifetime_default: Duration,
    /// Longer lifetimes are clamped to this.
    pub lifetime_max: Duration,
    /// Limits of a call.
    pub calls: CallLimits,
    /// Limits of a cell, as the handle states them.
    pub cell: CellLimits,
    /// The tier in force, as the handle states it.
    pub tier: Tier,
}

impl Default for SessionConfig {
    fn default() -> Self {
        SessionConfig {
            sessions_max: 100,
            idle_default: Duration::from_secs(300),
            idle_max: Duration::from_secs(3600),
            lifetime_default: Duration::from_secs(3600),
            lifetime_max: Duration::from_secs(24 * 3600),
            calls: CallLimits::default(),
            cell: CellLimits::default(),
            tier: Tier::Cell,
        }
    }
}

/// Hints of a lease.
#[derive(Debug, Clone, Default)]
pub struct Lease {
    /// The image asked for; one that is not there is as good as none.
    pub image: Option<String>,
    /// The idle timeout asked for.
    pub idle: Option<Duration>,
    /// The lifetime asked for.
    pub lifetime: Option<Duration>,
}

/// A session as its holder sees it.
#[derive(Debug, Clone)]
pub struct Handle {
    /// Its id.
    pub id: SessionId,
    /// When it was created.
    pub created: SystemTime,
    /// When it was last used.
    pub last_activity: SystemTime,
    /// The idle timeout in force.
    pub idle: Duration,
    /// The lifetime in force.
    pub lifetime: Duration,
    /// The image that it runs.
    pub image: String,
    /// The tier that holds it.
    pub tier: Tier,
    /// What its cell may use.
    pub limits: CellLimits,
}

/// Numbers of the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions that exist.
    pub sessions: usize,
    /// Sessions that may exist.
    pub sessions_max: usize,
    /// Calls that run or wait.
    pub calls: usize,
    /// Ended sessions whose cells are not gone yet.
    pub ending: usize,
    /// Cells ready to be leased.
    pub warm: usize,
    /// No lease is taken any more.
    pub draining: bool,
}

/// All sessions. Clones are handles to the same ones.
#[derive(Debug, Clone)]
pub struct Sessions {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    interp: Interp,
    config: SessionConfig,
    clock: Clock,
    table: Mutex<Table>,
    /// Calls that run or wait.
    calls: AtomicUsize,
    /// Notified when no call runs any more, and when a cell is gone.
    calmer: Notify,
    /// Notified when a session comes that ends before the moment the reaper waits for.
    sooner: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Table {
    sessions: HashMap<SessionId, Arc<Session>>,
    /// Leases under way.
    creating: usize,
    /// Cells under destruction.
    ending: usize,
    draining: bool,
    /// When the reaper wakes by itself.
    next_look: Option<Duration>,
}

impl Sessions {
    /// Starts with no session; needs a tokio runtime.
    #[must_use]
    pub fn start(interp: Interp, config: SessionConfig) -> Self {
        let inner = Arc::new(Inner {
            interp,
            config,
            clock: Clock::start(),
            table: Mutex::default(),
            calls: AtomicUsize::new(0),
            calmer: Notify::new(),
            sooner: Arc::new(Notify::new()),
        });
        tokio::spawn(reap(Arc::downgrade(&inner), Arc::clone(&inner.sooner), inner.clock));
        Sessions { inner }
    }

    /// Leases a session. Hints never make it fail: an unknown image is the default one, times are clamped.
    ///
    /// # Errors
    /// `Capacity` when there is no room, no cell could be made, or the server shuts down; `House` when the keeper is
    /// gone.
    pub async fn create(&self, lease: Lease) -> Result<Handle, Fault> {
        let inner = &self.inner;
        let place = Reserved::new(inner)?;
        let image = lease.image.as_deref().and_then(|name| inner.interp.image(name)).unwrap_or(0);
        let cell = inner.interp.lease(image).await.map_err(no_cell)?;
        let terms = Terms {
            id: SessionId::random().map_err(|error| Fault::house(error.to_string()))?,
            image: inner.interp.image_name(image).unwrap_or_default().to_owned(),
            idle: clamp(lease.idle, inner.config.idle_default, inner.config.idle_max),
            lifetime: clamp(lease.lifetime, inner.config.lifetime_default, inner.config.lifetime_max),
        };
        let root = cell.workspace().try_clone_to_owned().map_err(Fault::house)?;
        let workspace = Workspace::new(root, cell.owner_id(), inner.config.calls.output_bytes_max);
        let session = Session::new(terms, cell, workspace, inner.clock, inner.config.calls.queue_calls_max);
        let handle = inner.describe(&session);
        place.fill(session);
        Ok(handle)
    }

    /// Runs one call. The call goes on when the returned future is dropped: the session is usable as soon as it ends.
    ///
    /// # Errors
    /// `UnknownSession`, also when the session ends while the call runs; `Capacity` when too many calls wait in it or
    /// the wait was too long. What a program does is never an error.
    pub async fn execute(&self, id: SessionId, call: Call) -> Result<Outcome, Fault> {
        let session = self.inner.find(id)?;
        let hold = session.hold();
        let Some(place) = session.enter() else {
            let kind = FaultKind::Capacity { retry_after_seconds: RETRY_AFTER_SECONDS_DEFAULT };
            return Err(Fault::new(kind, "too many calls wait in this session"));
        };
        let counted = Counted::new(&self.inner);
        let task = tokio::spawn(async move {
            let outcome = counted.inner.run_call(&session, place, &call).await;
            drop((hold, counted));
            outcome
        });
        task.await.unwrap_or_else(|error| Err(Fault::house(error)))
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
        Ok(Files { hold: session.hold(), workspace: session.workspace.clone() })
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
            draining: table.draining,
        }
    }

    /// Whether leases are taken.
    ///
    /// # Errors
    /// `Capacity` while the server shuts down.
    pub fn ready(&self) -> Result<(), Fault> {
        if self.inner.table().draining { Err(draining()) } else { Ok(()) }
    }

    /// From here on no lease is taken.
    pub fn begin_drain(&self) {
        self.inner.table().draining = true;
    }

    /// Takes no more leases, gives running calls `grace` to end, ends every session, and waits, bounded, until the
    /// last cell is gone.
    pub async fn shutdown(&self, grace: Duration) {
        self.begin_drain();
        let inner = &self.inner;
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

/// The files of a session, held open: while it lives, the session is not idle.
#[derive(Debug)]
pub struct Files {
    workspace: Workspace,
    hold: Hold,
}

impl Files {
    /// The workspace itself, for what streams through it.
    #[must_use]
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// Only the hold, for a file or an upload that was opened and is carried on with.
    #[must_use]
    pub fn into_hold(self) -> Hold {
        self.hold
    }

    /// The files of a folder, or of the tree below it.
    ///
    /// # Errors
    /// As [`Workspace::list`].
    pub async fn list(self, path: WorkspacePath, recursive: bool) -> Result<Listing, Fault> {
        self.blocking(move |workspace| workspace.list(&path, recursive)).await
    }

    /// Opens a file; the hold goes with it.
    ///
    /// # Errors
    /// As [`Workspace::open_file`].
    pub fn open_file(self, path: &WorkspacePath) -> Result<(OpenedFile, Hold), Fault> {
        Ok((self.workspace.open_file(path)?, self.hold))
    }

    /// Begins an upload; the hold goes with it. Where the path is known, what cannot be put there is refused at once.
    ///
    /// # Errors
    /// As [`Workspace::create_upload`] and [`Workspace::begin_upload`].
    pub fn upload(self, path: Option<&WorkspacePath>, bytes_max: u64) -> Result<(Upload, Hold), Fault> {
        let upload = match path {
            Some(path) => self.workspace.create_upload(path, bytes_max)?,
            None => self.workspace.begin_upload(bytes_max)?,
        };
        Ok((upload, self.hold))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// As [`Workspace::remove`].
    pub fn remove(self, path: &WorkspacePath) -> Result<(), Fault> {
        self.workspace.remove(path)
    }

    /// Does something that may take long on a thread that may block.
    ///
    /// # Errors
    /// What `work` says; `House` when it panicked.
    pub async fn blocking<T: Send + 'static>(
        self,
        work: impl FnOnce(&Workspace) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        tokio::task::spawn_blocking(move || work(&self.workspace))
            .await
            .unwrap_or_else(|error| Err(Fault::house(error)))
    }
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn describe(&self, session: &Session) -> Handle {
        Handle {
            id: session.terms.id,
            created: session.created,
            last_activity: session.last_activity(),
            idle: session.terms.idle,
            lifetime: session.terms.lifetime,
            image: session.terms.image.clone(),
            tier: self.config.tier,
            limits: self.config.cell.clone(),
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

    fn end(self: &Arc<Self>, session: &Session) {
        self.table().sessions.remove(&session.terms.id);
        if let Some(cell) = session.end() {
            self.tear_down(cell);
        }
    }

    /// Destroys a cell behind.
    fn tear_down(self: &Arc<Self>, cell: Cell) {
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

/// Room for one session, until it is filled or given up.
struct Reserved<'a> {
    inner: &'a Inner,
}

impl<'a> Reserved<'a> {
    fn new(inner: &'a Inner) -> Result<Self, Fault> {
        let mut table = inner.table();
        if table.draining {
            return Err(draining());
        }
        // Cells that are on their way out still take memory: they may be as many again, not more.
        let full = table.sessions.len() + table.creating >= inner.config.sessions_max;
        if full || table.ending >= inner.config.sessions_max.max(1) {
            return Err(no_room(&table, inner.clock));
        }
        table.creating += 1;
        Ok(Reserved { inner })
    }

    fn fill(self, session: Arc<Session>) {
        let look = session.look_again();
        let mut table = self.inner.table();
        table.sessions.insert(session.terms.id, session);
        if table.next_look.is_none_or(|next| look < next) {
            self.inner.sooner.notify_one();
        }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.inner.table().creating -= 1;
        self.inner.calmer.notify_waiters();
    }
}

/// A cell in the hands of a call. Whole, it goes back to its session; what a call was cut off in is destroyed.
struct Lent<'a> {
    inner: &'a Arc<Inner>,
    session: &'a Arc<Session>,
    cell: Option<Cell>,
    whole: bool,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let Some(cell) = self.cell.take() else { return };
        if self.whole && !cell.died() {
            if let Some(cell) = self.session.put_back(cell) {
                self.inner.tear_down(cell);
            }
        } else {
            self.inner.tear_down(cell);
            self.inner.end(self.session);
        }
    }
}

/// A call that is counted.
struct Counted {
    inner: Arc<Inner>,
}

impl Counted {
    fn new(inner: &Arc<Inner>) -> Self {
        inner.calls.fetch_add(1, Ordering::AcqRel);
        Counted { inner: Arc::clone(inner) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.inner.calls.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.inner.calmer.notify_waiters();
        }
    }
}

fn draining() -> Fault {
    let kind = FaultKind::Capacity { retry_after_seconds: RETRY_AFTER_SECONDS_DRAINING };
    Fault::new(kind, "the server is shutting down")
}

/// No room: by the time that a session ends at the latest if nobody uses it, there is some.
fn no_room(table: &Table, clock: Clock) -> Fault {
    let now = clock.now();
    let wait = table.sessions.values().map(|session| session.look_again().saturating_sub(now)).min();
    let seconds = wait.map_or(RETRY_AFTER_SECONDS_DEFAULT, |wait| {
        u32::try_from(wait.as_secs().saturating_add(1)).unwrap_or(u32::MAX).min(RETRY_AFTER_SECONDS_MAX)
    });
    let kind = FaultKind::Capacity { retry_after_seconds: seconds };
    Fault::new(kind, "no session is free; try again later")
}

fn no_cell(error: LeaseError) -> Fault {
    match error {
        LeaseError::KeeperGone => Fault::house(error),
        LeaseError::Closed => draining(),
        error => {
            let kind = FaultKind::Capacity { retry_after_seconds: RETRY_AFTER_SECONDS_DEFAULT };
            Fault::new(kind, "no session could be made now; try again later").because(error)
        }
    }
}
