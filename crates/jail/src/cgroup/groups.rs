//! The keeper's hands in the subtree: a group for each cell, through descriptors.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use ringfence_frame::keeper::{Limiter, Meters};
use ringfence_op::CellLimits;
use ringfence_weaken::{Mitigation, holds};
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::io::Errno;

use super::{Controller, Layout, Setting, Version, settings};

/// The subtree, opened.
#[derive(Debug)]
pub(crate) struct Groups {
    version: Version,
    folders: Vec<Opened>,
}

#[derive(Debug)]
struct Opened {
    fd: OwnedFd,
    controllers: Vec<Controller>,
}

impl Groups {
    /// `fds` are the layout's folders in its order.
    pub(crate) fn new(layout: &Layout, fds: Vec<OwnedFd>) -> Groups {
        let folders = layout.folders.iter().zip(fds);
        let folders = folders.map(|(folder, fd)| Opened { fd, controllers: folder.controllers.clone() });
        Groups { version: layout.version, folders: folders.collect() }
    }

    pub(crate) fn limiter(&self) -> Limiter {
        match self.version {
            Version::V1 => Limiter::CgroupV1,
            Version::V2 => Limiter::CgroupV2,
        }
    }

    /// Makes the group `name` with these limits, whole or not at all.
    pub(crate) fn make(&self, name: &str, limits: &CellLimits) -> io::Result<()> {
        let make = |folder: &Opened| make_one(folder, name, &settings(self.version, &folder.controllers, limits));
        let result = self.folders.iter().try_for_each(make);
        if result.is_err() {
            // Empty so far, so this removes all of it; what is not there is no error.
            let _ = self.remove(name);
        }
        result
    }

