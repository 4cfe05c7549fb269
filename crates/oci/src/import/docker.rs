//! `manifest.json`, as `docker save` has always written it.

use serde::Deserialize;

use super::archive::{Files, compression};
use super::kept::Kept;
use super::{digest_like, names};
use crate::document::{Descriptor, Manifest, from_json};
use crate::error::shown;
use crate::limits::{INDEX_MANIFESTS_MAX, LAYERS_MAX};
use crate::resolve::{self, Source, Wish};
use crate::{Digest, Found, OciError, Progress};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// The image of that name in a `docker save` archive; a manifest is written for it.
pub(super) fn image(
    content: &[u8],
    name: Option<&str>,
    files: Option<&Files>,
    kept: &mut Kept<'_>,
    wish: &Wish<'_>,
    progress: &mut dyn Progress,
) -> Result<Found, OciError> {
    let all: Vec<Saved> = from_json(content, "manifest.json")?;
    if all.len() > INDEX_MANIFESTS_MAX {
        let what = "the number of images of manifest.json".to_owned();
        return Err(OciError::TooLarge { what, max: INDEX_MANIFESTS_MAX.to_string() });
    }
    let find = |file: &str| {
        files.and_then(|files| files.find(file.as_bytes())).ok_or_else(|| {
            OciError::malformed("manifest.json", format!("it names `{}`, which is not there", shown(file.as_bytes())))
        })
    };
    let saved = choose(&all, name, &find)?;
    if saved.layers.len() > LAYERS_MAX {
        let what = "the number of layers of the image".to_owned();
        return Err(OciError::TooLarge { what, max: LAYERS_MAX.to_string() });
    }
    let config = find(&saved.config)?;
    let mut layers = Vec::with_capacity(saved.layers.len());
    for file in &saved.layers {
        let digest = find(file)?;
        let media_type = compression(kept.new, &digest)?.layer_type();
        layers.push(Descriptor::new(media_type, &digest, size(kept, &digest)?));
    }
    let (manifest, content) = Manifest::of(&config, size(kept, &config)?, layers)?;
    let digest = kept.keep(&content)?;
    let found = resolve::parts(kept, digest, &manifest, wish, progress)?;
    let names = saved.repo_tags.iter().flatten().filter(|name| names::is_plain(name)).cloned().collect();
    Ok(Found { names, ..found })
}

fn size(kept: &Kept<'_>, digest: &Digest) -> Result<u64, OciError> {
    kept.size(digest)?.ok_or(OciError::MissingBlob { what: "the blob", digest: *digest })
}

fn choose<'a>(
    all: &'a [Saved],
    name: Option<&str>,
    find: &dyn Fn(&str) -> Result<Digest, OciError>,
) -> Result<&'a Saved, OciError> {
    let tags = |saved: &'a Saved| saved.repo_tags.iter().flatten();
    let shown_names = || {
        let shown_name = |saved: &'a Saved| match tags(saved).next() {
            Some(tag) => shown(tag.as_bytes()),
            None => shown(saved.config.as_bytes()),
        };
        all.iter().map(shown_name).collect::<Vec<_>>()
    };
    let Some(wanted) = name else {
        return match all {
            [one] => Ok(one),
            [] => Err(OciError::malformed("manifest.json", "it names no image")),
            _ => Err(OciError::SeveralImages { names: shown_names() }),
        };
    };
    let by_id =
        |saved: &Saved| digest_like(wanted).is_some_and(|digest| find(&saved.config).is_ok_and(|id| id == digest));
    all.iter()
        .find(|saved| tags(saved).any(|tag| names::same(tag, wanted)) || by_id(saved))
        .ok_or_else(|| OciError::NoSuchImage { wanted: shown(wanted.as_bytes()), names: shown_names() })
}
