//! Which image a lease gets: a hint never makes it fail.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::config::Absent;
use crate::limits::IMAGES_TOLD_MAX;

/// The default image's number.
pub(crate) const DEFAULT: u32 = 0;

/// Names, ids and digests, and the images that they mean.
#[derive(Debug, Default)]
pub(crate) struct Images {
    known: RwLock<HashMap<String, u32>>,
    absent: Option<Arc<dyn Absent>>,
    /// What the log has been told already.
    told: Mutex<HashSet<String>>,
}

impl Images {
    pub(crate) fn new(known: HashMap<String, u32>, absent: Option<Arc<dyn Absent>>) -> Self {
        Images { known: RwLock::new(known), absent, told: Mutex::default() }
    }

    /// What is called so from now on.
    pub(crate) fn learn(&self, names: impl IntoIterator<Item = String>, image: u32) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for name in names {
            known.entry(name).or_insert(image);
        }
    }

    /// Nothing is called so any more.
    pub(crate) fn forget(&self, name: &str) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// The image that is meant; the default where none is, which the log is told once for each name.
    pub(crate) fn choose(&self, hint: Option<&str>) -> u32 {
        let Some(name) = hint else { return DEFAULT };
        // Of a reference with a digest, the digest alone says which.
        let digest = || name.rsplit_once('@').map(|(_, digest)| digest);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let found = known.get(name).or_else(|| known.get(digest()?)).copied();
        drop(known);
        let coming = || self.absent.as_ref().is_some_and(|absent| absent.is_coming(name));
        if found.is_none() && !coming() && self.is_news(name) {
            tracing::warn!(image = ?name, "no image is called so: its sessions get the default one");
        }
        found.unwrap_or(DEFAULT)
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
        let images = Images::new(known.into_iter().map(|(name, image)| (name.to_owned(), image)).collect(), None);
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
    fn what_is_brought_is_chosen_once_it_is_learned() {
        #[derive(Debug, Default)]
        struct Asked(Mutex<Vec<String>>);
        impl Absent for Asked {
            fn is_coming(&self, name: &str) -> bool {
                self.0.lock().unwrap().push(name.to_owned());
                name == "coming"
            }
        }
        let asked = Arc::new(Asked::default());
        let images = Images::new(HashMap::from([("bare".to_owned(), 0)]), Some(Arc::clone(&asked) as Arc<dyn Absent>));
        assert_eq!((images.choose(Some("coming")), images.choose(Some("bare"))), (DEFAULT, 0));
        images.learn(["coming".to_owned(), "sha256:aa".to_owned(), "bare".to_owned()], 5);
        assert_eq!([Some("coming"), Some("x@sha256:aa"), Some("bare")].map(|name| images.choose(name)), [5, 5, 0]);
        assert_eq!(*asked.0.lock().unwrap(), ["coming"]);
        assert!(images.is_news("coming"), "nobody wondered");
        images.forget("coming");
        assert_eq!((images.choose(Some("coming")), asked.0.lock().unwrap().len()), (DEFAULT, 2), "asked for again");
    }

    #[test]
    fn the_log_is_told_once_of_a_name_and_of_so_many_names() {
        let images = Images::default();
        assert!(images.is_news("a") && !images.is_news("a"));
        let told = (0..10 * IMAGES_TOLD_MAX).filter(|number| images.is_news(&number.to_string())).count();
        assert_eq!(told, IMAGES_TOLD_MAX - 1);
    }
}
