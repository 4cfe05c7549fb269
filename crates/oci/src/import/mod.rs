//! Images from files: what `docker save` writes, OCI layouts in folders and archives, plain root filesystems.

mod archive;
mod docker;
mod kept;
mod names;
mod root;

use std::fs::File;
use std::path::Path;

use crate::blobs::read_bounded;
use crate::document::{Document, parse};
use crate::limits::{DOCUMENT_BYTES_MAX, IMAGE_BYTES_MAX, RATIO_MAX, UNPACKED_BYTES_MAX};
use crate::resolve::{self, Wish};
use crate::{Blobs, Digest, Found, OciError, Platform, Progress};
use kept::Kept;
pub use root::import_root;

/// Bounds and wishes of an import.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ImportOptions {
    /// Bytes of the archive without its compression, and of the image's blobs.
    pub bytes_max: u64,
    /// Bytes of a plain root without compression.
    pub unpacked_bytes_max: u64,
    /// How many times larger than the file its content may be.
    pub ratio_max: u64,
    /// Which image of an index for several platforms is taken.
    pub platform: Platform,
}

impl Default for ImportOptions {
    fn default() -> Self {
        ImportOptions {
            bytes_max: IMAGE_BYTES_MAX,
            unpacked_bytes_max: UNPACKED_BYTES_MAX,
            ratio_max: RATIO_MAX,
            platform: Platform::here(),
        }
    }
}

/// Imports an image: `path` is what `docker save` writes (with `manifest.json`, or newer with `index.json`), an OCI
/// layout as a folder or as an archive; archives plain, with gzip or with zstd, also from a pipe.
///
/// `name` says which, where there are several: a name as the source has it (`debian:12`, or the tag alone where the
/// source has tags alone), the digest of a manifest or index, or an image id.
///
/// # Errors
/// [`OciError::NoImage`], [`OciError::SeveralImages`], [`OciError::NoSuchImage`], [`OciError::OtherPlatform`]; what is
/// damaged, too large or hostile is refused by name. Nothing new is in `blobs` then.
pub fn import(
    path: &Path,
    name: Option<&str>,
    blobs: &Blobs,
    options: &ImportOptions,
    progress: &mut dyn Progress,
) -> Result<Found, OciError> {
    let staging = blobs.staging()?;
    let mut kept = Kept { new: &staging.blobs, old: blobs, layout: None };
    let file = File::open(path).map_err(OciError::file("open", path))?;
    let metadata = file.metadata().map_err(OciError::file("look at", path))?;
    let files = if metadata.is_dir() {
        kept.layout = Some(path);
        None
    } else {
        Some(archive::stage(file, metadata.len(), path, &staging.blobs, options, progress)?)
    };
    let wish = Wish { platform: &options.platform, bytes_max: options.bytes_max };
    let document = |name: &str| match &files {
        None => layout_file(path, name),
        Some(files) => {
            files.find(name.as_bytes()).map(|digest| staging.blobs.read(&digest, DOCUMENT_BYTES_MAX)).transpose()
        }
    };
    let found = match (document("index.json")?, document("manifest.json")?) {
        (Some(index), _) => {
            let Document::Index(listed) = parse(&index, "index.json")? else {
                return Err(OciError::malformed("index.json", "it is no index"));
            };
            let (names, listed) = names::choose(names::groups(&listed), name)?;
            let chosen = crate::document::choose(&listed, &options.platform)?;
            let found = resolve::image(&mut kept, chosen, &wish, progress)?;
            Found { names, ..found }
        }
        (None, Some(manifest)) if files.is_some() => {
            docker::image(&manifest, name, files.as_ref(), &mut kept, &wish, progress)?
        }
        _ => return Err(OciError::NoImage { path: path.to_owned() }),
    };
    staging.commit(&found.blobs(), blobs)?;
    Ok(found)
}

/// A document of a layout folder; `None` where there is none.
fn layout_file(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, OciError> {
    match kept::open(&folder.join(name)) {
        Ok(mut file) => read_bounded(&mut file, DOCUMENT_BYTES_MAX, name).map(Some),
        Err(OciError::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A digest or the 64 digits of one, as users write image ids.
fn digest_like(text: &str) -> Option<Digest> {
    Digest::from_hex(text.strip_prefix("sha256:").unwrap_or(text))
}
