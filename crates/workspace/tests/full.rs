//! A workspace without room.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test fails by a panic")]

mod place;

use std::fs;
use std::path::PathBuf;

use place::{kind, path};
use ringfence_op::{Edit, EditCommand, FaultKind};
use ringfence_workspace::Workspace;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A tmpfs of 64 KiB and 16 inodes, gone when it is dropped.
struct Small(PathBuf);

impl Small {
    fn mounted(dir: &std::path::Path) -> Option<Self> {
        match mount("none", dir, "tmpfs", MountFlags::empty(), Some(c"size=64k,nr_inodes=16,mode=0755")) {
            Ok(()) => Some(Small(dir.to_owned())),
            Err(error) => {
                eprintln!("skipped: a small file system cannot be mounted here ({error})");
                None
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn what_does_not_fit_is_too_large_and_leaves_nothing() {
    let held = tempfile::tempdir().unwrap();
    let Some(small) = Small::mounted(held.path()) else { return };
    let root = fs::File::open(&small.0).unwrap().into();
    let workspace = Workspace::new(root, rustix::process::geteuid().as_raw(), 1000);
    let names = || fs::read_dir(&small.0).unwrap().count();
    let free = || rustix::fs::statvfs(&small.0).unwrap().f_bfree;
    let before = free();

    let mut upload = workspace.create_upload(&path("a/b"), 1 << 20).unwrap();
    let fault = upload.write_chunk(&[1; 100 << 10]).unwrap_err();
    assert_eq!(fault.kind(), FaultKind::TooLarge);
    assert!(fault.detail().starts_with("a/b: the workspace is full"), "{fault:?}");
    drop(upload);
    assert_eq!((names(), free()), (0, before));

    let create = EditCommand::Create { file_text: "x".repeat(100 << 10) };
    let report = workspace.edit(&Edit { path: "a/b".to_owned(), command: create }).unwrap();
    assert_eq!((report.return_code, report.stderr.starts_with("a/b: the workspace is full")), (1, true));
    assert_eq!((names(), free()), (0, before));

    // Folders need inodes: the one that does not fit takes those made before it away again.
    let deep = path(&"d/".repeat(30));
    let refused = workspace.create_upload(&deep, 10).unwrap().commit();
    assert_eq!(kind(refused), FaultKind::TooLarge);
    assert_eq!(names(), 0);
}
