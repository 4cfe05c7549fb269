//! Bounds of this room.

use std::ffi::CStr;
use std::time::Duration;

/// The longest keeper configuration that is read, bytes.
pub(crate) const CONFIG_BYTES_MAX: u64 = 64 << 20;
/// How long `launch` waits for the keeper to be ready: the zygotes' time and a margin.
pub(crate) const READY_WAIT_MAX: Duration = Duration::from_secs(150);
/// How long a zygote may import before it counts as failed.
pub(crate) const ZYGOTE_READY_WAIT_MAX: Duration = Duration::from_secs(120);
/// Sets of zygotes that the keeper knows at the same time: one for each image, or those of workspaces.
pub(crate) const ZYGOTE_SETS_MAX: usize = 2048;
/// Least time between two starts of one set's zygote.
pub(crate) const ZYGOTE_RESTART_PAUSE: Duration = Duration::from_secs(1);
/// Least time between two starts once a zygote has failed [`ZYGOTE_FAILURES_MAX`] times in a row.
pub(crate) const ZYGOTE_RESTART_PAUSE_LONG: Duration = Duration::from_secs(30);
/// Failures in a row, without one `Ready` between, before restarts slow down.
pub(crate) const ZYGOTE_FAILURES_MAX: u32 = 5;
/// How long a zygote that was replaced may take to answer what was asked of it, and to end.
pub(crate) const ZYGOTE_LEAVE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Forks that wait for one set's zygote, or for room in its socket; without namespaces, sessions that do.
pub(crate) const FORKS_QUEUED_MAX: usize = 1024;
/// Messages that wait for room in the daemon's socket; beyond, the daemon counts as dead.
pub(crate) const OUTBOX_MESSAGES_MAX: usize = 16 * 1024;
/// Messages taken from one socket before the others are looked at.
pub(crate) const MESSAGES_PER_TURN_MAX: usize = 64;
/// How long a cell may take to be made.
pub(crate) const CELL_STEPS_WAIT_MAX: Duration = Duration::from_secs(5);
/// Pause between two tries to remove a cgroup whose processes have not quite gone.
pub(crate) const CGROUP_REMOVE_PAUSE: Duration = Duration::from_millis(2);
/// Tries before a cgroup is left to the sweep at the next start.
pub(crate) const CGROUP_REMOVE_TRIES_MAX: u32 = 2500;
/// Folders looked at by one sweep for cgroups of dead keepers.
pub(crate) const SWEEP_FOLDERS_MAX: usize = 20_000;
/// How deep that sweep goes.
pub(crate) const SWEEP_DEPTH_MAX: usize = 8;
/// Ids given to cells: 1 to this.
pub(crate) const CELL_IDS_MAX: u32 = 60_000;
/// Length of the detail that a failed start carries in words, bytes.
pub(crate) const DETAIL_BYTES_MAX: usize = 2048;
/// Descriptors that the keeper may hold, where it may raise its limit.
pub(crate) const KEEPER_FDS_MAX: u64 = 262_144;
/// CPU quota period, microseconds: short, so that a throttled cell never stands still for long.
pub(crate) const CPU_PERIOD_US: u64 = 20_000;
/// Shell commands of one cell at a time.
pub(crate) const COMMANDS_MAX: usize = 64;
/// Answers of init that wait for the daemon; beyond, init takes no request.
pub(crate) const ANSWERS_MAX: usize = 256;
/// Rounds of killing one by one before everything in the cell is stopped first.
pub(crate) const KILL_ROUNDS_PLAIN: u32 = 2;
/// Rounds of killing with everything stopped.
pub(crate) const KILL_ROUNDS_STOPPED: u32 = 4;
/// How long one round waits for the killed to be gone.
pub(crate) const KILL_WAIT_MAX: Duration = Duration::from_secs(1);
/// Processes of a cell that one scan lists; the cell's own limit is below it.
pub(crate) const PROCESSES_LISTED_MAX: usize = 65_536;
/// Inotify instances of a cell, as `/proc/sys/user` takes it. The kernel also counts them for the host's user, who has
/// 128 unless told otherwise: a hundred cells leave some for the host.
pub(crate) const INOTIFY_INSTANCES_MAX: &CStr = c"1";
/// Inotify watches of a cell, counted likewise.
pub(crate) const INOTIFY_WATCHES_MAX: &CStr = c"512";
/// The longest description of a pulled image's root, bytes.
pub(crate) const PULLED_ROOT_BYTES_MAX: usize = 128 << 10;
/// How long the keeper may take to answer it.
pub(crate) const PULLED_ANSWER_MAX: Duration = Duration::from_secs(60);
/// Signals queued with a value, and timers, of a cell; counted likewise.
pub(crate) const SIGNALS_PENDING_MAX: u64 = 512;
/// Bytes of POSIX message queues of a cell; counted likewise.
pub(crate) const MESSAGE_QUEUE_BYTES_MAX: u64 = 8 << 10;
/// Bytes of locked memory; some kinds are counted likewise.
pub(crate) const LOCKED_BYTES_MAX: u64 = 64 << 10;
/// Folders of ended sessions, and what was moved out of them, that are remembered to be removed; more are found again on
/// disk when these are gone.
pub(crate) const TRASH_WAITING_MAX: usize = 1 << 14;
/// Names removed in one turn of a keeper without namespaces.
pub(crate) const TRASH_STEP_MAX: usize = 200;
/// Ends of guards that are remembered while another is being forked.
pub(crate) const GUARD_DEATHS_KEPT_MAX: usize = 4096;
/// How long a guard may take to kill its session and end, before it is killed itself.
pub(crate) const GUARD_END_WAIT_MAX: Duration = Duration::from_secs(10);
/// Rounds of killing what a dead guard has left behind, at a time.
pub(crate) const ORPHAN_ROUNDS_MAX: u32 = 50;
/// How long a keeper without namespaces waits at its end for the guards.
pub(crate) const FLAT_END_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a sandbox may take until its guard is ready: its kernel starts, and the image's interpreter imports in it.
pub(crate) const SANDBOX_START_WAIT_MAX: Duration = Duration::from_secs(120);
/// How long a sandbox may take to end once it is let go, before it is killed.
pub(crate) const SANDBOX_END_WAIT_MAX: Duration = Duration::from_secs(5);
/// Pause before a group of an ended sandbox is tried again to be removed; the next is twice as long.
pub(crate) const SANDBOX_GROUP_PAUSE: Duration = Duration::from_millis(20);
/// The longest such pause.
pub(crate) const SANDBOX_GROUP_PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long the sandbox of a trial may take from its start to its end.
pub(crate) const SANDBOX_TRIAL_WAIT_MAX: Duration = Duration::from_secs(30);
/// Memory of a sandbox's own, beside the session's: `runsc` itself, the gofer, the kernel of the session and the guard.
pub(crate) const SANDBOX_MEMORY_BYTES: u64 = 512 << 20;
/// Tasks of the host that a sandbox has beside those that stand for the session's.
pub(crate) const SANDBOX_TASKS: u64 = 512;
/// Tasks of the host that stand for one process of a session, on average: each of the sandbox's threads has one in each
/// process that it runs. A session that needs more is ended whole.
pub(crate) const SANDBOX_TASKS_EACH: u64 = 14;
/// The share of the host's tasks that all sandboxes of a server may have together: one in so many.
pub(crate) const SANDBOXES_SHARE_OF_TASKS: u64 = 2;
/// Processes that the sessions of an ordinary user without namespaces may have beside those of one session: the kernel
/// counts all of that user together.
pub(crate) const PROCESSES_OF_OTHERS: u64 = 1024;
