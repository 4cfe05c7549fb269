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
        needed: &'static str,
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
    #[error("the image `scientific` is not built yet, and pip could not fetch {package}; pip's last lines:\n{tail}")]
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
    /// The list of packages that is built into this program is not well formed.
    #[error("line {line} of the package list is not understood: {text}")]
    List {
        /// Which line, from 1.
        line: usize,
        /// What it says.
        text: String,
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
                "install Python 3.10 or later (Debian, Ubuntu: `apt-get install python3 python3-venv`), \
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
            _ => None,
        }
    }
}
