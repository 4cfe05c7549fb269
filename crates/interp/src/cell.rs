//! A cell in use: what every call of it has in common. `python.rs` and `bash.rs` hold what each kind adds.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ringfence_frame::init::ToInit;
use ringfence_frame::keeper::Limiter;
use ringfence_op::{BackgroundOutput, CallReport, Usage};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::error::LeaseError;
use crate::init_link::{InitGone, InitLink};
use crate::interp::Shared;
use crate::interrupt::{InterruptHandle, Interrupts};
use crate::keeper_link::{CellEvents, Made};
use crate::limits::{DEATH_WAIT_MAX, KILL_ANSWER_WAIT_MAX, KILL_WAIT_MAX, WORKER_ATTEMPTS_MAX};
use crate::meters::{MeterFiles, Reading};
use crate::pipes::{Background, Leftovers, Streams};
use crate::verdict::{Ending, Evidence, StopCause, Stopped, judge};
use crate::worker::Worker;

/// A leased cell. Calls run one after another; dropping it has it destroyed.
///
/// A future of `run_python` or `run_bash` that is dropped half-way leaves a program running that nobody reads: the
/// cell must be dropped with it, and refuses every later call.
#[derive(Debug)]
pub struct Cell {
    pub(crate) id: u64,
    pub(crate) shared: Arc<Shared>,
    pub(crate) init: InitLink,
    pub(crate) slot: Slot,
    pub(crate) background: Arc<Background>,
    pub(crate) leftovers: Leftovers,
    /// Calls of the interpreter so far, over all interpreters of this cell.
    pub(crate) calls: u32,
    /// An interpreter was lost and no call has said so yet.
    pub(crate) untold_loss: bool,
    interrupt: InterruptHandle,
    workspace: OwnedFd,
    owner_id: u32,
    pub(crate) meters: MeterFiles,
    events: watch::Receiver<CellEvents>,
    /// A killing that was not over when its call's answer had to leave.
    killing: Option<Killing>,
    lost: bool,
    in_call: bool,
}

/// The place of the interpreter.
#[derive(Debug)]
pub(crate) enum Slot {
    /// The image has no Python.
    Never,
    /// Nothing is there, and nothing is on its way.
    Empty,
    /// One is being started, since the last one was lost.
    Starting(JoinHandle<Result<Worker, LeaseError>>),
    /// One waits for calls.
    Ready(Box<Worker>),
}

#[derive(Debug, Clone, Copy)]
struct Killing {
    token: u64,
    give_up: Instant,
}

/// What a call carries from its beginning to its report.
pub(crate) struct Begun {
    /// Clock ticks since boot: what started since then belongs to the call. A tick is 10 ms, and the kernel tells no
    /// finer: what an earlier call started in the very tick in which this one begins counts as this one's.
    pub(crate) since_ticks: u64,
    pub(crate) timeout: Duration,
    pub(crate) deadline: Instant,
    pub(crate) streams: Streams,
    pub(crate) interrupts: Interrupts,
    before: Reading,
    background: Option<BackgroundOutput>,
}

impl Begun {
    /// Tells something that must not make a good run look failed, beside what was written between calls.
    pub(crate) fn tell_aside(&mut self, what: &str) {
        let aside = &mut self.background.get_or_insert_default().stderr;
        if !aside.is_empty() && !aside.ends_with('\n') {
            aside.push('\n');
        }
        aside.push_str(&format!("ringfence: {what}\n"));
    }
}

impl Cell {
    /// Puts a cell together; the interpreter, where the image has one, is started already.
    pub(crate) fn new(
        shared: Arc<Shared>,
        id: u64,
        made: Made,
        background: Arc<Background>,
        worker: Option<Worker>,
    ) -> Result<Self, LeaseError> {
        Ok(Cell {
            id,
            shared,
            init: InitLink::new(made.init).map_err(LeaseError::io("watch init's socket"))?,
            slot: worker.map_or(Slot::Never, |worker| Slot::Ready(Box::new(worker))),
            background,
            leftovers: Leftovers::default(),
            calls: 0,
            untold_loss: false,
            interrupt: InterruptHandle::default(),
            workspace: made.workspace,
            owner_id: made.owner_id,
            meters: made.meters,
            events: made.events,
            killing: None,
            lost: false,
            in_call: false,
        })
    }

