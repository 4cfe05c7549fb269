//! Removing folders that hostile programs have filled: without recursion, however deep they are, and in pieces, so
//! that the keeper is never held up.
//!
//! A folder that lies in another is first moved up, to lie among those that wait: so neither depth nor the length of a
//! path matters. Nobody who could interfere lives any more.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::limits::TRASH_WAITING_MAX;

/// Folders that wait to be removed.
pub(super) struct Trash {
    folder: PathBuf,
    waiting: Vec<PathBuf>,
    taken: u64,
}

impl Trash {
    /// In the new folder `folder`.
    pub(super) fn new(folder: PathBuf) -> io::Result<Trash> {
        fs::create_dir(&folder)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
        Ok(Trash { folder, waiting: Vec::new(), taken: 0 })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes a folder over, to be removed later; it must lie in the same file system.
    pub(super) fn take(&mut self, folder: &Path) {
        self.taken += 1;
        let place = self.folder.join(self.taken.to_string());
        // What its owner had closed is opened: only a folder that can be written to can be moved.
        let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
        if fs::rename(folder, &place).is_ok() && self.waiting.len() < TRASH_WAITING_MAX {
            self.waiting.push(place);
        }
    }

    /// Removes up to `entries` names. What cannot be removed stays until the end of the server.
    pub(super) fn step(&mut self, entries: usize) {
        let mut left = entries;
        while left > 0
            && let Some(folder) = self.waiting.pop()
        {
            match self.empty(&folder, &mut left) {
                // Its own folders wait behind it now.
                Ok(true) => drop(fs::remove_dir(&folder)),
                Ok(false) => self.waiting.push(folder),
                Err(_) => {}
            }
        }
    }

    /// Whether it is empty now.
    fn empty(&mut self, folder: &Path, left: &mut usize) -> io::Result<bool> {
        for entry in fs::read_dir(folder)? {
            if *left == 0 {
                return Ok(false);
            }
            *left -= 1;
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                self.take(&entry.path());
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(true)
    }
}

/// Removes `root` and all in it.
pub(super) fn remove(root: &Path) -> io::Result<()> {
    let own =
        (0..).map(|number: u32| root.join(format!("end-{number}"))).find(|path| fs::symlink_metadata(path).is_err());
    let own = own.ok_or(io::ErrorKind::AlreadyExists)?;
    let mut trash = Trash::new(own.clone())?;
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        if path == own {
            continue;
        }
        match fs::symlink_metadata(&path)?.is_dir() {
            true => trash.take(&path),
            false => fs::remove_file(&path)?,
        }
    }
    while !trash.is_empty() {
        trash.step(usize::MAX);
    }
    fs::remove_dir(&own)?;
    fs::remove_dir(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_deep_closed_and_large_is_removed_in_pieces() {
        let place = tempfile::tempdir().unwrap();
        let mut trash = Trash::new(place.path().join("trash")).unwrap();
        let session = place.path().join("session");
        let mut deep = session.clone();
        for _ in 0..300 {
            deep.push("d");
        }
        fs::create_dir_all(&deep).unwrap();
        for number in 0..500 {
            fs::write(session.join(format!("f{number}")), b"x").unwrap();
        }
        std::os::unix::fs::symlink("/usr", session.join("link")).unwrap();
        fs::set_permissions(session.join("d"), fs::Permissions::from_mode(0o000)).unwrap();
        trash.take(&session);
        assert!(!session.exists());
        trash.step(10);
        assert!(!trash.is_empty(), "ten names are not all");
        let mut rounds = 0;
        while !trash.is_empty() {
            trash.step(100);
            rounds += 1;
            assert!(rounds < 100);
        }
        assert_eq!(fs::read_dir(place.path().join("trash")).unwrap().count(), 0);
        assert!(Path::new("/usr/bin").exists());
        fs::create_dir_all(place.path().join("whole/a/b")).unwrap();
        fs::write(place.path().join("whole/c"), b"x").unwrap();
        remove(&place.path().join("whole")).unwrap();
        assert!(!place.path().join("whole").exists());
    }
}
