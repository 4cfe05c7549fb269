//! Making sandboxes and taking them down.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use ringfence_frame::keeper::{FromKeeper, Meters};
use ringfence_op::CellLimits;
use ringfence_sys::namespace::Namespaces;
use ringfence_sys::process::{Ended, Strings};
use ringfence_sys::{packet, signal};
use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create, fsconfig_set_string,
    fsmount, fsopen, move_mount, unmount,
};
use rustix::time::{ClockId, clock_gettime};

use super::bundle;
use super::keeper::{Keeper, around, io_at};
use crate::config::memfd;
use crate::exec::{self, Exec};
use crate::flat::kill_orphans;
use crate::guard::{GuardLink, Said};
use crate::limits::{SANDBOX_END_WAIT_MAX, SANDBOX_START_WAIT_MAX};
use crate::plan::{self, CELL_ID, Step};
use crate::step::StepName;
use crate::steps::Failure;
use crate::zygote::blocking_pair;

/// A session.
pub(super) struct Cell {
    /// The process of `runsc` that ends with the sandbox; `None` once it has.
    pub(super) runsc: Option<u32>,
    /// Our link to the guard.
    pub(super) guard: GuardLink,
    folder: PathBuf,
    group: Option<String>,
    pub(super) state: State,
    /// What the daemon gets once the guard is ready.
    hands: Option<Hand>,
    /// When it must be ready, or must have ended.
    pub(super) until: Option<Instant>,
}

struct Hand {
    control: OwnedFd,
    workspace: OwnedFd,
    meters: Meters,
    files: Vec<OwnedFd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The guard is not ready yet.
    Starting,
    Live,
    /// The guard is told; the sandbox's end is awaited.
    Dying,
    /// The sandbox ended without being asked to; the daemon has yet to say that it lets go.
    Dead,
}

impl Keeper {
    pub(super) fn make_cell(&mut self, number: u64, image: usize) {
        if let Err(Failure { step, errno }) = self.try_make_cell(number, image) {
            self.outbox.push(FromKeeper::CellFailed { cell: number, step: step.number(), errno }, Vec::new());
        }
    }

    fn try_make_cell(&mut self, number: u64, image: usize) -> Result<(), Failure> {
        if self.cells.contains_key(&number) {
            return Err(Failure { step: StepName::Number, errno: libc::EEXIST });
        }
        if image >= self.images.len() {
            return Err(Failure { step: StepName::Image, errno: libc::ENOENT });
        }
        self.started += 1;
        let name = format!("session-{}", self.started);
        let folder = self.place.own(&name);
        let group = self.groups.is_some().then(|| name.clone());
        let made = self.populate(&name, &folder, image);
        match made {
            Ok(mut cell) => {
                cell.group = group;
                self.cells.insert(number, cell);
                Ok(())
            }
            Err(failure) => {
                self.clear(&folder, group);
                Err(failure)
            }
        }
    }