    /// Opens the files through which a process enters the group, writing `0`.
    pub(crate) fn doors(&self, name: &str) -> io::Result<Vec<OwnedFd>> {
        let open = |folder: &Opened| {
            let group = open_group(folder, name)?;
            Ok(openat(&group, "cgroup.procs", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?)
        };
        self.folders.iter().map(open).collect()
    }

    /// Opens the group's meters for reading, in the order of the bits of [`Meters`].
    pub(crate) fn meters(&self, name: &str) -> io::Result<(Meters, Vec<OwnedFd>)> {
        const BITS: [u8; 5] =
            [Meters::CPU, Meters::MEMORY_PEAK, Meters::MEMORY_EVENTS, Meters::PROCESS_EVENTS, Meters::PROCESS_COUNT];
        let mut bits = 0;
        let mut fds = Vec::new();
        for bit in BITS {
            let (controller, file) = meter(self.version, bit);
            let Some(folder) = self.folders.iter().find(|folder| folder.controllers.contains(&controller)) else {
                continue;
            };
            let group = open_group(folder, name)?;
            // A kernel may lack one (memory.peak before 5.19); the daemon then does without.
            match openat(&group, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
                Ok(fd) => {
                    bits |= bit;
                    fds.push(fd);
                }
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok((Meters(bits), fds))
    }

    /// Removes the group; one that is not there is no error.
    ///
    /// # Errors
    /// EBUSY while a process of it has not quite gone.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        let mut result = Ok(());
        for folder in &self.folders {
            match unlinkat(&folder.fd, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => result = Err(error.into()),
            }
        }
        result
    }
}

fn make_one(folder: &Opened, name: &str, settings: &[Setting]) -> io::Result<()> {
    mkdirat(&folder.fd, name, Mode::from_raw_mode(0o755))?;
    let group = open_group(folder, name)?;
    configure(&group, settings)
}

/// Every setting, but in a build for proofs.
fn is_kept(setting: &Setting) -> bool {
    match setting.file.split('.').next() {
        Some("memory") => holds(Mitigation::MemoryOfTheCell),
        Some("pids") => holds(Mitigation::ProcessesOfTheCell),
        Some("cpu") => holds(Mitigation::CpuOfTheCell),
        _ => true,
    }
}

fn open_group(folder: &Opened, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(&folder.fd, name, flags, Mode::empty())?)
}

fn configure(group: &OwnedFd, settings: &[Setting]) -> io::Result<()> {
    for setting in settings.iter().filter(|setting| is_kept(setting)) {
        match write(group, setting) {
            Err(_) if setting.optional => {}
            other => other?,
        }
    }
    Ok(())
}

fn write(group: &OwnedFd, setting: &Setting) -> rustix::io::Result<()> {
    let file = openat(group, setting.file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, setting.value.as_bytes()).map(drop)
}

/// Enters the group whose door this is. Child-safe.
pub(crate) fn enter(door: BorrowedFd<'_>) -> io::Result<()> {
    rustix::io::write(door, b"0")?;
    Ok(())
}

/// Which file of which controller is a meter, as `frame::keeper::Meters` says.
fn meter(version: Version, bit: u8) -> (Controller, &'static str) {
    match (version, bit) {
        (Version::V1, Meters::CPU) => (Controller::CpuAccounting, "cpuacct.usage"),
        (Version::V2, Meters::CPU) => (Controller::Cpu, "cpu.stat"),
        (Version::V1, Meters::MEMORY_PEAK) => (Controller::Memory, "memory.max_usage_in_bytes"),
        (Version::V2, Meters::MEMORY_PEAK) => (Controller::Memory, "memory.peak"),
        (Version::V1, Meters::MEMORY_EVENTS) => (Controller::Memory, "memory.oom_control"),
        (Version::V2, Meters::MEMORY_EVENTS) => (Controller::Memory, "memory.events"),
        (_, Meters::PROCESS_EVENTS) => (Controller::Pids, "pids.events"),
        (_, _) => (Controller::Pids, "pids.current"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::Folder;
    use super::*;

    fn open(path: &Path) -> OwnedFd {
        fs::File::open(path).unwrap().into()
    }

    fn v2_in(path: &Path) -> Groups {
        let controllers = vec![Controller::Memory, Controller::Pids, Controller::Cpu];
        let layout = Layout { version: Version::V2, folders: vec![Folder { path: path.into(), controllers }] };
        Groups::new(&layout, vec![open(path)])
    }

    #[test]
    fn values_reach_their_files() {
        let tree = tempfile::tempdir().unwrap();
        let groups = v2_in(tree.path());
        for file in ["memory.max", "pids.max", "cpu.max"] {
            fs::write(tree.path().join(file), "").unwrap();
        }
        let values = settings(groups.version, &groups.folders[0].controllers, &CellLimits::default());
        configure(&open(tree.path()), &values).unwrap();
        assert_eq!(fs::read_to_string(tree.path().join("memory.max")).unwrap(), (2u64 << 30).to_string());
        assert_eq!(fs::read_to_string(tree.path().join("pids.max")).unwrap(), "257");
        assert_eq!(fs::read_to_string(tree.path().join("cpu.max")).unwrap(), "20000 20000");
    }

    #[test]
    fn all_together_are_bounded_where_processes_are_counted() {
        let (memory, pids) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folder = |path: &Path, controller| Folder { path: path.into(), controllers: vec![controller] };
        let folders = vec![folder(memory.path(), Controller::Memory), folder(pids.path(), Controller::Pids)];
        super::super::bound_tasks(&Layout { version: Version::V1, folders }, 16_384).unwrap();
        assert_eq!(fs::read_to_string(pids.path().join("pids.max")).unwrap(), "16384");
        assert!(!memory.path().join("pids.max").exists());
    }

    #[test]
    fn a_limit_that_cannot_be_set_leaves_no_group() {
        let tree = tempfile::tempdir().unwrap();
        // An ordinary folder: the control files do not appear by themselves.
        assert_eq!(
            v2_in(tree.path()).make("cell-1", &CellLimits::default()).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert!(!tree.path().join("cell-1").exists());
    }

    #[test]
    fn meters_that_are_missing_are_said() {
        let tree = tempfile::tempdir().unwrap();
        let group = tree.path().join("cell-1");
        fs::create_dir(&group).unwrap();
        for file in ["cpu.stat", "memory.events", "pids.current"] {
            fs::write(group.join(file), file).unwrap();
        }
        let (meters, fds) = v2_in(tree.path()).meters("cell-1").unwrap();
        assert_eq!(meters.0, Meters::CPU | Meters::MEMORY_EVENTS | Meters::PROCESS_COUNT);
        let texts: Vec<String> = fds.into_iter().map(|fd| io::read_to_string(fs::File::from(fd)).unwrap()).collect();
        assert_eq!(texts, ["cpu.stat", "memory.events", "pids.current"]);
    }

    #[test]
    fn removing_twice_is_no_error() {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir(tree.path().join("cell-1")).unwrap();
        let groups = v2_in(tree.path());
        groups.remove("cell-1").unwrap();
        groups.remove("cell-1").unwrap();
    }
}
