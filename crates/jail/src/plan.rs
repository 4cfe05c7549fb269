//! The plan of a cell and of a zygote: what the child does between clone and its own life, as data. Pure.
//!
//! The order matters and is explained in `keeper`'s theory of operation.

use std::ffi::{CStr, CString, NulError};
use std::path::{Path, PathBuf};

use ringfence_op::{CellLimits, RootSpec, RootSymlink};
use ringfence_sys::limit::ResourceLimit;
use ringfence_weaken::{Mitigation, holds};
use rustix::mount::MountFlags;

use crate::confine::OF_A_ZYGOTE;
use crate::limits::{
    INOTIFY_INSTANCES_MAX, INOTIFY_WATCHES_MAX, LOCKED_BYTES_MAX, MESSAGE_QUEUE_BYTES_MAX, SIGNALS_PENDING_MAX,
};

/// The user and group of a cell's processes, as they see themselves.
pub(crate) const CELL_ID: u32 = 1000;
/// The host name of every cell.
pub(crate) const HOST_NAME: &str = "sandbox";
/// Inodes of `/dev/shm`.
const SHM_INODES: u64 = 16_384;
/// Bytes of a zygote's own `/tmp` and `/dev/shm`, each.
const ZYGOTE_TMP_BYTES: u64 = 64 << 20;

/// One thing that the child does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    EnterCgroups,
    CgroupNamespace,
    HostName,
    Loopback,
    ChangeFolder(CString),
    Mount {
        kind: &'static CStr,
        target: &'static CStr,
        flags: MountFlags,
        data: CString,
    },
    /// `/dev/null` over a file of `/proc`.
    Mask(CString),
    /// A folder that everybody may write to.
    SharedFolder(CString),
    Link {
        target: CString,
        link: CString,
    },
    InitProc,
    Pivot,
    LeaveOldRoot,
    /// Instead of both, where `pivot_root` is forbidden: the new root lies over the old one.
    Cover,
    LeaveGroups,
    BecomeGroup(u32),
    BecomeUser(u32),
    Dumpable(bool),
    UserNamespace,
    /// A line for uid_map and gid_map alike.
    CellMap(CString),
    Descriptors,
    /// Writes this number to a file of init's own `/proc`; a kernel without the file counts nothing.
    KernelCount(&'static CStr, &'static CStr),
    ResourceLimit(ResourceLimit),
    BoundCapabilities,
    DropCapabilities,
    /// Keeps these alone, in the bounding set too.
    KeepCapabilities(u64),
    NoNewPrivileges,
    LoadFilter,
}

/// What a cell's plan depends on.
pub(crate) struct CellFacts<'a> {
    /// Where the keeper holds the image's root.
    pub(crate) root: &'a Path,
    pub(crate) spec: &'a RootSpec,
    pub(crate) limits: &'a CellLimits,
    /// The cell's id in the fleet.
    pub(crate) owner_id: u32,
    /// The fleet has one id only, and supplementary groups cannot be left.
    pub(crate) single_id: bool,
    /// The cell has cgroups; without, rlimits have to do.
    pub(crate) cgroups: bool,
    /// Files of `/proc` (relative to it) that exist here and are masked.
    pub(crate) masks: &'a [String],
    pub(crate) way: Way,
}

/// How the old root is left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It is exchanged for the new one and unmounted.
    Pivot,
    /// The new one is put over it. What lies below can be reached by nobody who may not unmount.
    Cover,
}

impl Way {
    fn steps(self) -> &'static [Step] {
        match self {
            Way::Pivot => &[Step::Pivot, Step::LeaveOldRoot],
            Way::Cover => &[Step::Cover],
        }
    }
}

/// The steps of a cell's init.
pub(crate) fn cell(facts: &CellFacts<'_>) -> Result<Vec<Step>, NulError> {
    let mut steps = Vec::new();
    if facts.cgroups {
        // First of all: a v1 group is entered with the id that opened its door.
        steps.push(Step::EnterCgroups);
    }
    steps.extend([Step::CgroupNamespace, Step::HostName, Step::Loopback, Step::ChangeFolder(c_string(facts.root)?)]);
    steps.extend(cell_mounts(facts)?);
    steps.extend(tmp_links(&facts.spec.tmp_symlinks)?);
    steps.extend_from_slice(facts.way.steps());
    if !facts.single_id {
        steps.push(Step::LeaveGroups);
    }
    steps.extend([
        Step::BecomeGroup(facts.owner_id),
        // From here on the fleet's capabilities are gone (where the id is not the fleet's root); those over the new
        // user namespace last until they are dropped below.
        Step::BecomeUser(facts.owner_id),
        // The change of ids took the right to write one's own map away.
        Step::Dumpable(true),
        Step::UserNamespace,
        Step::CellMap(CString::new(format!("{CELL_ID} {} 1", facts.owner_id))?),
        // The kernel counts these for the user of the host who made the fleet, whatever the id in the cell: a cell
        // that took them all would leave none to other cells, nor to the host.
        Step::KernelCount(c"sys/user/max_inotify_instances", INOTIFY_INSTANCES_MAX),
        Step::KernelCount(c"sys/user/max_inotify_watches", INOTIFY_WATCHES_MAX),
        Step::Descriptors,
    ]);
    steps.extend(resource_limits(facts.limits, facts.cgroups).into_iter().map(Step::ResourceLimit));
    steps.extend([
        Step::BoundCapabilities,
        Step::DropCapabilities,
        Step::NoNewPrivileges,
        Step::Dumpable(false),
        Step::LoadFilter,
    ]);
    steps.retain(is_kept);
    Ok(steps)
}

