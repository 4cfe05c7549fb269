//! The bounds of the client, each with its reason.

use std::time::Duration;

/// How long a connection may take to be made.
pub const CONNECT_MAX: Duration = Duration::from_secs(5);

/// How long an operation other than Execute may take from the first byte sent to the last byte received.
pub const PATIENCE_DEFAULT: Duration = Duration::from_secs(30);

/// The budget that is sent with an Execute whose call names none.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

/// What the client waits beyond the budget that it grants: the budget bounds the backend's execution alone, transport
/// and teardown come on top of it (contract, Execute).
pub const HEADROOM: Duration = Duration::from_secs(10);

/// How long a streamed upload or download may stand still.
pub const STALL_MAX: Duration = Duration::from_secs(30);

/// How long a lease that was dropped tries to release its session.
pub const RELEASE_MAX: Duration = Duration::from_secs(5);

/// How often one operation is tried, the first time included, where trying again is safe.
pub const ATTEMPTS_MAX: u32 = 3;

/// The pause before the second attempt; it doubles for each further one.
pub const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The pause between two leases tried while a backend is at capacity and names no delay itself.
pub const CAPACITY_PAUSE: Duration = Duration::from_secs(1);

/// An idle connection is not used again after this. Common servers close theirs after five seconds, and a request
/// that meets such a close is one whose outcome nobody knows.
pub const IDLE_CONNECTION_MAX: Duration = Duration::from_secs(4);

/// The largest JSON answer that is read.
pub const JSON_BYTES_MAX: usize = 64 << 20;

/// The largest part of an error answer that is read.
pub const ERROR_BYTES_MAX: usize = 64 << 10;

/// The longest text of a refusal that is kept, characters.
pub const DETAIL_CHARS_MAX: usize = 2000;

/// The largest token file that is read.
pub const TOKEN_BYTES_MAX: usize = 64 << 10;

/// How much of a reader is read at once while it is uploaded.
pub const UPLOAD_CHUNK_BYTES: usize = 64 << 10;
