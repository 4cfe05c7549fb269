//! A backend in memory. What a session does is said by the code it is given and by the names of its files.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringfence_op::{
    BackgroundOutput, Call, CallLimits, CallReport, CellLimits, Fault, FaultKind, LimitKind, Operation, Outcome,
    ProducedFile, SessionId, Tier, Usage, WorkspaceId, WorkspacePath,
};
use ringfence_server::backend::{
    About, Backend, Counts, FileName, Handle, Lease, ListedFile, Listing, ReadFile, Unpacked, WriteFile,
};
use tokio::sync::watch;

type Files = BTreeMap<String, Arc<Vec<u8>>>;

#[derive(Clone)]
pub struct Fake {
    state: Arc<State>,
}

pub struct State {
    about: About,
    sessions: Mutex<HashMap<SessionId, (Handle, Files)>>,
    /// Calls that wait until they are let go.
    gate: watch::Sender<bool>,
    /// How many calls have reached the gate.
    pub waiting: AtomicU64,
    pub draining: AtomicBool,
    pub full: AtomicBool,
    /// Uploads that were begun and not dropped yet.
    pub uploads: Arc<AtomicU64>,
    pub last_call: Mutex<Option<Call>>,
    pub last_lease: Mutex<Option<Lease>>,
    owners: Mutex<HashMap<SessionId, WorkspaceId>>,
}

impl Default for Fake {
    fn default() -> Self {
        let about =
            About { image: "scientific".to_owned(), tier: Tier::Cell, call: CallLimits::default(), echo_last: false };
        let state = State {
            about,
            sessions: Mutex::default(),
            gate: watch::Sender::new(false),
            waiting: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            full: AtomicBool::new(false),
            uploads: Arc::default(),
            last_call: Mutex::default(),
            last_lease: Mutex::default(),
            owners: Mutex::default(),
        };
        Fake { state: Arc::new(state) }
    }
}

impl std::ops::Deref for Fake {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl Fake {
    /// Lets all waiting calls go, now and from here on.
    pub fn open_gates(&self) {
        self.gate.send_replace(true);
    }

    /// Lets one go that waits, if one does.
    fn interrupt_waiting(&self) -> bool {
        let some = self.waiting.load(Ordering::SeqCst) > 0;
        if some {
            self.open_gates();
        }
        some
    }

    /// Waits until so many calls have reached the gate.
    pub fn await_waiting(&self, count: u64) {
        while self.waiting.load(Ordering::SeqCst) < count {
            std::thread::yield_now();
        }
    }

    /// What a session's files are.
    pub fn files(&self, session: &str) -> Files {
        let id = SessionId::parse(session.strip_prefix("/sessions/").unwrap()).unwrap();
        self.sessions()[&id].1.clone()
    }

    /// Puts a file there.
    pub fn write(&self, session: &str, path: &str, content: &[u8]) {
        let id = SessionId::parse(session.strip_prefix("/sessions/").unwrap()).unwrap();
        self.sessions().get_mut(&id).unwrap().1.insert(path.to_owned(), Arc::new(content.to_vec()));
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, (Handle, Files)>> {
        self.state.sessions.lock().unwrap()
    }

    fn of<T>(&self, id: SessionId, what: impl FnOnce(&mut (Handle, Files)) -> Result<T, Fault>) -> Result<T, Fault> {
        what(self.sessions().get_mut(&id).ok_or_else(Fault::unknown_session)?)
    }
}

/// Paths that a real workspace would refuse.
fn special(path: &WorkspacePath) -> Result<(), Fault> {
    match path.as_str() {
        "link" => Err(Fault::new(FaultKind::PathEscapes, "link: the path leaves the workspace")),
        "pipe" => Err(Fault::new(FaultKind::NotAFile, "pipe: it is a FIFO")),
        "broken" => Err(Fault::house(io::Error::other("the disk is on fire in /secret/place"))),
        _ => Ok(()),
    }
}

impl Backend for Fake {
    type File = Contents;
    type Upload = Upload;
    type Archive = Archive;

    fn about(&self) -> &About {
        &self.state.about
    }

    fn counts(&self) -> Counts {
        let sessions = self.sessions().len() as u64;
        Counts { sessions, sessions_max: 100, draining: self.draining.load(Ordering::SeqCst), ..Counts::default() }
    }

    fn ready(&self) -> Result<(), Fault> {
        match self.draining.load(Ordering::SeqCst) {
            true => Err(Fault::new(FaultKind::Capacity { retry_after_seconds: 10 }, "the server is shutting down")),
            false => Ok(()),
        }
    }

