//! Every bound of the door, by name. Units come last in a name.

use std::time::Duration;

/// The bounds that an operator may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoorLimits {
    /// Connections held at once; the next is answered 503 and closed.
    pub connections_max: usize,
    /// Bytes of a JSON body; a larger one is answered 413.
    pub json_bytes_max: usize,
    /// Bytes of one uploaded file, and of one uploaded archive; a larger one is answered 413.
    pub upload_bytes_max: u64,
    /// How long a connection may lie idle between two requests.
    pub idle_max: Duration,
    /// How long a request's head may take from its first byte to its last.
    pub head_max: Duration,
    /// How long a body may pause between two pieces.
    pub body_pause_max: Duration,
    /// How long a body may take in all, besides what its bytes take at [`BODY_BYTES_PER_SECOND_MIN`].
    pub body_grace: Duration,
    /// How long a client may leave an answer unread.
    pub write_pause_max: Duration,
    /// How long answers in the making may take once the server is told to stop.
    pub drain_max: Duration,
}

impl Default for DoorLimits {
    fn default() -> Self {
        DoorLimits {
            connections_max: 4096,
            json_bytes_max: 4 << 20,
            upload_bytes_max: 100 << 20,
            idle_max: Duration::from_secs(120),
            head_max: Duration::from_secs(15),
            body_pause_max: Duration::from_secs(15),
            body_grace: Duration::from_secs(30),
            write_pause_max: Duration::from_secs(60),
            drain_max: Duration::from_secs(10),
        }
    }
}

/// Bytes of a request's head; a larger one is answered 431.
pub const HEAD_BYTES_MAX: usize = 32 << 10;

/// Bytes that one connection buffers; also the largest piece in which a body is read.
pub const CONNECTION_BUFFER_BYTES: usize = 256 << 10;

/// A body must come at least this fast, once its grace is over.
pub const BODY_BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// How much of a refused body is read and thrown away, so that its sender comes to see the answer: this many times
/// the largest upload.
pub const LINGER_UPLOADS_MAX: u64 = 2;

/// How long a refused body is read and thrown away.
pub const LINGER_MAX: Duration = Duration::from_secs(30);

/// What a multipart form may hold besides the file itself, bytes. A body that announces more is refused unread.
pub const FORM_OVERHEAD_BYTES_MAX: u64 = 64 << 10;

/// Parts of one multipart form.
pub const FORM_PARTS_MAX: usize = 16;

/// Bytes of the headers of one part.
pub const PART_HEADER_BYTES_MAX: usize = 8 << 10;

/// Bytes of the `path` field of a form; more than any path may have, so that the path's own refusal is told.
pub const PATH_FIELD_BYTES_MAX: usize = 16 << 10;

/// Bytes of a multipart boundary (RFC 2046, 5.1.1).
pub const BOUNDARY_BYTES_MAX: usize = 70;

/// The piece in which a file is read and sent.
pub const FILE_PIECE_BYTES: usize = 128 << 10;

/// Pieces of one answer that are in memory at once: one being filled, the others in hyper's queue.
pub const FILE_PIECES_KEPT_MAX: usize = 4;

/// Pieces of an uploaded archive between the connection and its unpacker.
pub const ARCHIVE_PIECES_QUEUED_MAX: usize = 4;

/// Bytes of an uploaded archive with its headers: this many times the largest upload, which bounds its contents.
pub const ARCHIVE_UPLOADS_MAX: u64 = 2;

/// Archives that are unpacked at once; each holds a thread. The next is answered 503.
pub const ARCHIVES_AT_ONCE_MAX: usize = 8;

/// The longest query of a request, bytes. A path of 4,095 bytes takes three times that when it is escaped.
pub const QUERY_BYTES_MAX: usize = 24 << 10;

/// The longest request id of a client's own that is kept, bytes.
pub const REQUEST_ID_BYTES_MAX: usize = 64;

/// Workspaces whose requests are counted at once; one more waits until the bucket of another is full again.
pub const TENANTS_RATED_MAX: usize = 16_384;

/// `Retry-After` where the door itself is full or the server is about to stop.
pub const RETRY_AFTER_SECONDS: u32 = 1;

/// The longest `Retry-After` that clients of the contract keep (six digits).
pub const RETRY_AFTER_SECONDS_MAX: u32 = 999_999;

/// The pause after the kernel refused a new connection (no descriptors, no memory).
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often in a row a connection that wakes itself is polled before other tasks are let run.
pub(crate) const SELF_WAKES_MAX: usize = 4;
