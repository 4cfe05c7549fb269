//! Daemon and init (pid 1 of a cell).
//!
//! Init reports nothing by itself but the end of what it was asked to start. It outlives whatever the cell's
//! programs do: they cannot signal it with effect, trace it, or reach its socket.

use crate::packet::{DecodeError, PACKET_BYTES, from_signed, narrow, pack, signed, unpack};

/// The longest command that travels in the message itself; a longer one comes as a memfd.
pub const COMMAND_BYTES_MAX: usize = 96 * 1024;

/// What the daemon asks of init.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToInit<'a> {
    /// Start `shell -c command` in `/workspace` in a session of its own, stdin at end-of-file. Descriptors: the
    /// write ends of its fd 1 and fd 2 and, where `command` is empty, a memfd that holds the script, which is then
    /// started as `shell /proc/self/fd/N`. Answered by [`FromInit::Spawned`] or [`FromInit::SpawnFailed`], later by
    /// [`FromInit::Exited`].
    Spawn {
        /// The daemon's number for it.
        token: u64,
        /// The command, free of NUL; at most [`COMMAND_BYTES_MAX`].
        command: &'a [u8],
    },
    /// Send a signal to one process of the cell. Not answered; a process that is gone is no error.
    Signal {
        /// Process id in the cell; 0 and 1 are refused.
        pid: u32,
        /// The signal.
        signal: i32,
    },
    /// Send SIGINT, as a terminal does at ctrl-C, to a process and to those of its process group that started at or
    /// after `since_ticks`. Not answered; a process that is gone is no error.
    Interrupt {
        /// Process id in the cell; 0 and 1 are refused.
        pid: u32,
        /// As in [`ToInit::KillSince`].
        since_ticks: u64,
    },
    /// Kill every process that started at or after `since_ticks`, but init and `keep`, until none is left. Answered
    /// by [`FromInit::Killed`].
    KillSince {
        /// Comes back in the answer.
        token: u64,
        /// `starttime` of `proc(5)`'s stat: clock ticks (1/100 s) since boot. 0 is every process.
        since_ticks: u64,
        /// A process that is spared (the worker); 0 for none.
        keep: u32,
    },
}

/// What init says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromInit {
    /// The shell runs.
    Spawned {
        /// From the request.
        token: u64,
        /// Its process id in the cell.
        pid: u32,
    },
    /// The shell could not be started.
    SpawnFailed {
        /// From the request.
        token: u64,
        /// The kernel's error number.
        errno: i32,
    },
    /// The shell ended.
    Exited {
        /// From the request.
        token: u64,
        /// Its wait status as `wait(2)` gives it.
        status: i32,
        /// CPU time of it and of the children that it waited for, microseconds.
        cpu_us: u64,
    },
    /// The killing is done.
    Killed {
        /// From the request.
        token: u64,
        /// How many were killed.
        count: u32,
        /// Whether `keep` was killed as well, because the others forked faster than they could be killed.
        all: bool,
    },
}

impl<'a> ToInit<'a> {
    /// Appends the message to `bytes`.
    pub fn encode(self, bytes: &mut Vec<u8>) {
        match self {
            ToInit::Spawn { token, command } => {
                bytes.extend_from_slice(&pack(1, [token, command.len() as u64, 0, 0, 0, 0, 0]));
                bytes.extend_from_slice(command);
            }
            ToInit::Signal { pid, signal } => {
                bytes.extend_from_slice(&pack(2, [pid.into(), from_signed(signal), 0, 0, 0, 0, 0]));
            }
            ToInit::KillSince { token, since_ticks, keep } => {
                bytes.extend_from_slice(&pack(3, [token, since_ticks, keep.into(), 0, 0, 0, 0]));
            }
            ToInit::Interrupt { pid, since_ticks } => {
                bytes.extend_from_slice(&pack(4, [pid.into(), since_ticks, 0, 0, 0, 0, 0]));
            }
        }
    }

    /// The message in `bytes` (one whole packet of the socket).
    ///
    /// # Errors
    /// When they are no message of this link.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (head, rest) = bytes.split_at_checked(PACKET_BYTES).ok_or(DecodeError::Length)?;
        let (kind, f) = unpack(head)?;
        if kind != 1 && !rest.is_empty() {
            return Err(DecodeError::Length);
        }
        match kind {
            1 if f[1] != rest.len() as u64 || rest.len() > COMMAND_BYTES_MAX => Err(DecodeError::Length),
            1 if rest.contains(&0) => Err(DecodeError::Field),
            1 => Ok(ToInit::Spawn { token: f[0], command: rest }),
            2 => match narrow(f[0])? {
                0 | 1 => Err(DecodeError::Field),
                pid => Ok(ToInit::Signal { pid, signal: signed(f[1])? }),
            },
            3 => Ok(ToInit::KillSince { token: f[0], since_ticks: f[1], keep: narrow(f[2])? }),
            4 => match narrow(f[0])? {
                0 | 1 => Err(DecodeError::Field),
                pid => Ok(ToInit::Interrupt { pid, since_ticks: f[1] }),
            },
            _ => Err(DecodeError::Kind),
        }
    }
}

impl FromInit {
    /// The message as bytes.
    #[must_use]
    pub fn encode(self) -> [u8; PACKET_BYTES] {
        match self {
            FromInit::Spawned { token, pid } => pack(129, [token, pid.into(), 0, 0, 0, 0, 0]),
            FromInit::SpawnFailed { token, errno } => pack(130, [token, from_signed(errno), 0, 0, 0, 0, 0]),
            FromInit::Exited { token, status, cpu_us } => pack(131, [token, from_signed(status), cpu_us, 0, 0, 0, 0]),
            FromInit::Killed { token, count, all } => pack(132, [token, count.into(), all.into(), 0, 0, 0, 0]),
        }
    }

    /// The message in `bytes`.
    ///
    /// # Errors
    /// When they are no message of this link.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (kind, f) = unpack(bytes)?;
        Ok(match kind {
            129 => FromInit::Spawned { token: f[0], pid: narrow(f[1])? },
            130 => FromInit::SpawnFailed { token: f[0], errno: signed(f[1])? },
            131 => FromInit::Exited { token: f[0], status: signed(f[1])?, cpu_us: f[2] },
            132 => FromInit::Killed { token: f[0], count: narrow(f[1])?, all: f[2] != 0 },
            _ => return Err(DecodeError::Kind),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_their_bytes() {
        for message in [
            ToInit::Spawn { token: 1, command: b"echo hi" },
            ToInit::Spawn { token: 1, command: b"" },
            ToInit::Signal { pid: 2, signal: 9 },
            ToInit::KillSince { token: 3, since_ticks: 12345, keep: 2 },
            ToInit::Interrupt { pid: 7, since_ticks: 12345 },
        ] {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            assert_eq!(ToInit::decode(&bytes), Ok(message));
        }
        for message in [
            FromInit::Spawned { token: 1, pid: 5 },
            FromInit::SpawnFailed { token: 1, errno: 11 },
            FromInit::Exited { token: 1, status: 256, cpu_us: 17 },
            FromInit::Killed { token: 1, count: 3, all: true },
        ] {
            assert_eq!(FromInit::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn init_itself_is_no_target() {
        for message in [ToInit::Signal { pid: 1, signal: 9 }, ToInit::Interrupt { pid: 1, since_ticks: 0 }] {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            assert_eq!(ToInit::decode(&bytes), Err(DecodeError::Field));
        }
    }
}
