//! One record of usage. Its JSON is part of `docs/gate.md`; it holds no code, no output and no token.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::GateError;

/// What is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Lease,
    Call,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// A session was leased, or a program ran and succeeded.
    Ok,
    /// A program ran and failed.
    ProgramFailed,
    /// A program ran into a limit: its time, memory, processes, disk or CPU.
    LimitExceeded,
    /// The backend refused: the request was malformed, or the session was gone.
    Refused,
    /// No backend took it now; nothing ran.
    Unavailable,
    /// The backend's answer was none, broke off, came too late or broke the contract: it may have run.
    BackendFailed,
    /// The gate ended before the outcome was known: it may have run.
    Unknown,
}

/// A lease or a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// A UUID: the record's own idempotency key.
    pub(crate) id: String,
    pub(crate) kind: Kind,
    /// When it began, POSIX milliseconds.
    pub(crate) at_ms: u64,
    pub(crate) workspace: String,
    /// The grant's `jti`.
    pub(crate) grant: String,
    /// The backend's name; null where none was found.
    pub(crate) backend: Option<String>,
    /// The backend's id of the session; null where none was leased.
    pub(crate) session: Option<String>,
    /// The tool kind of a call.
    pub(crate) tool: Option<String>,
    /// From the request's body to the backend's answer, as the gate saw it; null where it saw no end.
    pub(crate) wall_ms: Option<u64>,
    /// The backend's figures, where it gives them.
    pub(crate) cpu_ms: Option<u64>,
    pub(crate) memory_peak_bytes: Option<u64>,
    pub(crate) stdout_bytes: Option<u64>,
    pub(crate) stderr_bytes: Option<u64>,
    pub(crate) outcome: Outcome,
    /// The status that the client got; null where it got none.
    pub(crate) status: Option<u16>,
}

/// A random UUID (version 4).
pub(crate) fn uuid() -> Result<String, GateError> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|_| GateError::Random)?;
    let number = u128::from_be_bytes(bytes) & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let digits = format!("{number:032x}");
    let mut text = String::with_capacity(36);
    for (place, digit) in digits.chars().enumerate() {
        if matches!(place, 8 | 12 | 16 | 20) {
            text.push('-');
        }
        // Writing to a String cannot fail.
        let _ = text.write_char(digit);
    }
    Ok(text)
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