    async fn create(&self, lease: Lease) -> Result<Handle, Fault> {
        if self.full.load(Ordering::SeqCst) {
            let kind = FaultKind::Capacity { retry_after_seconds: 7 };
            return Err(Fault::new(kind, "no session is free; try again later"));
        }
        *self.last_lease.lock().unwrap() = Some(lease.clone());
        let created = UNIX_EPOCH + Duration::from_millis(1_786_000_000_250);
        let handle = Handle {
            id: SessionId::random().unwrap(),
            created,
            last_activity: created,
            idle: lease.idle.map(|idle| idle.min(Duration::from_secs(3600))),
            lifetime: Some(lease.lifetime.unwrap_or(Duration::from_millis(1500))),
            image: "scientific".to_owned(),
            cell: CellLimits::default(),
            timeout_max: CallLimits::default().timeout_max,
        };
        if let Some(tenant) = lease.tenant {
            self.owners.lock().unwrap().insert(handle.id, tenant.workspace);
        }
        self.sessions().insert(handle.id, (handle.clone(), Files::new()));
        Ok(handle)
    }

    async fn execute(&self, id: SessionId, call: Call) -> Result<Outcome, Fault> {
        self.of(id, |_| Ok(()))?;
        *self.last_call.lock().unwrap() = Some(call.clone());
        let code = match &call.operation {
            Operation::Python(python) => python.code.clone(),
            Operation::Bash(bash) => bash.command.clone(),
            Operation::Edit(edit) => edit.path.clone(),
        };
        let mut report = CallReport { stdout: format!("ran {code}\n"), ..CallReport::default() };
        let mut files = Vec::new();
        match code.split_once(':').map_or((code.as_str(), ""), |(what, rest)| (what, rest)) {
            ("wait", _) => {
                let mut gate = self.gate.subscribe();
                self.waiting.fetch_add(1, Ordering::SeqCst);
                gate.wait_for(|open| *open).await.unwrap();
            }
            ("output", length) => report.stdout = "\u{e9}\"\n".repeat(length.parse().unwrap()),
            ("fail", _) => (report.return_code, report.stderr) = (1, "ValueError: no\n".to_owned()),
            ("house", _) => return Err(Fault::house(io::Error::other("the keeper is gone at /secret/place"))),
            ("busy", _) => {
                return Err(Fault::new(FaultKind::Capacity { retry_after_seconds: 0 }, "too many calls wait"));
            }
            ("late", _) => {
                report.limit_exceeded = Some(LimitKind::WallClock);
                report.interpreter_restarted = true;
                report.return_code = 124;
                report.usage = Usage { memory_peak_bytes: Some(5), cpu_ms: 1, stdout_bytes: 2, stderr_bytes: 3 };
                report.background = Some(BackgroundOutput { stdout: "b".to_owned(), stderr: String::new() });
            }
            ("plot", _) => {
                let path = WorkspacePath::parse("out/chart.png").unwrap();
                files.push(ProducedFile { file_id: "file_1".to_owned(), path });
            }
            _ => {}
        }
        let files_omitted = files.len() as u64 * 3;
        Ok(Outcome { report, files, files_omitted, execution_time_ms: 5, timeout: call.timeout })
    }

    async fn destroy(&self, id: SessionId) -> Result<(), Fault> {
        self.sessions().remove(&id).map(|_| ()).ok_or_else(Fault::unknown_session)
    }

    async fn interrupt(&self, id: SessionId) -> Result<bool, Fault> {
        self.of(id, |_| Ok(()))?;
        Ok(self.interrupt_waiting())
    }

    fn belongs(&self, id: SessionId, owner: &WorkspaceId) -> Result<(), Fault> {
        match self.owners.lock().unwrap().get(&id) == Some(owner) {
            true => Ok(()),
            false => Err(Fault::unknown_session()),
        }
    }

    fn count_of(&self, owner: &WorkspaceId) -> u64 {
        let sessions = self.sessions();
        let owners = self.owners.lock().unwrap();
        sessions.keys().filter(|id| owners.get(id) == Some(owner)).count() as u64
    }

    async fn handles(&self, owner: Option<&WorkspaceId>) -> Result<Vec<Handle>, Fault> {
        let sessions = self.sessions();
        let owners = self.owners.lock().unwrap();
        let wanted = |(handle, _): &&(Handle, Files)| owner.is_none() || owners.get(&handle.id) == owner;
        Ok(sessions.values().filter(wanted).map(|(handle, _)| handle.clone()).collect())
    }

    async fn handle(&self, id: SessionId) -> Result<Handle, Fault> {
        self.of(id, |(handle, _)| Ok(handle.clone()))
    }

    async fn list(&self, id: SessionId, path: WorkspacePath, recursive: bool) -> Result<Listing, Fault> {
        special(&path)?;
        let below = if path.is_root() { String::new() } else { format!("{path}/") };
        self.of(id, |(_, files)| {
            let listed = files.iter().filter_map(|(name, content)| {
                let rest = name.strip_prefix(&below)?;
                (recursive || !rest.contains('/')).then(|| ListedFile {
                    path: WorkspacePath::parse(name).unwrap(),
                    size_bytes: content.len() as u64,
                    modified: 1_786_000_000.123,
                })
            });
            let files: Vec<ListedFile> = listed.collect();
            match files.is_empty() && !path.is_root() {
                true => Err(Fault::new(FaultKind::UnknownFile, "no such folder")),
                false => Ok(Listing { files, ..Listing::default() }),
            }
        })
    }

