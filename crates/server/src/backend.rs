//! The seam between the door and what carries operations out.
//!
//! The door is generic over [`Backend`], so that its tests run against one that holds everything in memory, and so
//! that nothing below is known here.

mod sessions;

use std::future::Future;
use std::io;
use std::time::{Duration, SystemTime};

use ringfence_op::{Call, CallLimits, CellLimits, Fault, Outcome, SessionId, Tenant, Tier, WorkspaceId, WorkspacePath};

pub use sessions::{Held, OverSessions};

/// What carries the operations out.
///
/// A future of [`execute`](Backend::execute) may be dropped at any time, since a client may hang up: the call must
/// run on to its end or to its timeout regardless, and the session be usable after it.
pub trait Backend: Clone + Send + Sync + 'static {
    /// A file that is being read.
    type File: ReadFile;
    /// A file that is being written.
    type Upload: WriteFile;
    /// A folder that is being packed.
    type Archive: io::Read + Send + 'static;

    /// What is the same for every session.
    fn about(&self) -> &About;

    /// How many sessions there are, and so on; cheap enough for every health check.
    fn counts(&self) -> Counts;

    /// Whether leases are taken now.
    ///
    /// # Errors
    /// `Capacity` while the server starts up or shuts down.
    fn ready(&self) -> Result<(), Fault>;

    /// Leases a session.
    fn create(&self, lease: Lease) -> impl Future<Output = Result<Handle, Fault>> + Send;

    /// Runs one call.
    fn execute(&self, id: SessionId, call: Call) -> impl Future<Output = Result<Outcome, Fault>> + Send;

    /// Releases a session.
    fn destroy(&self, id: SessionId) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Interrupts the program that runs in a session, without waiting for anything; whether one ran.
    fn interrupt(&self, id: SessionId) -> impl Future<Output = Result<bool, Fault>> + Send;

    /// Whether a session is there for a workspace, which it is for the one that leased it, for good; the door asks before
    /// each operation on a session where the server is shared.
    ///
    /// # Errors
    /// `UnknownSession`, in the same words for another's session and for none.
    fn belongs(&self, id: SessionId, owner: &WorkspaceId) -> Result<(), Fault>;

    /// How many sessions a workspace has.
    fn count_of(&self, owner: &WorkspaceId) -> u64;

    /// The handles of all sessions, or of those of one workspace, the oldest first.
    fn handles(&self, owner: Option<&WorkspaceId>) -> impl Future<Output = Result<Vec<Handle>, Fault>> + Send;

    /// The handle of a session, without counting as activity.
    fn handle(&self, id: SessionId) -> impl Future<Output = Result<Handle, Fault>> + Send;

    /// The files of a folder.
    fn list(
        &self,
        id: SessionId,
        path: WorkspacePath,
        recursive: bool,
    ) -> impl Future<Output = Result<Listing, Fault>> + Send;

    /// Opens a file for reading; its path is told as well, which a file id does not say.
    fn open(
        &self,
        id: SessionId,
        name: FileName,
    ) -> impl Future<Output = Result<(WorkspacePath, Self::File), Fault>> + Send;

    /// Begins an upload of at most `bytes_max`. Its place is said when it is whole, since a form may name it last;
    /// where it is known already, `path` lets it be refused at once.
    fn upload(
        &self,
        id: SessionId,
        path: Option<WorkspacePath>,
        bytes_max: u64,
    ) -> impl Future<Output = Result<Self::Upload, Fault>> + Send;

    /// Removes a file.
    fn remove(&self, id: SessionId, path: WorkspacePath) -> impl Future<Output = Result<(), Fault>> + Send;

    /// A folder as a tar archive, to be read on a thread that may block.
    fn archive(&self, id: SessionId, path: WorkspacePath) -> impl Future<Output = Result<Self::Archive, Fault>> + Send;

    /// Unpacks a tar archive of at most `bytes_max` bytes of files into a folder, on a thread that may block.
    fn unpack(
        &self,
        id: SessionId,
        path: WorkspacePath,
        archive: Box<dyn io::Read + Send>,
        bytes_max: u64,
    ) -> impl Future<Output = Result<Unpacked, Fault>> + Send;
}

/// A file that is being read, as it was when it was opened.
pub trait ReadFile: Send + Sync + 'static {
    /// Its size in bytes.
    fn size(&self) -> u64;
    /// When it was last written.
    fn modified(&self) -> SystemTime;
    /// A strong entity tag, with its quotes.
    fn etag(&self) -> &str;
    /// Reads at `offset`, never past [`size`](ReadFile::size); 0 is the end. Quick: a workspace is memory.
    ///
    /// # Errors
    /// When the kernel cannot read.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
}

/// A file that is being written; dropped before it is committed, it leaves nothing.
pub trait WriteFile: Send + 'static {
    /// Appends a piece. Quick: a workspace is memory.
    ///
    /// # Errors
    /// `TooLarge` over the cap or over what is left of the workspace.
    fn write(&mut self, piece: &[u8]) -> Result<(), Fault>;
    /// Puts the file at its place, whole; the size is answered.
    ///
    /// # Errors
    /// What the path is refused for.
    fn commit(self, path: &WorkspacePath) -> Result<u64, Fault>;
}

/// Hints of a lease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lease {
    /// The image asked for, known or not.
    pub image: Option<String>,
    /// The idle timeout asked for.
    pub idle: Option<Duration>,
    /// The lifetime asked for.
    pub lifetime: Option<Duration>,
    /// Who it is for, where the server is shared.
    pub tenant: Option<Tenant>,
}

/// A leased session.
#[derive(Debug, Clone, PartialEq)]
pub struct Handle {
    /// Its id.
    pub id: SessionId,
    /// When it was created.
    pub created: SystemTime,
    /// When it was last used.
    pub last_activity: SystemTime,
    /// The idle timeout in force; `None` where none is.
    pub idle: Option<Duration>,
    /// The lifetime in force; `None` where it has no end.
    pub lifetime: Option<Duration>,
    /// The image it runs.
    pub image: String,
    /// What its cell may use.
    pub cell: CellLimits,
    /// Longer timeouts of its calls are clamped to this.
    pub timeout_max: Duration,
}

/// What is the same for every session of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The image of a lease that names none.
    pub image: String,
    /// The tier in force.
    pub tier: Tier,
    /// Limits of a call.
    pub call: CallLimits,
    /// Whether a call that does not say echoes its last expression.
    pub echo_last: bool,
}

/// Numbers of the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions that exist.
    pub sessions: u64,
    /// Sessions that may exist.
    pub sessions_max: u64,
    /// Calls that run.
    pub running: u64,
    /// Cells ready to be leased.
    pub warm: u64,
    /// Zygotes that are one workspace's, or in reserve for one.
    pub zygotes_apart: u64,
    /// No lease is taken any more.
    pub draining: bool,
}

/// How a file is addressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileName {
    /// By its path.
    Path(WorkspacePath),
    /// By the `file_id` of a result.
    Id(String),
}

/// One file of a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedFile {
    /// Its path.
    pub path: WorkspacePath,
    /// Its size.
    pub size_bytes: u64,
    /// When it was last written, POSIX seconds with their fraction.
    pub modified: f64,
}

/// The files of a folder.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listing {
    /// The files.
    pub files: Vec<ListedFile>,
    /// How many have a name that JSON cannot carry.
    pub unlistable: u64,
    /// There are more than a listing may have.
    pub truncated: bool,
}

/// What an unpacked archive came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Files written.
    pub files: u64,
    /// Bytes written.
    pub bytes: u64,
}
