//! Blocks of a tar archive: written as ustar with GNU long names, read as ustar, GNU and pax.

/// Everything in a tar archive comes in blocks of this size.
pub(super) const BLOCK_BYTES: usize = 512;

/// What an entry is, by its type byte.
pub(super) mod kind {
    pub(in crate::archive) const FILE: u8 = b'0';
    /// A file in archives older than ustar.
    pub(in crate::archive) const FILE_OLD: u8 = 0;
    /// A file that wants to be contiguous: a file.
    pub(in crate::archive) const FILE_CONTIGUOUS: u8 = b'7';
    pub(in crate::archive) const HARD_LINK: u8 = b'1';
    pub(in crate::archive) const SYMLINK: u8 = b'2';
    pub(in crate::archive) const DIRECTORY: u8 = b'5';
    pub(in crate::archive) const PAX: u8 = b'x';
    pub(in crate::archive) const PAX_GLOBAL: u8 = b'g';
    pub(in crate::archive) const LONG_NAME: u8 = b'L';
    pub(in crate::archive) const LONG_LINK: u8 = b'K';
}

/// One entry's header, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) name: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) size: u64,
    pub(super) mode: u32,
    /// POSIX seconds.
    pub(super) modified: u64,
    pub(super) kind: u8,
}

/// The user and group that an archive names: those of the session inside its cell.
const OWNER_ID: u64 = 1000;
const NAME_BYTES: usize = 100;

/// Appends the blocks that announce an entry.
pub(super) fn write(header: &Header, out: &mut Vec<u8>) {
    for (kind, text) in [(kind::LONG_NAME, &header.name), (kind::LONG_LINK, &header.link)] {
        if text.len() > NAME_BYTES {
            // The GNU way: an entry of its own whose content is the name and a NUL.
            let long = Header {
                name: b"././@LongLink".to_vec(),
                link: Vec::new(),
                size: text.len() as u64 + 1,
                mode: 0o644,
                modified: 0,
                kind,
            };
            out.extend_from_slice(&block(&long));
            out.extend_from_slice(text);
            out.push(0);
            pad(out);
        }
    }
    out.extend_from_slice(&block(header));
}

/// Fills the last block up with zeros.
pub(super) fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(BLOCK_BYTES), 0);
}

fn block(header: &Header) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    let mut put = |at: usize, bytes: &[u8]| {
        for (slot, byte) in block.iter_mut().skip(at).zip(bytes) {
            *slot = *byte;
        }
    };
    put(0, header.name.get(..NAME_BYTES).unwrap_or(&header.name));
    put(100, &octal(u64::from(header.mode), 7));
    put(108, &octal(OWNER_ID, 7));
    put(116, &octal(OWNER_ID, 7));
    put(124, &number(header.size));
    put(136, &octal(header.modified.min(0o77_777_777_777), 11));
    put(148, b"        ");
    put(156, &[header.kind]);
    put(157, header.link.get(..NAME_BYTES).unwrap_or(&header.link));
    put(257, b"ustar  \0");
    put(265, b"sandbox");
    put(297, b"sandbox");
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    for (slot, byte) in block.iter_mut().skip(148).zip(format!("{sum:06o}\0 ").bytes()) {
        *slot = byte;
    }
    block
}

fn octal(value: u64, digits: usize) -> Vec<u8> {
    format!("{value:0digits$o}\0").into_bytes()
}

/// A size: octal where it fits in 11 digits, else binary with the top bit set (GNU).
fn number(value: u64) -> Vec<u8> {
    if value <= 0o77_777_777_777 {
        return octal(value, 11);
    }
    let mut bytes = vec![0x80, 0, 0, 0];
    bytes.extend_from_slice(&value.to_be_bytes());
    bytes
}

