//! Programs that swap names while the daemon works on them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test fails by a panic"
)]

mod place;

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, spawn};

use place::{Place, SECRET, path};
use ringfence_op::{Edit, EditCommand, FaultKind};

const ROUNDS: usize = 1_500;

/// A program of the session that puts, without pause, one after the other in the place of `name`: a link that leads
/// out, a file, a folder, a FIFO, a link inside.
struct Swapper {
    stop: Arc<AtomicBool>,
    swaps: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Swapper {
    fn start(dir: PathBuf, name: &'static str, outside: PathBuf) -> Self {
        let (stop, swaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ended, count) = (Arc::clone(&stop), Arc::clone(&swaps));
        let thread = spawn(move || {
            let at = dir.join(name);
            let fresh = dir.join(format!(".{name}-next"));
            while !ended.load(Ordering::Relaxed) {
                let turn = count.fetch_add(1, Ordering::Relaxed);
                let made = match turn % 5 {
                    0 => symlink(&outside, &fresh),
                    1 => fs::write(&fresh, "inside"),
                    2 => fs::create_dir(&fresh).and_then(|()| fs::write(fresh.join("secret"), "inside")),
                    3 => rustix::fs::mknodat(rustix::fs::CWD, &fresh, rustix::fs::FileType::Fifo, 0o600.into(), 0)
                        .map_err(Into::into),
                    _ => symlink("safe", &fresh),
                };
                // Whatever the daemon put there meanwhile may be in the way: then it is another round.
                let _ = made.and_then(|()| {
                    let swapped = rustix::fs::RenameFlags::EXCHANGE;
                    match rustix::fs::renameat_with(rustix::fs::CWD, &fresh, rustix::fs::CWD, &at, swapped) {
                        Err(rustix::io::Errno::NOENT) => fs::rename(&fresh, &at),
                        other => other.map_err(Into::into),
                    }
                });
                let _ = fs::remove_file(&fresh).or_else(|_| fs::remove_dir_all(&fresh));
            }
        });
        Swapper { stop, swaps, thread: Some(thread) }
    }

    fn swaps(&self) -> u64 {
        self.swaps.load(Ordering::Relaxed)
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// What is outside is as it was: the one file, its content, its owner.
fn untouched(place: &Place, owner: u32) {
    assert_eq!(fs::read(place.outside.join("secret")).unwrap(), SECRET);
    assert_eq!(fs::read_dir(&place.outside).unwrap().count(), 1);
    for at in [place.outside.clone(), place.outside.join("secret")] {
        assert_eq!(fs::metadata(at).unwrap().uid(), owner);
    }
}

/// A fault that hostile names may cause: never ours.
fn fair(kind: FaultKind) {
    assert!(kind != FaultKind::House, "a race was reported as our own failure");
}

fn raced(work: impl Fn(&Place, usize)) {
    let place = Place::new();
    let owner = fs::metadata(&place.outside).unwrap().uid();
    fs::create_dir(place.dir.join("safe")).unwrap();
    fs::write(place.dir.join("safe/secret"), "inside").unwrap();
    let swapper = Swapper::start(place.dir.clone(), "x", place.outside.clone());
    let mut round = 0;
    while round < ROUNDS || swapper.swaps() < ROUNDS as u64 {
        work(&place, round);
        round += 1;
    }
    drop(swapper);
    untouched(&place, owner);
}

#[test]
fn reading_never_leaves() {
    raced(|place, _| {
        for name in ["x/secret", "x", "safe/../x/secret"] {
            match place.get(name) {
                Ok(content) => assert_ne!(content, SECRET, "{name}"),
                Err(fault) => fair(fault.kind()),
            }
        }
        let report = place.edit("x/secret", EditCommand::View { view_range: None });
        assert!(!report.stdout.contains("SECRET"));
    });
}

#[test]
fn writing_never_leaves() {
    raced(|place, round| {
        let names =
            [format!("x/new{}", round % 7), "x".to_owned(), format!("x/deep{}/f", round % 7), "x/secret".to_owned()];
        for name in &names {
            if let Err(fault) = place.put(name, b"written") {
                fair(fault.kind());
            }
            let replace = EditCommand::StrReplace { old_str: "inside".to_owned(), new_str: "edited".to_owned() };
            match place.workspace.edit(&Edit { path: name.clone(), command: replace }) {
                Ok(_) => {}
                Err(fault) => panic!("an edit that raced is a result: {fault:?}"),
            }
            if let Err(fault) = place.workspace.remove(&path(name)) {
                fair(fault.kind());
            }
        }
    });
}

#[test]
fn listing_scanning_and_archiving_never_leave() {
    raced(|place, _| {
        for name in ["", "x"] {
            match place.workspace.list(&path(name), true) {
                Ok(listing) => {
                    // What is outside is larger than any file inside.
                    assert!(listing.files.iter().all(|file| file.size_bytes < SECRET.len() as u64));
                }
                Err(fault) => fair(fault.kind()),
            }
            if let Ok(mut archive) = place.workspace.archive(&path(name)) {
                let mut bytes = Vec::new();
                // A file may go while it is sent; what was sent is from inside.
                let _ = archive.read_to_end(&mut bytes);
                assert!(!bytes.windows(SECRET.len()).any(|piece| piece == SECRET));
            }
        }
        let _ = place.workspace.changed_since_last(10);
    });
}

#[test]
fn unpacking_never_leaves() {
    let source = Place::new();
    source.put("x/new", b"written").unwrap();
    source.put("x/deep/er/f", b"written").unwrap();
    let mut bytes = Vec::new();
    source.workspace.archive(&path("")).unwrap().read_to_end(&mut bytes).unwrap();
    raced(|place, _| {
        if let Err(fault) = place.workspace.unpack(&path(""), &mut bytes.as_slice(), 1 << 20) {
            fair(fault.kind());
        }
    });
}