    /// The directory `/workspace` of the cell.
    #[must_use]
    pub fn workspace(&self) -> BorrowedFd<'_> {
        self.workspace.as_fd()
    }

    /// The owner of the workspace's files, an id in the fleet's user namespace.
    #[must_use]
    pub fn owner_id(&self) -> u32 {
        self.owner_id
    }

    /// Whether the cell is dead: files and variables are gone, every further call fails.
    #[must_use]
    pub fn died(&self) -> bool {
        self.lost || self.events.borrow().lost
    }

    /// Whether a cell that waits in the pool is of no more use.
    pub(crate) fn is_spoiled(&self) -> bool {
        self.died() || matches!(&self.slot, Slot::Ready(worker) if worker.death().is_some())
    }

    /// Resolves when the cell dies; for whoever wants to know before the next call.
    pub fn death(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut events = self.events.clone();
        async move {
            let _ = events.wait_for(|events| events.lost).await;
        }
    }

    /// A handle that interrupts calls of this cell.
    #[must_use]
    pub fn interrupt_handle(&self) -> InterruptHandle {
        self.interrupt.clone()
    }

    /// Destroys the cell, and waits until nothing of it is left. Dropping the cell does the same behind.
    pub async fn destroy(self) {
        let (keeper, id) = (self.shared.keeper.clone(), self.id);
        let gone = keeper.destroyed(id);
        drop(self);
        gone.await;
    }

    /// Begins a call of the interpreter, which reads the interpreter's pipes.
    pub(crate) fn begin(&mut self, timeout: Duration) -> Begun {
        if let Slot::Ready(worker) = &self.slot {
            worker.pipes().begin_call(&self.shared.sweep);
        }
        self.begun(timeout)
    }

    /// Begins a call that the interpreter has no part in.
    pub(crate) fn begin_beside(&mut self, timeout: Duration) -> Begun {
        if let Slot::Ready(worker) = &self.slot {
            worker.pipes().begin_beside();
        }
        self.begun(timeout)
    }

    fn begun(&mut self, timeout: Duration) -> Begun {
        if std::mem::replace(&mut self.in_call, true) {
            self.lost = true;
        }
        Begun {
            since_ticks: boot_ticks(),
            timeout,
            deadline: Instant::now() + timeout,
            streams: Streams::new(self.shared.calls.output_bytes_max),
            interrupts: self.interrupt.begin(),
            before: self.meters.read(),
            background: self.background.deliver(),
        }
    }

    /// Ends a call: judges it and puts the report together.
    pub(crate) fn finish(&mut self, begun: Begun, ending: Ending, own_cpu_us: u64) -> CallReport {
        self.in_call = false;
        self.interrupt.end();
        if let Slot::Ready(worker) = &self.slot {
            worker.pipes().end_call(&self.shared.sweep);
        }
        if ending == Ending::CellLost {
            self.lost = true;
        }
        let after = self.meters.cpu_us();
        let (out, err) = (begun.streams.out, begun.streams.err);
        let usage = Usage {
            cpu_ms: begun.before.cpu_ms_until(after).unwrap_or(own_cpu_us.div_ceil(1000)),
            memory_peak_bytes: self.meters.memory_peak(),
            stdout_bytes: out.total(),
            stderr_bytes: err.total(),
        };
        let output_cut = out.is_cut() || err.is_cut();
        let (stdout, mut stderr) = (out.into_text(), err.into_text());
        let evidence = if ending.is_success() {
            Evidence { output_cut, ..Evidence::default() }
        } else {
            self.evidence(&begun.before, &stderr, output_cut)
        };
        let verdict = judge(ending, evidence);
        if let Some(notice) = verdict.notice {
            if !stderr.is_empty() && !stderr.ends_with('\n') {
                stderr.push('\n');
            }
            stderr.push_str(&notice);
            stderr.push('\n');
        }
        CallReport {
            stdout,
            stderr,
            return_code: verdict.return_code,
            limit_exceeded: verdict.limit,
            interpreter_restarted: std::mem::take(&mut self.untold_loss),
            usage,
            background: begun.background,
        }
    }

    /// What speaks for a limit; looked at only where a call failed.
    fn evidence(&self, before: &Reading, stderr: &str, output_cut: bool) -> Evidence {
        let after = self.meters.read();
        Evidence {
            oom_kill: after.oom_kills > before.oom_kills,
            fork_refused: after.forks_refused > before.forks_refused,
            disk_full: self.disk_is_full(),
            says_no_space: says(stderr, &["No space left on device", "Disk quota exceeded"]),
            says_no_fork: says(stderr, &["Resource temporarily unavailable", "Cannot fork", "can't start new thread"]),
            output_cut,
            rlimits_only: self.shared.limiter == Limiter::Rlimits,
        }
    }

    /// Waits, no longer than the call may take, until an earlier killing is over.
    pub(crate) async fn settle(&mut self, begun: &Begun) -> Result<(), Ending> {
        let Some(killing) = self.killing else { return Ok(()) };
        let until = killing.give_up.min(begun.deadline);
        match tokio::time::timeout_at(until, self.init.killed(killing.token)).await {
            Ok(Ok(_)) => {
                self.killing = None;
                Ok(())
            }
            Ok(Err(InitGone)) => Err(Ending::CellLost),
            Err(_) if Instant::now() >= killing.give_up => Err(Ending::CellLost),
            Err(_) => Err(never_started(begun)),
        }
    }

    /// Kills what the call has started, and what it has started in turn; `keep` is spared. Waits no longer than an
    /// answer may; a killing that takes longer goes on, and the next call waits for it.
    pub(crate) async fn kill_since(&mut self, since_ticks: u64, keep: u32) -> Result<(), Ending> {
        let token = self.init.token();
        let give_up = Instant::now() + KILL_WAIT_MAX;
        let request = ToInit::KillSince { token, since_ticks, keep };
        let killed = async {
            self.init.send(request, &[]).await?;
            self.init.killed(token).await
        };
        match tokio::time::timeout(KILL_ANSWER_WAIT_MAX, killed).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(InitGone)) => Err(Ending::CellLost),
            Err(_) => {
                self.killing = Some(Killing { token, give_up });
                Ok(())
            }
        }
    }

    /// An interpreter that can take a call, started anew where the last one is lost.
    pub(crate) async fn ready_worker(&mut self, begun: &Begun) -> Result<Box<Worker>, Ending> {
        let mut attempts = 0;
        loop {
            if self.died() {
                return Err(Ending::CellLost);
            }
            match std::mem::replace(&mut self.slot, Slot::Empty) {
                Slot::Never => {
                    self.slot = Slot::Never;
                    return Err(Ending::NoInterpreter);
                }
                Slot::Ready(mut worker) => {
                    if worker.is_sound() {
                        return Ok(worker);
                    }
                    self.kill_worker(&mut worker).await?;
                    self.replace_worker(&worker);
                }
                Slot::Empty => self.start_worker(),
                Slot::Starting(mut task) => {
                    let Ok(started) = tokio::time::timeout_at(begun.deadline, &mut task).await else {
                        self.slot = Slot::Starting(task);
                        return Err(never_started(begun));
                    };
                    attempts += 1;
                    match started {
                        Ok(Ok(worker)) => {
                            worker.pipes().begin_call(&self.shared.sweep);
                            return Ok(Box::new(worker));
                        }
                        Ok(Err(error)) => {
                            tracing::warn!(cell = self.id, %error, "an interpreter could not be replaced")
                        }
                        Err(_) => {}
                    }
                    if attempts >= WORKER_ATTEMPTS_MAX {
                        return Err(Ending::NoInterpreter);
                    }
                }
            }
        }
    }

    /// Waits until init has done what it was asked before and does not answer to, such as an interrupt: one that is late
    /// would hit the next call.
    pub(crate) async fn after_init(&mut self) -> Result<(), Ending> {
        self.kill_since(u64::MAX, 0).await
    }

    /// Notices an interpreter that died between calls, so that the next one is on its way.
    pub(crate) fn notice_death(&mut self) {
        match std::mem::replace(&mut self.slot, Slot::Empty) {
            Slot::Ready(worker) if worker.death().is_some() => self.replace_worker(&worker),
            other => self.slot = other,
        }
    }

    /// Kills an interpreter that is not dead yet, and waits, bounded, until it is.
    pub(crate) async fn kill_worker(&mut self, worker: &mut Worker) -> Result<(), Ending> {
        if worker.death().is_some() {
            return Ok(());
        }
        let kill = ToInit::Signal { pid: worker.cell_pid(), signal: rustix::process::Signal::KILL.as_raw() };
        self.init.send(kill, &[]).await.map_err(|InitGone| Ending::CellLost)?;
        if !worker.dead_within(DEATH_WAIT_MAX).await {
            tracing::warn!(cell = self.id, "a killed interpreter is slow to die");
        }
        Ok(())
    }

    /// Lets go of an interpreter that is dead, and starts the next one behind; not while a killing goes on, which
    /// would take the newborn for one of those that it is after: then the next call starts it.
    pub(crate) fn replace_worker(&mut self, worker: &Worker) {
        self.untold_loss = true;
        worker.pipes().retire(&mut self.leftovers);
        if self.killing.is_none() {
            self.start_worker();
        }
    }

    fn start_worker(&mut self) {
        let (shared, id) = (Arc::clone(&self.shared), self.id);
        let (events, background) = (self.events.clone(), Arc::clone(&self.background));
        let start = async move { Worker::start(&shared.keeper, id, events, background).await };
        self.slot = Slot::Starting(tokio::spawn(start));
    }

    /// Less than one page of a large write is left, or no inode.
    fn disk_is_full(&self) -> bool {
        const FULL_BYTES: u64 = 64 << 10;
        rustix::fs::fstatvfs(&self.workspace)
            .is_ok_and(|stat| stat.f_bavail.saturating_mul(stat.f_frsize) < FULL_BYTES || stat.f_favail == 0)
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        if let Slot::Starting(task) = &self.slot {
            task.abort();
        }
        self.shared.keeper.destroy(self.id);
    }
}

/// No interpreter was ready before the call's time was over.
pub(crate) fn never_started(begun: &Begun) -> Ending {
    Ending::Stopped { cause: StopCause::Timeout(begun.timeout), what: Stopped::NeverStarted }
}

fn says(text: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| text.contains(phrase))
}

/// Clock ticks since boot, as `starttime` of `proc(5)` counts them (`USER_HZ` is 100 on every Linux of today).
fn boot_ticks() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.unsigned_abs() * 100 + now.tv_nsec.unsigned_abs() / 10_000_000
}
