//! The workspace of a session, seen from the daemon: files, uploads as streams, archives, the text editor, and what a
//! call changed.
//!
//! May know: `op`, `weaken`, the kernel's file calls through `rustix`. Never knows: interpreters, sessions, HTTP, JSON,
//! tokio.
//!
//! Everything in a workspace is hostile: programs of the session swap files for links and FIFOs while we look, make
//! names that are no UTF-8, a hundred thousand files and trees without a bottom.
//!
//! **Invariants.**
//! - Nothing outside the held root is opened, read, written, made, removed or given away.
//! - No call waits for a program of the session: nothing but regular files is read or written.
//! - A file is put in place whole or not at all; a refused operation changes nothing.
//! - Every listing, archive, scan, undo log and retry is bounded, by a name in [`limits`].
//! - No text for the caller holds a path other than the caller's own.

mod archive;
mod changes;
mod editor;
mod error;
pub mod limits;
mod list;
mod opened;
mod root;
mod temp;
mod tree;
mod upload;
mod workspace;

pub use archive::{Archive, Unpacked};
pub use changes::Changed;
pub use editor::EditReport;
pub use error::path_fault;
pub use list::{FileEntry, Listing};
pub use opened::OpenedFile;
pub use upload::Upload;
pub use workspace::Workspace;
