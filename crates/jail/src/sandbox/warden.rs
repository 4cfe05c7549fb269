//! The outer process: it waits for the keeper's end, and ends, unmounts and removes whatever that one has left.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ringfence_sys::namespace::{self, Namespaces};
use ringfence_sys::process::{self, Child, Single, wait_for};
use ringfence_sys::signal;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};

use super::keeper::Keeper;
use crate::cgroup::{self, Layout};
use crate::config::KeeperConfig;
use crate::failure::{At, SetupFailure};
use crate::flat::{Place, Who, end_all, fork_keeper, remove_folder};
use crate::limits::SANDBOXES_SHARE_OF_TASKS;
use crate::step::StepName;

/// What is left to tidy up after the keeper.
struct Left {
    keeper: Child,
    root: PathBuf,
    layout: Option<Layout>,
    /// Its other end tells the keeper that this process lives.
    _life: OwnedFd,
}

/// Starts the keeper and waits for its end. The process must have one thread.
pub(crate) fn watch(socket: OwnedFd, config: KeeperConfig) -> Result<ExitCode, SetupFailure> {
    let started = start(&socket, config).inspect_err(|failure| failure.send(socket.as_fd()));
    // Now only the keeper holds this end: should it die, the daemon sees the end of the link at once.
    drop(socket);
    let left = started?;
    let ended = wait_for(left.keeper.pid);
    end_all();
    unmount_below(&left.root);
    // The keeper has removed it, where it could.
    let _ = remove_folder(&left.root);
    remove_groups(left.layout.as_ref());
    Ok(match ended {
        Ok(ended) if ended.status == 0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn start(socket: &OwnedFd, config: KeeperConfig) -> Result<Left, SetupFailure> {
    let nothing = String::new;
    signal::default_all();
    signal::block_all().at(StepName::KeeperSelf, nothing)?;
    let single = Single::claim().at(StepName::OneThread, nothing)?;
    let who = Who::find(config.id_base)?;
    if who.sessions.is_none() {
        let detail = "gVisor's sandboxes are started by root".to_owned();
        return Err(SetupFailure { step: StepName::FleetIds, errno: libc::EPERM, detail });
    }
    process::adopt_orphans().at(StepName::KeeperSelf, nothing)?;
    own_mounts().at(StepName::KeeperRoot, || "mounts of the keeper's own".to_owned())?;
    let place = Place::make_for_root(&config.state_dir, who)?;
    let root = place.root.clone();
    let layout = if config.cgroups {
        cgroup::sweep();
        let name = cgroup::subtree_name().at(StepName::KeeperSelf, nothing)?;
        cgroup::prepare(&name, None)
    } else {
        None
    };
    if let Some(layout) = &layout {
        let bounded = tasks_of_all().and_then(|tasks| cgroup::bound_tasks(layout, tasks));
        let bounded = bounded.at(StepName::MakeCgroup, || "tasks of all sandboxes".to_owned());
        bounded.inspect_err(|_| remove_groups(Some(layout)))?;
    }
    let make = |life| Keeper::new(config, who, place, layout.as_ref(), life);
    let forked = fork_keeper(&single, socket, make, Keeper::serve);
    let (keeper, life) = forked.inspect_err(|_| remove_groups(layout.as_ref()))?;
    Ok(Left { keeper, root, layout, _life: life })
}

/// Whatever is mounted from here on is seen by this process and its descendants alone, and goes with the last of them.
fn own_mounts() -> io::Result<()> {
    namespace::unshare(Namespaces::MOUNT)?;
    Ok(mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?)
}

/// How many tasks of the host all sandboxes may have together.
fn tasks_of_all() -> io::Result<u64> {
    share_of_tasks(&fs::read_to_string("/proc/sys/kernel/pid_max")?)
}

fn share_of_tasks(pid_max: &str) -> io::Result<u64> {
    let all: u64 = pid_max.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(all / SANDBOXES_SHARE_OF_TASKS)
}

/// Takes away whatever is mounted in a folder of ours, the last first.
pub(super) fn unmount_below(root: &Path) {
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return };
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(unescaped);
    let ours: Vec<PathBuf> = places.filter(|place| place.starts_with(root)).collect();
    for place in ours.iter().rev() {
        let _ = unmount(place, UnmountFlags::DETACH);
    }
}

/// A path of `mountinfo`, where spaces and the like are written as `\040`.
fn unescaped(text: &str) -> PathBuf {
    let mut path = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        path.push_str(before);
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.push(code.map_or('\\', char::from));
        rest = if code.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    path.push_str(rest);
    PathBuf::from(path)
}

fn remove_groups(layout: Option<&Layout>) {
    for folder in layout.iter().flat_map(|layout| &layout.folders) {
        cgroup::remove_subtree(&folder.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_hosts_tasks_are_not_for_sandboxes() {
        assert_eq!(share_of_tasks("32768\n").unwrap(), 16_384);
        assert_eq!(share_of_tasks("4194304\n").unwrap(), 2_097_152);
        assert!(share_of_tasks("many\n").is_err());
    }

    #[test]
    fn places_of_mounts_are_read_as_the_kernel_writes_them() {
        assert_eq!(unescaped("/a/b"), Path::new("/a/b"));
        assert_eq!(unescaped(r"/a\040b\134c\x"), Path::new(r"/a b\c\x"));
    }
}
