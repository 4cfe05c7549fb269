//! Streams without their compression: gzip, zstd or none, told by their first bytes.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use sha2::{Digest as _, Sha256};

use crate::limits::{COPY_BYTES, ZSTD_WINDOW_BYTES_MAX};
use crate::{Digest, OciError, Progress};

/// How a stream is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// The media type of a layer that is so compressed.
    pub(crate) fn layer_type(self) -> &'static str {
        match self {
            Compression::None => "application/vnd.oci.image.layer.v1.tar",
            Compression::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
            Compression::Zstd => "application/vnd.oci.image.layer.v1.tar+zstd",
        }
    }
}

/// The stream without its compression.
///
/// # Errors
/// Those of `from`.
pub(crate) fn decoded<'a>(mut from: impl Read + 'a) -> io::Result<(Compression, Box<dyn Read + 'a>)> {
    let mut magic = Vec::new();
    (&mut from).take(4).read_to_end(&mut magic)?;
    let compression = match magic.as_slice() {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        // A frame, or one to be skipped before it.
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Compression::Zstd,
        _ => Compression::None,
    };
    let from = BufReader::with_capacity(COPY_BYTES, Cursor::new(magic).chain(from));
    Ok(match compression {
        Compression::None => (compression, Box::new(from)),
        Compression::Gzip => (compression, Box::new(MultiGzDecoder::new(from))),
        Compression::Zstd => (compression, Box::new(Zstd { from, decoder: decoder(), inside: false })),
    })
}

fn decoder() -> FrameDecoder {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(ZSTD_WINDOW_BYTES_MAX);
    decoder
}

/// All frames of a zstd stream, one after the other.
struct Zstd<R> {
    from: R,
    decoder: FrameDecoder,
    inside: bool,
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if self.inside && self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if self.inside && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.from, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                continue;
            }
            self.inside = false;
            if self.from.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.begin()?;
        }
    }
}

impl<R: BufRead> Zstd<R> {
    /// The header of the next frame; a frame for other programs is skipped.
    fn begin(&mut self) -> io::Result<()> {
        match self.decoder.reset(&mut self.from) {
            Ok(()) => self.inside = true,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                let skipped = io::copy(&mut (&mut self.from).take(u64::from(length)), &mut io::sink())?;
                if skipped < u64::from(length) {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
        Ok(())
    }
}

/// What an unpacked stream may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Bytes without compression.
    pub(crate) bytes_max: u64,
    /// Bytes of the compressed stream, for the ratio.
    pub(crate) packed: u64,
    /// How many times more than that it may be, above what is free, bytes.
    pub(crate) ratio_max: u64,
    pub(crate) ratio_free: u64,
}

/// A stream without its compression, counted, bounded and hashed.
pub(crate) struct Counted<'a> {
    from: Box<dyn Read + 'a>,
    hasher: Sha256,
    bytes: u64,
    bounds: Bounds,
    what: String,
    progress: &'a mut dyn Progress,
    /// Why reading ended, where it was no error of the stream's.
    refused: Option<OciError>,
}

impl<'a> Counted<'a> {
    pub(crate) fn new(
        from: impl Read + 'a,
        what: impl Into<String>,
        bounds: Bounds,
        progress: &'a mut dyn Progress,
    ) -> Result<(Compression, Self), OciError> {
        let what = what.into();
        let (compression, from) = decoded(from).map_err(|source| OciError::Read { what: what.clone(), source })?;
        Ok((compression, Counted { from, hasher: Sha256::new(), bytes: 0, bounds, what, progress, refused: None }))
    }

    /// The reason in this room's words, where it was this that ended the reading.
    pub(crate) fn refusal(&mut self) -> Option<OciError> {
        self.refused.take()
    }

    /// Reads what follows the archive; answers the bytes and the digest of all.
    pub(crate) fn finish(mut self) -> Result<(u64, Digest), OciError> {
        match io::copy(&mut self, &mut io::sink()) {
            Ok(_) => Ok((self.bytes, Digest::from_hasher(self.hasher))),
            Err(source) => Err(self.refused.take().unwrap_or(OciError::Read { what: self.what, source })),
        }
    }

