//! Why a file operation could not be done, in words of the caller's own path.

use std::io;

use ringfence_op::{Fault, FaultKind, PathRefusal};
use rustix::io::Errno;

use crate::limits::SHOWN_PATH_CHARS_MAX;

/// What stood in the way. Display is a clause that follows the caller's path and a colon.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("the path leaves the workspace")]
    Escapes,
    #[error("no such file or directory")]
    Unknown,
    #[error("{0}")]
    NotAFile(&'static str),
    #[error("{0}")]
    TooLarge(String),
    #[error("{0}")]
    Malformed(String),
    /// Only where an exclusive creation was asked for.
    #[error("a file or directory of that name exists already")]
    Exists,
    #[error("programs of the session keep changing this path; try again")]
    Busy,
    #[error("the backend failed while it was {doing}")]
    House {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
}

pub(crate) const IS_DIRECTORY: &str = "it is a directory, not a file";
pub(crate) const NOT_DIRECTORY: &str = "it is not a directory";
pub(crate) const FULL: &str = "the workspace is full: its limit of bytes or of files is reached";

impl FileError {
    /// What an errno means for a path of the workspace; `doing` is for the log.
    pub(crate) fn from_errno(errno: Errno, doing: &'static str) -> Self {
        match errno {
            // RESOLVE_BENEATH and RESOLVE_NO_XDEV answer EXDEV for whatever leaves the root (openat2(2)).
            Errno::XDEV => FileError::Escapes,
            Errno::NOENT | Errno::NOTDIR => FileError::Unknown,
            Errno::LOOP => FileError::NotAFile("it is a loop of symbolic links"),
            Errno::NAMETOOLONG => FileError::Malformed("the path, or a link on it, is too long".to_owned()),
            // open(2): a socket, or a FIFO opened for writing without a reader.
            Errno::NXIO => FileError::NotAFile("it is a socket, a FIFO or a device, not a file"),
            Errno::ISDIR => FileError::NotAFile(IS_DIRECTORY),
            Errno::ACCESS | Errno::PERM => FileError::NotAFile("its permissions forbid it"),
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => FileError::TooLarge(FULL.to_owned()),
            Errno::EXIST | Errno::NOTEMPTY => FileError::Exists,
            Errno::AGAIN | Errno::STALE => FileError::Busy,
            other => FileError::House { doing, source: other.into() },
        }
    }

    pub(crate) fn from_io(error: io::Error, doing: &'static str) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => FileError::from_errno(errno, doing),
            None => FileError::House { doing, source: error },
        }
    }

    pub(crate) fn from_refusal(refusal: PathRefusal) -> Self {
        match refusal {
            PathRefusal::Escapes => FileError::Escapes,
            PathRefusal::Nul => FileError::Malformed("the path holds a NUL byte".to_owned()),
            PathRefusal::TooLong => FileError::Malformed("the path, or a part of it, is too long".to_owned()),
        }
    }

    /// The fault for the caller who wrote `path`.
    pub(crate) fn fault(self, path: &str) -> Fault {
        let kind = match &self {
            FileError::Escapes => FaultKind::PathEscapes,
            FileError::Unknown => FaultKind::UnknownFile,
            FileError::NotAFile(_) | FileError::Exists => FaultKind::NotAFile,
            FileError::TooLarge(_) => FaultKind::TooLarge,
            FileError::Malformed(_) => FaultKind::Malformed,
            FileError::Busy => FaultKind::Capacity { retry_after_seconds: 1 },
            FileError::House { .. } => return Fault::house(self),
        };
        Fault::new(kind, format!("{}: {self}", shown(path)))
    }
}

/// The fault of a path that [`ringfence_op::WorkspacePath::parse`] refused, in this room's words.
#[must_use]
pub fn path_fault(path: &str, refusal: PathRefusal) -> Fault {
    FileError::from_refusal(refusal).fault(path)
}

/// A caller's path as it is repeated in a text: on one line, without control characters, cut after
/// [`SHOWN_PATH_CHARS_MAX`] characters; the root is `.`.
pub(crate) fn shown(path: &str) -> String {
    if path.is_empty() {
        return ".".to_owned();
    }
    let mut text = String::new();
    for (index, letter) in path.chars().enumerate() {
        if index == SHOWN_PATH_CHARS_MAX {
            text.push_str("...");
            break;
        }
        if letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}') {
            text.extend(letter.escape_default());
        } else {
            text.push(letter);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_path_is_one_short_line() {
        assert_eq!(shown("a/b\n\0c"), "a/b\\n\\u{0}c");
        assert_eq!(shown(""), ".");
        assert_eq!(shown(&"x".repeat(5000)).len(), SHOWN_PATH_CHARS_MAX + 3);
    }

    #[test]
    fn errors_have_the_kind_that_the_contract_names() {
        let kind = |errno| FileError::from_errno(errno, "testing").fault("p").kind();
        assert_eq!(kind(Errno::XDEV), FaultKind::PathEscapes);
        assert_eq!(kind(Errno::NOTDIR), FaultKind::UnknownFile);
        assert_eq!(kind(Errno::LOOP), FaultKind::NotAFile);
        assert_eq!(kind(Errno::NXIO), FaultKind::NotAFile);
        assert_eq!(kind(Errno::NAMETOOLONG), FaultKind::Malformed);
        assert_eq!(kind(Errno::NOSPC), FaultKind::TooLarge);
        assert_eq!(kind(Errno::IO), FaultKind::House);
        assert_eq!(FileError::from_errno(Errno::IO, "testing").fault("p").detail().find("testing"), None);
    }
}
