//! The workspace of one session: the one way in.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_op::{Edit, Fault, WorkspacePath};
use rustix::fs::{AtFlags, unlinkat};

use crate::archive::{Archive, Unpacked, unpack};
use crate::changes::{Changed, Changes};
use crate::editor::{self, EditReport, UndoLog};
use crate::error::{FileError, IS_DIRECTORY};
use crate::list::{self, Listing};
use crate::opened::OpenedFile;
use crate::root::{Last, Root, is_dir};
use crate::upload::Upload;

/// A session's workspace. Clones are handles to the same one; the root is held as long as one of them lives.
///
/// Everything here is blocking I/O on a file system in memory, quick for one file; what goes through many files or
/// bytes (listing, archives, uploads, changes after a call that wrote) belongs on a thread that may block.
#[derive(Debug, Clone)]
pub struct Workspace {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) root: Root,
    pub(crate) view_bytes_max: usize,
    changes: Mutex<Changes>,
    undo: Mutex<UndoLog>,
}

impl Inner {
    pub(crate) fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held through a whole edit, so that edits of one workspace follow each other. Taken before [`Self::changes`].
    pub(crate) fn undo(&self) -> MutexGuard<'_, UndoLog> {
        self.undo.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Workspace {
    /// The workspace below `root`, a directory that is (in a cell) the root of a mount of its own.
    ///
    /// What is made in it belongs to `owner_id`, as seen from the caller's user namespace; where that is not the
    /// caller's own effective id, the caller needs CAP_DAC_OVERRIDE, CAP_CHOWN and CAP_FOWNER over it. The editor's
    /// view shows `view_bytes_max` bytes at most. What is in the folder already counts as seen.
    #[must_use]
    pub fn new(root: OwnedFd, owner_id: u32, view_bytes_max: usize) -> Self {
        let root = Root::new(root, owner_id);
        let changes = Mutex::new(Changes::new(root.fd()));
        let inner = Inner { root, view_bytes_max, changes, undo: Mutex::new(UndoLog::default()) };
        Workspace { inner: Arc::new(inner) }
    }

    /// Opens a regular file for reading; links are followed as far as they stay in the workspace.
    ///
    /// # Errors
    /// `UnknownFile`, `PathEscapes`, `NotAFile` (a folder, FIFO, socket, device or loop of links), `Malformed`.
    pub fn open_file(&self, path: &WorkspacePath) -> Result<OpenedFile, Fault> {
        let opened = self.inner.root.open_file(path.as_str().as_bytes());
        opened.map(|(fd, stat)| OpenedFile::new(fd, &stat)).map_err(|error| error.fault(path.as_str()))
    }

    /// Begins an upload of at most `bytes_max` bytes to `path`, and refuses at once what could not be put there.
    ///
    /// # Errors
    /// As [`Upload::commit_to`].
    pub fn create_upload(&self, path: &WorkspacePath, bytes_max: u64) -> Result<Upload, Fault> {
        Upload::new(Arc::clone(&self.inner), Some(path), bytes_max)
    }

    /// Begins an upload whose path is not known yet (a multipart body may name it after the file); it is ended with
    /// [`Upload::commit_to`].
    ///
    /// # Errors
    /// `TooLarge` when the workspace has no room for one more file.
    pub fn begin_upload(&self, bytes_max: u64) -> Result<Upload, Fault> {
        Upload::new(Arc::clone(&self.inner), None, bytes_max)
    }

    /// The files of a folder, or of the whole tree below it. Links to folders are not gone into.
    ///
    /// # Errors
    /// `UnknownFile`, `PathEscapes`, `NotAFile` where `path` is no folder.
    pub fn list(&self, path: &WorkspacePath, recursive: bool) -> Result<Listing, Fault> {
        list::list(&self.inner.root, path, recursive).map_err(|error| error.fault(path.as_str()))
    }

    /// Removes a file. Of a link, the link goes and what it leads to stays; special files go as well.
    ///
    /// # Errors
    /// `UnknownFile`, `PathEscapes`, `NotAFile` for a folder.
    pub fn remove(&self, path: &WorkspacePath) -> Result<(), Fault> {
        self.remove_name(path).map_err(|error| error.fault(path.as_str()))
    }

    /// A folder as a tar stream, read piece by piece in bounded memory.
    ///
    /// # Errors
    /// `UnknownFile`, `PathEscapes`, `NotAFile` where `path` is no folder.
    pub fn archive(&self, path: &WorkspacePath) -> Result<Archive, Fault> {
        let start = self.inner.root.open_dir(path.as_str().as_bytes());
        start.map(Archive::new).map_err(|error| error.fault(path.as_str()))
    }

    /// Unpacks a tar stream into a folder, which is made where it is missing; at most `bytes_max` bytes of content.
    ///
    /// Entries are written in their order, each whole. A refused entry ends it: those before it stay, it and those
    /// after it are not written.
    ///
    /// # Errors
    /// `PathEscapes`, `NotAFile`, `Malformed` (also for what is no tar archive) and `TooLarge`, with the entry named.
    pub fn unpack(
        &self,
        path: &WorkspacePath,
        from: &mut dyn std::io::Read,
        bytes_max: u64,
    ) -> Result<Unpacked, Fault> {
        unpack(&self.inner, path, from, bytes_max)
    }

    /// Carries out a text-editor call. A refusal is a result with return code 1 and a line on stderr.
    ///
    /// # Errors
    /// Only when the backend itself failed.
    pub fn edit(&self, edit: &Edit) -> Result<EditReport, Fault> {
        editor::edit(&self.inner, edit)
    }

    /// The files that were created or changed since the last time this was asked, at most `files_max` of them by
    /// name. Uploads, unpacked archives and edits through this workspace are not among them.
    #[must_use]
    pub fn changed_since_last(&self, files_max: usize) -> Changed {
        self.inner.changes().since_last(self.inner.root.fd(), files_max)
    }

    /// Whether [`changed_since_last`](Self::changed_since_last) would find nothing. Quick, while that one may go
    /// through many files: a caller that must not block asks this first.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.inner.changes().is_quiet()
    }

    /// The path behind a file id that a result of this workspace named; `None` for what was never named, or so long
    /// ago that it is forgotten ([`crate::limits::FILE_IDS_MAX`]).
    #[must_use]
    pub fn path_of(&self, file_id: &str) -> Option<WorkspacePath> {
        self.inner.changes().path_of(file_id)
    }

    fn remove_name(&self, path: &WorkspacePath) -> Result<(), FileError> {
        let place = self.inner.root.place(path.as_str().as_bytes(), Last::Keep)?;
        let stat = place.found.as_ref().ok_or(FileError::Unknown)?;
        if is_dir(stat) {
            return Err(FileError::NotAFile(IS_DIRECTORY));
        }
        unlinkat(&place.dir, place.name.as_slice(), AtFlags::empty())
            .map_err(|errno| FileError::from_errno(errno, "removing a file"))
    }
}
