//! Daemon and worker: length-prefixed frames over a stream socket. The worker's side is Python.
//!
//! Header, 8 bytes (`struct` format `<IBBH`): u32 length of the payload, u8 version (1), u8 kind, u16 zero.
//!
//! | kind | direction | payload (`struct` format) |
//! | --- | --- | --- |
//! | 1 Run | to the worker | `<QIB3x`: nonce, call number (from 1), flags (bit 0: echo the last expression, bit 1: count the CPU time), then the source, UTF-8 |
//! | 129 Hello | to the daemon | `<IBB2x`: the worker's pid in the cell, Python's major and minor version |
//! | 130 Done | to the daemon | `<QiBB2xQ`: nonce of the call, return code, how it ended ([`Ended`]), hints ([`Hints`]), CPU time of the call in microseconds, 0 where it was not to be counted |
//!
//! User code can reach the socket and write anything: whatever is no Done frame with the nonce of the running call
//! is a protocol violation, and costs the session its interpreter.

use crate::packet::DecodeError;

/// Size of a frame's header.
pub const HEADER_BYTES: usize = 8;
/// The longest payload to a worker.
pub const TO_WORKER_BYTES_MAX: usize = 16 << 20;
/// The longest payload from a worker.
pub const FROM_WORKER_BYTES_MAX: usize = 256;
const VERSION: u8 = 1;
const RUN: u8 = 1;
const HELLO: u8 = 129;
const DONE: u8 = 130;
const RUN_HEAD_BYTES: usize = 16;

/// A call for the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run<'a> {
    /// Random, never zero; the answer must carry it.
    pub nonce: u64,
    /// Number of the call in its session, from 1 (`<cell 1>`).
    pub call: u32,
    /// Print the repr of a last expression.
    pub echo_last: bool,
    /// Count the CPU time of the call: what no cgroup counts.
    pub count_cpu: bool,
    /// The source.
    pub code: &'a str,
}

/// What a worker says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromWorker {
    /// It is locked down and serves.
    Hello {
        /// Its process id in the cell.
        pid: u32,
        /// Python's major and minor version.
        python: (u8, u8),
    },
    /// The call ended and its output is flushed.
    Done {
        /// The nonce of the call.
        nonce: u64,
        /// 0, 1 for an exception, or what the program gave to `sys.exit`.
        return_code: i32,
        /// How it ended.
        ended: Ended,
        /// What an uncaught exception hints at.
        hints: Hints,
        /// CPU time of the worker during the call, microseconds, by its own account; 0 where it was not to count.
        cpu_us: u64,
    },
}

/// How a call ended, by the worker's account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It ran to its end.
    Returned,
    /// An exception was not caught.
    Raised,
    /// `SystemExit`.
    Exited,
    /// `KeyboardInterrupt` was not caught.
    Interrupted,
}

/// What the uncaught exception was, as bits; a hint for naming a limit, never evidence by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hints(pub u8);

impl Hints {
    /// `MemoryError`, or `OSError` with ENOMEM.
    pub const MEMORY: u8 = 1;
    /// `OSError` with ENOSPC or EDQUOT.
    pub const DISK: u8 = 2;
    /// `OSError` with EAGAIN from a fork, or "can't start new thread".
    pub const PROCESSES: u8 = 4;
}

/// Appends a Run frame to `bytes`.
///
/// # Errors
/// When the source is longer than a frame may be.
pub fn encode_run(run: Run<'_>, bytes: &mut Vec<u8>) -> Result<(), DecodeError> {
    let length = RUN_HEAD_BYTES + run.code.len();
    if length > TO_WORKER_BYTES_MAX {
        return Err(DecodeError::Length);
    }
    bytes.reserve(HEADER_BYTES + length);
    bytes.extend_from_slice(&(length as u32).to_le_bytes());
    bytes.extend_from_slice(&[VERSION, RUN, 0, 0]);
    bytes.extend_from_slice(&run.nonce.to_le_bytes());
    bytes.extend_from_slice(&run.call.to_le_bytes());
    bytes.extend_from_slice(&[u8::from(run.echo_last) | u8::from(run.count_cpu) << 1, 0, 0, 0]);
    bytes.extend_from_slice(run.code.as_bytes());
    Ok(())
}

