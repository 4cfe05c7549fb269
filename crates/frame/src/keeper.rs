//! Daemon and keeper.

use crate::packet::{DecodeError, PACKET_BYTES, from_signed, narrow, pack, signed, unpack};

/// What the daemon asks of the keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToKeeper {
    /// Make a cell of image `image` (an index into the keeper's configuration), whose interpreters are forked from zygotes
    /// of the set `set`, which is started if it does not run. Answered by [`FromKeeper::CellMade`] or
    /// [`FromKeeper::CellFailed`].
    MakeCell {
        /// The daemon's number for it; one that lives is refused.
        cell: u64,
        /// Index of the image.
        image: u32,
        /// The daemon's number for the set. A set is of one image as long as it runs; another one is refused.
        set: u32,
    },
    /// Fork an interpreter from the zygote of the cell's set into the cell. Descriptors: the worker's end of its frame
    /// socket, the write end of its fd 1, the write end of its fd 2. Answered by [`FromKeeper::WorkerStarted`] or
    /// [`FromKeeper::WorkerFailed`].
    SpawnWorker {
        /// Which cell.
        cell: u64,
    },
    /// Kill everything in the cell, take it down, forget it. Answered by [`FromKeeper::CellGone`] once nothing is
    /// left; a cell that is not there is answered the same way.
    DestroyCell {
        /// Which cell.
        cell: u64,
    },
    /// End the set's zygote as soon as no cell of the set lives, and forget the set; it is started again when a cell of it
    /// is asked for. Not answered.
    RestZygote {
        /// Which set.
        set: u32,
    },
    /// Start another zygote of the set beside the one that forks, which ends once the new one has taken over.
    /// Answered by [`FromKeeper::ZygoteReady`] or [`FromKeeper::ZygoteNotRenewed`]; not at all where the set's
    /// zygote is told to rest meanwhile.
    RenewZygote {
        /// Which set.
        set: u32,
    },
}

/// What the keeper says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromKeeper {
    /// First message after start. Descriptors: the fleet's user namespace, which the daemon enters; the folder that
    /// holds the roots of the images.
    Ready {
        /// The daemon's own user and group id inside the fleet's namespace; equal to 0 where the fleet has one id only.
        daemon_id: u32,
        /// How memory, processes and CPU are limited.
        limiter: Limiter,
        /// Whether each cell has a user id that no other session has.
        id_per_cell: bool,
    },
    /// The keeper could not set itself up, and exits.
    SetupFailed {
        /// Which of the keeper's steps failed (`jail` names them).
        step: u32,
        /// The kernel's error number.
        errno: i32,
    },
    /// The cell is up and its init waits. Descriptors: init's control socket (daemon end), the directory
    /// `/workspace`, then a read-only meter for each bit that is set in `meters`, in the order of the bits.
    CellMade {
        /// Which cell.
        cell: u64,
        /// The owner of the workspace's files, an id in the fleet's namespace (user and group alike).
        owner_id: u32,
        /// Which meters come along: bits of [`Meters`].
        meters: Meters,
    },
    /// The cell could not be made; nothing of it is left.
    CellFailed {
        /// Which cell.
        cell: u64,
        /// Which step failed (`jail` names them).
        step: u32,
        /// The kernel's error number.
        errno: i32,
    },
    /// The worker was forked. It says `Hello` on its own socket when it is locked down and serves.
    WorkerStarted {
        /// Which cell.
        cell: u64,
        /// The worker's process id in the keeper's pid namespace, to match [`FromKeeper::WorkerDied`].
        pid: u32,
        /// The zygote whose address layout it has, as [`FromKeeper::ZygoteReady`] numbers them.
        zygote: u32,
        /// How often that zygote had forked, this time counted in.
        forks: u32,
    },
    /// The worker could not be forked.
    WorkerFailed {
        /// Which cell.
        cell: u64,
        /// The kernel's error number, 0 where the reason is that there is no such cell or no zygote.
        errno: i32,
    },
    /// A worker ended.
    WorkerDied {
        /// Which cell.
        cell: u64,
        /// As in [`FromKeeper::WorkerStarted`].
        pid: u32,
        /// Its wait status as `wait(2)` gives it.
        status: i32,
    },
    /// The cell's init ended though nobody asked: all of its processes are dead, its workspace is gone.
    CellDied {
        /// Which cell.
        cell: u64,
        /// Init's wait status.
        status: i32,
    },
    /// The cell is gone: no process, mount or cgroup of it is left.
    CellGone {
        /// Which cell.
        cell: u64,
    },
    /// From here on this zygote forks the set's interpreters: the first, one after a death, or one that was asked for.
    ZygoteReady {
        /// Which set.
        set: u32,
        /// Its number: greater than that of every zygote before it, whatever its set.
        zygote: u32,
    },
    /// The zygote that was asked for did not come up; the one before it, if there is one, goes on.
    ZygoteNotRenewed {
        /// Which set.
        set: u32,
        /// The kernel's error number; 0 where it ended by itself, or took too long.
        errno: i32,
    },
}