    fn populate(&mut self, name: &str, folder: &Path, image: usize) -> Result<Cell, Failure> {
        let gone = Failure { step: StepName::Image, errno: libc::ENOENT };
        let image = self.images.get(image).ok_or(gone)?;
        let folders = || {
            let mut new = DirBuilder::new();
            new.mode(0o700);
            new.create(folder)?;
            new.create(folder.join("state"))?;
            new.create(folder.join("workspace"))
        };
        folders().map_err(io_at(StepName::Folders))?;
        let place = folder.join("workspace");
        let workspace = mount_workspace(&place, &image.limits).map_err(io_at(StepName::Mount))?;
        let config = bundle::config(&image.root, &place, &image.spec, &image.python, &image.limits);
        fs::write(folder.join("config.json"), config.to_string()).map_err(io_at(StepName::Folders))?;

        let (meters, files, doors) = match &self.groups {
            Some(groups) => {
                groups.make(name, &around(&image.limits)).map_err(io_at(StepName::MakeCgroup))?;
                let (meters, files) = groups.meters(name).map_err(io_at(StepName::MakeCgroup))?;
                (meters, files, groups.doors(name).map_err(io_at(StepName::MakeCgroup))?)
            }
            None => (Meters::default(), Vec::new(), Vec::new()),
        };
        let at = io_at(StepName::Guard);
        let (control, control_of_guard) = blocking_pair().map_err(&at)?;
        let (orders, orders_of_guard) = blocking_pair().map_err(&at)?;
        let (door, door_of_sandbox) = blocking_pair().map_err(&at)?;
        let source = memfd("zygote", self.programs.zygote_source.as_bytes()).map_err(&at)?;
        let config = self.programs.guard_config(&image.spec, &image.limits, boot_ns()).map_err(&at)?;
        let config = memfd("guard-config", &config).map_err(&at)?;
        let fds = [source.as_fd(), orders_of_guard.as_fd(), config.as_fd(), control_of_guard.as_fd()];
        packet::send(door.as_fd(), b"begin", &fds).map_err(&at)?;
        let runsc = self.start(folder, name, &doors, &door_of_sandbox)?;
        Ok(Cell {
            runsc: Some(runsc),
            guard: GuardLink::new(orders),
            folder: folder.to_path_buf(),
            group: None,
            state: State::Starting,
            hands: Some(Hand { control, workspace, meters, files }),
            until: Some(Instant::now() + SANDBOX_START_WAIT_MAX),
        })
    }

    /// That of the server's own folder is random.
    fn name_on_the_machine(&self, name: &str) -> String {
        let server = self.place.root.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        format!("{server}-{name}")
    }