/// Takes one frame off the front of `bytes`: the frame and how many bytes it took, or `None` while it is incomplete.
///
/// # Errors
/// When the bytes cannot become a frame of this link.
pub fn decode_from_worker(bytes: &[u8]) -> Result<Option<(FromWorker, usize)>, DecodeError> {
    let Some((head, rest)) = bytes.split_at_checked(HEADER_BYTES) else { return Ok(None) };
    let [l0, l1, l2, l3, version, kind, z0, z1] = *head else { return Err(DecodeError::Length) };
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if version != VERSION || z0 != 0 || z1 != 0 {
        return Err(DecodeError::Version);
    }
    if length > FROM_WORKER_BYTES_MAX {
        return Err(DecodeError::Length);
    }
    let Some(payload) = rest.get(..length) else { return Ok(None) };
    let message = match kind {
        HELLO => decode_hello(payload)?,
        DONE => decode_done(payload)?,
        _ => return Err(DecodeError::Kind),
    };
    Ok(Some((message, HEADER_BYTES + length)))
}

fn decode_hello(payload: &[u8]) -> Result<FromWorker, DecodeError> {
    let &[p0, p1, p2, p3, major, minor, _, _] = payload else { return Err(DecodeError::Length) };
    Ok(FromWorker::Hello { pid: u32::from_le_bytes([p0, p1, p2, p3]), python: (major, minor) })
}

fn decode_done(payload: &[u8]) -> Result<FromWorker, DecodeError> {
    let (nonce, rest) = payload.split_first_chunk::<8>().ok_or(DecodeError::Length)?;
    let (code, rest) = rest.split_first_chunk::<4>().ok_or(DecodeError::Length)?;
    let &[ended, hints, _, _, ref cpu_us @ ..] = rest else { return Err(DecodeError::Length) };
    let cpu_us: [u8; 8] = cpu_us.try_into().map_err(|_| DecodeError::Length)?;
    Ok(FromWorker::Done {
        nonce: u64::from_le_bytes(*nonce),
        return_code: i32::from_le_bytes(*code),
        ended: match ended {
            0 => Ended::Returned,
            1 => Ended::Raised,
            2 => Ended::Exited,
            3 => Ended::Interrupted,
            _ => return Err(DecodeError::Field),
        },
        hints: Hints(hints),
        cpu_us: u64::from_le_bytes(cpu_us),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done_bytes() -> Vec<u8> {
        let mut bytes = vec![24, 0, 0, 0, VERSION, DONE, 0, 0];
        bytes.extend_from_slice(&77u64.to_le_bytes());
        bytes.extend_from_slice(&(-2i32).to_le_bytes());
        bytes.extend_from_slice(&[1, 2, 0, 0]);
        bytes.extend_from_slice(&1234u64.to_le_bytes());
        bytes
    }

    #[test]
    fn a_done_frame_is_read() {
        let bytes = done_bytes();
        let done = FromWorker::Done {
            nonce: 77,
            return_code: -2,
            ended: Ended::Raised,
            hints: Hints(Hints::DISK),
            cpu_us: 1234,
        };
        assert_eq!(decode_from_worker(&bytes), Ok(Some((done, bytes.len()))));
    }

    #[test]
    fn a_part_of_a_frame_is_waited_for() {
        let bytes = done_bytes();
        for end in 0..bytes.len() {
            assert_eq!(decode_from_worker(&bytes[..end]), Ok(None), "{end}");
        }
    }

    #[test]
    fn rubbish_is_refused() {
        assert!(decode_from_worker(&[0xff; 4096]).is_err());
        let mut wrong = done_bytes();
        wrong[0] = 23;
        assert_eq!(decode_from_worker(&wrong), Err(DecodeError::Length));
    }

    #[test]
    fn a_run_frame_has_its_documented_layout() {
        let mut bytes = Vec::new();
        encode_run(Run { nonce: 1, call: 2, echo_last: true, count_cpu: false, code: "x" }, &mut bytes).unwrap();
        assert_eq!(bytes, [17, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, b'x']);
    }
}
