//! One line of the spool: `CRC32 B|E JSON`, the CRC over what follows it.

use std::io::{self, BufRead, Read, Write};

use ringfence_usage::Record;

use crate::limits::RECORD_BYTES_MAX;

/// What a line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// It begins.
    Begin,
    /// It ended: the record is whole.
    End,
}

/// Writes a line; `None` where the record is too long for one.
pub(super) fn write(mark: Mark, record: &Record) -> Option<Vec<u8>> {
    let letter = match mark {
        Mark::Begin => 'B',
        Mark::End => 'E',
    };
    // The CRC comes first and is known last.
    let mut line = Vec::with_capacity(512);
    write!(line, "{:08x} {letter} ", 0).ok()?;
    serde_json::to_writer(&mut line, record).ok()?;
    let (crc, text) = line.split_at_mut_checked(9)?;
    let mut crc = crc;
    write!(crc, "{:08x}", crc32fast::hash(text)).ok()?;
    line.push(b'\n');
    (line.len() <= RECORD_BYTES_MAX).then_some(line)
}

/// Reads a line without its newline; `None` where it is torn or damaged.
pub(super) fn read(line: &[u8]) -> Option<(Mark, Record)> {
    let (crc, text) = line.split_at_checked(9)?;
    let crc = u32::from_str_radix(std::str::from_utf8(crc).ok()?.strip_suffix(' ')?, 16).ok()?;
    if crc32fast::hash(text) != crc {
        return None;
    }
    let (mark, json) = text.split_at_checked(2)?;
    let mark = match mark {
        b"B " => Mark::Begin,
        b"E " => Mark::End,
        _ => return None,
    };
    Some((mark, serde_json::from_slice(json).ok()?))
}

/// A line of a file: its bytes with the newline, and what it says.
pub(super) struct Line {
    pub(super) bytes: u64,
    /// `None` for a torn or damaged line.
    pub(super) says: Option<(Mark, Record)>,
}

/// The next line, whatever its length; `None` at the end.
pub(super) fn next(reader: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let bytes = reader.by_ref().take(RECORD_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
    if bytes == 0 {
        return Ok(None);
    }
    // A longer one than any is damage: it is read as several damaged ones.
    let says = line.strip_suffix(b"\n").and_then(read);
    Ok(Some(Line { bytes: bytes as u64, says }))
}

#[cfg(test)]
mod tests {
    use ringfence_usage::{Kind, Outcome};

    use super::*;

    fn record() -> Record {
        Record {
            id: "0b1c5b2e-7d0c-4d0e-9a57-6f0f5f3f2b11".to_owned(),
            kind: Kind::Call,
            at_ms: 1,
            workspace: "a".to_owned(),
            grant: "g".to_owned(),
            backend: Some("b".to_owned()),
            session: None,
            tool: Some("code_execution".to_owned()),
            wall_ms: Some(5),
            cpu_ms: None,
            memory_peak_bytes: None,
            stdout_bytes: Some(2),
            stderr_bytes: Some(0),
            outcome: Outcome::Ok,
            status: Some(200),
        }
    }

    #[test]
    fn a_line_survives_and_a_damaged_one_is_told() {
        let line = write(Mark::End, &record()).unwrap();
        let (text, newline) = line.split_at(line.len() - 1);
        assert_eq!((read(text), newline), (Some((Mark::End, record())), &b"\n"[..]));
        for cut in 0..text.len() {
            assert_eq!(read(&text[..cut]), None, "{cut}");
        }
        for at in 0..text.len() {
            let mut damaged = text.to_vec();
            damaged[at] ^= 1;
            assert!(read(&damaged).is_none_or(|said| said == (Mark::End, record())), "{at}");
        }
    }

    #[test]
    fn torn_and_endless_lines_are_stepped_over() {
        let good = write(Mark::Begin, &record()).unwrap();
        let file = [&good[..], b"torn", b"\n", &b"x".repeat(10_000), b"\n", &good[..], &good[..20]].concat();
        let mut reader = io::BufReader::new(&file[..]);
        let (mut whole, mut damaged, mut bytes) = (0, 0, 0);
        while let Some(line) = next(&mut reader).unwrap() {
            bytes += line.bytes;
            if line.says.is_some() { whole += 1 } else { damaged += 1 }
        }
        assert_eq!((whole, bytes), (2, file.len() as u64));
        assert!(damaged >= 3, "{damaged}");
    }

    #[test]
    fn a_record_of_the_longest_parts_fits() {
        let mut long = record();
        long.workspace = "w".repeat(64);
        long.grant = "g".repeat(64);
        long.backend = Some("b".repeat(63 + 1 + 47));
        long.session = Some("s".repeat(128));
        long.tool = Some("t".repeat(64));
        (long.wall_ms, long.cpu_ms, long.memory_peak_bytes) = (Some(u64::MAX), Some(u64::MAX), Some(u64::MAX));
        (long.stdout_bytes, long.stderr_bytes) = (Some(u64::MAX), Some(u64::MAX));
        assert!(write(Mark::End, &long).is_some());
    }
}