    fn refuse(&mut self, error: OciError) -> io::Error {
        let text = error.to_string();
        self.refused = Some(error);
        io::Error::other(text)
    }
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.hasher.update(buffer.get(..count).unwrap_or_default());
        self.bytes += count as u64;
        let Bounds { bytes_max, packed, ratio_max, ratio_free } = self.bounds;
        if self.bytes > bytes_max {
            let what = format!("{} without its compression", self.what);
            return Err(self.refuse(OciError::TooLarge { what, max: format!("{bytes_max} bytes") }));
        }
        if self.bytes > ratio_free && self.bytes / ratio_max.max(1) > packed {
            let what = format!("the ratio of compression of {}", self.what);
            return Err(self.refuse(OciError::TooLarge { what, max: format!("{ratio_max} to 1") }));
        }
        self.progress.bytes(self.bytes);
        if self.progress.cancelled() {
            return Err(self.refuse(OciError::Cancelled));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::Write;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(content: &[u8]) -> Vec<u8> {
        compress_to_vec(content, CompressionLevel::Fastest)
    }

    fn read(packed: &[u8]) -> io::Result<(Compression, Vec<u8>)> {
        let mut content = Vec::new();
        let (compression, mut from) = decoded(packed)?;
        from.read_to_end(&mut content)?;
        Ok((compression, content))
    }

    #[test]
    fn each_compression_is_told_by_its_beginning() {
        let text = b"one".repeat(100_000);
        let skipped = [&[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        for (packed, compression) in [
            (text.clone(), Compression::None),
            (gzip(&text), Compression::Gzip),
            (zstd(&text), Compression::Zstd),
            ([gzip(&text[..7]), gzip(&text[7..])].concat(), Compression::Gzip),
            ([zstd(&text[..7]), skipped.clone(), zstd(&text[7..]), skipped].concat(), Compression::Zstd),
        ] {
            assert!(read(&packed).unwrap() == (compression, text.clone()), "{compression:?}");
        }
        assert_eq!(read(b"").unwrap(), (Compression::None, vec![]));
    }

    #[test]
    fn a_cut_stream_is_an_error() {
        let text = b"one two three ".repeat(1000);
        for packed in [gzip(&text), zstd(&text), vec![0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1]] {
            for cut in [5, packed.len() / 2, packed.len() - 1] {
                assert!(read(&packed[..cut.min(packed.len() - 1)]).is_err() || packed.len() < 12, "cut at {cut}");
            }
        }
    }

    #[test]
    fn bounds_end_the_reading_with_their_own_words() {
        let packed = gzip(&vec![0; 1 << 20]);
        let all = Bounds { bytes_max: 1 << 20, packed: packed.len() as u64, ratio_max: 2000, ratio_free: 0 };
        for (bounds, words) in [
            (Bounds { bytes_max: 1 << 19, ..all }, Some("524288 bytes")),
            (Bounds { ratio_max: 100, ..all }, Some("100 to 1")),
            (Bounds { ratio_max: 100, ratio_free: 1 << 20, ..all }, None),
            (all, None),
        ] {
            let mut quiet = ();
            let (_, counted) = Counted::new(packed.as_slice(), "it", bounds, &mut quiet).unwrap();
            match (counted.finish(), words) {
                (Err(OciError::TooLarge { max, .. }), Some(words)) => assert_eq!(max, words),
                (Ok((bytes, _)), None) => assert_eq!(bytes, 1 << 20),
                (other, words) => panic!("{other:?} instead of {words:?}"),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn damage_never_panics(at in 4_usize..400, byte: u8, with_zstd: bool) {
            let text: Vec<u8> = (0..2000_u32).flat_map(|number| (number * number).to_le_bytes()).collect();
            let mut packed = if with_zstd { zstd(&text) } else { gzip(&text) };
            let at = at % packed.len();
            packed[at] = byte;
            let _ = read(&packed);
        }
    }
}
