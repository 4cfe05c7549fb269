//! `images/` under the state directory: find, lock, sweep, put in place.
//!
//! ```text
//! images/.lock                 flock(2): one builder at a time
//! images/.building-<pid>/      a build on its way; swept by whoever holds the lock next
//! images/.wheels-<platform>/   fetched wheels, kept until the image stands: a broken download goes on from here
//! images/<id>/                 an image; its manifest.json is written last, before the folder gets its name
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::limits::{MANIFEST_BYTES_MAX, OTHER_BUILD_POLL, OTHER_BUILD_WAIT_MAX};
use crate::lock::{self, Requirement};
use crate::python::{Python, Version};
use crate::{ImageError, Progress, scientific};

/// Raised whenever the build itself changes what it makes.
const FORMAT: u32 = 1;
/// The versions of Python that the package list has wheels for.
const PYTHONS: std::ops::RangeInclusive<(u32, u32)> = (3, 10)..=(3, 14);

/// An image in its place.
pub(crate) struct Built {
    /// Its id.
    pub(crate) id: String,
    /// Its folder.
    pub(crate) folder: PathBuf,
}

/// What is written beside an image.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    id: String,
    version: Version,
    python: Python,
    packages: Vec<String>,
}

/// Finds the scientific image for this Python, or builds it.
pub(crate) fn find_or_build(
    state_dir: &Path,
    python: &Python,
    progress: &mut dyn Progress,
) -> Result<Built, ImageError> {
    if !PYTHONS.contains(&(python.version.major, python.version.minor)) {
        return Err(ImageError::PythonVersion {
            python: python.executable.clone(),
            version: python.version.to_string(),
            needed: "3.10 to 3.14",
        });
    }
    let images = state_dir.join("images");
    let id = id_of(python);
    let built = Built { folder: images.join(&id), id };
    if is_whole(&built) {
        return Ok(built);
    }
    fs::create_dir_all(&images).map_err(ImageError::file("create", &images))?;
    // Absolute, since the paths in it are used from other folders; what is seen in cells is at a place of its own.
    let images = images.canonicalize().map_err(ImageError::file("resolve", &images))?;
    let built = Built { folder: images.join(&built.id), id: built.id };
    let _lock = take_lock(&images, progress)?;
    if is_whole(&built) {
        return Ok(built);
    }
    sweep(&images, &built)?;
    build(&images, &built, python, progress)?;
    Ok(built)
}

fn build(images: &Path, built: &Built, python: &Python, progress: &mut dyn Progress) -> Result<(), ImageError> {
    let wanted = lock::requirements(lock::SCIENTIFIC, python.version)?;
    let building = images.join(format!(".building-{}", std::process::id()));
    let wheels = images.join(format!(".wheels-{}", python.platform));
    for folder in [&building, &wheels] {
        fs::create_dir_all(folder).map_err(ImageError::file("create", folder))?;
    }
    let done =
        scientific::build(&scientific::Plan { python, folder: &building, wheels: &wheels, wanted: &wanted }, progress)
            .and_then(|()| write_manifest(&building, built, python, &wanted));
    if let Err(error) = done {
        // The error tells what matters; what cannot be removed now is swept by the next build.
        let _ = fs::remove_dir_all(&building);
        return Err(error);
    }
    fs::rename(&building, &built.folder).map_err(ImageError::file("put in place", &built.folder))?;
    sync(images)?;
    fs::remove_dir_all(&wheels).map_err(ImageError::file("remove", &wheels))
}

/// The digest of everything that the image is made from.
fn id_of(python: &Python) -> String {
    let mut parts = format!("{FORMAT}\n{}\n{}\n{}\n", python.executable.display(), python.version, python.platform);
    for folder in &python.folders {
        parts.push_str(&format!("{}\n", folder.display()));
    }
    parts.push_str(lock::SCIENTIFIC);
    lock::digest_of(&parts).chars().take(20).collect()
}

/// Whether the image is there and says that it is itself.
fn is_whole(built: &Built) -> bool {
    let Ok(file) = File::open(built.folder.join("manifest.json")) else { return false };
    let manifest: Result<Manifest, _> = serde_json::from_reader(file.take(MANIFEST_BYTES_MAX));
    manifest.is_ok_and(|manifest| manifest.id == built.id && manifest.format == FORMAT)
}

