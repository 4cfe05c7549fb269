//! The bounds of this room. Every buffer, queue, retry and wait of it has its name here.

use std::time::Duration;

/// Bytes of background output kept of each stream between two calls.
pub const BACKGROUND_BYTES_MAX: usize = 64 << 10;
/// Bytes taken from a pipe by one read; the size of a pipe, so that a shorter read has emptied it.
pub(crate) const READ_BYTES: usize = 64 << 10;
/// Bytes taken from a pipe once a call has ended: the largest pipe that a program can make for itself.
pub(crate) const DRAIN_BYTES_MAX: usize = 1 << 20;
/// Bytes read from a worker's frame socket at a time; a worker has no reason to send more.
pub(crate) const FRAME_READ_BYTES: usize = 1 << 10;
/// How long a new worker may take from its fork to its `Hello`.
pub(crate) const HELLO_WAIT_MAX: Duration = Duration::from_secs(30);
/// How long a lease waits for its cell.
pub(crate) const LEASE_WAIT_MAX: Duration = Duration::from_secs(60);
/// How long init may take to read a request off its socket.
pub(crate) const SEND_WAIT_MAX: Duration = Duration::from_millis(400);
/// An interrupt is held back until the call has run so long: one that overtakes the code on its way to the interpreter
/// would find nothing to interrupt.
pub(crate) const INTERRUPT_DELAY: Duration = Duration::from_millis(50);
/// The most that [`CallLimits::interrupt_grace`](ringfence_op::CallLimits) counts for: with what killing may take after
/// it, an answer still comes within three seconds of the timeout.
pub(crate) const INTERRUPT_GRACE_MAX: Duration = Duration::from_millis(1500);
/// How long the answer of a call waits for its processes to be killed; the killing itself goes on behind.
pub(crate) const KILL_ANSWER_WAIT_MAX: Duration = Duration::from_millis(1000);
/// How long the killing may take in all before the cell is given up.
pub(crate) const KILL_WAIT_MAX: Duration = Duration::from_secs(15);
/// How long a worker whose socket is closed, or that was killed, may take to be seen dead.
pub(crate) const DEATH_WAIT_MAX: Duration = Duration::from_millis(500);
/// How often an interpreter is started for one call before the call is told that there is none.
pub(crate) const WORKER_ATTEMPTS_MAX: u32 = 2;
/// Pipes of ended calls that background processes hold open and that are still drained; then the oldest is closed.
pub(crate) const LEFTOVERS_MAX: usize = 32;
/// How often calls that run, and interpreters that ran lately, are looked at.
pub(crate) const SWEEP_TICK: Duration = Duration::from_millis(2);
/// Looks that a call has seen when it counts as lasting: only then are its pipes watched and its deadline armed.
pub(crate) const LATE_TICKS: u32 = 1;
/// Looks that an interpreter has seen at rest when its pipes are watched: back-to-back calls never pay for the watch.
pub(crate) const REST_TICKS: u32 = 25;
/// How long a shell command runs before its pipes are watched.
pub(crate) const SHELL_LATE_AFTER: Duration = Duration::from_millis(4);
/// Cells that are made at the same time; the keeper makes one after the other anyway.
pub(crate) const MAKES_IN_FLIGHT_MAX: usize = 4;
/// Of those, cells of images other than the first: one that is slow to come up holds up no lease of the first.
pub(crate) const MAKES_OF_OTHERS_MAX: usize = 3;
/// The first wait after the pool failed to make a cell; doubled for each failure in a row.
pub(crate) const MAKE_BACKOFF_MIN: Duration = Duration::from_millis(100);
/// The longest wait between two attempts of the pool.
pub(crate) const MAKE_BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Zygotes that are being replaced at the same time, over all sets.
pub(crate) const RENEWALS_IN_FLIGHT_MAX: usize = 1;
/// The wait after a zygote could not be replaced; doubled for each failure in a row.
pub(crate) const RENEW_BACKOFF_MIN: Duration = Duration::from_secs(10);
/// The longest wait until it is tried again.
pub(crate) const RENEW_BACKOFF_MAX: Duration = Duration::from_secs(600);
/// Ready cells of a zygote that was replaced for which others are made at the same time.
pub(crate) const STALE_REPLACED_AT_ONCE_MAX: usize = 1;
/// Cells kept ready of an image other than the default, while it is in use.
pub(crate) const OTHERS_READY_MAX: usize = 1;
/// How long an image other than the default, or a workspace's image, may go without a lease before its ready cells and its
/// zygote are given up.
pub(crate) const IMAGE_REST_AFTER: Duration = Duration::from_secs(600);
/// Deaths of workers remembered for each cell until somebody asks.
pub(crate) const DEATHS_KEPT_MAX: usize = 8;
/// How long the teardown of a cell is waited for.
pub(crate) const GONE_WAIT_MAX: Duration = Duration::from_secs(30);
/// How long without a lease that found no ready cell until half of what demand had added to the pool goes.
pub(crate) const DEMAND_LULL: Duration = Duration::from_secs(10);
/// How often memory is looked at while it is short.
pub(crate) const MEMORY_LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How old a look at memory may be that a lease or a making relies on.
pub(crate) const MEMORY_LOOK_AGE_MAX: Duration = Duration::from_millis(100);
/// Bytes read of a file that tells memory.
pub(crate) const MEMORY_FILE_BYTES_MAX: usize = 8 << 10;
/// Folders of control groups above our own whose limits are looked at.
pub(crate) const MEMORY_GROUPS_MAX: usize = 16;
