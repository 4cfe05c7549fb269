//! The bounds of this room.

use std::time::Duration;

/// Conversations over HTTP at the same time; each holds a session of the backend.
pub const CONVERSATIONS_MAX: usize = 64;
/// Connections over HTTP at the same time; one that listens for messages of a conversation is held open.
pub const CONNECTIONS_MAX: usize = 256;
/// How long the head of an HTTP request may take.
pub const HEAD_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long its body may take.
pub const BODY_WAIT_MAX: Duration = Duration::from_secs(60);
/// The largest head of an HTTP request, bytes.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// The most header fields of one.
pub const HEADERS_MAX: usize = 100;
/// How long a client may leave an answer unread.
pub const STALL_MAX: Duration = Duration::from_secs(60);
/// How long the end waits for connections once every conversation is over.
pub const DRAIN_WAIT_MAX: Duration = Duration::from_secs(2);
/// A conversation over HTTP in which nothing happens for so long is over.
pub const CONVERSATION_IDLE_MAX: Duration = Duration::from_secs(15 * 60);
/// The longest message of a client over HTTP. A file to upload is in it as base64.
pub const MESSAGE_BYTES_MAX: usize = 32 << 20;
/// The longest line of a client over standard input.
pub const LINE_BYTES_MAX: usize = 32 << 20;
/// The idle timeout that a conversation asks of the backend for its session: people pause.
pub const SESSION_IDLE: Duration = Duration::from_secs(3600);
/// The lifetime that it asks for.
pub const SESSION_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// How long a description waits for the session whose limits it names; without them it is more general.
pub const DESCRIPTION_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a call waits for a backend that is still starting; building an image takes its time.
pub const BACKEND_WAIT_MAX: Duration = Duration::from_secs(900);
/// How often a call that runs tells its progress to a client that wants it.
pub const PROGRESS_PERIOD: Duration = Duration::from_secs(2);
/// How long a cancelled call may take to end before it is interrupted a second time, which ends it by force.
pub const CANCEL_GRACE: Duration = Duration::from_secs(3);
/// How often a cancelled call is interrupted while it is still on its way to the backend.
pub const CANCEL_TRIES_MAX: u32 = 100;
/// The pause between two of these.
pub const CANCEL_PAUSE: Duration = Duration::from_millis(100);
/// What is shown of each output stream, its head and its tail; the rest is for a file.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// The largest picture that is shown; models refuse larger ones.
pub const IMAGE_BYTES_MAX: usize = 3 << 20;
/// Pictures shown of one call; more are linked.
pub const IMAGES_MAX: usize = 8;
/// The largest file that is handed over whole: by a download or as a resource.
pub const FILE_BYTES_MAX: usize = 16 << 20;
/// Files in one page of a list of resources, and in one list of files.
pub const FILES_LISTED_MAX: usize = 500;
/// How long the end waits for the sessions to be released.
pub const RELEASE_WAIT_MAX: Duration = Duration::from_secs(10);
