//! The keeper's outer process, the warden: it prepares what only the outside can give (cgroups, ids, the image's
//! folders), makes the fleet's namespaces, starts the keeper in them, and then does nothing but wait for its end, to
//! remove the cgroups. The keeper dies with it, by the pipe between them.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

use ringfence_op::Tier;
use ringfence_sys::limit::{self, ResourceLimit};
use ringfence_sys::namespace::{self, Namespaces};
use ringfence_sys::process::{self, Child, Forked, Single, Strings, wait_for};
use ringfence_sys::{caps, ids, signal};
use ringfence_weaken::{Mitigation, holds};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

use crate::cgroup::{self, Layout};
use crate::config::{Inside, KeeperConfig, Stage, memfd, read_stage, write_stage};
use crate::failure::{At, SetupFailure};
use crate::limits::KEEPER_FDS_MAX;
use crate::step::StepName;
use crate::template;
use crate::{confine, flat, keeper, sandbox};

/// Where the warden finds the puller's socket, if there is one: behind the daemon's and the configuration.
const PULLER: i32 = 5;

/// The body of the hidden subcommand `keeper SOCKET CONFIG`. The process must have one thread. Runs until the daemon's
/// end of `socket` is closed, or something that it cannot go on without is gone.
#[must_use]
pub fn keeper_main(socket: OwnedFd, config: OwnedFd) -> ExitCode {
    let outcome = match read_stage(config).at(StepName::ReadConfig, String::new) {
        Ok(Stage::Warden(config)) if config.tier.is_flat() => {
            raise_descriptors();
            flat::watch(socket, config)
        }
        Ok(Stage::Warden(config)) if config.tier == Tier::Gvisor => {
            raise_descriptors();
            sandbox::watch(socket, config)
        }
        Ok(Stage::Warden(config)) => {
            watch(&socket, config).inspect_err(|failure| failure.send(socket.as_fd())).map(|watched| {
                // Now only the keeper holds this end: should it die, the daemon sees the end of the link at once.
                drop(socket);
                watched.until_the_end()
            })
        }
        Ok(Stage::Keeper(inside)) => keeper::run(socket, inside),
        Err(failure) => {
            failure.send(socket.as_fd());
            Err(failure)
        }
    };
    outcome.unwrap_or(ExitCode::FAILURE)
}

/// A keeper that has been let go.
struct Watched {
    keeper: Child,
    /// Its other end tells the keeper that this process lives.
    _life: OwnedFd,
    layout: Option<Layout>,
}

impl Watched {
    fn until_the_end(self) -> ExitCode {
        let ended = wait_for(self.keeper.pid);
        if let Some(layout) = &self.layout {
            remove(layout);
        }
        match ended {
            Ok(ended) if ended.status == 0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }
}

fn remove(layout: &Layout) {
    for folder in &layout.folders {
        cgroup::remove_subtree(&folder.path);
    }
}

fn watch(socket: &OwnedFd, config: KeeperConfig) -> Result<Watched, SetupFailure> {
    let nothing = String::new;
    signal::default_all();
    signal::block_all().at(StepName::KeeperSelf, nothing)?;
    let single = Single::claim().at(StepName::OneThread, nothing)?;
    raise_descriptors();
    let needed = caps::SETUID | caps::SETGID | caps::SYS_ADMIN;
    let privileged = caps::effective().at(StepName::KeeperSelf, nothing)? & needed == needed;
    if privileged {
        check_range(&config)?;
    }
    if privileged {
        uncover_proc();
    }
    let layout = if config.cgroups {
        cgroup::sweep();
        let name = cgroup::subtree_name().at(StepName::KeeperSelf, nothing)?;
        cgroup::prepare(&name, privileged.then_some(config.id_base))
    } else {
        None
    };
    let result = start(&single, socket, config, privileged, layout.as_ref());
    match result {
        Ok((keeper, life)) => {
            // What is left to do is to remove folders that belong to the fleet's root.
            if holds(Mitigation::CapabilitiesOfTheWarden) {
                if privileged {
                    caps::bound(caps::DAC_OVERRIDE).at(StepName::BoundCapabilities, nothing)?;
                }
                caps::keep(if privileged { caps::DAC_OVERRIDE } else { 0 }).at(StepName::DropCapabilities, nothing)?;
            }
            let folders = layout.iter().flat_map(|layout| &layout.folders).map(|folder| folder.path.clone());
            confine::warden(&folders.collect::<Vec<_>>()).at(StepName::LoadFilter, || "the warden's".to_owned())?;
            Ok(Watched { keeper, _life: life, layout })
        }
        Err(failure) => {
            if let Some(layout) = &layout {
                remove(layout);
            }
            Err(failure)
        }
    }
}

fn start(
    single: &Single,
    socket: &OwnedFd,
    config: KeeperConfig,
    privileged: bool,
    layout: Option<&Layout>,
) -> Result<(Child, OwnedFd), SetupFailure> {
    let nothing = String::new;
    let mut fds = Vec::new();
    for folder in layout.map(|layout| layout.folders.as_slice()).unwrap_or_default() {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let detail = || folder.path.display().to_string();
        fds.push(open(&folder.path, flags, Mode::empty()).at(StepName::MakeCgroup, detail)?);
    }
    let mut trees = None;
    if privileged {
        // By the host's own rights: the fleet's root may not be able to walk to the folders.
        let mut counts = Vec::new();
        for spec in &config.images {
            let opened = template::open_trees(spec)?;
            counts.push(opened.len());
            fds.extend(opened);
        }
        trees = Some(counts);
        if let Some(pulled) = &config.pulled {
            fds.push(template::open_store(&pulled.store)?);
        }
    }
    if config.pulled.is_some() {
        fds.push(process::adopt(PULLER).at(StepName::ReadConfig, || "the puller's socket".to_owned())?);
    }
    let (id_base, id_count) = (config.id_base, config.id_count);
    let inside = Inside { config, single_id: !privileged, layout: layout.cloned(), trees };
    let stage = write_stage(&Stage::Keeper(inside)).at(StepName::ReadConfig, nothing)?;
    let program = own_program(privileged).at(StepName::ExecKeeper, nothing)?;
    let (life_read, life_write) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).at(StepName::KeeperSelf, nothing)?;

