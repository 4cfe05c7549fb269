//! What a session may do to files: its Landlock rules, as data and as rulesets.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use ringfence_sys::landlock::{self, Handled, NET_ALL, SCOPE_ALL, fs};
use ringfence_weaken::{Mitigation, holds};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;

use crate::failure::{At, SetupFailure};
use crate::step::StepName;

/// The version that is needed, of Linux 6.12: the first that keeps signals and abstract sockets inside a domain.
/// Without these one session could end the processes of another, and of the server where all have one id.
pub(crate) const ABI_FLOOR: u32 = 6;

/// What a session sees of the image.
const SEEN: u64 = fs::READ_FILE | fs::READ_DIR | fs::EXECUTE;
/// What it may do in its own folders: all but make devices and speak to them.
const OWN: u64 = fs::ALL & !(fs::MAKE_CHAR | fs::MAKE_BLOCK | fs::IOCTL_DEV);
/// What it may do in the machine's shared memory, where only its own id opens what it made: everything by name, but
/// not list the names.
const SHARED_MEMORY: u64 = fs::READ_FILE | fs::WRITE_FILE | fs::TRUNCATE | fs::MAKE_REG | fs::REMOVE_FILE;
/// What the guard does in `/proc`.
const GUARDS_PROC: u64 = fs::READ_FILE | fs::READ_DIR | fs::WRITE_FILE;

/// Devices that hold nothing of anybody's.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// Files of `/proc` about the machine, which libraries size themselves by. None is about a process.
const MACHINE: [&str; 7] = [
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/loadavg",
    "/proc/uptime",
    "/proc/version",
    "/proc/filesystems",
];

/// Refuses a kernel whose Landlock is older than the floor.
pub(super) fn check_floor() -> Result<(), SetupFailure> {
    let found = landlock::abi().at(StepName::Landlock, || format!("version {ABI_FLOOR} or later"))?;
    if found < ABI_FLOOR {
        let detail = format!("version {ABI_FLOOR} or later; this kernel has {found}");
        return Err(SetupFailure { step: StepName::Landlock, errno: libc::ENOSYS, detail });
    }
    Ok(())
}

/// The rules that all sessions of an image have in common, with what they are about held open: a file of `/proc` that
/// nobody holds may come back as another.
pub(super) struct Rules {
    common: Vec<(OwnedFd, u64)>,
    proc: OwnedFd,
}

/// A session's two domains.
pub(super) struct Domains {
    /// The guard's.
    pub(super) outer: OwnedFd,
    /// Of what the guard starts, within the other.
    pub(super) inner: OwnedFd,
}

impl Rules {
    /// `seen` are the folders and files of the image. `own_ids`: each session has an id of its own.
    pub(super) fn new(seen: &[PathBuf], own_ids: bool) -> Result<Rules, SetupFailure> {
        let mut common = Vec::new();
        for path in seen {
            let fd = hold(path).at(StepName::OpenBinds, || path.display().to_string())?;
            let folder = is_folder(&fd);
            common.push((fd, if folder { SEEN } else { SEEN & fs::OF_FILES }));
        }
        let read_write = fs::READ_FILE | fs::WRITE_FILE;
        let mut add = |path: &str, access| {
            // A container may lack one.
            if let Ok(fd) = hold(Path::new(path)) {
                common.push((fd, access));
            }
        };
        DEVICES.iter().for_each(|path| add(path, read_write));
        MACHINE.iter().for_each(|path| add(path, fs::READ_FILE));
        if own_ids {
            add("/dev/shm", SHARED_MEMORY);
        }
        let proc = hold(Path::new("/proc")).at(StepName::OpenBinds, || "/proc".to_owned())?;
        Ok(Rules { common, proc })
    }

    /// The domains of a session with these folders.
    pub(super) fn domains(&self, own: &[BorrowedFd<'_>]) -> std::io::Result<Domains> {
        let outer = self.domain(own)?;
        landlock::allow(outer.as_fd(), self.proc.as_fd(), GUARDS_PROC)?;
        Ok(Domains { outer, inner: self.domain(own)? })
    }

    fn domain(&self, own: &[BorrowedFd<'_>]) -> std::io::Result<OwnedFd> {
        let net = if holds(Mitigation::RulesOfTheNetwork) { NET_ALL } else { 0 };
        let scoped = if holds(Mitigation::RulesOfSignals) { SCOPE_ALL } else { 0 };
        let rules = landlock::ruleset(Handled { fs: fs::ALL, net, scoped })?;
        for (fd, access) in &self.common {
            landlock::allow(rules.as_fd(), fd.as_fd(), *access)?;
        }
        for folder in own {
            landlock::allow(rules.as_fd(), *folder, OWN)?;
        }
        Ok(rules)
    }
}

/// The daemon's: the sessions' folders, and what it reads of the machine.
pub(super) fn daemons(folders: BorrowedFd<'_>) -> std::io::Result<OwnedFd> {
    let rules = landlock::ruleset(Handled { fs: fs::ALL, net: 0, scoped: SCOPE_ALL })?;
    landlock::allow(rules.as_fd(), folders, OWN & !fs::EXECUTE)?;
    for path in ["/proc", "/sys", "/usr/share/zoneinfo", "/dev"] {
        if let Ok(fd) = hold(Path::new(path)) {
            landlock::allow(rules.as_fd(), fd.as_fd(), fs::READ_FILE | fs::READ_DIR)?;
        }
    }
    Ok(rules)
}

fn hold(path: &Path) -> Result<OwnedFd, Errno> {
    open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

fn is_folder(fd: &OwnedFd) -> bool {
    fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}