/// How memory, processes and CPU of a cell are limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limiter {
    /// cgroup v2.
    CgroupV2,
    /// cgroup v1 (memory, pids, cpu hierarchies).
    CgroupV1,
    /// No cgroup can be written: rlimits of each process.
    Rlimits,
}

/// Which read-only meter files of a cell's cgroup come along, as bits.
///
/// | bit | v1 file | v2 file |
/// | --- | --- | --- |
/// | [`Meters::CPU`] | `cpuacct.usage` (nanoseconds) | `cpu.stat` (`usage_usec N`) |
/// | [`Meters::MEMORY_PEAK`] | `memory.max_usage_in_bytes` | `memory.peak` |
/// | [`Meters::MEMORY_EVENTS`] | `memory.oom_control` (`oom_kill N`) | `memory.events` (`oom_kill N`) |
/// | [`Meters::PROCESS_EVENTS`] | `pids.events` (`max N`) | `pids.events` (`max N`) |
/// | [`Meters::PROCESS_COUNT`] | `pids.current` | `pids.current` |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meters(pub u8);

impl Meters {
    /// CPU time used.
    pub const CPU: u8 = 1;
    /// Highest memory so far.
    pub const MEMORY_PEAK: u8 = 2;
    /// Out-of-memory kills.
    pub const MEMORY_EVENTS: u8 = 4;
    /// Forks refused.
    pub const PROCESS_EVENTS: u8 = 8;
    /// Processes and threads now.
    pub const PROCESS_COUNT: u8 = 16;
}

impl ToKeeper {
    /// The message as bytes.
    #[must_use]
    pub fn encode(self) -> [u8; PACKET_BYTES] {
        match self {
            ToKeeper::MakeCell { cell, image, set } => pack(1, [cell, image.into(), set.into(), 0, 0, 0, 0]),
            ToKeeper::SpawnWorker { cell } => pack(2, [cell, 0, 0, 0, 0, 0, 0]),
            ToKeeper::DestroyCell { cell } => pack(3, [cell, 0, 0, 0, 0, 0, 0]),
            ToKeeper::RestZygote { set } => pack(4, [set.into(), 0, 0, 0, 0, 0, 0]),
            ToKeeper::RenewZygote { set } => pack(5, [set.into(), 0, 0, 0, 0, 0, 0]),
        }
    }

    /// The message in `bytes`.
    ///
    /// # Errors
    /// When they are no message of this link.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (kind, f) = unpack(bytes)?;
        match kind {
            1 => Ok(ToKeeper::MakeCell { cell: f[0], image: narrow(f[1])?, set: narrow(f[2])? }),
            2 => Ok(ToKeeper::SpawnWorker { cell: f[0] }),
            3 => Ok(ToKeeper::DestroyCell { cell: f[0] }),
            4 => Ok(ToKeeper::RestZygote { set: narrow(f[0])? }),
            5 => Ok(ToKeeper::RenewZygote { set: narrow(f[0])? }),
            _ => Err(DecodeError::Kind),
        }
    }
}

impl FromKeeper {
    /// The message as bytes.
    #[must_use]
    pub fn encode(self) -> [u8; PACKET_BYTES] {
        match self {
            FromKeeper::Ready { daemon_id, limiter, id_per_cell } => {
                let limiter = match limiter {
                    Limiter::CgroupV2 => 2,
                    Limiter::CgroupV1 => 1,
                    Limiter::Rlimits => 0,
                };
                pack(129, [daemon_id.into(), limiter, id_per_cell.into(), 0, 0, 0, 0])
            }
            FromKeeper::SetupFailed { step, errno } => pack(130, [step.into(), from_signed(errno), 0, 0, 0, 0, 0]),
            FromKeeper::CellMade { cell, owner_id, meters } => {
                pack(131, [cell, owner_id.into(), meters.0.into(), 0, 0, 0, 0])
            }
            FromKeeper::CellFailed { cell, step, errno } => {
                pack(132, [cell, step.into(), from_signed(errno), 0, 0, 0, 0])
            }
            FromKeeper::WorkerStarted { cell, pid, zygote, forks } => {
                pack(133, [cell, pid.into(), zygote.into(), forks.into(), 0, 0, 0])
            }
            FromKeeper::WorkerFailed { cell, errno } => pack(134, [cell, from_signed(errno), 0, 0, 0, 0, 0]),
            FromKeeper::WorkerDied { cell, pid, status } => {
                pack(135, [cell, pid.into(), from_signed(status), 0, 0, 0, 0])
            }
            FromKeeper::CellDied { cell, status } => pack(136, [cell, from_signed(status), 0, 0, 0, 0, 0]),
            FromKeeper::CellGone { cell } => pack(137, [cell, 0, 0, 0, 0, 0, 0]),
            FromKeeper::ZygoteReady { set, zygote } => pack(138, [set.into(), zygote.into(), 0, 0, 0, 0, 0]),
            FromKeeper::ZygoteNotRenewed { set, errno } => pack(139, [set.into(), from_signed(errno), 0, 0, 0, 0, 0]),
        }
    }