    async fn open(&self, id: SessionId, name: FileName) -> Result<(WorkspacePath, Contents), Fault> {
        let path = match name {
            FileName::Path(path) => path,
            FileName::Id(id) if id == "file_1" => WorkspacePath::parse("out/chart.png").unwrap(),
            FileName::Id(_) => return Err(Fault::new(FaultKind::UnknownFile, "no such file id")),
        };
        special(&path)?;
        self.of(id, |(_, files)| match files.get(path.as_str()) {
            Some(content) => {
                let readable = if path.as_str() == "shrinks" { content.len() / 2 } else { content.len() };
                Ok((path, Contents { content: Arc::clone(content), readable }))
            }
            None if files.keys().any(|name| name.starts_with(&format!("{path}/"))) => {
                Err(Fault::new(FaultKind::NotAFile, "it is a directory, not a file"))
            }
            None => Err(Fault::new(FaultKind::UnknownFile, "no such file")),
        })
    }

    async fn upload(&self, id: SessionId, path: Option<WorkspacePath>, bytes_max: u64) -> Result<Upload, Fault> {
        if let Some(path) = path {
            special(&path)?;
        }
        self.of(id, |_| Ok(()))?;
        self.uploads.fetch_add(1, Ordering::SeqCst);
        Ok(Upload { fake: self.clone(), id, content: Vec::new(), bytes_max })
    }

    async fn remove(&self, id: SessionId, path: WorkspacePath) -> Result<(), Fault> {
        special(&path)?;
        self.of(id, |(_, files)| {
            files.remove(path.as_str()).map(|_| ()).ok_or_else(|| Fault::new(FaultKind::UnknownFile, "no such file"))
        })
    }

    async fn archive(&self, id: SessionId, path: WorkspacePath) -> Result<Archive, Fault> {
        special(&path)?;
        let broken = path.as_str() == "cut";
        self.of(id, |(_, files)| {
            let content = files.values().flat_map(|content| content.iter().copied()).collect();
            Ok(Archive { content: io::Cursor::new(content), broken })
        })
    }

    async fn unpack(
        &self,
        id: SessionId,
        path: WorkspacePath,
        mut archive: Box<dyn Read + Send>,
        bytes_max: u64,
    ) -> Result<Unpacked, Fault> {
        special(&path)?;
        self.of(id, |_| Ok(()))?;
        let reading = tokio::task::spawn_blocking(move || {
            let mut content = Vec::new();
            archive.by_ref().take(bytes_max + 1).read_to_end(&mut content).map(|_| content)
        });
        let content = reading.await.unwrap().map_err(|_| Fault::new(FaultKind::Malformed, "archive: it broke off"))?;
        if content.len() as u64 > bytes_max {
            return Err(Fault::new(FaultKind::TooLarge, "archive: too large"));
        }
        let bytes = content.len() as u64;
        self.of(id, |(_, files)| {
            files.insert(format!("{path}/unpacked"), Arc::new(content));
            Ok(Unpacked { files: 1, bytes })
        })
    }
}

pub struct Contents {
    content: Arc<Vec<u8>>,
    readable: usize,
}

impl ReadFile for Contents {
    fn size(&self) -> u64 {
        self.content.len() as u64
    }

    fn modified(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_786_000_000)
    }

    fn etag(&self) -> &str {
        "\"one\""
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.content[..self.readable].get(offset as usize..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }
}

pub struct Upload {
    fake: Fake,
    id: SessionId,
    content: Vec<u8>,
    bytes_max: u64,
}

impl WriteFile for Upload {
    fn write(&mut self, piece: &[u8]) -> Result<(), Fault> {
        self.content.extend_from_slice(piece);
        match self.content.len() as u64 > self.bytes_max {
            true => Err(Fault::new(FaultKind::TooLarge, "the file is too large")),
            false => Ok(()),
        }
    }

    fn commit(mut self, path: &WorkspacePath) -> Result<u64, Fault> {
        special(path)?;
        let content = std::mem::take(&mut self.content);
        let size = content.len() as u64;
        self.fake.of(self.id, |(_, files)| {
            files.insert(path.as_str().to_owned(), Arc::new(content));
            Ok(size)
        })
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.fake.uploads.fetch_sub(1, Ordering::SeqCst);
    }
}

pub struct Archive {
    content: io::Cursor<Vec<u8>>,
    broken: bool,
}

impl Read for Archive {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.content.read(buffer)? {
            0 if self.broken => Err(io::Error::other("a file shrank")),
            length => Ok(length),
        }
    }
}
