//! From one descriptor to a whole image: the same for archives, layouts and registries.

use crate::document::{self, Descriptor, Document, Manifest};
use crate::limits::{DOCUMENT_BYTES_MAX, INDEX_DEPTH_MAX};
use crate::{Digest, Found, Layer, OciError, Platform, Progress};

/// Where the parts of an image come from.
pub(crate) trait Source {
    /// The content of a manifest or index, verified against the descriptor.
    fn manifest(&mut self, descriptor: &Descriptor) -> Result<Vec<u8>, OciError>;
    /// Sees to it that a blob is kept, verified; `bytes_max` bounds it.
    fn blob(
        &mut self,
        descriptor: &Descriptor,
        what: &'static str,
        progress: &mut dyn Progress,
    ) -> Result<(), OciError>;
    /// The content of a small blob that is kept.
    fn content(&self, digest: &Digest) -> Result<Vec<u8>, OciError>;
    /// Keeps a manifest as a blob.
    fn keep(&mut self, content: &[u8]) -> Result<Digest, OciError>;
}

/// Bounds and wishes of an import or a pull.
#[derive(Debug, Clone)]
pub(crate) struct Wish<'a> {
    pub(crate) platform: &'a Platform,
    /// Of all blobs together.
    pub(crate) bytes_max: u64,
}

/// Follows a descriptor to the image for this platform and gets all its parts.
pub(crate) fn image(
    source: &mut dyn Source,
    from: &Descriptor,
    wish: &Wish<'_>,
    progress: &mut dyn Progress,
) -> Result<Found, OciError> {
    let mut at = from.clone();
    for _ in 0..INDEX_DEPTH_MAX {
        let content = source.manifest(&at)?;
        match document::parse(&content, &format!("the manifest {}", at.digest))? {
            Document::Index(listed) => at = document::choose(&listed, wish.platform)?.clone(),
            Document::Manifest(manifest) => {
                let kept = source.keep(&content)?;
                return parts(source, kept, &manifest, wish, progress);
            }
        }
    }
    Err(OciError::TooLarge { what: "the depth of an index".to_owned(), max: INDEX_DEPTH_MAX.to_string() })
}

/// Gets the parts that a manifest names.
pub(crate) fn parts(
    source: &mut dyn Source,
    manifest_digest: Digest,
    manifest: &Manifest,
    wish: &Wish<'_>,
    progress: &mut dyn Progress,
) -> Result<Found, OciError> {
    let sizes = manifest.layers.iter().map(|layer| layer.size);
    let total = sizes.fold(manifest.config.size, u64::saturating_add);
    if total > wish.bytes_max {
        return Err(OciError::TooLarge {
            what: format!("the image, with {total} bytes,"),
            max: format!("{} bytes", wish.bytes_max),
        });
    }
    if manifest.config.size > DOCUMENT_BYTES_MAX {
        let max = format!("{DOCUMENT_BYTES_MAX} bytes");
        return Err(OciError::TooLarge { what: "the image's configuration".to_owned(), max });
    }
    source.blob(&manifest.config, "the configuration", progress)?;
    let what = format!("the configuration {}", manifest.config.digest);
    let content = source.content(&manifest.config.digest)?;
    let (config, diff_ids) = document::config(&content, &what, wish.platform)?;
    if diff_ids.len() != manifest.layers.len() {
        return Err(OciError::malformed(
            what,
            format!("it names {} layers and the manifest {}", diff_ids.len(), manifest.layers.len()),
        ));
    }
    let mut layers = Vec::with_capacity(diff_ids.len());
    for (descriptor, diff_id) in manifest.layers.iter().zip(diff_ids) {
        source.blob(descriptor, "the layer", progress)?;
        layers.push(Layer {
            digest: descriptor.digest,
            bytes: descriptor.size,
            media_type: descriptor.media_type.clone(),
            diff_id,
        });
    }
    Ok(Found { manifest_digest, config_digest: manifest.config.digest, config, layers, names: Vec::new() })
}
