//! One block of a tar archive, and the numbers in it.

/// Everything in a tar archive comes in blocks of this size.
pub(super) const BLOCK_BYTES: usize = 512;
const NAME_BYTES: usize = 100;

/// A header block, parsed.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub(super) name: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) kind: u8,
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) modified: i64,
    pub(super) device: (u64, u64),
    /// As it came, for a sparse file's map.
    pub(super) block: [u8; BLOCK_BYTES],
}

impl Header {
    /// `Ok(None)` is the block of zeros that ends an archive.
    pub(super) fn parse(block: &[u8; BLOCK_BYTES]) -> Result<Option<Self>, &'static str> {
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if !sums_up(block) {
            return Err("it is no tar archive, or it is damaged");
        }
        // The prefix is ustar's only: GNU has other fields there.
        let posix = field(block, 257, 6) == b"ustar\0";
        let (name, prefix) = (until_nul(field(block, 0, NAME_BYTES)), until_nul(field(block, 345, 155)));
        let name = if posix && !prefix.is_empty() { [prefix, b"/", name].concat() } else { name.to_vec() };
        let size = unsigned(field(block, 124, 12)).ok_or("the size of an entry is no number, or negative")?;
        if size > i64::MAX as u64 - BLOCK_BYTES as u64 {
            return Err("the size of an entry is out of range");
        }
        let id = |at| unsigned(field(block, at, 8)).ok_or("an owner is no number");
        Ok(Some(Header {
            name,
            link: until_nul(field(block, 157, NAME_BYTES)).to_vec(),
            kind: block.get(156).copied().unwrap_or_default(),
            size,
            mode: u32::try_from(unsigned(field(block, 100, 8)).ok_or("a mode is no number")? & 0o7777).unwrap_or(0),
            uid: id(108)?,
            gid: id(116)?,
            modified: signed(field(block, 136, 12)).ok_or("a time is no number")?,
            // Only looked at for devices; what old programs leave there for others is no number at all.
            device: (
                unsigned(field(block, 329, 8)).unwrap_or(u64::MAX),
                unsigned(field(block, 337, 8)).unwrap_or(u64::MAX),
            ),
            block: *block,
        }))
    }
}

fn sums_up(block: &[u8; BLOCK_BYTES]) -> bool {
    let Some(stated) = signed(field(block, 148, 8)) else { return false };
    let (mut unsigned, mut signed) = (0_i64, 0_i64);
    for (at, byte) in block.iter().enumerate() {
        let byte = if (148..156).contains(&at) { b' ' } else { *byte };
        unsigned += i64::from(byte);
        signed += i64::from(byte.cast_signed());
    }
    // Some old programs summed signed bytes (tar(5)).
    stated == unsigned || stated == signed
}

pub(super) fn field(block: &[u8; BLOCK_BYTES], at: usize, length: usize) -> &[u8] {
    block.get(at..at + length).unwrap_or_default()
}

pub(super) fn until_nul(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A number field that may not be negative.
pub(super) fn unsigned(field: &[u8]) -> Option<u64> {
    u64::try_from(signed(field)?).ok()
}

/// A number field: octal digits among spaces and NULs (none is 0), or binary, two's complement, with the top bit set
/// (GNU). `None` over 63 bits.
fn signed(field: &[u8]) -> Option<i64> {
    let (first, rest) = field.split_first()?;
    if first & 0x80 == 0 {
        let text = std::str::from_utf8(until_nul(field)).ok()?.trim_matches(' ');
        return match text {
            "" => Some(0),
            text if text.bytes().all(|byte| byte.is_ascii_digit()) => i64::from_str_radix(text, 8).ok(),
            _ => None,
        };
    }
    let start = i64::from(first & 0x7f) - if first & 0x40 == 0 { 0 } else { 0x80 };
    rest.iter().try_fold(start, |value, byte| value.checked_mul(256)?.checked_add(i64::from(*byte)))
}

/// The records of a pax header in their order; `None` where it is malformed.
pub(super) fn pax_records(mut content: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut records = Vec::new();
    while !content.is_empty() {
        let space = content.iter().position(|byte| *byte == b' ')?;
        let length = usize::try_from(decimal(content.get(..space)?)?).ok()?;
        let record = content.get(space + 1..length)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|byte| *byte == b'=')?;
        records.push((record.get(..equals)?, record.get(equals + 1..)?));
        content = content.get(length..)?;
    }
    Some(records)
}

/// Decimal digits alone, at most 63 bits.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|value| digits && i64::try_from(*value).is_ok_and(|value| value < i64::MAX - 512))
}

/// A pax time: decimal seconds, maybe negative, maybe with a fraction.
pub(super) fn time(text: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(text).ok()?;
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds = i64::try_from(decimal(whole.as_bytes())?).ok()?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    Some(match (negative, nanos) {
        (false, nanos) => (seconds, nanos),
        (true, 0) => (-seconds, 0),
        (true, nanos) => (-seconds - 1, 1_000_000_000 - nanos),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_read_as_tar_writes_them() {
        for (field, value) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"\0\0\0\0", Some(0)),
            (b"00000000001x", None),
            (b"-1\0", None),
            (b"+1\0", None),
            (b"8\0", None),
            (b"\x80\0\0\0\0\0\0\x01\0\0\0\0", Some(1 << 32)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", Some(-1)),
            (b"\x80\0\0\x01\0\0\0\0\0\0\0\0", None),
            (b"\x80\0\0\0\x80\0\0\0\0\0\0\0", None),
        ] {
            assert_eq!(signed(field), value, "{field:?}");
        }
        assert_eq!(unsigned(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), None);
    }

    #[test]
    fn times_and_records_are_read() {
        assert_eq!(time(b"12"), Some((12, 0)));
        assert_eq!(time(b"12.5"), Some((12, 500_000_000)));
        assert_eq!(time(b"-1.25"), Some((-2, 750_000_000)));
        assert_eq!(time(b"1.0000000019"), Some((1, 1)));
        for wrong in [&b""[..], b".5", b"1.x", b"--1", b"1e3", b"99999999999999999999"] {
            assert_eq!(time(wrong), None, "{wrong:?}");
        }
        assert_eq!(pax_records(b"12 path=a/b\n11 size=12\n").unwrap().len(), 2);
        for wrong in
            [&b"12 path=a/b"[..], b"999 path=a\n", b"x path=a\n", b"3 a\n", b"0 \n", b"-1 a=b\n", b"+9 a=bcd\n"]
        {
            assert!(pax_records(wrong).is_none(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn rubbish_is_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..1024)) {
            let mut block = [0; BLOCK_BYTES];
            for (slot, byte) in block.iter_mut().zip(&bytes) { *slot = *byte; }
            let sum: u64 = block.iter().enumerate().map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u64::from(*byte) }).sum();
            for (slot, byte) in block.iter_mut().skip(148).zip(format!("{sum:06o}\0 ").bytes()) { *slot = byte; }
            let _ = Header::parse(&block);
            let _ = (pax_records(&bytes), signed(&bytes), decimal(&bytes), time(&bytes));
        }
    }
}
