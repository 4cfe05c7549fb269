//! Ids and times of usage records. Their shape is the room `usage`'s.

use std::time::{SystemTime, UNIX_EPOCH};

use ringfence_op::random_bytes;

use crate::error::GateError;

/// A random UUID (version 4).
pub(crate) fn uuid() -> Result<String, GateError> {
    let bytes: [u8; 16] = random_bytes().map_err(|_| GateError::Random)?;
    let number = u128::from_be_bytes(bytes) & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let digits = |from: u32, count: u32| (number >> (4 * (32 - from - count))) & ((1 << (4 * count)) - 1);
    Ok(format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        digits(0, 8),
        digits(8, 4),
        digits(12, 4),
        digits(16, 4),
        digits(20, 12)
    ))
}

/// POSIX milliseconds; 0 for a clock before 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_of_version_4_and_differ() {
        let (one, other) = (uuid().unwrap(), uuid().unwrap());
        assert_ne!(one, other);
        let parts: Vec<usize> = one.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(&one[14..15], "4");
        assert!(matches!(&one[19..20], "8" | "9" | "a" | "b"), "{one}");
    }
}
