//! A file on its way in.

use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Arc;

use ringfence_op::{Fault, WorkspacePath};

use crate::error::FileError;
use crate::list::FileEntry;
use crate::opened::{modified_seconds, size_of};
use crate::root::{Last, stat_of};
use crate::temp::Temp;
use crate::workspace::Inner;

/// An upload. It is seen in the workspace when it is committed, whole, and dropped before that it leaves nothing.
#[derive(Debug)]
pub struct Upload {
    inner: Arc<Inner>,
    temp: Temp,
    path: Option<WorkspacePath>,
    bytes: u64,
    bytes_max: u64,
}

impl Upload {
    pub(crate) fn new(inner: Arc<Inner>, path: Option<&WorkspacePath>, bytes_max: u64) -> Result<Self, Fault> {
        let named = path.map_or("upload", WorkspacePath::as_str);
        if let Some(path) = path {
            check(&inner, path).map_err(|error| error.fault(named))?;
        }
        let temp = Temp::new(&inner.root).map_err(|error| error.fault(named))?;
        Ok(Upload { inner, temp, path: path.cloned(), bytes: 0, bytes_max })
    }

    /// Bytes written so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a piece. After an error the upload can only be dropped.
    ///
    /// # Errors
    /// `TooLarge` when the piece goes over the cap, or over what is left of the workspace.
    pub fn write_chunk(&mut self, piece: &[u8]) -> Result<(), Fault> {
        let named = self.path.as_ref().map_or("upload", WorkspacePath::as_str);
        self.bytes = self.bytes.saturating_add(piece.len() as u64);
        if self.bytes > self.bytes_max {
            let text = format!("the file is larger than {} bytes, the most that an upload may have", self.bytes_max);
            return Err(FileError::TooLarge(text).fault(named));
        }
        self.temp.file().write_all(piece).map_err(|error| FileError::from_io(error, "writing an upload").fault(named))
    }

    /// Puts the file where [`crate::Workspace::create_upload`] said.
    ///
    /// # Errors
    /// As [`commit_to`](Self::commit_to); `Malformed` for an upload that was begun without a path.
    pub fn commit(mut self) -> Result<FileEntry, Fault> {
        match self.path.take() {
            Some(path) => self.commit_to(&path),
            None => Err(FileError::Malformed("the upload has no path".to_owned()).fault("upload")),
        }
    }

    /// Puts the file at `path`: makes missing folders, replaces a regular file there and keeps that one's mode,
    /// writes through a symbolic link that stays inside. What failed leaves neither file nor folder.
    ///
    /// # Errors
    /// `PathEscapes` where a link leads outside; `NotAFile` where a folder or a special file is; `UnknownFile` where
    /// a part of the path is a file; `TooLarge` where the workspace is full; `Malformed` for a path too deep.
    pub fn commit_to(self, path: &WorkspacePath) -> Result<FileEntry, Fault> {
        let Upload { inner, temp, bytes, bytes_max, .. } = self;
        if bytes > bytes_max {
            return Err(FileError::TooLarge("the file went over its cap".to_owned()).fault(path.as_str()));
        }
        let entry = inner.put(temp, path.as_str().as_bytes()).map_err(|error| error.fault(path.as_str()))?;
        Ok(FileEntry { path: path.clone(), ..entry })
    }
}

/// Refuses early what [`Upload::commit_to`] would refuse late; missing folders are no reason.
pub(crate) fn check(inner: &Inner, path: &WorkspacePath) -> Result<(), FileError> {
    match inner.root.place(path.as_str().as_bytes(), Last::Follow) {
        Ok(place) => place.file_or_nothing(),
        Err(FileError::Unknown) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Inner {
    /// Publishes a file at `path`, as its latest known state. The entry's path is the root; the caller knows better.
    pub(crate) fn put(&self, temp: Temp, path: &[u8]) -> Result<FileEntry, FileError> {
        let place = self.root.place_making_folders(path, Last::Follow)?;
        let stat = stat_of(temp.file().as_fd())?;
        match temp.publish(&self.root, &place, place.mode(), true) {
            Ok(after) => {
                if let Some(after) = &after {
                    self.changes().note(&place.plain, after);
                }
                let stat = after.unwrap_or(stat);
                Ok(FileEntry {
                    path: WorkspacePath::root(),
                    size_bytes: size_of(&stat),
                    modified: modified_seconds(&stat),
                })
            }
            Err(error) => {
                self.root.unmake(&place.made);
                Err(error)
            }
        }
    }
}