/// Reads a header block. `Ok(None)` is the block of zeros that ends an archive.
///
/// # Errors
/// Why it is no header, in words.
pub(super) fn parse(block: &[u8; BLOCK_BYTES]) -> Result<Option<Header>, &'static str> {
    if block.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let field = |at: usize, length: usize| block.get(at..at + length).unwrap_or_default();
    let stated = value(field(148, 8)).ok_or("this is no tar archive")?;
    let (mut unsigned, mut signed) = (0_i64, 0_i64);
    for (at, byte) in block.iter().enumerate() {
        let byte = if (148..156).contains(&at) { b' ' } else { *byte };
        unsigned += i64::from(byte);
        signed += i64::from(byte.cast_signed());
    }
    // Some old programs summed signed bytes (tar(5)).
    if ![unsigned, signed].contains(&i64::try_from(stated).unwrap_or(-1)) {
        return Err("this is no tar archive, or it is damaged");
    }
    let name = until_nul(field(0, NAME_BYTES));
    let prefix = until_nul(field(345, 155));
    // The prefix is ustar's only: GNU has other fields there.
    let posix = field(257, 6) == b"ustar\0";
    let name = if posix && !prefix.is_empty() { [prefix, b"/", name].concat() } else { name.to_vec() };
    Ok(Some(Header {
        name,
        link: until_nul(field(157, NAME_BYTES)).to_vec(),
        size: value(field(124, 12)).ok_or("the size of an entry is no number")?,
        mode: u32::try_from(value(field(100, 8)).unwrap_or(0o644) & 0o7777).unwrap_or(0o644),
        modified: value(field(136, 12)).unwrap_or(0),
        kind: block.get(156).copied().unwrap_or_default(),
    }))
}

/// The records of a pax header that matter; `None` where it is malformed.
pub(super) fn pax_records(mut content: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut records = Vec::new();
    while !content.is_empty() {
        let space = content.iter().position(|byte| *byte == b' ')?;
        let (digits, _) = content.split_at(space);
        let length: usize = std::str::from_utf8(digits).ok()?.parse().ok()?;
        let record = content.get(space + 1..length)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|byte| *byte == b'=')?;
        records.push((record.get(..equals)?, record.get(equals + 1..)?));
        content = content.get(length..)?;
    }
    Some(records)
}

pub(super) fn until_nul(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A number field: octal digits among spaces and NULs (none is 0), or binary with the top bit set.
fn value(field: &[u8]) -> Option<u64> {
    if let Some((first, rest)) = field.split_first()
        && first & 0x80 != 0
    {
        // A negative number, or one over 63 bits, is no size.
        if *first != 0x80 {
            return None;
        }
        return rest.iter().try_fold(0_u64, |value, byte| Some(value.checked_mul(256)? + u64::from(*byte)));
    }
    let text = std::str::from_utf8(until_nul(field)).ok()?.trim();
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok().filter(|_| !text.starts_with('+')) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_survives_its_block() {
        for size in [0, 7, 0o77_777_777_777, 0o100_000_000_000, u64::MAX >> 1] {
            let header =
                Header { name: b"a/b".to_vec(), link: b"c".to_vec(), size, mode: 0o640, modified: 99, kind: b'0' };
            assert_eq!(parse(&block(&header)).unwrap(), Some(header));
        }
        assert_eq!(parse(&[0; BLOCK_BYTES]).unwrap(), None);
        assert!(parse(&[b'x'; BLOCK_BYTES]).is_err());
    }

    #[test]
    fn pax_records_are_split() {
        assert_eq!(pax_records(b"12 path=a/b\n11 size=12\n").unwrap().len(), 2);
        for wrong in [&b"12 path=a/b"[..], b"999 path=a\n", b"x path=a\n", b"3 a\n", b"0 \n", b"-1 a=b\n"] {
            assert!(pax_records(wrong).is_none(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn rubbish_is_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
            let mut block = [0; BLOCK_BYTES];
            for (slot, byte) in block.iter_mut().zip(&bytes) { *slot = *byte; }
            let _ = parse(&block);
            let _ = pax_records(&bytes);
            let _ = value(&bytes);
        }
    }
}
