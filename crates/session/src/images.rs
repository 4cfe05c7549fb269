//! Which image a lease gets: a hint never makes it fail.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use crate::limits::IMAGES_TOLD_MAX;

/// The default image's number.
pub(crate) const DEFAULT: u32 = 0;

/// Names, ids and digests, and the images that they mean.
#[derive(Debug, Default)]
pub(crate) struct Images {
    known: HashMap<String, u32>,
    /// What the log has been told already.
    told: Mutex<HashSet<String>>,
}

impl Images {
    pub(crate) fn new(known: HashMap<String, u32>) -> Self {
        Images { known, told: Mutex::default() }
    }

    /// The image that is meant; the default where none is, which the log is told once for each name.
    pub(crate) fn choose(&self, hint: Option<&str>) -> u32 {
        let Some(name) = hint else { return DEFAULT };
        // Of a reference with a digest, the digest alone says which.
        let digest = || name.rsplit_once('@').map(|(_, digest)| digest);
        let found = self.known.get(name).or_else(|| self.known.get(digest()?));
        if found.is_none() && self.is_news(name) {
            tracing::warn!(image = ?name, "no image is called so: its sessions get the default one");
        }
        found.copied().unwrap_or(DEFAULT)
    }

    /// Whether nothing was told of it before. After so many names nothing is news.
    pub(crate) fn is_news(&self, name: &str) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.len() < IMAGES_TOLD_MAX && told.insert(name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_or_a_digest_chooses_and_anything_else_is_the_default() {
        let known = [("debian:12", 1), ("sha256:aa", 1), ("node", 2)];
        let images = Images::new(known.into_iter().map(|(name, image)| (name.to_owned(), image)).collect());
        for (hint, image) in [
            (None, 0),
            (Some("debian:12"), 1),
            (Some("sha256:aa"), 1),
            (Some("registry/debian@sha256:aa"), 1),
            (Some("registry/debian@sha256:bb"), 0),
            (Some("node"), 2),
            (Some("Node"), 0),
            (Some(""), 0),
        ] {
            assert_eq!(images.choose(hint), image, "{hint:?}");
        }
    }

    #[test]
    fn the_log_is_told_once_of_a_name_and_of_so_many_names() {
        let images = Images::default();
        assert!(images.is_news("a") && !images.is_news("a"));
        let told = (0..10 * IMAGES_TOLD_MAX).filter(|number| images.is_news(&number.to_string())).count();
        assert_eq!(told, IMAGES_TOLD_MAX - 1);
    }
}
