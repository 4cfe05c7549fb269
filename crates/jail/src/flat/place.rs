//! Where the sessions' folders lie, and which of dead servers are swept away.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};

use super::ids::Who;
use super::trash;
use crate::failure::SetupFailure;
use crate::limits::SWEEP_FOLDERS_MAX;
use crate::step::StepName;

const PREFIX: &str = "ringfence-sessions-";
/// Held locked by whose folder it is.
const LOCK: &str = "lock";
/// A folder without a lock that is older was left half-made.
const HALF_MADE_MAX: Duration = Duration::from_secs(3600);
/// Bytes of a random name: nobody finds another session's folder by trying.
const NAME_BYTES: usize = 16;

/// The folder of all sessions of this server.
pub(crate) struct Place {
    pub(crate) root: PathBuf,
    who: Who,
    _lock: OwnedFd,
}

/// The folders of one session.
pub(super) struct Folders {
    pub(super) root: PathBuf,
    /// Held for reading.
    pub(super) workspace: OwnedFd,
    pub(super) tmp: OwnedFd,
}

impl Place {
    /// In the first of these that sessions can walk to: the state folder, `/var/tmp`, `/tmp`. Sweeps what dead
    /// servers have left there.
    pub(super) fn make(state_dir: &Path, who: Who) -> Result<Place, SetupFailure> {
        let mut refused = Vec::new();
        for folder in [state_dir, Path::new("/var/tmp"), Path::new("/tmp")] {
            let Ok(folder) = folder.canonicalize() else { continue };
            sweep(&folder);
            if who.sessions.is_some() && !others_may_walk(&folder) {
                refused.push(format!("{} (other ids may not walk there)", folder.display()));
                continue;
            }
            match make_in(&folder, who) {
                Ok(place) => return Ok(place),
                Err(error) => refused.push(format!("{} ({error})", folder.display())),
            }
        }
        Err(SetupFailure { step: StepName::Folders, errno: libc::EACCES, detail: refused.join(", ") })
    }

    /// The same for what only root is to walk to.
    pub(crate) fn make_for_root(state_dir: &Path, who: Who) -> Result<Place, SetupFailure> {
        Place::make(state_dir, Who { sessions: None, ..who })
    }

    /// A folder of ours beside those of the sessions.
    pub(crate) fn own(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The folders of a new session whose id is `id`, with `links` in its temporary folder.
    pub(super) fn session(&self, id: u32, links: &[(PathBuf, PathBuf)]) -> io::Result<Folders> {
        let root = self.root.join(random_name()?);
        fs::DirBuilder::new().mode(0o711).create(&root)?;
        let own = |name: &str| {
            let path = root.join(name);
            fs::DirBuilder::new().mode(0o700).create(&path)?;
            Ok::<_, io::Error>(path)
        };
        let (workspace, tmp) = (own("workspace")?, own("tmp")?);
        for (link, target) in links {
            let place = tmp.join(link);
            if let Some(parent) = place.parent() {
                fs::create_dir_all(parent)?;
            }
            symlink(target, place)?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = |path: &Path| open(path, flags, Mode::empty());
        let folders = Folders { workspace: opened(&workspace)?, tmp: opened(&tmp)?, root };
        if self.who.sessions.is_some() {
            give(&workspace, id)?;
            give_all(&tmp, id)?;
        }
        Ok(folders)
    }

    /// Removes everything.
    pub(crate) fn remove(&self) {
        // What stays is swept by the next start.
        let _ = trash::remove(&self.root);
    }
}

fn make_in(folder: &Path, who: Who) -> io::Result<Place> {
    let root = folder.join(format!("{PREFIX}{}", random_name()?));
    fs::DirBuilder::new().mode(0o711).create(&root)?;
    // Not by mkdir alone: the mask of whoever started us would take from it.
    fs::set_permissions(&root, fs::Permissions::from_mode(0o711))?;
    let lock = File::create(root.join(LOCK))?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    Ok(Place { root, who, _lock: lock.into() })
}

fn sweep(folder: &Path) {
    let own = rustix::process::geteuid().as_raw();
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().take(SWEEP_FOLDERS_MAX) {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX))
            && entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == own);
        if ours && is_dead(&entry.path()) {
            let _ = trash::remove(&entry.path());
        }
    }
}

/// Whether nobody holds its lock.
fn is_dead(root: &Path) -> bool {
    match File::open(root.join(LOCK)) {
        Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
        Err(_) => {
            let age = fs::metadata(root).and_then(|found| found.modified()).ok().and_then(|made| made.elapsed().ok());
            age.is_some_and(|age| age > HALF_MADE_MAX)
        }
    }
}

/// Whether every id may walk to the folder.
fn others_may_walk(folder: &Path) -> bool {
    const OTHERS_SEARCH: u32 = 0o001;
    folder.ancestors().all(|one| fs::metadata(one).is_ok_and(|found| found.mode() & OTHERS_SEARCH != 0))
}

fn give(path: &Path, id: u32) -> io::Result<()> {
    chown(path, Some(id), Some(id))
}

/// A folder that nobody else has had yet, with the few folders in it.
fn give_all(path: &Path, id: u32) -> io::Result<()> {
    give(path, id)?;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            give_all(&entry.path(), id)?;
        }
    }
    Ok(())
}

fn random_name() -> io::Result<String> {
    let mut bytes = [0; NAME_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_the_dead_are_swept() {
        let state = tempfile::tempdir().unwrap();
        let who = Who { keeper: rustix::process::geteuid().as_raw(), sessions: None, daemon: 0 };
        let alive = Place::make(state.path(), who).unwrap();
        let dead = Place::make(state.path(), who).unwrap();
        let folders = dead.session(who.keeper, &[(".a/b".into(), "/usr".into())]).unwrap();
        assert!(folders.root.join("tmp/.a/b/bin").exists() && folders.root.join("workspace").is_dir());
        let gone = dead.root.clone();
        drop((dead, folders));
        sweep(state.path());
        assert!(alive.root.exists() && !gone.exists());
        alive.remove();
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);
    }
}