/// Every step, but in a build for proofs.
fn is_kept(step: &Step) -> bool {
    match step {
        Step::EnterCgroups => holds(Mitigation::CommandsInTheCgroup),
        Step::CgroupNamespace => holds(Mitigation::CgroupNamespace),
        Step::Mask(_) => holds(Mitigation::MaskedProc),
        Step::LeaveGroups => holds(Mitigation::GroupsLeftByCells),
        Step::UserNamespace | Step::CellMap(_) => holds(Mitigation::UserNamespace),
        Step::KernelCount(_, most) if *most == INOTIFY_INSTANCES_MAX => holds(Mitigation::InotifyInstances),
        Step::KernelCount(..) => holds(Mitigation::InotifyWatches),
        Step::BoundCapabilities => holds(Mitigation::BoundingSetOfCommands),
        Step::DropCapabilities => holds(Mitigation::CapabilitiesOfInit),
        Step::KeepCapabilities(_) => holds(Mitigation::CapabilitiesOfZygotes),
        Step::NoNewPrivileges => holds(Mitigation::NoNewPrivilegesOfCells),
        Step::Dumpable(false) => holds(Mitigation::InitNotDumpable),
        Step::LoadFilter => holds(Mitigation::FilterOfCommands),
        _ => true,
    }
}

fn cell_mounts(facts: &CellFacts<'_>) -> Result<Vec<Step>, NulError> {
    let limits = facts.limits;
    let owner = facts.owner_id;
    // The kernel takes 0 for no bound.
    let bound = |mitigation, most| if holds(mitigation) { most } else { 0 };
    let workspace = format!(
        "mode=0755,uid={owner},gid={owner},size={},nr_inodes={}",
        bound(Mitigation::WorkspaceBytes, limits.workspace_bytes),
        bound(Mitigation::WorkspaceInodes, limits.workspace_inodes)
    );
    let (tmp, shm) =
        (bound(Mitigation::TemporaryBytes, limits.tmp_bytes), bound(Mitigation::TemporaryBytes, limits.shm_bytes));
    let unless = |mitigation, flag| if holds(mitigation) { flag } else { MountFlags::empty() };
    let no_set_user_id = unless(Mitigation::NoSetUserId, MountFlags::NOSUID);
    let plain = no_set_user_id | unless(Mitigation::NoDeviceFiles, MountFlags::NODEV);
    let inert = plain | unless(Mitigation::NoProgramsInSharedMemory, MountFlags::NOEXEC);
    let read_only = unless(Mitigation::ReadOnlyProc, MountFlags::RDONLY);
    let mut steps = vec![
        mount(c"tmpfs", c"workspace", plain, workspace)?,
        mount(c"tmpfs", c"tmp", plain, shared_tmp(tmp, limits.workspace_inodes))?,
        mount(c"tmpfs", c"dev/shm", inert, shared_tmp(shm, SHM_INODES))?,
        mount(c"devpts", c"dev/pts", no_set_user_id | MountFlags::NOEXEC, "newinstance,ptmxmode=0666,mode=0600")?,
        // Init keeps a /proc of its own, which can be written; the cell's cannot.
        Step::InitProc,
        mount(c"proc", c"proc", inert | read_only, "")?,
    ];
    for mask in facts.masks {
        steps.push(Step::Mask(CString::new(format!("proc/{mask}"))?));
    }
    Ok(steps)
}

