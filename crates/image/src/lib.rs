//! The image store and what a root looks like.
//!
//! An image is what the code of a session finds: a read-only root and a few facts (a Python, what it imports ahead of
//! time, variables, languages). It is declared in a small TOML and built on the machine's own `/usr` and a Python of
//! it, or on another image. This room builds it once under the state directory, finds it again, and says as a
//! [`ringfence_op::RootSpec`] how a cell's root is put together from it.
//!
//! May know: `op`, files, the machine's Python and its pip. Never knows: sessions, namespaces, HTTP.
//!
//! **Invariants.**
//! - A folder `images/<id>` that has a manifest is whole: it is renamed into place after the last step. What a dead
//!   build left behind is swept by the next one.
//! - `<id>` is the digest of everything that the image is made from; an image is never changed, only replaced. Files
//!   that two images share are hard links, and are never written to in their place.
//! - An image that is held by a process that runs is not taken away.
//! - Nothing that lies in an image that was not made here is run while it is looked at or built upon, and no link in it
//!   leads anywhere but into itself.
//! - No folder of the host's `/etc`, no home folder and nothing of the state directory but the image itself is ever
//!   named in a root, unless a declaration names the folder.
//! - The environment of a root is written here, whole; nothing of the daemon's own comes along but the choice of a
//!   linear-algebra kernel (`OPENBLAS_CORETYPE`).

mod adopt;
mod build;
mod declare;
mod digest;
mod error;
mod folder;
mod foreign;
mod host;
mod limited;
mod limits;
mod lock;
mod manifest;
mod names;
mod pip;
mod python;
mod resolve;
mod root;
mod store;
mod tree;
mod venv;

use std::path::{Path, PathBuf};

use ringfence_op::RootSpec;

pub use adopt::{Foreign, Unfilled, adopt};
pub use build::build;
pub use declare::Declaration;
pub use error::ImageError;
pub use manifest::{Facts, Interpreter, Libc, Manifest, Root, Source};
pub use python::Python;
pub use resolve::{LockFile, lock_packages};
pub use root::{WHEELHOUSE, add_wheelhouse};
pub use store::{Entry, Held, HeldBlobs, Listed, Pruned, Removed, Store};

/// Hears what a build is doing, so that somebody who waits can be told.
pub trait Progress {
    /// A step begins that takes noticeable time.
    fn step(&mut self, what: &str);
    /// Of a step that counts: `done` of `total` units, such as packages, and what is being worked on.
    fn count(&mut self, done: usize, total: usize, unit: &str, what: &str);
}

/// Nobody is told.
impl Progress for () {
    fn step(&mut self, _: &str) {}
    fn count(&mut self, _: usize, _: usize, _: &str, _: &str) {}
}

/// Finds the image of that name, or builds it where a declaration says how: one that comes with this program, or a file,
/// which is a path with a `/` in it or one that ends in `.toml`. Blocks, for minutes where packages must be fetched.
///
/// Runs pip as whoever calls, with the caller's proxies and package indices.
///
/// # Errors
/// When there is no such image, no fit Python, or it could not be built; [`ImageError::help`] says what to do.
pub fn prepare(
    store: &Store,
    image: &str,
    python: Option<&Path>,
    progress: &mut dyn Progress,
) -> Result<Held, ImageError> {
    if let Some(shipped) = Declaration::shipped(image) {
        return build(store, &shipped?, python, progress);
    }
    match store.find(image) {
        Err(ImageError::Unknown { .. }) if image.contains('/') || image.ends_with(".toml") => {
            build(store, &Declaration::read(Path::new(image))?, python, progress)
        }
        found => store.hold(found?),
    }
}

/// How a cell's root is put together from an image. `cpu_millis` are the CPUs that a cell may use, in thousandths:
/// libraries with thread pools are told as many threads.
///
/// # Errors
/// When a part of it is gone.
pub fn root_of(entry: &Entry, cpu_millis: u64) -> Result<RootSpec, ImageError> {
    let spec = root::of(entry, cpu_millis)?;
    match spec.binds.iter().find(|bind| !bind.source.exists()) {
        Some(bind) => Err(ImageError::file("see", &bind.source)(std::io::ErrorKind::NotFound.into())),
        None => Ok(spec),
    }
}

/// Takes a name away; with its last name, or by its id, the image itself.
///
/// # Errors
/// When there is no such image, or it is in use.
pub fn remove(store: &Store, image: &str, progress: &mut dyn Progress) -> Result<Removed, ImageError> {
    store.lock(progress)?.remove(image)
}

/// Gives an image a further name; an image that had it loses it.
///
/// # Errors
/// When there is no such image, or the name cannot be one.
pub fn tag(store: &Store, image: &str, name: &str, progress: &mut dyn Progress) -> Result<Entry, ImageError> {
    let locked = store.lock(progress)?;
    let entry = store.find(image)?;
    locked.name(name, &entry.manifest.id)?;
    store.find(&entry.manifest.id)
}

/// Takes away every image without a name that is not in use, and what unfinished builds have fetched.
///
/// # Errors
/// When something cannot be taken away.
pub fn prune(store: &Store, progress: &mut dyn Progress) -> Result<Pruned, ImageError> {
    store.lock(progress)?.prune()
}

/// The state directory where none is named: `/var/lib/ringfence` as root, else below the user's own.
#[must_use]
pub fn default_state_dir() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/ringfence"));
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    state.map(|folder| folder.join("ringfence"))
}
