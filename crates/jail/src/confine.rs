//! What holds the server's own processes, beside ids and capabilities: each gives up, before it meets anything hostile,
//! what the rest of its life does not need. Seccomp by the lists of `seccomp::own`; Landlock for the two that have no
//! more mounts to make (a process under Landlock may not mount), and for the one that pulls images.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use ringfence_sys::landlock::{self, Handled, fs};
use ringfence_sys::process::{self, Single};
use ringfence_sys::seccomp::Filter;
use ringfence_sys::{caps, limit};
use ringfence_weaken::{Mitigation, holds};
use rustix::fs::{Dir, FileType, Mode, OFlags, fstat, open, openat};
use rustix::io::Errno;

use crate::error::JailError;
use crate::launch::Launched;
use crate::seccomp::own::{self, Own};

/// The keeper's own: ids, mounts and namespaces of cells, their processes and files. Not among them: modules, devices,
/// raw sockets, the clock, the log, audit, BPF, performance counters.
pub(crate) const OF_THE_KEEPER: u64 = OF_A_ZYGOTE
    | caps::DAC_OVERRIDE
    | caps::CHOWN
    | caps::FOWNER
    | caps::KILL
    | caps::SETPCAP
    | caps::NET_ADMIN
    // A fleet of one id: the cell's map names the fleet's root.
    | caps::SETFCAP;
/// A zygote's: it enters cells, and leaves what it had there.
pub(crate) const OF_A_ZYGOTE: u64 = caps::SYS_ADMIN | caps::SYS_CHROOT | caps::SYS_PTRACE | caps::SETUID | caps::SETGID;

/// What the daemon does with files of workspaces. It starts no program and makes no device, socket or FIFO.
const OF_WORKSPACES: u64 = fs::READ_FILE
    | fs::READ_DIR
    | fs::WRITE_FILE
    | fs::TRUNCATE
    | fs::MAKE_REG
    | fs::MAKE_DIR
    | fs::MAKE_SYM
    | fs::REMOVE_FILE
    | fs::REMOVE_DIR
    | fs::REFER;

/// The first version of Landlock that can tell moving a file within a workspace from moving it out.
const ABI_MIN: u32 = 2;

/// How far the kernel went along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confined {
    /// The version of Landlock that is in force; `None` on a kernel that has none, or only the first.
    pub landlock: Option<u32>,
}

/// Holds the calling process, which has [entered the fleet](crate::enter_fleet), to what serving needs: no new process
/// or program, no socket but what the listener accepts, no signal to others, no code that was not there before; of
/// all files only those beneath workspaces, where the kernel has Landlock. For all threads that it starts from
/// here on; there is no way back.
///
/// # Errors
/// Where the process has more than one thread, or the kernel refuses. It may then be half-way, and must end.
pub fn confine(launched: &Launched) -> Result<Confined, JailError> {
    let fail = |doing| move |source: io::Error| JailError::Enter { doing, source };
    Single::claim().map_err(fail("find the daemon with one thread"))?;
    // Its memory holds the token: no core file of it, and no look from another process of the same user.
    process::dumpable(!holds(Mitigation::DaemonNotDumpable)).map_err(fail("forbid looking into the daemon"))?;
    if holds(Mitigation::CoreFilesOfTheDaemon) {
        limit::set(limit::ResourceLimit { resource: libc::RLIMIT_CORE, soft: 0, hard: 0 })
            .map_err(fail("forbid core files"))?;
    }
    if holds(Mitigation::NoNewPrivilegesOfTheDaemon) {
        process::no_new_privileges().map_err(fail("give up new privileges"))?;
    }
    let roots = roots(launched).map_err(fail("open the roots of the images"))?;
    let rules: Vec<_> = roots.iter().map(|root| (root.as_fd(), OF_WORKSPACES)).collect();
    let landlock = restrict(&rules, Mitigation::LandlockOfTheDaemon).map_err(fail("put the daemon under Landlock"))?;
    load(Own::Daemon).map_err(fail("load the daemon's seccomp filter"))?;
    Ok(Confined { landlock })
}

