//! The real backend: the room of sessions.
//!
//! A file, an upload or an archive carries its session's hold, so that the session is not idle while a client
//! reads or writes.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use ringfence_op::{Call, Fault, FaultKind, Outcome, SessionId, WorkspaceId, WorkspacePath};
use ringfence_session::{Archive, Hold, OpenedFile, Sessions, Upload};

use super::{About, Backend, Counts, FileName, Handle, Lease, ListedFile, Listing, ReadFile, Unpacked, WriteFile};

/// Sessions, and what is to be said of them all.
#[derive(Debug, Clone)]
pub struct OverSessions {
    sessions: Sessions,
    about: Arc<About>,
}

impl OverSessions {
    /// `about` must say what the sessions were configured with.
    #[must_use]
    pub fn new(sessions: Sessions, about: About) -> Self {
        OverSessions { sessions, about: Arc::new(about) }
    }
}

/// Something of a session, with its hold.
#[derive(Debug)]
pub struct Held<T> {
    inner: T,
    /// Dropped with it.
    _hold: Hold,
}

impl Backend for OverSessions {
    type File = Held<OpenedFile>;
    type Upload = Held<Upload>;
    type Archive = Held<Archive>;

    fn about(&self) -> &About {
        &self.about
    }

    fn counts(&self) -> Counts {
        let counts = self.sessions.counts();
        Counts {
            sessions: counts.sessions as u64,
            sessions_max: counts.sessions_max as u64,
            running: counts.calls as u64,
            warm: counts.warm as u64,
            zygotes_apart: counts.zygotes_apart as u64,
            draining: counts.draining,
        }
    }

    fn ready(&self) -> Result<(), Fault> {
        self.sessions.ready()
    }

    async fn create(&self, lease: Lease) -> Result<Handle, Fault> {
        let Lease { image, idle, lifetime, tenant } = lease;
        let handle = self.sessions.create(ringfence_session::Lease { image, idle, lifetime, tenant }).await?;
        Ok(described(handle))
    }

    async fn execute(&self, id: SessionId, call: Call) -> Result<Outcome, Fault> {
        self.sessions.execute(id, call).await
    }

    async fn destroy(&self, id: SessionId) -> Result<(), Fault> {
        self.sessions.destroy(id)
    }

    async fn interrupt(&self, id: SessionId) -> Result<bool, Fault> {
        self.sessions.interrupt(id)
    }

    fn belongs(&self, id: SessionId, owner: &WorkspaceId) -> Result<(), Fault> {
        self.sessions.admit(id, owner)
    }

    fn count_of(&self, owner: &WorkspaceId) -> u64 {
        self.sessions.count_of(owner) as u64
    }

    async fn handles(&self, owner: Option<&WorkspaceId>) -> Result<Vec<Handle>, Fault> {
        Ok(self.sessions.handles(owner).into_iter().map(described).collect())
    }

    async fn handle(&self, id: SessionId) -> Result<Handle, Fault> {
        self.sessions.handle(id).map(described)
    }

    async fn list(&self, id: SessionId, path: WorkspacePath, recursive: bool) -> Result<Listing, Fault> {
        let listing = self.sessions.files(id)?.list(path, recursive).await?;
        let listed = listing.files.into_iter().map(|file| ListedFile {
            path: file.path,
            size_bytes: file.size_bytes,
            modified: file.modified,
        });
        Ok(Listing { files: listed.collect(), unlistable: listing.unlistable, truncated: listing.truncated })
    }

    async fn open(&self, id: SessionId, name: FileName) -> Result<(WorkspacePath, Self::File), Fault> {
        let files = self.sessions.files(id)?;
        let path = match name {
            FileName::Path(path) => path,
            FileName::Id(file_id) => files.workspace().path_of(&file_id).ok_or_else(|| {
                Fault::new(FaultKind::UnknownFile, "no result of this session has named this file id, or not lately")
            })?,
        };
        let (inner, hold) = files.open_file(&path)?;
        Ok((path, Held { inner, _hold: hold }))
    }

    async fn upload(&self, id: SessionId, path: Option<WorkspacePath>, bytes_max: u64) -> Result<Self::Upload, Fault> {
        let (inner, hold) = self.sessions.files(id)?.upload(path.as_ref(), bytes_max)?;
        Ok(Held { inner, _hold: hold })
    }

    async fn remove(&self, id: SessionId, path: WorkspacePath) -> Result<(), Fault> {
        self.sessions.files(id)?.remove(&path)
    }

    async fn archive(&self, id: SessionId, path: WorkspacePath) -> Result<Self::Archive, Fault> {
        let files = self.sessions.files(id)?;
        let inner = files.workspace().archive(&path)?;
        Ok(Held { inner, _hold: files.into_hold() })
    }

    async fn unpack(
        &self,
        id: SessionId,
        path: WorkspacePath,
        mut archive: Box<dyn io::Read + Send>,
        bytes_max: u64,
    ) -> Result<Unpacked, Fault> {
        let files = self.sessions.files(id)?;
        let unpacked = files.blocking(move |workspace| workspace.unpack(&path, &mut *archive, bytes_max)).await?;
        Ok(Unpacked { files: unpacked.files, bytes: unpacked.bytes })
    }
}

fn described(handle: ringfence_session::Handle) -> Handle {
    Handle {
        id: handle.id,
        created: handle.created,
        last_activity: handle.last_activity,
        idle: Some(handle.idle),
        lifetime: Some(handle.lifetime),
        image: handle.image,
        cell: handle.limits,
        timeout_max: handle.timeout_max,
    }
}

impl ReadFile for Held<OpenedFile> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn modified(&self) -> SystemTime {
        self.inner.modified()
    }

    fn etag(&self) -> &str {
        self.inner.etag()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read_at(offset, buffer)
    }
}

impl WriteFile for Held<Upload> {
    fn write(&mut self, piece: &[u8]) -> Result<(), Fault> {
        self.inner.write_chunk(piece)
    }

    fn commit(self, path: &WorkspacePath) -> Result<u64, Fault> {
        self.inner.commit_to(path).map(|entry| entry.size_bytes)
    }
}

impl io::Read for Held<Archive> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer)
    }
}
