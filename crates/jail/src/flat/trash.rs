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
pub(crate) struct Trash {
    folder: PathBuf,
    waiting: Vec<PathBuf>,
    taken: u64,
    /// Whether more lie in `folder` than `waiting` had room for.
    more: bool,
    /// Whether anything was removed since `folder` was last looked through.
    progress: bool,
}

impl Trash {
    /// In the new folder `folder`.
    pub(crate) fn new(folder: PathBuf) -> io::Result<Trash> {
        fs::create_dir(&folder)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
        Ok(Trash { folder, waiting: Vec::new(), taken: 0, more: false, progress: true })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && !(self.more && self.progress)
    }

    /// Takes a folder over, to be removed later; it must lie in the same file system.
    pub(crate) fn take(&mut self, folder: &Path) {
        self.taken += 1;
        let place = self.folder.join(self.taken.to_string());
        // What its owner had closed is opened: only a folder that can be written to can be moved.
        let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
        if fs::rename(folder, &place).is_ok() {
            match self.waiting.len() < TRASH_WAITING_MAX {
                true => self.waiting.push(place),
                false => self.more = true,
            }
        }
    }

    /// Removes up to `entries` names. What cannot be removed stays until the end of the server.
    pub(crate) fn step(&mut self, entries: usize) {
        let mut left = entries;
        while left > 0 && !self.is_empty() {
            let Some(folder) = self.waiting.pop() else {
                self.look_through();
                left -= 1;
                continue;
            };
            match self.empty(&folder, &mut left) {
                // Its own folders wait behind it now.
                Ok(true) => self.progress |= fs::remove_dir(&folder).is_ok(),
                Ok(false) => self.waiting.push(folder),
                Err(_) => {}
            }
        }
    }

    /// Finds again what there was no room to remember. Looks in vain once at most: what cannot be removed is found, too.
    fn look_through(&mut self) {
        (self.more, self.progress) = (false, false);
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if self.waiting.len() >= TRASH_WAITING_MAX {
                self.more = true;
                return;
            }
            self.waiting.push(entry.path());
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
                self.progress = true;
            }
        }
        Ok(true)
    }
}

/// Removes `root` and all in it.
pub(crate) fn remove(root: &Path) -> io::Result<()> {
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

    #[test]
    fn more_folders_than_can_wait_are_removed_all_the_same() {
        let place = tempfile::tempdir().unwrap();
        let mut trash = Trash::new(place.path().join("trash")).unwrap();
        let wide = |name: &str| {
            let session = place.path().join(name);
            for number in 0..TRASH_WAITING_MAX + 100 {
                fs::create_dir_all(session.join(number.to_string())).unwrap();
            }
            session
        };
        trash.take(&wide("session"));
        while !trash.is_empty() {
            trash.step(1000);
        }
        assert_eq!(fs::read_dir(place.path().join("trash")).unwrap().count(), 0);
        remove(wide("at_the_end").as_path()).unwrap();
        assert!(!place.path().join("at_the_end").exists());
    }
}