/// Holds the calling process, which will read what registries send, to that: it writes beneath `store` and nowhere
/// else, reads beneath `readable` besides, starts no program, has no capability, and listens to nobody. For all threads
/// that it starts from here on; there is no way back.
///
/// # Errors
/// Where the process has more than one thread, or the kernel refuses or has no Landlock: root that may write whatever
/// root owns is not held by ids alone.
pub fn confine_puller(store: &Path, readable: &[PathBuf]) -> Result<(), JailError> {
    let fail = |doing| move |source: io::Error| JailError::Enter { doing, source };
    Single::claim().map_err(fail("find the puller with one thread"))?;
    // Its memory holds credentials of registries.
    process::dumpable(false).map_err(fail("forbid looking into the puller"))?;
    limit::set(limit::ResourceLimit { resource: libc::RLIMIT_CORE, soft: 0, hard: 0 })
        .map_err(fail("forbid core files"))?;
    if caps::effective().map_err(fail("see the puller's capabilities"))? & caps::SETPCAP != 0 {
        caps::bound(0).map_err(fail("drop the bounding set"))?;
    }
    caps::keep(0).map_err(fail("drop the puller's capabilities"))?;
    process::no_new_privileges().map_err(fail("give up new privileges"))?;
    let opened = readable_by_the_puller(store, readable).map_err(fail("open what the puller may read"))?;
    let rules: Vec<_> = opened.iter().map(|(file, rights)| (file.as_fd(), *rights)).collect();
    let landlock = restrict_but(&rules, landlock::NET_CONNECT, Mitigation::LandlockOfThePuller);
    let landlock = landlock.map_err(fail("put the puller under Landlock"))?;
    if landlock.is_none() && holds(Mitigation::LandlockOfThePuller) {
        let why = io::Error::from(io::ErrorKind::Unsupported);
        return Err(fail("pull images while serving: this kernel has no Landlock (5.19 or later)")(why));
    }
    load(Own::Puller).map_err(fail("load the puller's seccomp filter"))
}

/// Closes whatever a process has got from the one that started it beside its standard descriptors. To be called before
/// anything else is opened: descriptors that somebody owns would be closed as well.
///
/// # Errors
/// As `close_range(2)`.
pub fn close_inherited() -> io::Result<()> {
    const AFTER_STANDARD: u32 = 3;
    process::close_from(AFTER_STANDARD)
}

fn readable_by_the_puller(store: &Path, readable: &[PathBuf]) -> io::Result<Vec<(OwnedFd, u64)>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let mut opened = vec![(open(store, flags, Mode::empty())?, OF_WORKSPACES)];
    for path in readable {
        let file = match open(path, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => continue,
            Err(error) => return Err(error.into()),
        };
        let is_folder = FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::Directory;
        opened.push((file, if is_folder { fs::READ_FILE | fs::READ_DIR } else { fs::READ_FILE }));
    }
    Ok(opened)
}

fn roots(launched: &Launched) -> io::Result<Vec<OwnedFd>> {
    let Some(held) = &launched.roots else {
        // Without namespaces all sessions lie in one folder, which is what the daemon enters.
        return Ok(vec![launched.fleet.try_clone()?]);
    };
    let folder = openat(held, ".", OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut roots = Vec::new();
    for entry in Dir::new(folder)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            roots.push(openat(held, entry.file_name(), flags, Mode::empty())?);
        }
    }
    Ok(roots)
}

/// Holds the warden to waiting and to removing the folders of its cgroups.
pub(crate) fn warden(folders: &[PathBuf]) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut opened: Vec<(OwnedFd, u64)> = Vec::new();
    for folder in folders {
        opened.push((open(folder, flags, Mode::empty())?, fs::READ_DIR | fs::REMOVE_DIR));
        if let Some(parent) = folder.parent() {
            opened.push((open(parent, flags, Mode::empty())?, fs::REMOVE_DIR));
        }
    }
    if holds(Mitigation::NoNewPrivilegesOfTheWarden) {
        process::no_new_privileges()?;
    }
    let rules: Vec<(BorrowedFd<'_>, u64)> = opened.iter().map(|(folder, rights)| (folder.as_fd(), *rights)).collect();
    restrict(&rules, Mitigation::LandlockOfTheWarden)?;
    load(Own::Warden)
}

/// Holds the keeper, and all that it will start, to what building cells takes.
pub(crate) fn keeper() -> io::Result<()> {
    if holds(Mitigation::CapabilitiesOfTheKeeper) {
        caps::bound(OF_THE_KEEPER)?;
        caps::keep(OF_THE_KEEPER)?;
    }
    if holds(Mitigation::NoNewPrivilegesOfTheKeeper) {
        process::no_new_privileges()?;
    }
    load(Own::Keeper)
}

