//! Starting the keeper from the daemon.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Instant;

use ringfence_frame::keeper::{FromKeeper, Limiter};
use ringfence_op::Tier;
use ringfence_sys::process::{Strings, wait_for};
use ringfence_sys::spawn::{Spawn, spawn};
use ringfence_sys::{packet, signal};

use crate::config::{KeeperConfig, Stage, write_stage};
use crate::error::JailError;
use crate::failure::setup_error;
use crate::limits::READY_WAIT_MAX;
use crate::link::recv;
use crate::plan::c_string;
use crate::wait::readable;

/// A keeper that is ready.
#[derive(Debug)]
pub struct Launched {
    /// The daemon's end of the link: SEQPACKET, non-blocking. Closing it ends the keeper and every cell.
    pub socket: OwnedFd,
    /// The fleet's user namespace, for [`crate::enter_fleet`]; without namespaces, the folder of all sessions.
    pub fleet: OwnedFd,
    /// The folder that holds the roots of the images, for [`crate::confine`]; there is none without namespaces.
    pub roots: Option<OwnedFd>,
    /// How sessions are held.
    pub tier: Tier,
    /// The daemon's user and group id inside the fleet.
    pub daemon_id: u32,
    /// How memory, processes and CPU are limited.
    pub limiter: Limiter,
    /// Whether each cell has a user id that no other session has.
    pub id_per_cell: bool,
    /// The process that was started: a child of this one, which ends when the keeper has.
    pub pid: u32,
}

/// Starts this program again as `keeper SOCKET CONFIG` and waits until the keeper and its zygotes are ready.
///
/// The new process has an empty environment, `/dev/null` as its input, and this process's error output.
///
/// # Errors
/// What is missing on this host, in words for the operator; the keeper is then gone.
pub fn launch(config: &KeeperConfig) -> Result<Launched, JailError> {
    launch_program(config, Path::new("/proc/self/exe"))
}

/// As [`launch`], with the keeper's end of the link to the process that pulls images; `config.pulled` says from where.
///
/// # Errors
/// As [`launch`].
pub fn launch_with_puller(config: &KeeperConfig, puller: OwnedFd) -> Result<Launched, JailError> {
    start_and_wait(config, Path::new("/proc/self/exe"), Some(puller))
}

/// As [`launch`], with another program that hands its `keeper` subcommand to [`crate::keeper_main`].
///
/// # Errors
/// As [`launch`].
pub fn launch_program(config: &KeeperConfig, program: &Path) -> Result<Launched, JailError> {
    start_and_wait(config, program, None)
}

fn start_and_wait(config: &KeeperConfig, program: &Path, puller: Option<OwnedFd>) -> Result<Launched, JailError> {
    let start = |source| JailError::Start { program: program.display().to_string(), source };
    let (ours, theirs) = packet::pair().map_err(start)?;
    let stage = write_stage(&Stage::Warden(config.clone())).map_err(start)?;
    let null: OwnedFd = File::open("/dev/null").map_err(start)?.into();
    let path = c_string(program).map_err(|error| start(error.into()))?;
    let given = [Some(theirs), Some(stage), puller];
    let pid = start_keeper(&path, &null, given.into_iter().flatten().collect()).map_err(start)?;
    let result = wait_ready(ours, pid, config.tier);
    if result.is_err() {
        // It ends by itself when the socket closes; this is for one that hangs.
        let _ = signal::send(pid.cast_signed(), libc::SIGKILL);
        let _ = wait_for(pid);
    }
    result
}

/// `given` are its descriptors from 3 on: the daemon's socket, the configuration, perhaps the puller's socket.
fn start_keeper(path: &CStr, null: &OwnedFd, given: Vec<OwnedFd>) -> io::Result<u32> {
    let words = [c"ringfence", c"keeper", c"3", c"4"];
    let arguments = Strings::new(words.into_iter().map(CString::from).collect());
    let environment = Strings::new(ringfence_weaken::environment());
    let errors = io::stderr();
    let first = [null.as_fd(), errors.as_fd(), errors.as_fd()];
    let fds: Vec<BorrowedFd<'_>> = first.into_iter().chain(given.iter().map(AsFd::as_fd)).collect();
    spawn(&Spawn { path, arguments: &arguments, environment: &environment, fds: &fds, directory: None })
}

fn wait_ready(socket: OwnedFd, pid: u32, tier: Tier) -> Result<Launched, JailError> {
    let deadline = Instant::now() + READY_WAIT_MAX;
    loop {
        match recv(socket.as_fd()) {
            Ok(Some((FromKeeper::Ready { daemon_id, limiter, id_per_cell }, fds))) => {
                let mut fds = fds.into_iter();
                let fleet = fds.next().ok_or(JailError::Link(io::ErrorKind::InvalidData.into()))?;
                let roots = fds.next();
                if roots.is_none() && tier == Tier::Cell {
                    return Err(JailError::Link(io::ErrorKind::InvalidData.into()));
                }
                return Ok(Launched { socket, fleet, roots, tier, daemon_id, limiter, id_per_cell, pid });
            }
            Ok(Some((FromKeeper::SetupFailed { step, errno }, fds))) => return Err(setup_error(step, errno, fds)),
            Ok(Some(_)) => return Err(JailError::Link(io::ErrorKind::InvalidData.into())),
            Ok(None) => {
                let status = wait_for(pid).map_err(JailError::Link)?.status;
                return Err(JailError::Died { status: ExitStatus::from_raw(status) });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(JailError::Link(error)),
        }
        if !readable(&socket, deadline).map_err(JailError::Link)? {
            return Err(JailError::Slow { seconds: READY_WAIT_MAX.as_secs() });
        }
    }
}
