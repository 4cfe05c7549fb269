//! Layers into a folder.
//!
//! Layers are applied in their order, each as one stream: what it removes (`.wh.NAME`, `.wh..wh..opq`) concerns the
//! layers below it alone, whatever the order of its entries. What comes out:
//!
//! - regular files, folders, symbolic links, hard links within the root; sparse files with their holes;
//! - modes without set-user-ID and set-group-ID on files, and, where owners are dropped, without set-group-ID on folders
//!   and the right of others to write; owners as [`Owners`] says; times of modification;
//! - no extended attribute, no FIFO (left out and counted), no device. The devices that every `/dev` has (`null`,
//!   `tty` and so on, under `dev/`) are left out and counted, since a cell has its own; any other is refused.

mod folder;
mod made;
mod place;
mod writer;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use crate::limits::{LEFT_OUT_NAMED_MAX, RATIO_FREE_BYTES, RATIO_MAX, UNPACKED_BYTES_MAX, UNPACKED_ENTRIES_MAX};
use crate::stream::{Bounds, Counted};
use crate::tape::Tape;
use crate::{Blobs, Found, Layer, OciError, Progress};
use folder::Folder;
use writer::Writer;

/// Whose the files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// As the image says. Needs CAP_CHOWN.
    Keep,
    /// Id `n` of the image is `base + n` of the host. Ids from `count` on are the image's nobody (65534, or the last
    /// one of a shorter range). Needs CAP_CHOWN.
    Shift {
        /// The host's id for the image's 0.
        base: u32,
        /// How many ids there are; at least 1.
        count: u32,
    },
    /// All belongs to whoever unpacks, and is readable to its owner, folders writable too.
    Drop,
}

/// Bounds of an unpacked image, over all its layers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct UnpackLimits {
    /// Bytes of all layers without their compression, and, counted apart, of all files (holes of sparse ones too).
    pub bytes_max: u64,
    /// Entries of all layers.
    pub entries_max: u64,
    /// How many times larger than its blob a layer may be.
    pub ratio_max: u64,
    /// What a layer may be without its ratio being looked at, bytes.
    pub ratio_free_bytes: u64,
}

impl Default for UnpackLimits {
    fn default() -> Self {
        UnpackLimits {
            bytes_max: UNPACKED_BYTES_MAX,
            entries_max: UNPACKED_ENTRIES_MAX,
            ratio_max: RATIO_MAX,
            ratio_free_bytes: RATIO_FREE_BYTES,
        }
    }
}

/// What was unpacked so far: given from layer to layer, so that bounds hold for all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unpacked {
    /// Entries of the archives, whatever became of them.
    pub entries: u64,
    /// Bytes of files, holes included.
    pub file_bytes: u64,
    /// Bytes of the archives without compression.
    pub archive_bytes: u64,
    /// FIFOs and devices of `/dev` that were left out.
    pub left_out: u64,
    /// The names of the first of them.
    pub left_out_names: Vec<String>,
}

impl Unpacked {
    fn leave_out(&mut self, name: &[u8]) {
        self.left_out += 1;
        if self.left_out_names.len() < LEFT_OUT_NAMED_MAX {
            self.left_out_names.push(crate::error::shown(name));
        }
    }
}

/// Unpacks an image into `into`, which must not exist; its parent must be nobody else's to write. When it returns,
/// all is on the disk. A root that no layer describes has mode 0755 and is the image's root's.
///
/// # Errors
/// [`OciError::Entry`] names what was refused, [`OciError::Write`] what could not be written. Nothing is outside of
/// `into`, and `into` is gone.
pub fn unpack(
    found: &Found,
    blobs: &Blobs,
    into: &Path,
    owners: Owners,
    limits: &UnpackLimits,
    progress: &mut dyn Progress,
) -> Result<Unpacked, OciError> {
    DirBuilder::new().mode(0o700).create(into).map_err(OciError::file("create the folder", into))?;
    let mut unpacked = Unpacked::default();
    let mut layers = found.layers.iter();
    let done = Folder::open(into)
        .and_then(|folder| Writer::new(&folder, owners, limits, &mut unpacked).root())
        .and_then(|()| {
            layers.try_for_each(|layer| unpack_layer(layer, blobs, into, owners, limits, &mut unpacked, progress))
        })
        .and_then(|()| sync(into));
    match done {
        Ok(()) => Ok(unpacked),
        Err(error) => {
            // The first error tells what matters; what cannot be removed now is the store's to sweep.
            let _ = fs::remove_dir_all(into);
            Err(error)
        }
    }
}

/// Applies one layer to a folder that the layers below it were applied to; for the lowest, an empty folder of mode
/// 0700 of the caller's own. `unpacked` counts on. What a failure leaves in the folder is half a layer: remove it.
///
/// # Errors
/// As [`unpack`].
pub fn unpack_layer(
    layer: &Layer,
    blobs: &Blobs,
    into: &Path,
    owners: Owners,
    limits: &UnpackLimits,
    unpacked: &mut Unpacked,
    progress: &mut dyn Progress,
) -> Result<(), OciError> {
    let what = format!("the layer {}", layer.digest);
    progress.step(&what, None);
    let folder = Folder::open(into)?;
    let bytes_max = limits.bytes_max.saturating_sub(unpacked.archive_bytes);
    let UnpackLimits { ratio_max, ratio_free_bytes: ratio_free, .. } = *limits;
    let bounds = Bounds { bytes_max, packed: layer.bytes, ratio_max, ratio_free };
    let (_, counted) = Counted::new(blobs.file(&layer.digest)?, what.as_str(), bounds, progress)?;
    let mut tape = Tape::new(counted, what.as_str());
    let mut writer = Writer::new(&folder, owners, limits, unpacked);
    let written = writer.layer(&mut tape);
    let mut counted = tape.into_inner();
    if let Err(error) = written {
        return Err(counted.refusal().unwrap_or(error));
    }
    let (bytes, diff_id) = counted.finish()?;
    unpacked.archive_bytes += bytes;
    if diff_id != layer.diff_id {
        let what = format!("{what} without its compression");
        return Err(OciError::WrongDigest { what, expected: layer.diff_id, found: diff_id });
    }
    Ok(())
}

/// Applies a tar archive to an empty folder, without a blob, a digest or a sync.
pub(crate) fn unpack_plain(
    archive: &[u8],
    into: &Path,
    owners: Owners,
    limits: &UnpackLimits,
) -> Result<Unpacked, OciError> {
    let mut unpacked = Unpacked::default();
    let folder = Folder::open(into)?;
    let mut writer = Writer::new(&folder, owners, limits, &mut unpacked);
    writer.layer(&mut Tape::new(archive, "the layer"))?;
    Ok(unpacked)
}

/// One call for the thousands of files: what is renamed into place later must not outlive a power cut without them.
fn sync(into: &Path) -> Result<(), OciError> {
    File::open(into)
        .and_then(|folder| rustix::fs::syncfs(&folder).map_err(io::Error::from))
        .map_err(OciError::file("sync", into))
}
