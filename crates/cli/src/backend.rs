//! The sessions as the door's backend: the one place that knows both rooms' words.

use std::io;
use std::time::SystemTime;

use ringfence_op::{Call, Fault, FaultKind, Outcome, SessionId, WorkspacePath};
use ringfence_server::backend::{
    About, Backend, Counts, FileName, Handle, Lease, ListedFile, Listing, ReadFile, Unpacked, WriteFile,
};
use ringfence_session::{Hold, Sessions};
use ringfence_workspace::{Archive, OpenedFile, Upload, Workspace};

/// The sessions, and what is the same for all of them.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    sessions: Sessions,
    about: std::sync::Arc<About>,
}

impl Held {
    /// Of these sessions.
    pub(crate) fn new(sessions: Sessions, about: About) -> Self {
        Held { sessions, about: about.into() }
    }
}

/// A file, an upload or an archive: while it is carried on with, its session is not idle.
pub(crate) struct Holding<T> {
    inner: T,
    hold: Hold,
}

impl Backend for Held {
    type File = Holding<OpenedFile>;
    type Upload = Holding<Upload>;
    type Archive = Holding<Archive>;

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
            draining: counts.draining,
        }
    }

    fn ready(&self) -> Result<(), Fault> {
        self.sessions.ready()
    }

    async fn create(&self, lease: Lease) -> Result<Handle, Fault> {
        let Lease { image, idle, lifetime } = lease;
        self.sessions.create(ringfence_session::Lease { image, idle, lifetime }).await.map(handle)
    }

    async fn execute(&self, id: SessionId, call: Call) -> Result<Outcome, Fault> {
        self.sessions.execute(id, call).await
    }

    async fn destroy(&self, id: SessionId) -> Result<(), Fault> {
        self.sessions.destroy(id)
    }

    async fn handle(&self, id: SessionId) -> Result<Handle, Fault> {
        self.sessions.handle(id).map(handle)
    }

    async fn list(&self, id: SessionId, path: WorkspacePath, recursive: bool) -> Result<Listing, Fault> {
        let listing = self.sessions.files(id)?.list(path, recursive).await?;
        let file = |entry: ringfence_workspace::FileEntry| ListedFile {
            path: entry.path,
            size_bytes: entry.size_bytes,
            modified: entry.modified,
        };
        Ok(Listing {
            files: listing.files.into_iter().map(file).collect(),
            unlistable: listing.unlistable,
            truncated: listing.truncated,
        })
    }

    async fn open(&self, id: SessionId, name: FileName) -> Result<(WorkspacePath, Self::File), Fault> {
        let files = self.sessions.files(id)?;
        let path = match name {
            FileName::Path(path) => path,
            FileName::Id(file_id) => files.workspace().path_of(&file_id).ok_or_else(unknown_file)?,
        };
        let (inner, hold) = files.open_file(&path)?;
        Ok((path, Holding { inner, hold }))
    }

    async fn upload(&self, id: SessionId, path: Option<WorkspacePath>, bytes_max: u64) -> Result<Self::Upload, Fault> {
        let (inner, hold) = self.sessions.files(id)?.upload(path.as_ref(), bytes_max)?;
        Ok(Holding { inner, hold })
    }

    async fn remove(&self, id: SessionId, path: WorkspacePath) -> Result<(), Fault> {
        self.sessions.files(id)?.remove(&path)
    }

    async fn archive(&self, id: SessionId, path: WorkspacePath) -> Result<Self::Archive, Fault> {
        let files = self.sessions.files(id)?;
        let inner = files.workspace().archive(&path)?;
        Ok(Holding { inner, hold: files.into_hold() })
    }

    async fn unpack(
        &self,
        id: SessionId,
        path: WorkspacePath,
        mut archive: Box<dyn io::Read + Send>,
        bytes_max: u64,
    ) -> Result<Unpacked, Fault> {
        let unpack = move |workspace: &Workspace| workspace.unpack(&path, &mut archive, bytes_max);
        let done = self.sessions.files(id)?.blocking(unpack).await?;
        Ok(Unpacked { files: done.files, bytes: done.bytes })
    }
}

impl ReadFile for Holding<OpenedFile> {
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

impl io::Read for Holding<Archive> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer)
    }
}

impl WriteFile for Holding<Upload> {
    fn write(&mut self, piece: &[u8]) -> Result<(), Fault> {
        self.inner.write_chunk(piece)
    }

    fn commit(self, path: &WorkspacePath) -> Result<u64, Fault> {
        let entry = self.inner.commit_to(path)?;
        drop(self.hold);
        Ok(entry.size_bytes)
    }
}

fn handle(handle: ringfence_session::Handle) -> Handle {
    Handle {
        id: handle.id,
        created: handle.created,
        last_activity: handle.last_activity,
        idle: Some(handle.idle),
        lifetime: Some(handle.lifetime),
        image: handle.image,
    }
}

fn unknown_file() -> Fault {
    Fault::new(FaultKind::UnknownFile, "no result of this session named a file of that id")
}
