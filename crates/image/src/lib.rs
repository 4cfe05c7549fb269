//! The image store and what a root looks like.
//!
//! An image is what the code of a session finds: the machine's own `/usr`, a Python, and for `scientific` a pinned
//! set of packages. This room builds it once under the state directory, finds it again, and says as a
//! [`ringfence_op::RootSpec`] how a cell's root is put together from it.
//!
//! May know: `op`, files, the machine's Python and its pip. Never knows: sessions, namespaces, HTTP.
//!
//! **Invariants.**
//! - A folder `images/<id>` that has a manifest is whole: it is renamed into place after the last step. What a dead
//!   build left behind is swept by the next one.
//! - `<id>` is the digest of everything that the image is made from; an image is never changed, only replaced.
//! - No folder of the host's `/etc`, no home folder and nothing of the state directory but the image itself is ever
//!   named in a root.
//! - The environment of a root is written here, whole; nothing of the daemon's own comes along but the choice of a
//!   linear-algebra kernel (`OPENBLAS_CORETYPE`).

mod error;
mod host;
mod limits;
mod lock;
mod pip;
mod python;
mod root;
mod scientific;
mod store;

use std::path::PathBuf;

use ringfence_op::RootSpec;

pub use error::ImageError;
pub use python::Python;

/// Which image is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageKind {
    /// The pinned scientific set, in a virtual environment of the machine's Python.
    Scientific,
    /// The standard library alone; needs no build.
    Bare,
}

impl ImageKind {
    /// The name on the command line and in the handle.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ImageKind::Scientific => "scientific",
            ImageKind::Bare => "bare",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [ImageKind::Scientific, ImageKind::Bare].into_iter().find(|kind| kind.as_str() == name)
    }
}

/// What [`prepare`] is to find or build.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Which image.
    pub kind: ImageKind,
    /// Where images are kept; made if it is missing.
    pub state_dir: PathBuf,
    /// The Python to use; `python3` of `PATH` where it is `None`.
    pub python: Option<PathBuf>,
    /// CPUs that a cell may use, in thousandths: libraries with thread pools are told as many threads.
    pub cpu_millis: u64,
}

/// An image that is ready.
#[derive(Debug, Clone)]
pub struct Image {
    /// What its root looks like.
    pub root: RootSpec,
    /// The digest of what it is made from; `None` for `bare`.
    pub id: Option<String>,
    /// The interpreter that it stands on.
    pub python: Python,
}

/// Hears what a build is doing, so that somebody who waits can be told.
pub trait Progress {
    /// A step begins that takes noticeable time.
    fn step(&mut self, what: &str);
    /// Of a step that counts: `done` of `total`, and what is being worked on.
    fn count(&mut self, done: usize, total: usize, what: &str);
}

/// Finds the image, or builds it. Blocks, for minutes where packages must be fetched.
///
/// Runs pip as whoever calls, with the caller's proxies and package indices. Must be called while the process has
/// one thread.
///
/// # Errors
/// When there is no fit Python, or the image could not be built; [`ImageError::help`] says what to do.
pub fn prepare(wanted: &Wanted, progress: &mut dyn Progress) -> Result<Image, ImageError> {
    let python = Python::find(wanted.python.as_deref())?;
    let (root, id) = match wanted.kind {
        ImageKind::Bare => (root::bare(&python, wanted.cpu_millis), None),
        ImageKind::Scientific => {
            let built = store::find_or_build(&wanted.state_dir, &python, progress)?;
            (root::scientific(&built, &python, wanted.cpu_millis)?, Some(built.id))
        }
    };
    Ok(Image { root, id, python })
}
