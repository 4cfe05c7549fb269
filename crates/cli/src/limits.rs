//! Bounds of this room.

use std::time::Duration;

/// The largest configuration file that is read, bytes.
pub(crate) const CONFIG_FILE_BYTES_MAX: u64 = 1 << 20;
/// The largest file of authorities of one's own, bytes: as large as the system's, several times over.
pub(crate) const CA_FILE_BYTES_MAX: usize = 4 << 20;
/// Images that one server serves.
pub(crate) const IMAGES_SERVED_MAX: usize = 64;
/// Images that can be pulled while a server runs, beside those.
pub(crate) const IMAGES_PULLED_MAX: usize = 16;
/// Names of images that leases have said and that may be pulled, remembered with what came of each.
pub(crate) const PULL_NAMES_MAX: usize = 1024;
/// Of those, further names of images that are there: the oldest is forgotten, and asked for again.
pub(crate) const PULL_ALIASES_MAX: usize = 512;
/// Names that the puller gives one image in the store.
pub(crate) const PULL_NAMES_EACH_MAX: usize = 16;
/// Of the names, such as wait to be pulled.
pub(crate) const PULLS_WAITING_MAX: usize = 16;
/// How long a name that could not be pulled is left alone.
pub(crate) const PULL_AGAIN_AFTER: Duration = Duration::from_secs(600);
/// How long the pull of one image may take while the server runs.
pub(crate) const PULL_WHILE_SERVING_MAX: Duration = Duration::from_secs(1200);
/// The longest name that is pulled, bytes; the store takes no longer one.
pub(crate) const PULL_NAME_BYTES_MAX: usize = 256;
/// The longest line between the daemon and what pulls, bytes.
pub(crate) const PULL_ANSWER_BYTES_MAX: u64 = 16 << 10;
/// The longest first line, which tells what pulls its settings, bytes.
pub(crate) const PULL_SETUP_BYTES_MAX: u64 = 1 << 20;
/// How much is told of why an image could not be pulled, characters.
pub(crate) const PULL_TEXT_CHARS_MAX: usize = 1000;
/// How often it is looked whether a puller that is lost has ended.
pub(crate) const PULLER_END_POLL: Duration = Duration::from_millis(100);
/// How long what pulls may take to be ready.
pub(crate) const PULLER_READY_MAX: Duration = Duration::from_secs(30);
/// The longest name of an image that can be set, bytes.
pub(crate) const IMAGE_NAME_BYTES_MAX: usize = 4096;
/// The longest token, bytes.
pub(crate) const TOKEN_BYTES_MAX: usize = 4096;
/// The most sessions that can be set: each takes an id of its own of the fleet's (1 to 60,000), and a few descriptors.
pub(crate) const SESSIONS_MAX: u64 = 10_000;
/// The most zygotes of single workspaces that can be set: the keeper knows 2048 sets of zygotes.
pub(crate) const TENANT_ZYGOTES_MAX: u64 = 1_000;
/// The slowest rate of a workspace's requests that can be set, each second.
pub(crate) const RATE_MIN: f64 = 0.001;
/// The fastest one.
pub(crate) const RATE_MAX: f64 = 1_000_000.0;
/// The most cells kept ready that can be set.
pub(crate) const POOL_MAX: u64 = 1000;
/// The longest time that can be set, seconds: a year.
pub(crate) const SECONDS_MAX: u64 = 366 * 24 * 3600;
/// How long the keeper, and what pulls images, may take to be gone once its socket is closed.
pub(crate) const KEEPER_END_MAX: Duration = Duration::from_secs(10);
/// How often it is looked at.
pub(crate) const KEEPER_END_POLL: Duration = Duration::from_millis(5);
/// How long work that blocks (a file that is being read) may go on after everything else has ended.
pub(crate) const RUNTIME_END_MAX: Duration = Duration::from_secs(2);
/// How long a command that is told to end while it leases a session waits for the session, to release it.
pub(crate) const LEASE_AFTER_SIGNAL_MAX: Duration = Duration::from_secs(5);
/// Names that the beginning of a transfer tries, where what a killed one has left is in the way.
pub(crate) const PART_NAMES_MAX: u32 = 100;
/// Lines of earlier entries that the shell keeps in its history.
pub(crate) const HISTORY_LINES_MAX: usize = 1000;
/// How long a server that was started for one command may take to end; then it is killed.
pub(crate) const EMBEDDED_END_MAX: Duration = Duration::from_secs(30);
/// The longest line that such a server says before it is ready, bytes.
pub(crate) const READY_LINE_BYTES_MAX: u64 = 64 << 10;
/// The largest program that `run` and `exec` send, bytes: as much as the door takes in one request.
pub(crate) const PROGRAM_BYTES_MAX: u64 = 4 << 20;
/// The largest report that `bench --charts` reads, bytes.
pub(crate) const REPORT_BYTES_MAX: usize = 4 << 20;
