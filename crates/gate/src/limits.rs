//! The bounds of the front door, each with its reason. `docs/gate.md` lists them.

use std::time::Duration;

/// Connections of clients at once.
pub const CONNECTIONS_MAX: usize = 4096;

/// Operations at once, calls and transfers alike.
pub const OPERATIONS_MAX: usize = 2048;

/// The largest head of a request, bytes.
pub const HEAD_BYTES_MAX: usize = 64 << 10;

/// The most header fields of a request.
pub const HEADERS_MAX: usize = 64;

/// How long a connection may be idle, or take to send a head.
pub const HEAD_WAIT: Duration = Duration::from_secs(30);

/// How long a streamed body may stand still, either way.
pub const STALL_MAX: Duration = Duration::from_secs(30);

/// How long a body that is read whole may take to come.
pub const BODY_WAIT: Duration = Duration::from_secs(30);

/// How much of a body that nobody wants is read, so that the client sees the answer and not a reset.
pub const DISCARD_BYTES_MAX: usize = 4 << 20;

/// How long such a body is read.
pub const DISCARD_WAIT: Duration = Duration::from_secs(2);

/// The largest body of an Execute: it is read whole, since the tool kind stands in it.
pub const EXECUTE_BYTES_MAX: usize = 4 << 20;

/// The largest body of a CreateSession.
pub const LEASE_BYTES_MAX: usize = 64 << 10;

/// The most members of a request's outer JSON object.
pub const MEMBERS_MAX: usize = 64;

/// The largest answer to an Execute. Two streams of 1 MiB, escaped to six bytes a byte, fit twice.
pub const RESULT_BYTES_MAX: usize = 32 << 20;

/// The largest handle of a session.
pub const HANDLE_BYTES_MAX: usize = 64 << 10;

/// The largest error answer of a backend that is passed on.
pub const ERROR_BYTES_MAX: usize = 64 << 10;

/// Bytes of bodies that are held whole at once, over all operations.
pub const HELD_BYTES_MAX: usize = 512 << 20;

/// How long a connection to a backend may take to be made.
pub const CONNECT_WAIT: Duration = Duration::from_secs(2);

/// How long a backend may take to answer anything but an Execute, counted from the last byte that moved.
pub const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// An idle connection to a backend is not used again after this: common servers close theirs after five seconds, and
/// a request that meets such a close is one whose outcome nobody knows.
pub const BACKEND_IDLE_MAX: Duration = Duration::from_secs(4);

/// Idle connections kept to one backend.
pub const BACKEND_IDLE_CONNECTIONS_MAX: usize = 64;

/// A call whose timeout the gate does not know is waited for as if it had this.
pub const TIMEOUT_UNKNOWN_SECONDS: u64 = 600;

/// The longest timeout that the gate waits for, whatever the request says.
pub const TIMEOUT_WAITED_SECONDS_MAX: u64 = 86_400;

/// On how many backends one lease is tried.
pub const LEASE_TRIES_MAX: usize = 3;

/// How long the backends are asked for the sessions of a workspace that has a ceiling.
pub const COUNT_WAIT: Duration = Duration::from_secs(1);

/// Backends at once, those of DNS names included.
pub const BACKENDS_MAX: usize = 256;

/// The largest list of backends, bytes.
pub const BACKENDS_BYTES_MAX: usize = 64 << 10;

/// How long a backend may take to tell its health.
pub const HEALTH_WAIT: Duration = Duration::from_secs(2);

/// The largest health answer.
pub const HEALTH_BYTES_MAX: usize = 64 << 10;

/// Failed health polls in a row after which a backend gets no more leases.
pub const HEALTH_FAILURES_MAX: u32 = 2;

/// How long a backend that left its DNS name is kept after its last sign of life.
pub const LEAVING_DOWN_MAX: Duration = Duration::from_secs(60);

/// How long a DNS name may take to be resolved.
pub const RESOLVE_WAIT: Duration = Duration::from_secs(5);

/// The longest id of a session at its backend, bytes.
pub const BACKEND_SESSION_BYTES_MAX: usize = 128;

/// The longest id of a session as clients see it, bytes.
pub const SESSION_ID_BYTES_MAX: usize = 512;

/// Keys in the file of session-id keys: the one that seals, and old ones.
pub const ID_KEYS_MAX: usize = 4;

/// How long a key set may take to be fetched.
pub const KEYS_WAIT: Duration = Duration::from_secs(5);

/// The least pause between two fetches of the key set, also where unknown keys ask for one.
pub const KEYS_PAUSE_MIN: Duration = Duration::from_secs(5);

/// Verified grants that are remembered, in each of two generations.
pub const VERIFIED_MAX: usize = 4096;

/// The longest request id that is passed on, bytes.
pub const REQUEST_ID_BYTES_MAX: usize = 128;

/// The largest segment of the usage spool, bytes.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 20;

/// The longest line of the usage spool, bytes.
pub const RECORD_BYTES_MAX: usize = 2048;

/// The usage spool unless the deployment says otherwise, bytes: about half a million calls.
pub const SPOOL_BYTES_DEFAULT: u64 = 256 << 20;

/// Records in one batch.
pub const BATCH_RECORDS_MAX: usize = 500;

/// The longest answer to a batch that is looked into, bytes.
pub const TAKEN_BYTES_MAX: usize = 4 << 10;

/// How long the control plane may take to answer a batch.
pub const BATCH_WAIT: Duration = Duration::from_secs(30);

/// The pause between two syncs of the spool to the disk.
pub const SYNC_PAUSE: Duration = Duration::from_millis(200);

/// Connections at once of whoever reads the counters.
pub const METRICS_CONNECTIONS_MAX: usize = 16;

/// The largest head of a request for the counters, bytes: the least that hyper takes.
pub const METRICS_HEAD_BYTES_MAX: usize = 8 << 10;
