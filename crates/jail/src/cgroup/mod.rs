//! cgroups: one group for each cell, in a subtree of our own, under v1 and v2 alike.
//!
//! The outer process makes the subtree `ringfence-PID-STARTTIME` ([`prepare`]) and gives it to the fleet's root id;
//! the keeper works in it through descriptors ([`Groups`]), since its own mounts show no cgroup file system. In the
//! subtree lie `keeper`, where the keeper and the zygotes live, and one folder for each cell. The outer process removes
//! the whole when the keeper has ended; what even that process could not remove, because it was killed itself, is
//! removed by the next start ([`sweep`]).

mod discover;
mod groups;
mod sweep;
mod v1;
mod v2;

use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use ringfence_op::CellLimits;
use serde::{Deserialize, Serialize};

pub(crate) use groups::{Groups, enter};
pub(crate) use sweep::{remove_subtree, subtree_name, sweep};

/// Which interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Version {
    V1,
    V2,
}

/// What a hierarchy accounts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Controller {
    Memory,
    Pids,
    Cpu,
    /// `cpuacct`, of v1 alone.
    CpuAccounting,
}

/// The subtree that is ours, in each hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layout {
    pub(crate) version: Version,
    pub(crate) folders: Vec<Folder>,
}

/// Our folder in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) controllers: Vec<Controller>,
}

/// A value for a control file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    file: &'static str,
    value: String,
    /// A kernel without the file still holds the cell.
    optional: bool,
}

impl Setting {
    fn must(file: &'static str, value: impl ToString) -> Setting {
        Setting { file, value: value.to_string(), optional: false }
    }

    fn may(file: &'static str, value: impl ToString) -> Setting {
        Setting { file, value: value.to_string(), optional: true }
    }
}

/// The folder of the keeper and the zygotes.
const KEEPER: &str = "keeper";

/// Makes the subtree where this process may, v2 first; `None` where there is no place for it.
pub(crate) fn prepare(name: &str, owner: Option<u32>) -> Option<Layout> {
    let mounts = discover::mounts(&fs::read_to_string("/proc/self/mountinfo").ok()?);
    let own = discover::own(&fs::read_to_string("/proc/self/cgroup").ok()?);
    v2::prepare(&mounts, &own, name, owner).or_else(|| v1::prepare(&mounts, &own, name, owner))
}

/// Puts the process into the keeper's folder of each hierarchy.
pub(crate) fn enter_keeper(layout: &Layout, pid: u32) -> io::Result<()> {
    layout
        .folders
        .iter()
        .try_for_each(|folder| fs::write(folder.path.join(KEEPER).join("cgroup.procs"), pid.to_string()))
}

/// Bounds the tasks of all groups of the subtree together.
pub(crate) fn bound_tasks(layout: &Layout, tasks: u64) -> io::Result<()> {
    let mut folders = layout.folders.iter().filter(|folder| folder.controllers.contains(&Controller::Pids));
    folders.try_for_each(|folder| fs::write(folder.path.join("pids.max"), tasks.to_string()))
}

/// The values that hold a cell to its limits, for a hierarchy with these controllers.
fn settings(version: Version, controllers: &[Controller], limits: &CellLimits) -> Vec<Setting> {
    let of = match version {
        Version::V1 => v1::settings,
        Version::V2 => v2::settings,
    };
    controllers.iter().flat_map(|controller| of(*controller, limits)).collect()
}

/// Microseconds of CPU time in one period.
fn quota_us(limits: &CellLimits) -> u64 {
    /// The kernel's least quota.
    const QUOTA_US_MIN: u64 = 1000;
    (limits.cpu_millis.saturating_mul(crate::limits::CPU_PERIOD_US) / 1000).max(QUOTA_US_MIN)
}

/// Makes `folder` and, in it, the keeper's; both are given to `owner` with what is needed to make groups in them.
fn make_folder(folder: &Path, owner: Option<u32>) -> io::Result<()> {
    fs::create_dir(folder)?;
    let keeper = folder.join(KEEPER);
    let result = fs::create_dir(&keeper).and_then(|()| {
        let Some(owner) = owner else { return Ok(()) };
        for folder in [folder, &keeper] {
            chown(folder, Some(owner), Some(owner))?;
            for file in ["cgroup.procs", "tasks", "cgroup.threads", "cgroup.subtree_control"] {
                match chown(folder.join(file), Some(owner), Some(owner)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    });
    if result.is_err() {
        remove_subtree(folder);
    }
    result
}
