//! `names.json`: which image a name means.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::ImageError;
use crate::limits::{NAME_BYTES_MAX, NAMES_BYTES_MAX, NAMES_MAX};
use crate::manifest::FORMAT;
use crate::store::sync;

const NAMES: &str = "names.json";

/// Names and the ids that they mean.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Names {
    format: u32,
    names: BTreeMap<String, String>,
}

impl Names {
    /// Reads them; without a file there are none.
    pub(crate) fn read(images: &Path) -> Result<Self, ImageError> {
        let path = images.join(NAMES);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Names { format: FORMAT, names: BTreeMap::new() });
            }
            Err(error) => return Err(ImageError::file("open", &path)(error)),
        };
        let mut text = Vec::new();
        file.take(NAMES_BYTES_MAX).read_to_end(&mut text).map_err(ImageError::file("read", &path))?;
        let names: Names =
            serde_json::from_slice(&text).map_err(|source| ImageError::Names { path: path.clone(), source })?;
        if names.format != FORMAT {
            return Err(ImageError::OtherFormat { path, format: names.format, ours: FORMAT });
        }
        Ok(names)
    }

    /// Writes them, all or nothing. Only the holder of the store's lock may.
    pub(crate) fn write(&self, images: &Path) -> Result<(), ImageError> {
        let (path, new) = (images.join(NAMES), images.join(".names-new"));
        let text = serde_json::to_vec_pretty(self).map_err(|error| ImageError::file("write", &path)(error.into()))?;
        let mut file = File::create(&new).map_err(ImageError::file("create", &new))?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(ImageError::file("write", &new))?;
        fs::rename(&new, &path).map_err(ImageError::file("put in place", &path))?;
        sync(images)
    }

    /// The image of that name.
    pub(crate) fn id_of(&self, name: &str) -> Option<&str> {
        self.names.get(name).map(String::as_str)
    }

    /// The names of that image.
    pub(crate) fn of(&self, id: &str) -> Vec<String> {
        self.names.iter().filter(|(_, of)| *of == id).map(|(name, _)| name.clone()).collect()
    }

    /// Makes the name mean that image from now on; whether anything changed.
    pub(crate) fn set(&mut self, name: &str, id: &str) -> Result<bool, ImageError> {
        check(name)?;
        if !self.names.contains_key(name) && self.names.len() >= NAMES_MAX {
            return Err(ImageError::Crowded { most: NAMES_MAX });
        }
        Ok(self.names.insert(name.to_owned(), id.to_owned()).as_deref() != Some(id))
    }

    /// Takes a name away.
    pub(crate) fn unset(&mut self, name: &str) {
        self.names.remove(name);
    }

    /// Takes all names of an image away.
    pub(crate) fn unset_all(&mut self, id: &str) {
        self.names.retain(|_, of| of != id);
    }
}

/// A name is 1 to 256 visible ASCII characters, and nothing that could be an id or a digest.
pub(crate) fn check(name: &str) -> Result<(), ImageError> {
    let visible = !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(|b| b.is_ascii_graphic());
    if !visible || name.starts_with("sha256:") || looks_like_id(name) || name.starts_with('-') {
        return Err(ImageError::Name { name: name.chars().take(NAME_BYTES_MAX).collect() });
    }
    Ok(())
}

/// Whether it could be an id, or the beginning of one that is long enough to be told apart.
pub(crate) fn looks_like_id(text: &str) -> bool {
    (12..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_and_those_that_cannot_be_are_refused() {
        let images = tempfile::tempdir().unwrap();
        let mut names = Names::read(images.path()).unwrap();
        assert!(names.set("debian:12", "aa").unwrap());
        assert!(!names.set("debian:12", "aa").unwrap());
        names.set("other", "aa").unwrap();
        names.write(images.path()).unwrap();
        let mut names = Names::read(images.path()).unwrap();
        assert_eq!((names.id_of("debian:12"), names.of("aa").len()), (Some("aa"), 2));
        names.unset_all("aa");
        assert_eq!(names.id_of("other"), None);
        for name in ["", "a b", "a\nb", "sha256:aa", "0123456789ab", "--all", &"x".repeat(257), "ä"] {
            assert!(names.set(name, "aa").is_err(), "{name}");
        }
    }

    #[test]
    fn names_of_another_version_are_left_alone() {
        let images = tempfile::tempdir().unwrap();
        fs::write(images.path().join(NAMES), r#"{"format": 99, "names": {}}"#).unwrap();
        assert!(matches!(Names::read(images.path()), Err(ImageError::OtherFormat { format: 99, .. })));
        for damaged in ["", "{"] {
            fs::write(images.path().join(NAMES), damaged).unwrap();
            let error = Names::read(images.path()).unwrap_err();
            assert!(matches!(error, ImageError::Names { .. }) && error.help().is_some(), "{error}");
        }
    }
}