fn write_manifest(folder: &Path, built: &Built, python: &Python, wanted: &[Requirement]) -> Result<(), ImageError> {
    let path = folder.join("manifest.json");
    let manifest = Manifest {
        format: FORMAT,
        id: built.id.clone(),
        version: python.version,
        python: python.clone(),
        packages: wanted.iter().map(|requirement| requirement.pin.clone()).collect(),
    };
    let text = serde_json::to_vec_pretty(&manifest).map_err(|e| ImageError::file("write", &path)(e.into()))?;
    let mut file = File::create(&path).map_err(ImageError::file("create", &path))?;
    file.write_all(&text).map_err(ImageError::file("write", &path))?;
    // One call for the thousands of files before it: the name must not outlive a power cut without them.
    rustix::fs::syncfs(&file).map_err(|e| ImageError::file("sync", folder)(e.into()))
}

fn sync(folder: &Path) -> Result<(), ImageError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(ImageError::file("sync", folder))
}

/// Takes the store's lock, and tells when another process holds it. It is let go when the file is closed.
fn take_lock(images: &Path, progress: &mut dyn Progress) -> Result<File, ImageError> {
    let path = images.join(".lock");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o644);
    let file = options.open(&path).map_err(ImageError::file("open", &path))?;
    let begun = Instant::now();
    let mut told = false;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < OTHER_BUILD_WAIT_MAX => {
                if !told {
                    progress.step("waiting for another process that builds an image here");
                    told = true;
                }
                std::thread::sleep(OTHER_BUILD_POLL);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(ImageError::OtherBuild { images: images.to_owned() }),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(ImageError::file("lock", &path)(error.into())),
        }
    }
}

/// Removes what dead builds left: only the holder of the lock may.
fn sweep(images: &Path, built: &Built) -> Result<(), ImageError> {
    let entries = fs::read_dir(images).map_err(ImageError::file("list", images))?;
    for entry in entries {
        let entry = entry.map_err(ImageError::file("list", images))?;
        let path = entry.path();
        // A folder with the image's own name and no manifest that fits is none of ours, or damaged.
        if entry.file_name().to_string_lossy().starts_with(".building-") || path == built.folder {
            fs::remove_dir_all(&path).map_err(ImageError::file("remove", &path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Quiet;
    impl Progress for Quiet {
        fn step(&mut self, _: &str) {}
        fn count(&mut self, _: usize, _: usize, _: &str) {}
    }

    fn python() -> Python {
        Python::find(None).unwrap()
    }

    #[test]
    fn a_folder_without_a_manifest_is_no_image_and_is_swept() {
        let state = tempfile::tempdir().unwrap();
        let built = Built { id: id_of(&python()), folder: state.path().join(id_of(&python())) };
        for name in [built.id.as_str(), ".building-1", "another"] {
            fs::create_dir_all(state.path().join(name).join("venv")).unwrap();
        }
        assert!(!is_whole(&built));
        sweep(state.path(), &built).unwrap();
        let left: Vec<_> = fs::read_dir(state.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["another"]);
    }

    #[test]
    fn a_manifest_makes_it_whole_and_another_python_another_image() {
        let state = tempfile::tempdir().unwrap();
        let mut python = python();
        let built = Built { id: id_of(&python), folder: state.path().to_owned() };
        write_manifest(state.path(), &built, &python, &[]).unwrap();
        assert!(is_whole(&built));
        python.version.micro += 1;
        let other = Built { id: id_of(&python), folder: state.path().to_owned() };
        assert!(!is_whole(&other));
    }

    #[test]
    fn the_lock_is_held_by_one() {
        let images = tempfile::tempdir().unwrap();
        let held = take_lock(images.path(), &mut Quiet).unwrap();
        let second = File::open(images.path().join(".lock")).unwrap();
        assert!(flock(&second, FlockOperation::NonBlockingLockExclusive).is_err());
        drop(held);
        flock(&second, FlockOperation::NonBlockingLockExclusive).unwrap();
    }
}