/// Landlock with these rules and nothing else, as far as the kernel has it: files, TCP, abstract sockets, signals.
fn restrict(rules: &[(BorrowedFd<'_>, u64)], mitigation: Mitigation) -> io::Result<Option<u32>> {
    restrict_but(rules, 0, mitigation)
}

/// The same, with these rights over TCP ports left alone.
fn restrict_but(rules: &[(BorrowedFd<'_>, u64)], ports: u64, mitigation: Mitigation) -> io::Result<Option<u32>> {
    if !holds(mitigation) {
        return Ok(None);
    }
    let abi = match landlock::abi() {
        Ok(abi) if abi >= ABI_MIN => abi,
        Ok(_) => return Ok(None),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let handled = handled(abi);
    let handled = Handled { net: handled.net & !ports, ..handled };
    let ruleset = landlock::ruleset(handled)?;
    for (folder, rights) in rules {
        landlock::allow(ruleset.as_fd(), *folder, rights & handled.fs)?;
    }
    landlock::restrict_self(ruleset.as_fd())?;
    Ok(Some(abi))
}

/// All that this version can refuse.
fn handled(abi: u32) -> Handled {
    let mut files = fs::ALL;
    if abi < 5 {
        files &= !fs::IOCTL_DEV;
    }
    if abi < 3 {
        files &= !fs::TRUNCATE;
    }
    let net = if abi < 4 { 0 } else { landlock::NET_ALL };
    let scoped = if abi < 6 { 0 } else { landlock::SCOPE_ALL };
    Handled { fs: files, net, scoped }
}

fn load(own: Own) -> io::Result<()> {
    let mitigation = match own {
        Own::Daemon => Mitigation::FilterOfTheDaemon,
        Own::Warden => Mitigation::FilterOfTheWarden,
        Own::Puller => Mitigation::FilterOfThePuller,
        Own::Keeper => Mitigation::FilterOfTheKeeper,
    };
    if !holds(mitigation) {
        return Ok(());
    }
    let bytes = own::compile(own).map_err(io::Error::other)?;
    Filter::from_bytes(&bytes).ok_or(io::ErrorKind::InvalidData)?.load()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{AtFlags, CWD, unlinkat};
    use rustix::io::Errno;

    use super::*;

    /// In a thread of its own, which is what Landlock and seccomp hold.
    #[test]
    fn the_warden_removes_folders_and_reaches_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let (own, other) = (place.path().join("own/cell"), place.path().join("other"));
        std::fs::create_dir_all(&own).unwrap();
        std::fs::create_dir(&other).unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, "secret").unwrap();
        let folders = [own.parent().unwrap().to_owned()];
        let held = move || {
            warden(&folders).unwrap();
            let read = std::fs::read("/etc/passwd").map(drop).map_err(|error| error.raw_os_error());
            let made = std::fs::create_dir(place.path().join("new")).map_err(|error| error.raw_os_error());
            let listed = std::fs::read_dir("/").map(drop).map_err(|error| error.raw_os_error());
            // Not by the standard library: it takes a call that is on no list.
            let unlinked = unlinkat(CWD, &file, AtFlags::empty()).map_err(|errno| Some(errno.raw_os_error()));
            let connected = std::net::TcpStream::connect("127.0.0.1:9").map(drop).map_err(|error| error.raw_os_error());
            let removed = std::fs::remove_dir(&own).map_err(|error| error.raw_os_error());
            (read, made, listed, unlinked, connected, removed)
        };
        let (read, made, listed, unlinked, connected, removed) = std::thread::spawn(held).join().unwrap();
        let refused = |errno: Errno| Err(Some(errno.raw_os_error()));
        assert_eq!((read, listed, unlinked), (refused(Errno::ACCESS), refused(Errno::ACCESS), refused(Errno::ACCESS)));
        assert!(made.is_err(), "a folder was made");
        assert_eq!(connected, refused(Errno::PERM), "the filter");
        assert_eq!(removed, Ok(()));
    }

    #[test]
    fn each_version_is_asked_for_what_it_knows() {
        let bits = |abi| handled(abi).fs.count_ones();
        assert_eq!([2, 3, 4, 5, 7].map(bits), [14, 15, 15, 16, 16]);
        assert_eq!(
            [2, 4, 5, 6].map(|abi| (handled(abi).net != 0, handled(abi).scoped != 0)),
            [(false, false), (true, false), (true, false), (true, true)]
        );
        assert_eq!(OF_WORKSPACES & (fs::EXECUTE | fs::MAKE_CHAR | fs::MAKE_BLOCK | fs::MAKE_SOCK | fs::MAKE_FIFO), 0);
    }
}