    let kinds = kinds(&[
        (Namespaces::USER, Mitigation::FleetUserNamespace),
        (Namespaces::PID, Mitigation::FleetPidNamespace),
        (Namespaces::MOUNT, Mitigation::FleetMountNamespace),
        (Namespaces::NET, Mitigation::FleetNetworkNamespace),
        (Namespaces::IPC, Mitigation::FleetIpcNamespace),
        (Namespaces::UTS, Mitigation::FleetUtsNamespace),
    ]);
    match process::fork(single, kinds).at(StepName::CloneKeeper, nothing)? {
        Forked::Child => {
            drop(life_write);
            let socket_copy = socket.as_fd();
            let failure = go_inside(socket_copy, &stage, life_read, fds, program.as_fd(), privileged);
            failure.send(socket_copy);
            process::exit_now(1)
        }
        Forked::Parent(child) => {
            drop(life_read);
            let map = if privileged { Some((id_base, id_count)) } else { None };
            let result = write_maps(child.pid, map).and_then(|()| {
                layout.map_or(Ok(()), |layout| {
                    cgroup::enter_keeper(layout, child.pid).at(StepName::EnterCgroup, || "the keeper's".to_owned())
                })
            });
            let result =
                result.and_then(|()| rustix::io::write(&life_write, b"g").map(drop).at(StepName::KeeperSelf, nothing));
            match result {
                Ok(()) => Ok((child, life_write)),
                Err(failure) => {
                    // Without the word to go on it ends by itself.
                    drop(life_write);
                    let _ = wait_for(child.pid);
                    Err(failure)
                }
            }
        }
    }
}

/// The child's way to the second start of the program, now inside. Returns only where that fails.
fn go_inside(
    socket: BorrowedFd<'_>,
    stage: &OwnedFd,
    life: OwnedFd,
    fds: Vec<OwnedFd>,
    program: BorrowedFd<'_>,
    privileged: bool,
) -> SetupFailure {
    let mut word = [0];
    if !matches!(rustix::io::read(&life, &mut word), Ok(1)) {
        process::exit_now(1);
    }
    let nothing = String::new;
    let result = (|| {
        if privileged && holds(Mitigation::GroupsLeftByTheFleet) {
            ids::leave_groups().at(StepName::FleetIds, nothing)?;
        }
        ids::become_group(0).at(StepName::FleetIds, nothing)?;
        ids::become_user(0).at(StepName::FleetIds, nothing)?;
        lay_out(&[socket, stage.as_fd(), life.as_fd()], &fds, program).at(StepName::ExecKeeper, nothing)
    })();
    let program = match result {
        Ok(program) => program,
        Err(failure) => return failure,
    };
    let words = [c"ringfence", c"keeper", c"3", c"4"].map(|word| word.to_owned());
    let error = process::exec_file(
        program.as_fd(),
        &Strings::new(words.into()),
        &Strings::new(ringfence_weaken::environment()),
    );
    let failure = Err::<(), _>(error).at(StepName::ExecKeeper, nothing);
    // All else is closed; the socket is where the keeper will look for it.
    if let (Err(failure), Ok(socket)) = (failure, process::adopt(Inside::SOCKET)) {
        failure.send(socket.as_fd());
    }
    process::exit_now(1)
}

