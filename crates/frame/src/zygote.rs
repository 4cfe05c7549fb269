//! Keeper and zygote. The zygote's side is Python (`struct` format `<BB6x7Q`).

use crate::packet::{DecodeError, PACKET_BYTES, from_signed, narrow, pack, signed, unpack};

/// What the keeper asks of a zygote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToZygote {
    /// Fork once into the cell. Descriptors, in this order: a pidfd of the cell's init (its namespaces are entered
    /// by `setns(2)`), the worker's frame socket, its fd 1, its fd 2, then `cgroups` descriptors of `cgroup.procs`
    /// (or v1 `tasks`) files: the child writes `0` to each before it lets go of anything.
    Fork {
        /// Which cell; comes back in the answers.
        cell: u64,
        /// How many cgroup descriptors come along, 0 to 8.
        cgroups: u32,
        /// The user and group id to become inside the cell.
        id: u32,
    },
}

/// What a zygote says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromZygote {
    /// The preloads are imported, collected and frozen; it can fork.
    Ready,
    /// The child was forked.
    Forked {
        /// Which cell.
        cell: u64,
        /// Its process id as the zygote sees it.
        pid: u32,
    },
    /// The fork (or entering the pid namespace before it) failed.
    ForkFailed {
        /// Which cell.
        cell: u64,
        /// The kernel's error number.
        errno: i32,
    },
    /// A child ended, and has been waited for.
    Died {
        /// Its process id as the zygote sees it.
        pid: u32,
        /// Its wait status as `wait(2)` gives it.
        status: i32,
    },
}

impl ToZygote {
    /// The message as bytes: kind 1, fields cell, cgroups, id.
    #[must_use]
    pub fn encode(self) -> [u8; PACKET_BYTES] {
        match self {
            ToZygote::Fork { cell, cgroups, id } => pack(1, [cell, cgroups.into(), id.into(), 0, 0, 0, 0]),
        }
    }
}

impl FromZygote {
    /// The message as bytes: kind 129 Ready; 130 Forked cell, pid; 131 ForkFailed cell, errno; 132 Died pid, status
    /// (errno and status as unsigned 32-bit).
    #[must_use]
    pub fn encode(self) -> [u8; PACKET_BYTES] {
        match self {
            FromZygote::Ready => pack(129, [0; 7]),
            FromZygote::Forked { cell, pid } => pack(130, [cell, pid.into(), 0, 0, 0, 0, 0]),
            FromZygote::ForkFailed { cell, errno } => pack(131, [cell, from_signed(errno), 0, 0, 0, 0, 0]),
            FromZygote::Died { pid, status } => pack(132, [pid.into(), from_signed(status), 0, 0, 0, 0, 0]),
        }
    }

    /// The message in `bytes`.
    ///
    /// # Errors
    /// When they are no message of this link.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (kind, f) = unpack(bytes)?;
        Ok(match kind {
            129 => FromZygote::Ready,
            130 => FromZygote::Forked { cell: f[0], pid: narrow(f[1])? },
            131 => FromZygote::ForkFailed { cell: f[0], errno: signed(f[1])? },
            132 => FromZygote::Died { pid: narrow(f[0])?, status: signed(f[1])? },
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
            FromZygote::Ready,
            FromZygote::Forked { cell: 5, pid: 6 },
            FromZygote::ForkFailed { cell: 5, errno: 11 },
            FromZygote::Died { pid: 6, status: 9 },
        ] {
            assert_eq!(FromZygote::decode(&message.encode()), Ok(message));
        }
    }
}