    /// The message in `bytes`.
    ///
    /// # Errors
    /// When they are no message of this link.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (kind, f) = unpack(bytes)?;
        Ok(match kind {
            129 => FromKeeper::Ready {
                daemon_id: narrow(f[0])?,
                limiter: match f[1] {
                    2 => Limiter::CgroupV2,
                    1 => Limiter::CgroupV1,
                    0 => Limiter::Rlimits,
                    _ => return Err(DecodeError::Field),
                },
                id_per_cell: f[2] != 0,
            },
            130 => FromKeeper::SetupFailed { step: narrow(f[0])?, errno: signed(f[1])? },
            131 => FromKeeper::CellMade {
                cell: f[0],
                owner_id: narrow(f[1])?,
                meters: Meters(u8::try_from(f[2]).map_err(|_| DecodeError::Field)?),
            },
            132 => FromKeeper::CellFailed { cell: f[0], step: narrow(f[1])?, errno: signed(f[2])? },
            133 => FromKeeper::WorkerStarted {
                cell: f[0],
                pid: narrow(f[1])?,
                zygote: narrow(f[2])?,
                forks: narrow(f[3])?,
            },
            134 => FromKeeper::WorkerFailed { cell: f[0], errno: signed(f[1])? },
            135 => FromKeeper::WorkerDied { cell: f[0], pid: narrow(f[1])?, status: signed(f[2])? },
            136 => FromKeeper::CellDied { cell: f[0], status: signed(f[1])? },
            137 => FromKeeper::CellGone { cell: f[0] },
            138 => FromKeeper::ZygoteReady { set: narrow(f[0])?, zygote: narrow(f[1])? },
            139 => FromKeeper::ZygoteNotRenewed { set: narrow(f[0])?, errno: signed(f[1])? },
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
            ToKeeper::MakeCell { cell: 7, image: 3, set: 5 },
            ToKeeper::SpawnWorker { cell: u64::MAX },
            ToKeeper::DestroyCell { cell: 0 },
            ToKeeper::RestZygote { set: 2 },
            ToKeeper::RenewZygote { set: 1 },
        ] {
            assert_eq!(ToKeeper::decode(&message.encode()), Ok(message));
        }
        for message in [
            FromKeeper::Ready { daemon_id: 65533, limiter: Limiter::CgroupV1, id_per_cell: true },
            FromKeeper::SetupFailed { step: 4, errno: 1 },
            FromKeeper::CellMade { cell: 1, owner_id: 9, meters: Meters(31) },
            FromKeeper::CellFailed { cell: 1, step: 2, errno: -3 },
            FromKeeper::WorkerStarted { cell: 1, pid: 2, zygote: 3, forks: 4 },
            FromKeeper::WorkerFailed { cell: 1, errno: 11 },
            FromKeeper::WorkerDied { cell: 1, pid: 2, status: 9 },
            FromKeeper::CellDied { cell: 1, status: 9 },
            FromKeeper::CellGone { cell: 1 },
            FromKeeper::ZygoteReady { set: 1, zygote: 2 },
            FromKeeper::ZygoteNotRenewed { set: 1, errno: 12 },
        ] {
            assert_eq!(FromKeeper::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        assert_eq!(ToKeeper::decode(&[]), Err(DecodeError::Length));
        assert_eq!(ToKeeper::decode(&[0; PACKET_BYTES]), Err(DecodeError::Version));
        assert_eq!(ToKeeper::decode(&pack(77, [0; 7])), Err(DecodeError::Kind));
        assert_eq!(ToKeeper::decode(&pack(1, [0, u64::MAX, 0, 0, 0, 0, 0])), Err(DecodeError::Field));
    }
}
