//! Private parsers for the targets of `ringfence-fuzz`; nothing else calls this.

use std::path::Path;

use crate::document::{self, Document};
use crate::tape::Tape;
use crate::unpack::unpack_plain;
use crate::{OciError, Owners, Platform, UnpackLimits, Unpacked};

/// Reads a tar archive to its end: how many entries it has, and how many bytes of content they hold.
///
/// # Errors
/// What is wrong with it.
pub fn tape(bytes: &[u8]) -> Result<(u64, u64), OciError> {
    let mut tape = Tape::new(bytes, "the archive");
    let (mut entries, mut content) = (0, 0);
    let mut chunk = [0; 4096];
    while tape.next()?.is_some() {
        entries += 1;
        loop {
            match tape.read(&mut chunk)? {
                0 => break,
                count => content += count as u64,
            }
        }
    }
    Ok((entries, content))
}

/// Applies a layer without compression to an empty folder.
///
/// # Errors
/// As [`crate::unpack`]; what was written before it stays.
pub fn layer(bytes: &[u8], into: &Path, limits: &UnpackLimits) -> Result<Unpacked, OciError> {
    unpack_plain(bytes, into, Owners::Drop, limits)
}

/// Reads a manifest or index, and the same bytes as a configuration. For a manifest, how many layers it has.
pub fn document(bytes: &[u8]) -> Option<usize> {
    let here = Platform::here();
    // Whether it is one or not, it must answer.
    let _ = document::config(bytes, "the configuration", &here);
    match document::parse(bytes, "the document").ok()? {
        Document::Manifest(manifest) => Some(manifest.layers.len()),
        Document::Index(listed) => {
            let _ = document::choose(&listed, &here);
            None
        }
    }
}