/// The steps of a zygote, up to its exec.
pub(crate) fn zygote(root: &Path, spec: &RootSpec, way: Way) -> Result<Vec<Step>, NulError> {
    let plain = MountFlags::NOSUID | MountFlags::NODEV;
    let mut steps = vec![
        Step::ChangeFolder(c_string(root)?),
        mount(c"tmpfs", c"tmp", plain, shared_tmp(ZYGOTE_TMP_BYTES, SHM_INODES))?,
        mount(c"tmpfs", c"dev/shm", plain, shared_tmp(ZYGOTE_TMP_BYTES, SHM_INODES))?,
        mount(c"proc", c"proc", plain | MountFlags::NOEXEC, "")?,
    ];
    steps.extend(tmp_links(&spec.tmp_symlinks)?);
    steps.extend_from_slice(way.steps());
    steps.extend([Step::Descriptors, Step::KeepCapabilities(OF_A_ZYGOTE)]);
    steps.retain(is_kept);
    Ok(steps)
}

/// Limits of every process of a cell; memory and processes only where no cgroup holds them.
pub(crate) fn resource_limits(limits: &CellLimits, cgroups: bool) -> Vec<ResourceLimit> {
    let limit = |resource, value| ResourceLimit { resource, soft: value, hard: value };
    let mut list = vec![
        limit(libc::RLIMIT_CORE, 0),
        limit(libc::RLIMIT_NOFILE, limits.open_files),
        // Counted for the cell, but also for the user of the host who made the fleet.
        limit(libc::RLIMIT_SIGPENDING, SIGNALS_PENDING_MAX),
        limit(libc::RLIMIT_MSGQUEUE, MESSAGE_QUEUE_BYTES_MAX),
        limit(libc::RLIMIT_MEMLOCK, LOCKED_BYTES_MAX),
    ];
    if !cgroups {
        list.push(limit(libc::RLIMIT_AS, limits.memory_bytes));
        // Init is one more.
        list.push(limit(libc::RLIMIT_NPROC, limits.processes.saturating_add(1)));
    }
    list.retain(|one| is_set(one.resource));
    list
}

/// Every limit, but in a build for proofs.
fn is_set(resource: u32) -> bool {
    match resource {
        libc::RLIMIT_CORE => holds(Mitigation::CoreFiles),
        libc::RLIMIT_NOFILE => holds(Mitigation::OpenFiles),
        libc::RLIMIT_SIGPENDING => holds(Mitigation::PendingSignals),
        libc::RLIMIT_MSGQUEUE => holds(Mitigation::MessageQueues),
        libc::RLIMIT_MEMLOCK => holds(Mitigation::LockedMemory),
        libc::RLIMIT_AS => holds(Mitigation::AddressSpace),
        libc::RLIMIT_NPROC => holds(Mitigation::ProcessesOfAUser),
        _ => true,
    }
}

fn mount(
    kind: &'static CStr,
    target: &'static CStr,
    flags: MountFlags,
    data: impl Into<Vec<u8>>,
) -> Result<Step, NulError> {
    Ok(Step::Mount { kind, target, flags, data: CString::new(data)? })
}

fn shared_tmp(bytes: u64, inodes: u64) -> String {
    format!("mode=1777,size={bytes},nr_inodes={inodes}")
}

/// Links in `/tmp`, and the folders that they lie in, each once; everybody may write to these as to `/tmp` itself.
fn tmp_links(links: &[RootSymlink]) -> Result<Vec<Step>, NulError> {
    let mut steps = Vec::new();
    for link in links {
        let place: PathBuf = link.link.components().skip(1).collect();
        let mut folders: Vec<&Path> = place.ancestors().skip(1).filter(|folder| folder.starts_with("tmp")).collect();
        folders.pop();
        for folder in folders.into_iter().rev() {
            let step = Step::SharedFolder(c_string(folder)?);
            if !steps.contains(&step) {
                steps.push(step);
            }
        }
        steps.push(Step::Link { target: c_string(&link.target)?, link: c_string(&place)? });
    }
    Ok(steps)
}

