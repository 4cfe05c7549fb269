//! cgroup v1: a hierarchy for each controller.

use std::fs;
use std::path::Path;

use ringfence_op::CellLimits;

use super::discover::{Mount, Own};
use super::{Controller, Folder, Layout, Setting, Version, make_folder, quota_us, remove_subtree};
use crate::limits::CPU_PERIOD_US;

const CONTROLLERS: [(&str, Controller, bool); 4] = [
    ("memory", Controller::Memory, true),
    ("pids", Controller::Pids, true),
    ("cpu", Controller::Cpu, true),
    ("cpuacct", Controller::CpuAccounting, false),
];

/// Makes our folder under this process's own group in each hierarchy that is needed, so that the limits that lie on
/// the server hold its cells too.
pub(super) fn prepare(mounts: &[Mount], own: &[Own], name: &str, owner: Option<u32>) -> Option<Layout> {
    let mut folders: Vec<Folder> = Vec::new();
    for (controller_name, controller, needed) in CONTROLLERS {
        let made =
            mounts.iter().find(|mount| mount.version == Version::V1 && mount.has(controller_name)).and_then(|mount| {
                let group = own.iter().find(|own| own.controllers.iter().any(|name| name == controller_name))?;
                add(&mut folders, &mount.folder(&group.path).join(name), controller, owner)
            });
        if made.is_none() && needed {
            for folder in &folders {
                remove_subtree(&folder.path);
            }
            return None;
        }
    }
    Some(Layout { version: Version::V1, folders })
}

fn add(folders: &mut Vec<Folder>, path: &Path, controller: Controller, owner: Option<u32>) -> Option<()> {
    // Hierarchies with several controllers are met once for each; links such as `cpu -> cpu,cpuacct` are followed.
    let parent = fs::canonicalize(path.parent()?).ok()?;
    let path = parent.join(path.file_name()?);
    if let Some(folder) = folders.iter_mut().find(|folder| folder.path == path) {
        folder.controllers.push(controller);
        return Some(());
    }
    make_folder(&path, owner).ok()?;
    folders.push(Folder { path, controllers: vec![controller] });
    Some(())
}

pub(super) fn settings(controller: Controller, limits: &CellLimits) -> Vec<Setting> {
    match controller {
        Controller::Memory => vec![
            Setting::must("memory.limit_in_bytes", limits.memory_bytes),
            // Memory and swap together; where swap is not accounted, it is not used.
            Setting::may("memory.memsw.limit_in_bytes", limits.memory_bytes),
            Setting::may("memory.swappiness", 0),
        ],
        // Init is one more.
        Controller::Pids => vec![Setting::must("pids.max", limits.processes.saturating_add(1))],
        Controller::Cpu => {
            vec![Setting::must("cpu.cfs_period_us", CPU_PERIOD_US), Setting::must("cpu.cfs_quota_us", quota_us(limits))]
        }
        Controller::CpuAccounting => Vec::new(),
    }
}
