//! A plain root filesystem in a tar archive, as an image of one layer.

use std::fs::File;
use std::path::Path;

use super::{ImportOptions, Kept};
use crate::document::{Descriptor, Manifest, plain_config};
use crate::limits::RATIO_FREE_BYTES;
use crate::resolve::{self, Source, Wish};
use crate::stream::{Bounds, Counted};
use crate::tape::Tape;
use crate::{Blobs, Found, OciError, Progress};

/// Imports a root filesystem without any description, as `debootstrap`, `mmdebstrap` or `docker export` make it: a
/// tar archive, plain, with gzip or with zstd, also from a pipe. The same archive is the same image.
///
/// # Errors
/// As [`super::import`]; an archive without any entry is refused. Nothing new is in `blobs` then.
pub fn import_root(
    path: &Path,
    blobs: &Blobs,
    options: &ImportOptions,
    progress: &mut dyn Progress,
) -> Result<Found, OciError> {
    let staging = blobs.staging()?;
    let mut kept = Kept { new: &staging.blobs, old: blobs, layout: None };
    let mut file = File::open(path).map_err(OciError::file("open", path))?;
    let what = format!("the archive {}", path.display());
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    progress.step(&what, (length > 0).then_some(length));
    let layer = staging.blobs.put(&mut file, &what, None, options.bytes_max, progress)?;

    let bounds = Bounds {
        bytes_max: options.unpacked_bytes_max,
        packed: layer.bytes,
        ratio_max: options.ratio_max,
        ratio_free: RATIO_FREE_BYTES,
    };
    progress.step("reading it", None);
    let (compression, counted) = Counted::new(staging.blobs.file(&layer.digest)?, what.as_str(), bounds, progress)?;
    let mut tape = Tape::new(counted, what.as_str());
    let mut entries = 0_u64;
    loop {
        match tape.next() {
            Ok(Some(_)) => entries += 1,
            Ok(None) => break,
            Err(error) => return Err(tape.into_inner().refusal().unwrap_or(error)),
        }
    }
    if entries == 0 {
        return Err(OciError::malformed(what, "it is an archive of nothing"));
    }
    let (_, diff_id) = tape.into_inner().finish()?;

    let config = plain_config(&diff_id, &options.platform)?;
    let config_digest = kept.keep(&config)?;
    let descriptor = Descriptor::new(compression.layer_type(), &layer.digest, layer.bytes);
    let (manifest, content) = Manifest::of(&config_digest, config.len() as u64, vec![descriptor])?;
    let digest = kept.keep(&content)?;
    let wish = Wish { platform: &options.platform, bytes_max: options.bytes_max };
    let found = resolve::parts(&mut kept, digest, &manifest, &wish, &mut ())?;
    staging.commit(&found.blobs(), blobs)?;
    Ok(found)
}
