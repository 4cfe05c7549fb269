//! Why there is no image.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why [`crate::prepare`] failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImageError {
    /// No Python could be started.
    #[error("cannot run the Python interpreter {}", python.display())]
    NoPython {
        /// What was tried.
        python: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It started, but did not say what it is.
    #[error("{} is no Python interpreter that can be used: {said}", python.display())]
    StrangePython {
        /// What was tried.
        python: PathBuf,
        /// What it answered.
        said: String,
    },
    /// It is too old or too new.
    #[error("{} is Python {version}; {needed} is needed", python.display())]
    PythonVersion {
        /// Which interpreter.
        python: PathBuf,
        /// Its version.
        version: String,
        /// Which versions would do.
        needed: String,
    },
    /// Debian and its like ship `venv` apart.
    #[error("{} cannot make a virtual environment: its module `{module}` is missing", python.display())]
    NoVenv {
        /// Which interpreter.
        python: PathBuf,
        /// Which module it lacks.
        module: String,
        /// Its version as `3.11`.
        version: String,
    },
    /// A package could not be fetched.
    #[error("the image is not built yet, and pip could not fetch {package}; pip's last lines:\n{tail}")]
    Fetch {
        /// Name and version.
        package: String,
        /// pip's last lines.
        tail: String,
        /// Where fetched wheels are kept.
        wheels: PathBuf,
    },
    /// A step of the build failed.
    #[error("building the image failed at: {step}; the last lines:\n{tail}")]
    Step {
        /// Which step.
        step: &'static str,
        /// What the program said last.
        tail: String,
    },
    /// A program of the build could not be started.
    #[error("building the image failed at: {step}; cannot run {}", program.display())]
    Start {
        /// Which step.
        step: &'static str,
        /// Which program.
        program: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another process builds the same image and does not come to an end.
    #[error("another process has been building in {} for too long", images.display())]
    OtherBuild {
        /// The folder of images.
        images: PathBuf,
    },
    /// A file of the store.
    #[error("cannot {what} {}", path.display())]
    File {
        /// What was being done to it.
        what: &'static str,
        /// Which file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A lock file is not well formed.
    #[error("line {line} of the lock file is not understood: {text}")]
    List {
        /// Which line, from 1.
        line: usize,
        /// What it says.
        text: String,
    },
    /// A package of a lock file has no digest.
    #[error("the lock file has no digest for {package}")]
    NoDigest {
        /// Name and version.
        package: String,
    },
    /// What pip found has a name, version or digest that cannot be one.
    #[error("the package index names a {what} for {package} that is none: \"{text}\"")]
    Strange {
        /// The package's name, as far as it goes.
        package: String,
        /// `name`, `version` or `digest`.
        what: &'static str,
        /// What it is, as far as it goes.
        text: String,
    },
    /// A lock file is too long.
    #[error("the lock file has more than {most} packages")]
    TooManyPackages {
        /// How many it may have.
        most: usize,
    },
    /// A declaration says what cannot be.
    #[error("{}: {why}", path.display())]
    Declaration {
        /// Which file.
        path: PathBuf,
        /// What is wrong in it.
        why: String,
    },
    /// A program of the machine that an image is to show is not there.
    #[error("the image needs the program `{program}`, which is not on this machine's PATH")]
    NoProgram {
        /// Which program.
        program: String,
    },
    /// A folder or file cannot be put where it is wanted.
    #[error("{} cannot be seen in an image on `host`: {why}", path.display())]
    Place {
        /// Where.
        path: PathBuf,
        /// Why not.
        why: &'static str,
    },
    /// The Python that an image stands on is gone.
    #[error("the image {image} stands on {}, which is not there any more", python.display())]
    PythonGone {
        /// Which image.
        image: String,
        /// Its Python.
        python: PathBuf,
    },
    /// An image's folder has too many entries at its top.
    #[error("{} has more than {most} entries at its top", folder.display())]
    TopEntries {
        /// Which folder.
        folder: PathBuf,
        /// How many it may have.
        most: usize,
    },
    /// Packages are for a Python, and the image has none.
    #[error("the image {image} has no Python that packages could be for")]
    NoInterpreter {
        /// Which image.
        image: String,
    },
    /// What is the machine's cannot be shown in a root that is not.
    #[error("`{what}` are for images on `host`; {base} has a root of its own")]
    NotOnFolder {
        /// What was declared.
        what: &'static str,
        /// The image that it was to be made on.
        base: String,
    },
    /// The root of an image that was made elsewhere could not be had.
    #[error("{reference} cannot be taken in")]
    Fill {
        /// Where it was found.
        reference: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No image is called so.
    #[error("there is no image `{image}` in {}", images.display())]
    Unknown {
        /// What was asked for.
        image: String,
        /// The folder of images.
        images: PathBuf,
    },
    /// The names of images cannot be read.
    #[error("the names of images, {}, are damaged", path.display())]
    Names {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// Another version of this program wrote it.
    #[error("{} has format {format}, and this version of ringfence reads format {ours}", path.display())]
    OtherFormat {
        /// Which file.
        path: PathBuf,
        /// Its format.
        format: u32,
        /// The format that this version reads and writes.
        ours: u32,
    },
    /// A folder's manifest is that of another image.
    #[error("the manifest in {} is that of another image", folder.display())]
    Misplaced {
        /// Which folder.
        folder: PathBuf,
    },
    /// The image cannot be taken away.
    #[error("the image {image} is in use by a running server or build")]
    InUse {
        /// Which.
        image: String,
    },
    /// What cannot be a name.
    #[error("`{}` cannot be an image's name", name.escape_debug())]
    Name {
        /// What was given.
        name: String,
    },
    /// There are too many names.
    #[error("there are {most} names in the store already")]
    Crowded {
        /// How many there may be.
        most: usize,
    },
    /// It has a file system of its own, and sessions are held without mounts.
    #[error("the image {image} has a file system of its own, which can only be shown by mounts")]
    NeedsMounts {
        /// Its name.
        image: String,
    },
    /// It has no Python, and the first process of each session would be it.
    #[error("the image {image} has no Python, without which no sandbox can be held")]
    NeedsPython {
        /// Its name.
        image: String,
    },
    /// There are too many images.
    #[error("there are {most} images in {} already", images.display())]
    Full {
        /// How many there may be.
        most: usize,
        /// The folder of images.
        images: PathBuf,
    },
}

impl ImageError {
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ImageError {
        move |source| ImageError::File { what, path: path.to_owned(), source }
    }

    /// What the operator can do about it.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        match self {
            ImageError::NoPython { .. } | ImageError::StrangePython { .. } | ImageError::PythonVersion { .. } => Some(
                "install a fit Python (Debian, Ubuntu: `apt-get install python3 python3-venv`), \
                 or name another one with `--python PATH`"
                    .to_owned(),
            ),
            ImageError::NoVenv { version, .. } => Some(format!(
                "install it (Debian, Ubuntu: `apt-get install python{version}-venv`), or name another Python with \
                 `--python PATH`, or start without packages: `--image bare`"
            )),
            ImageError::Fetch { wheels, .. } => Some(format!(
                "two ways out: connect this machine to a package index (pip's own settings, such as PIP_INDEX_URL \
                 and HTTPS_PROXY, are honoured) and start again - what was fetched so far is kept in {} - \
                 or start without packages: `--image bare`",
                wheels.display()
            )),
            ImageError::File { .. } => {
                Some("check the disk and the permissions, or choose another folder with `--state-dir`".to_owned())
            }
            ImageError::NoDigest { .. } | ImageError::List { .. } => Some(
                "write the lock file with digests, such as by `uv pip compile --generate-hashes --only-binary :all:` or \
                 `pip-compile --generate-hashes`"
                    .to_owned(),
            ),
            ImageError::Strange { .. } => {
                Some("nothing was written; ask who keeps the package index, or take another one".to_owned())
            }
            ImageError::NoProgram { .. } => Some("install it, or take it out of `programs`".to_owned()),
            ImageError::Unknown { .. } => Some("`ringfence image list` shows what there is".to_owned()),
            ImageError::OtherFormat { .. } => Some(
                "use the version that made it, or another folder with `--state-dir`; a single image can be taken away \
                 by its id with `ringfence image remove`"
                    .to_owned(),
            ),
            ImageError::Names { .. } => Some(
                "the images themselves are whole: remove that file, and give them names again with `ringfence image tag ID \
                 NAME` (the folders beside it are named by the ids) or by building them again, before any `prune`"
                    .to_owned(),
            ),
            ImageError::PythonGone { .. } => Some("build the image again".to_owned()),
            ImageError::InUse { .. } => Some("end the server that runs it, then try again".to_owned()),
            ImageError::Name { .. } => Some(
                "a name has 1 to 256 visible ASCII characters, does not begin with `-` or `sha256:`, and is not 12 or \
                 more hexadecimal digits alone"
                    .to_owned(),
            ),
            ImageError::NeedsPython { .. } => Some("hold sessions by `--tier cell`".to_owned()),
            ImageError::NeedsMounts { .. } => {
                Some("hold sessions by `--tier cell`, or take an image on the machine's own programs".to_owned())
            }
            ImageError::Full { .. } | ImageError::Crowded { .. } => {
                Some("take some away with `ringfence image remove` and `ringfence image prune`".to_owned())
            }
            _ => None,
        }
    }
}
