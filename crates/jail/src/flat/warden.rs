//! The keeper's outer process where sessions have no namespaces: it waits for the keeper's end, and ends and removes
//! whatever that one has left.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_op::Tier;
use ringfence_sys::namespace::Namespaces;
use ringfence_sys::process::{self, Child, Forked, Single, wait_for};
use ringfence_sys::{caps, signal};
use rustix::pipe::{PipeFlags, pipe_with};

use super::guards::kill_orphans;
use super::ids::Who;
use super::keeper::Keeper;
use super::place::Place;
use super::{remains, rules, trash};
use crate::config::KeeperConfig;
use crate::failure::{At, SetupFailure};
use crate::limits::ORPHAN_ROUNDS_MAX;
use crate::step::StepName;

/// Starts the keeper and waits for its end. The process must have one thread.
pub(crate) fn watch(socket: OwnedFd, config: KeeperConfig) -> Result<ExitCode, SetupFailure> {
    let started = start(&socket, config).inspect_err(|failure| failure.send(socket.as_fd()));
    // Now only the keeper holds this end: should it die, the daemon sees the end of the link at once.
    drop(socket);
    let (keeper, root, who, _life) = started?;
    let ended = wait_for(keeper.pid);
    end_all();
    if let Some(ids) = who.sessions {
        remains::remove_shared_memory_of_all(&root, ids);
    }
    // The keeper has removed it, where it could.
    let _ = trash::remove(&root);
    Ok(match ended {
        Ok(ended) if ended.status == 0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// The keeper, the folder of its sessions, who they are, and the pipe whose end tells it that this process is gone.
fn start(socket: &OwnedFd, config: KeeperConfig) -> Result<(Child, PathBuf, Who, OwnedFd), SetupFailure> {
    let nothing = String::new;
    signal::default_all();
    signal::block_all().at(StepName::KeeperSelf, nothing)?;
    let single = Single::claim().at(StepName::OneThread, nothing)?;
    if config.tier == Tier::Confined {
        rules::check_floor()?;
    }
    let who = Who::find(config.id_base)?;
    process::adopt_orphans().at(StepName::KeeperSelf, nothing)?;
    let powers = who.capabilities();
    if powers != 0 {
        caps::bound(powers).at(StepName::BoundCapabilities, nothing)?;
    }
    caps::keep(powers).at(StepName::DropCapabilities, nothing)?;
    let place = Place::make(&config.state_dir, who)?;
    let root = place.root.clone();
    let (keeper, life) = fork_keeper(&single, socket, |life| Keeper::new(config, who, place, life), Keeper::serve)?;
    Ok((keeper, root, who, life))
}

/// Forks the keeper, and has it made and run there: the process, and the end of a pipe by which it sees that this one
/// lives.
pub(crate) fn fork_keeper<K>(
    single: &Single,
    socket: &OwnedFd,
    make: impl FnOnce(OwnedFd) -> Result<K, SetupFailure>,
    serve: impl FnOnce(&mut K, OwnedFd) -> Result<(), SetupFailure>,
) -> Result<(Child, OwnedFd), SetupFailure> {
    let nothing = String::new;
    rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::CLOEXEC).at(StepName::KeeperSelf, nothing)?;
    let (life, life_of_warden) = pipe_with(PipeFlags::CLOEXEC).at(StepName::KeeperSelf, nothing)?;
    match process::fork(single, Namespaces::NONE).at(StepName::CloneKeeper, nothing)? {
        Forked::Child => {
            drop(life_of_warden);
            let Ok(socket) = socket.try_clone() else { process::exit_now(1) };
            let failed = match make(life) {
                Ok(mut keeper) => serve(&mut keeper, socket).is_err(),
                Err(failure) => {
                    failure.send(socket.as_fd());
                    true
                }
            };
            process::exit_now(i32::from(failed))
        }
        Forked::Parent(keeper) => Ok((keeper, life_of_warden)),
    }
}

/// Guards end their sessions when the keeper is gone; what is left then, of guards that were killed too, has come to
/// this process.
pub(crate) fn end_all() {
    for _ in 0..ORPHAN_ROUNDS_MAX {
        while let Ok(Some(_)) = process::reap_any() {}
        if !kill_orphans(&HashSet::new()) {
            return;
        }
        std::thread::sleep(crate::limits::CGROUP_REMOVE_PAUSE);
    }
}