/// Puts the descriptors where [`Inside`] says, the program behind them, and closes all others.
fn lay_out(first: &[BorrowedFd<'_>], fds: &[OwnedFd], program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let all: Vec<BorrowedFd<'_>> = first.iter().copied().chain(fds.iter().map(AsFd::as_fd)).chain([program]).collect();
    let end = Inside::SOCKET + i32::try_from(all.len()).map_err(io::Error::other)?;
    // First all out of the way, so that placing one never closes another.
    let high: Vec<OwnedFd> = all.iter().map(|fd| fcntl_dupfd_cloexec(fd, end)).collect::<Result<_, _>>()?;
    for (number, fd) in (Inside::SOCKET..).zip(&high) {
        process::place(fd.as_fd(), number, false)?;
    }
    // What they were is closed underneath their owners, which this process never drops: it execs or exits.
    std::mem::forget(high);
    process::close_from(end.cast_unsigned())?;
    let program = process::adopt(end - 1)?;
    rustix::io::fcntl_setfd(&program, rustix::io::FdFlags::CLOEXEC)?;
    Ok(program)
}

/// The kinds of namespaces that are made: all, but in a build for proofs.
pub(crate) fn kinds(all: &[(Namespaces, Mitigation)]) -> Namespaces {
    let made = all.iter().filter(|(_, mitigation)| holds(*mitigation));
    made.fold(Namespaces::NONE, |kinds, (kind, _)| kinds.and(*kind))
}

/// The range must hold the daemon's id, and none that the host itself uses.
fn check_range(config: &KeeperConfig) -> Result<(), SetupFailure> {
    const HOST_IDS: u32 = 65_536;
    let (base, count) = (config.id_base, config.id_count);
    if base < HOST_IDS || count <= keeper::DAEMON_ID || base.checked_add(count).is_none() {
        let detail = format!(
            "{count} ids from {base}; it must begin at {HOST_IDS} or later, hold more than {} and end below 2^32",
            keeper::DAEMON_ID
        );
        return Err(SetupFailure { step: StepName::FleetMap, errno: libc::EINVAL, detail });
    }
    Ok(())
}

/// Writes the fleet's maps: a range from `base`, or this process's own ids alone.
fn write_maps(pid: u32, range: Option<(u32, u32)>) -> Result<(), SetupFailure> {
    let write = |file: &str, text: String| {
        fs::write(format!("/proc/{pid}/{file}"), &text).at(StepName::FleetMap, || format!("{file} {text}"))
    };
    match range {
        Some((base, count)) => {
            write("gid_map", format!("0 {base} {count}"))?;
            write("uid_map", format!("0 {base} {count}"))
        }
        None => {
            write("setgroups", "deny".to_owned())?;
            write("gid_map", format!("0 {} 1", rustix::process::getegid().as_raw()))?;
            write("uid_map", format!("0 {} 1", rustix::process::geteuid().as_raw()))
        }
    }
}

/// Container engines cover parts of `/proc`, and a user namespace may mount a new one only while it sees one that hides
/// nothing. Whoever owns the mounts here may have such a one: it is mounted over the other in mounts of this process's
/// own, which go on to follow the host's.
fn uncover_proc() {
    // Mounted by the host itself, over a folder that hides nothing.
    const OF_THE_HOST: &str = "/proc/sys/fs/binfmt_misc";
    let covered =
        |line: &str| line.split(' ').nth(4).is_some_and(|place| place.starts_with("/proc/") && place != OF_THE_HOST);
    if !fs::read_to_string("/proc/self/mountinfo").is_ok_and(|mounts| mounts.lines().any(covered)) {
        return;
    }
    // Where that is forbidden, the fleet's own mount of `/proc` fails later, and says so.
    let _ = namespace::unshare(Namespaces::MOUNT).and_then(|()| {
        mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        Ok(mount("proc", "/proc", "proc", flags, None)?)
    });
}

/// The running program's file, or a copy of it in memory where the fleet's ids could not execute the file.
fn own_program(privileged: bool) -> io::Result<OwnedFd> {
    const READ_AND_EXECUTE: u32 = 0o5;
    let mut file = File::open(Path::new("/proc/self/exe"))?;
    let mode = file.metadata()?.permissions().mode();
    if !privileged || mode & READ_AND_EXECUTE == READ_AND_EXECUTE {
        return Ok(file.into());
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let mut copy = File::from(memfd("ringfence", &[])?);
    copy.write_all(&bytes)?;
    copy.set_permissions(fs::Permissions::from_mode(0o755))?;
    Ok(copy.into())
}

/// The keeper holds some descriptors for each cell; where the limit cannot be raised, fewer cells can be made.
fn raise_descriptors() {
    let Ok(now) = limit::of(libc::RLIMIT_NOFILE) else { return };
    let wanted = ResourceLimit { soft: KEEPER_FDS_MAX, hard: now.hard.max(KEEPER_FDS_MAX), ..now };
    if limit::set(wanted).is_err() {
        let _ = limit::set(ResourceLimit { soft: now.hard, ..now });
    }
}
