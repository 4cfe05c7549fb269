//! The files of a session, for as long as somebody works with them.

use std::sync::Arc;

use ringfence_op::{Fault, WorkspacePath};
use ringfence_workspace::{Listing, OpenedFile, Upload, Workspace};

use crate::session::{Hold, Session};

/// The files of a session, held open: while it lives, the session is not idle.
#[derive(Debug)]
pub struct Files {
    workspace: Workspace,
    hold: Hold,
}

impl Files {
    pub(crate) fn of(session: &Arc<Session>) -> Self {
        Files { hold: session.hold(), workspace: session.workspace.clone() }
    }

    /// The workspace itself, for what streams through it.
    #[must_use]
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// Only the hold, for a file or an upload that was opened and is carried on with.
    #[must_use]
    pub fn into_hold(self) -> Hold {
        self.hold
    }

    /// The files of a folder, or of the tree below it.
    ///
    /// # Errors
    /// As [`Workspace::list`].
    pub async fn list(self, path: WorkspacePath, recursive: bool) -> Result<Listing, Fault> {
        self.blocking(move |workspace| workspace.list(&path, recursive)).await
    }

    /// Opens a file; the hold goes with it.
    ///
    /// # Errors
    /// As [`Workspace::open_file`].
    pub fn open_file(self, path: &WorkspacePath) -> Result<(OpenedFile, Hold), Fault> {
        Ok((self.workspace.open_file(path)?, self.hold))
    }

    /// Begins an upload; the hold goes with it. Where the path is known, what cannot be put there is refused at once.
    ///
    /// # Errors
    /// As [`Workspace::create_upload`] and [`Workspace::begin_upload`].
    pub fn upload(self, path: Option<&WorkspacePath>, bytes_max: u64) -> Result<(Upload, Hold), Fault> {
        let upload = match path {
            Some(path) => self.workspace.create_upload(path, bytes_max)?,
            None => self.workspace.begin_upload(bytes_max)?,
        };
        Ok((upload, self.hold))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// As [`Workspace::remove`].
    pub fn remove(self, path: &WorkspacePath) -> Result<(), Fault> {
        self.workspace.remove(path)
    }

    /// Does something that may take long on a thread that may block.
    ///
    /// # Errors
    /// What `work` says; `House` when it panicked.
    pub async fn blocking<T: Send + 'static>(
        self,
        work: impl FnOnce(&Workspace) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        tokio::task::spawn_blocking(move || work(&self.workspace))
            .await
            .unwrap_or_else(|error| Err(Fault::house(error)))
    }
}
