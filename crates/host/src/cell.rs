//! Whether the tier `cell` can be had: a keeper is started as a server would, makes one empty cell, and ends.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Instant;

use ringfence_frame::keeper::{FromKeeper, Limiter, ToKeeper};
use ringfence_jail::{JailError, KeeperConfig, Launched, StepName, launch_program, recv, send};
use ringfence_op::RootSpec;
use ringfence_sys::process::wait_for;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use crate::attempt::Tried;
use crate::facts::Facts;
use crate::limits::TRIAL_WAIT_MAX;
use crate::report;
use crate::tier::Missing;

/// How the trial went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CellTrial {
    /// Nobody has tried.
    #[default]
    Untried,
    /// A cell was made and taken down again.
    Works {
        /// What limits memory, processes and CPU.
        limits: Limits,
        /// Whether each session has a user id of the host that no other has.
        id_per_session: bool,
    },
    /// It ended with this.
    Failed(Missing),
}

/// What limits memory, processes and CPU of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Limits {
    /// cgroup v2.
    #[serde(rename = "cgroup v2")]
    CgroupV2,
    /// cgroup v1.
    #[serde(rename = "cgroup v1")]
    CgroupV1,
    /// rlimits of each process: no cgroup can be written.
    #[serde(rename = "rlimits")]
    Rlimits,
}

impl Limits {
    /// For a person.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Limits::CgroupV2 => "cgroup v2",
            Limits::CgroupV1 => "cgroup v1",
            Limits::Rlimits => "rlimits",
        }
    }
}

/// What the tier `cell` misses here.
pub(crate) fn missing(facts: &Facts) -> Result<(), Vec<Missing>> {
    match &facts.cell {
        CellTrial::Works { .. } => Ok(()),
        CellTrial::Untried => Err(vec![Missing::new("nobody has tried to make a cell", "run `ringfence doctor`")]),
        // Without user namespaces there are no cells, whichever step it was that noticed.
        CellTrial::Failed(missing) => Err(vec![match facts.namespaces.user {
            Tried::Refused(errno) => Missing::new(
                format!("no user namespace can be made: {}", missing.what),
                report::lift_user_namespaces(facts, errno),
            ),
            _ => missing.clone(),
        }]),
    }
}

/// Starts `program keeper` as [`launch_program`] does, and makes one cell without an image.
pub(crate) fn try_it(program: &Path, id_base: u32) -> CellTrial {
    let mut config = KeeperConfig::new(vec![RootSpec::empty("trial")], String::new(), String::new(), "/".into());
    config.id_base = id_base;
    match launch_program(&config, program) {
        Ok(launched) => {
            let made = make_one(&launched);
            let limits = match launched.limiter {
                Limiter::CgroupV2 => Limits::CgroupV2,
                Limiter::CgroupV1 => Limits::CgroupV1,
                Limiter::Rlimits => Limits::Rlimits,
            };
            let id_per_session = launched.id_per_cell;
            let Launched { socket, pid, .. } = launched;
            // The keeper ends with its socket, and takes the cell along.
            drop(socket);
            let ended = wait_for(pid);
            match made.and_then(|()| ended.map(drop).map_err(JailError::Link)) {
                Ok(()) => CellTrial::Works { limits, id_per_session },
                Err(error) => CellTrial::Failed(because(&error)),
            }
        }
        Err(error) => CellTrial::Failed(because(&error)),
    }
}

fn make_one(launched: &Launched) -> Result<(), JailError> {
    let socket = launched.socket.as_fd();
    send(socket, ToKeeper::MakeCell { cell: 1, image: 0, set: 0 }, &[]).map_err(JailError::Link)?;
    let deadline = Instant::now() + TRIAL_WAIT_MAX;
    loop {
        match recv(socket) {
            Ok(Some((FromKeeper::CellMade { .. }, _))) => return Ok(()),
            Ok(Some((FromKeeper::CellFailed { step, errno, .. }, _))) => {
                let step = StepName::from_number(step).unwrap_or(StepName::Answer);
                let source = io::Error::from_raw_os_error(errno);
                return Err(JailError::Setup { step, detail: String::new(), source });
            }
            Ok(Some(_)) => {}
            Ok(None) => return Err(JailError::Link(io::ErrorKind::UnexpectedEof.into())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(JailError::Slow { seconds: TRIAL_WAIT_MAX.as_secs() });
                }
                let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
                match poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], Some(&timeout)) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(JailError::Link(error.into())),
                }
            }
            Err(error) => return Err(JailError::Link(error)),
        }
    }
}

/// The failure in words: what, and what lifts it.
fn because(error: &JailError) -> Missing {
    let what = match error {
        JailError::Setup { step, source, detail } if detail.is_empty() => format!("cannot {step} ({source})"),
        JailError::Setup { step, source, detail } => format!("cannot {step} ({detail}: {source})"),
        other => other.to_string(),
    };
    let known = error.advice();
    Missing::new(what, known.unwrap_or("not known; what the keeper printed stands on standard error"))
}