pub(crate) fn c_string(path: &Path) -> Result<CString, NulError> {
    CString::new(path.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> RootSpec {
        let tmp_symlinks = vec![RootSymlink { link: "/tmp/.app/cache".into(), target: "/opt/cache".into() }];
        RootSpec { tmp_symlinks, ..RootSpec::empty("bare") }
    }

    fn plan(single_id: bool, cgroups: bool) -> Vec<Step> {
        let spec = spec();
        let limits = CellLimits::default();
        let masks = ["kcore".to_owned()];
        let owner_id = if single_id { 0 } else { 7 };
        let root = Path::new("/image/0");
        let way = Way::Pivot;
        cell(&CellFacts { root, spec: &spec, limits: &limits, owner_id, single_id, cgroups, masks: &masks, way })
            .unwrap()
    }

    fn place(steps: &[Step], step: &Step) -> usize {
        steps.iter().position(|one| one == step).unwrap_or_else(|| panic!("no {step:?}"))
    }

    #[test]
    fn privileges_go_last_and_all_of_them() {
        for (single_id, cgroups) in [(false, false), (false, true), (true, false), (true, true)] {
            let steps = plan(single_id, cgroups);
            let order = [
                Step::Pivot,
                Step::LeaveOldRoot,
                Step::UserNamespace,
                Step::BoundCapabilities,
                Step::DropCapabilities,
                Step::NoNewPrivileges,
                Step::Dumpable(false),
                Step::LoadFilter,
            ];
            let places: Vec<usize> = order.iter().map(|step| place(&steps, step)).collect();
            assert!(places.is_sorted(), "{steps:?}");
            assert_eq!(steps.last(), Some(&Step::LoadFilter));
        }
    }

    #[test]
    fn counts_of_the_hosts_user_are_limited_in_the_cells_namespace() {
        for single_id in [false, true] {
            let steps = plan(single_id, true);
            let count = place(&steps, &Step::KernelCount(c"sys/user/max_inotify_instances", INOTIFY_INSTANCES_MAX));
            let map = steps.iter().position(|step| matches!(step, Step::CellMap(_))).unwrap();
            assert!(
                map < count
                    && count < place(&steps, &Step::Descriptors)
                    && count < place(&steps, &Step::DropCapabilities)
            );
        }
        let limits = resource_limits(&CellLimits::default(), true);
        assert!(limits.iter().any(|one| one.resource == libc::RLIMIT_SIGPENDING && one.hard == SIGNALS_PENDING_MAX));
    }

    #[test]
    fn cgroups_are_entered_before_anything_else() {
        assert_eq!(plan(false, true)[..2], [Step::EnterCgroups, Step::CgroupNamespace]);
        assert!(!plan(false, false).contains(&Step::EnterCgroups));
    }

    #[test]
    fn groups_are_left_where_that_is_allowed() {
        assert!(place(&plan(false, true), &Step::LeaveGroups) < place(&plan(false, true), &Step::BecomeUser(7)));
        assert!(!plan(true, true).contains(&Step::LeaveGroups));
        assert!(plan(true, true).contains(&Step::CellMap(c"1000 0 1".into())));
        assert!(plan(false, true).contains(&Step::CellMap(c"1000 7 1".into())));
    }

    #[test]
    fn every_mount_refuses_set_user_id_and_proc_is_read_only() {
        let mut targets = Vec::new();
        for step in plan(false, true) {
            if let Step::Mount { target, flags, data, .. } = step {
                assert!(flags.contains(MountFlags::NOSUID), "{target:?}");
                if target == c"proc" {
                    assert!(flags.contains(MountFlags::RDONLY));
                }
                if target == c"workspace" {
                    let wanted = c"mode=0755,uid=7,gid=7,size=1073741824,nr_inodes=100000";
                    assert_eq!(data.as_c_str(), wanted);
                }
                targets.push(target);
            }
        }
        assert_eq!(targets, [c"workspace", c"tmp", c"dev/shm", c"dev/pts", c"proc"]);
        assert!(plan(false, true).contains(&Step::Mask(c"proc/kcore".into())));
        let folder = Step::SharedFolder(c"tmp/.app".into());
        let link = Step::Link { target: c"/opt/cache".into(), link: c"tmp/.app/cache".into() };
        let steps = plan(false, true);
        assert_eq!(place(&steps, &folder) + 1, place(&steps, &link));
    }

    #[test]
    fn without_cgroups_rlimits_hold_memory_and_processes() {
        let limits = CellLimits::default();
        let with = resource_limits(&limits, true);
        assert!(with.iter().all(|one| one.resource != libc::RLIMIT_AS && one.resource != libc::RLIMIT_NPROC));
        let without = resource_limits(&limits, false);
        assert!(without.contains(&ResourceLimit { resource: libc::RLIMIT_NPROC, soft: 257, hard: 257 }));
        assert!(without.iter().any(|one| one.resource == libc::RLIMIT_AS && one.hard == 2 << 30));
    }

    #[test]
    fn a_zygote_keeps_what_it_enters_cells_with_and_not_the_old_root() {
        let end = [Step::Descriptors, Step::KeepCapabilities(OF_A_ZYGOTE)];
        let steps = zygote(Path::new("/image/0"), &spec(), Way::Pivot).unwrap();
        assert_eq!(steps[steps.len() - 4..], [&[Step::Pivot, Step::LeaveOldRoot], &end[..]].concat());
        let steps = zygote(Path::new("/image/0"), &spec(), Way::Cover).unwrap();
        assert_eq!(steps[steps.len() - 3..], [&[Step::Cover], &end[..]].concat());
    }
}