    /// Starts `runsc`, in the session's groups, and waits until its program runs.
    fn start(&self, folder: &Path, name: &str, doors: &[OwnedFd], door: &OwnedFd) -> Result<u32, Failure> {
        let at = io_at(StepName::StartSandbox);
        let c_string = |path: &Path| plan::c_string(path).map_err(io::Error::from);
        let program = c_string(&self.runsc).map_err(&at)?;
        let arguments = bundle::arguments(folder, &self.name_on_the_machine(name));
        let arguments = arguments.iter().map(|word| c_string(word)).collect::<io::Result<Vec<_>>>().map_err(&at)?;
        let arguments = Strings::new(arguments);
        let environment = Strings::new(vec![c"PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned()]);
        let errors = self.complaints();
        let started = exec::start(
            &self.single,
            &Exec {
                namespaces: Namespaces::NONE,
                plan: &[Step::EnterCgroups, Step::Descriptors],
                doors,
                fds: &[door.as_fd(), errors, errors],
                program: &program,
                arguments: &arguments,
                environment: &environment,
                start: StepName::StartSandbox,
                exec: StepName::StartSandbox,
            },
        );
        Ok(started?.pid)
    }

    pub(super) fn spawn_worker(&mut self, number: u64, fds: &[OwnedFd]) {
        let cell = self.cells.get_mut(&number).filter(|cell| cell.state == State::Live);
        if let Err(errno) = cell.map_or(Err(0), |cell| cell.guard.ask(number, CELL_ID, fds)) {
            self.outbox.push(FromKeeper::WorkerFailed { cell: number, errno }, Vec::new());
        }
    }

    /// Takes what a guard says.
    pub(super) fn hear_guard(&mut self, number: u64) {
        let Some(cell) = self.cells.get_mut(&number) else { return };
        // No two sandboxes have a zygote in common: there is none to be replaced.
        match cell.guard.hear(number, (0, 1), &mut self.outbox) {
            Said::Nothing => {}
            Said::Ready => {
                let Some(hand) = cell.hands.take() else { return };
                cell.state = State::Live;
                cell.until = None;
                let message = FromKeeper::CellMade { cell: number, owner_id: CELL_ID, meters: hand.meters };
                self.outbox.push(message, [hand.control, hand.workspace].into_iter().chain(hand.files).collect());
            }
            Said::End => cell.until = cell.until.or(Some(Instant::now() + SANDBOX_END_WAIT_MAX)),
        }
    }

    pub(super) fn destroy_cell(&mut self, number: u64) {
        let Some(cell) = self.cells.get_mut(&number) else {
            self.outbox.push(FromKeeper::CellGone { cell: number }, Vec::new());
            return;
        };
        match cell.state {
            State::Starting | State::Live => {
                cell.state = State::Dying;
                cell.guard.close();
                cell.hands = None;
                cell.until = Some(Instant::now() + SANDBOX_END_WAIT_MAX);
            }
            State::Dead => self.forget(number),
            State::Dying => {}
        }
    }

    /// Some child has ended: a sandbox, or what came to us of one whose `runsc` was killed.
    pub(super) fn child_ended(&mut self, ended: Ended) {
        let found = self.cells.iter().find(|(_, cell)| cell.runsc == Some(ended.pid));
        let Some(number) = found.map(|(number, _)| *number) else { return };
        let Some(cell) = self.cells.get_mut(&number) else { return };
        cell.runsc = None;
        cell.guard.close();
        let state = cell.state;
        self.kill_orphans();
        match state {
            State::Starting => {
                let failed =
                    FromKeeper::CellFailed { cell: number, step: StepName::StartSandbox.number(), errno: libc::ECHILD };
                if let Some(cell) = self.cells.remove(&number) {
                    self.clear(&cell.folder, cell.group);
                }
                self.outbox.push(failed, Vec::new());
            }
            State::Live => {
                if let Some(cell) = self.cells.get_mut(&number) {
                    cell.state = State::Dead;
                }
                self.outbox.push(FromKeeper::CellDied { cell: number, status: ended.status }, Vec::new());
            }
            State::Dying | State::Dead => self.forget(number),
        }
    }

    fn forget(&mut self, number: u64) {
        let Some(cell) = self.cells.remove(&number) else { return };
        self.clear(&cell.folder, cell.group);
        self.outbox.push(FromKeeper::CellGone { cell: number }, Vec::new());
    }

    /// Takes away what a session had on disk and among the groups. Nothing of it runs any more.
    fn clear(&mut self, folder: &Path, group: Option<String>) {
        let _ = unmount(folder.join("workspace"), UnmountFlags::DETACH);
        self.trash.take(folder);
        if let Some(group) = group {
            self.old_groups.add(group, Instant::now());
        }
    }

    pub(super) fn remove_old_groups(&mut self) {
        if let Some(groups) = &self.groups {
            self.old_groups.try_again(Instant::now(), |group| groups.remove(group).is_ok());
        }
    }

    /// Kills sandboxes that are not ready, or have not ended, in time.
    pub(super) fn press(&mut self) {
        let now = Instant::now();
        let late = |cell: &&mut Cell| cell.until.is_some_and(|until| until <= now);
        let mut killed = false;
        for cell in self.cells.values_mut().filter(late) {
            cell.until = Some(now + SANDBOX_END_WAIT_MAX);
            if let Some(pid) = cell.runsc {
                let _ = signal::send(pid.cast_signed(), libc::SIGKILL);
                killed = true;
            }
        }
        if killed {
            self.kill_orphans();
        }
    }

    /// Kills whatever descends from this process by way of a child that it does not know: what a `runsc` that did not end
    /// as it should has left.
    fn kill_orphans(&mut self) {
        kill_orphans(&self.cells.values().filter_map(|cell| cell.runsc).collect());
    }
}

/// A disk of the session's own, as large as it may be.
fn mount_workspace(place: &Path, limits: &CellLimits) -> io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let owner = CELL_ID.to_string();
    let (size, inodes) = (limits.workspace_bytes.to_string(), limits.workspace_inodes.to_string());
    let options = [("mode", "0755"), ("uid", &owner), ("gid", &owner), ("size", &size), ("nr_inodes", &inodes)];
    for (name, value) in options {
        fsconfig_set_string(&context, name, value)?;
    }
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mounted = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    move_mount(&mounted, "", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(open(place, flags, Mode::empty())?)
}

/// The host's boot, nanoseconds since the epoch, by the clock that sandboxes have as well.
fn boot_ns() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let since_boot = clock_gettime(ClockId::Boottime);
    let since_boot = Duration::new(since_boot.tv_sec.unsigned_abs(), since_boot.tv_nsec.unsigned_abs() as u32);
    i64::try_from(now.saturating_sub(since_boot).as_nanos()).unwrap_or(0)
}
