//! What sessions with an id of their own leave in the machine's shared memory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const SHARED_MEMORY: &str = "/dev/shm";

/// Removes what the session of `id` has left.
pub(super) fn remove_shared_memory(id: u32) {
    let Ok(entries) = fs::read_dir(SHARED_MEMORY) else { return };
    for entry in entries.flatten() {
        if entry.metadata().is_ok_and(|found| found.uid() == id) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The same for every session whose folder is in `root`, for when the keeper had no time to. `ids`: the first id of
/// sessions, and how many.
pub(super) fn remove_shared_memory_of_all(root: &Path, ids: (u32, u32)) {
    let Ok(sessions) = fs::read_dir(root) else { return };
    for session in sessions.flatten() {
        let Ok(workspace) = fs::symlink_metadata(session.path().join("workspace")) else { continue };
        if workspace.uid().checked_sub(ids.0).is_some_and(|number| number <= ids.1) {
            remove_shared_memory(workspace.uid());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    #[test]
    fn shared_memory_of_sessions_goes_and_that_of_others_stays() {
        const FIRST: u32 = 1_999_000_000;
        let place = tempfile::tempdir().unwrap();
        let left = |id: u32| {
            let workspace = place.path().join(id.to_string()).join("workspace");
            fs::create_dir_all(&workspace).unwrap();
            chown(&workspace, Some(id), Some(id)).unwrap();
            let file = Path::new(SHARED_MEMORY).join(format!("ringfence-test-{id}-{}", std::process::id()));
            fs::write(&file, "x").unwrap();
            chown(&file, Some(id), Some(id)).unwrap();
            file
        };
        let files = [FIRST - 1, FIRST + 1, FIRST + 3, FIRST + 4].map(left);
        remove_shared_memory_of_all(place.path(), (FIRST, 3));
        let stay = files.clone().map(|file| file.exists());
        for file in files {
            let _ = fs::remove_file(file);
        }
        assert_eq!(stay, [true, false, false, true]);
    }
}
