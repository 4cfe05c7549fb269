//! A workspace in a folder of its own, for tests: the folder is seen from outside, as a program of the session sees it.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::fs;
use std::fs::File;
use std::path::PathBuf;

use ringfence_op::{Edit, EditCommand, Fault, FaultKind, WorkspacePath};
use ringfence_workspace::{EditReport, Workspace};
use tempfile::TempDir;

/// What must never be read or written; longer than any file that the tests put inside.
pub(crate) const SECRET: &[u8] = b"SECRET of another session";
pub(crate) const VIEW_BYTES_MAX: usize = 4096;

pub(crate) struct Place {
    pub(crate) workspace: Workspace,
    /// The workspace's folder.
    pub(crate) dir: PathBuf,
    /// Beside it: what must never be reached.
    pub(crate) outside: PathBuf,
    pub(crate) owner_id: u32,
    _held: TempDir,
}

/// Whose files they are: somebody else's where we may give files away, else our own.
/// `RINGFENCE_TEST_OWNER_ID` names another id, for runs inside a user namespace.
pub(crate) fn owner_id(dir: &std::path::Path) -> u32 {
    let own = rustix::process::geteuid().as_raw();
    if let Some(id) = std::env::var("RINGFENCE_TEST_OWNER_ID").ok().and_then(|id| id.parse().ok()) {
        return id;
    }
    let probe = dir.join("probe");
    fs::write(&probe, "").unwrap();
    let other = std::os::unix::fs::chown(&probe, Some(4242), Some(4242)).is_ok();
    fs::remove_file(probe).unwrap();
    if other { 4242 } else { own }
}

impl Place {
    pub(crate) fn new() -> Self {
        let held = tempfile::tempdir().unwrap();
        let owner_id = owner_id(held.path());
        let (dir, outside) = (held.path().join("workspace"), held.path().join("outside"));
        fs::create_dir(&dir).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), SECRET).unwrap();
        let root = File::open(&dir).unwrap().into();
        Place { workspace: Workspace::new(root, owner_id, VIEW_BYTES_MAX), dir, outside, owner_id, _held: held }
    }

    pub(crate) fn put(&self, name: &str, content: &[u8]) -> Result<(), Fault> {
        let mut upload = self.workspace.create_upload(&path(name), 1 << 20)?;
        upload.write_chunk(content)?;
        upload.commit().map(|_| ())
    }

    pub(crate) fn get(&self, name: &str) -> Result<Vec<u8>, Fault> {
        let opened = self.workspace.open_file(&path(name))?;
        let mut content = vec![0; usize::try_from(opened.size()).unwrap()];
        let read = opened.read_at(0, &mut content).unwrap();
        content.truncate(read);
        Ok(content)
    }

    pub(crate) fn names(&self, name: &str, recursive: bool) -> Vec<String> {
        let listing = self.workspace.list(&path(name), recursive).unwrap();
        listing.files.into_iter().map(|file| file.path.as_str().to_owned()).collect()
    }

    pub(crate) fn edit(&self, name: &str, command: EditCommand) -> EditReport {
        self.workspace.edit(&Edit { path: name.to_owned(), command }).unwrap()
    }

    pub(crate) fn changed(&self) -> Vec<String> {
        let changed = self.workspace.changed_since_last(1000);
        assert_eq!(changed.omitted, 0);
        changed.files.into_iter().map(|file| file.path.as_str().to_owned()).collect()
    }

    /// Every name in the folder, sorted, hidden ones too.
    pub(crate) fn everything(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

pub(crate) fn path(text: &str) -> WorkspacePath {
    WorkspacePath::parse(text).unwrap()
}

pub(crate) fn kind<T>(result: Result<T, Fault>) -> FaultKind {
    match result {
        Ok(_) => panic!("it was not refused"),
        Err(fault) => fault.kind(),
    }
}
