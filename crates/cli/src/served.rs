//! The images that a server serves: made ready at its start, and what callers may call them.

use std::collections::HashMap;
use std::path::Path;

use ringfence_image::{Entry, Held, ImageError, Interpreter, Listed, Source, Store, WHEELHOUSE};
use ringfence_op::{RootSpec, Tier};

use crate::config::Config;
use crate::failure::{Failure, Kind};
use crate::limits::IMAGES_SERVED_MAX;
use crate::progress::Teller;

/// All of them; the first is the default.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// Their roots, in the order of their numbers.
    pub(crate) roots: Vec<RootSpec>,
    /// Names, ids and digests, and the numbers that they mean.
    pub(crate) names: HashMap<String, u32>,
    /// What the first one is, for the ready lines.
    pub(crate) default: String,
    /// Sessions are held without mounts.
    flat: bool,
    /// The first process of each session is the image's Python.
    python_first: bool,
    /// While the server runs, nobody takes them away.
    held: Vec<Held>,
}

/// One part of the setting `images`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Offer {
    /// Every image of the store, under its own names.
    All,
    /// One image, perhaps under a further name.
    One {
        /// The further name.
        alias: Option<String>,
        /// Which image.
        image: String,
    },
}

/// Reads the setting: `*`, `IMAGE` and `NAME=IMAGE`, joined by commas; nothing is fine as well.
pub(crate) fn parse_offers(text: &str) -> Option<Vec<Offer>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| match part.split_once('=') {
            _ if part == "*" => Some(Offer::All),
            Some((alias, image)) if alias.is_empty() || image.is_empty() => None,
            Some((alias, image)) => Some(Offer::One { alias: Some(alias.to_owned()), image: image.to_owned() }),
            None => Some(Offer::One { alias: None, image: part.to_owned() }),
        })
        .collect()
}

/// Makes every image ready that the configuration names, as whoever started us.
pub(crate) fn gather(config: &Config, tier: Tier) -> Result<Served, Failure> {
    let store = Store::at(&config.state_dir);
    let flat = tier.is_flat();
    let mut served = Served { flat, python_first: tier == Tier::Gvisor, ..Served::default() };
    let prepare = |image: &str| {
        let mut teller = Teller::new();
        ringfence_image::prepare(&store, image, config.python.as_deref(), &mut teller).map_err(failed)
    };
    let number = served.add(prepare(&config.image)?, config, Some(&config.image)).map_err(failed)?;
    served.name(&config.image, number);
    if let Some(held) = served.held.first() {
        served.default = describe(&held.entry, served.roots.first());
    }
    for offer in &config.images {
        match offer {
            Offer::All => served.add_all(&store, config),
            Offer::One { alias, image } => {
                let number = served.add(prepare(image)?, config, None).map_err(failed)?;
                served.name(alias.as_deref().unwrap_or(image), number);
            }
        }
    }
    Ok(served)
}

fn failed(error: ImageError) -> Failure {
    let help = error.help();
    Failure::new(Kind::Image, error).help(help)
}

fn describe(entry: &Entry, root: Option<&RootSpec>) -> String {
    let name = root.map_or_else(|| entry.title(), |root| root.image.clone());
    match &entry.manifest.facts.interpreter {
        Interpreter::Python { version, .. } => format!("{name} (Python {version})"),
        Interpreter::None(why) => format!("{name} (no interpreter: {why})"),
    }
}

impl Served {
    /// The numbers of images by their ids.
    pub(crate) fn ids(&self) -> HashMap<String, u32> {
        let ids = self.held.iter().map(|held| held.entry.manifest.id.clone());
        ids.filter_map(|id| self.names.get(&id).copied().map(|number| (id, number))).collect()
    }

    /// Takes one in, once, and gives its number.
    fn add(&mut self, held: Held, config: &Config, called: Option<&str>) -> Result<u32, ImageError> {
        let id = held.entry.manifest.id.clone();
        if let Some(number) = self.names.get(&id) {
            return Ok(*number);
        }
        if self.roots.len() >= IMAGES_SERVED_MAX {
            return Err(ImageError::Full { most: IMAGES_SERVED_MAX, images: held.entry.folder.clone() });
        }
        let mut root = ringfence_image::root_of(&held.entry, config.cell.cpu_millis)?;
        if let Some(name) = called.filter(|name| held.entry.names.iter().any(|known| known == name)) {
            name.clone_into(&mut root.image);
        }
        if self.flat && ringfence_jail::needs_mounts(&root) {
            return Err(ImageError::NeedsMounts { image: root.image });
        }
        if self.python_first && root.python.is_none() {
            return Err(ImageError::NeedsPython { image: root.image });
        }
        if let Some(folder) = &config.wheelhouse {
            // Without mounts everything is seen at its own place.
            let place = if self.flat { folder.as_path() } else { Path::new(WHEELHOUSE) };
            ringfence_image::add_wheelhouse(&mut root, folder, place);
        }
        let number = u32::try_from(self.roots.len()).unwrap_or(u32::MAX);
        for name in &held.entry.names {
            self.name(name, number);
        }
        if let Source::Oci { digest, .. } = &held.entry.manifest.source {
            self.name(digest, number);
        }
        self.name(&format!("sha256:{id}"), number);
        self.name(&id, number);
        self.roots.push(root);
        self.held.push(held);
        Ok(number)
    }

    /// The first image that was called so stays it.
    fn name(&mut self, name: &str, number: u32) {
        self.names.entry(name.to_owned()).or_insert(number);
    }

    /// What of the store cannot be served is said, and left out: nobody asked for it by name.
    fn add_all(&mut self, store: &Store, config: &Config) {
        let listed = match store.list() {
            Ok(listed) => listed,
            Err(error) => return tracing::warn!(%error, "only the images that the configuration names are served"),
        };
        for entry in listed.into_iter().filter_map(Listed::image) {
            let title = entry.title();
            if let Err(error) = store.hold(entry).and_then(|held| self.add(held, config, None)) {
                tracing::warn!(image = title, %error, "an image of the store is not served");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_are_read() {
        let one =
            |alias: Option<&str>, image: &str| Offer::One { alias: alias.map(str::to_owned), image: image.into() };
        assert_eq!(parse_offers(""), Some(vec![]));
        assert_eq!(parse_offers("*"), Some(vec![Offer::All]));
        let offers = parse_offers("node, python:3.12=scientific,*");
        assert_eq!(offers, Some(vec![one(None, "node"), one(Some("python:3.12"), "scientific"), Offer::All]));
        assert_eq!(parse_offers("=x"), None);
        assert_eq!(parse_offers("x="), None);
    }
}
