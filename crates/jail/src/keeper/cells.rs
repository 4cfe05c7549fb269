//! Making cells and taking them down.

use std::ffi::{CString, NulError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ringfence_frame::keeper::{FromKeeper, Meters};
use ringfence_op::RootSpec;
use ringfence_sys::namespace::Namespaces;
use ringfence_sys::process::{self, Child, Forked, Strings, wait_for};
use ringfence_sys::{packet, signal};
use ringfence_weaken::{Mitigation, holds};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, pidfd_send_signal};

use super::Keeper;
use crate::init::{self, Program};
use crate::limits::{CELL_STEPS_WAIT_MAX, CGROUP_REMOVE_PAUSE, CGROUP_REMOVE_TRIES_MAX};
use crate::plan::{self, CellFacts};
use crate::step::StepName;
use crate::steps::{self, Failure, Hands, REPORT_BYTES};
use crate::wait::readable;
use crate::warden::kinds;

/// A cell that lives, or is being taken down.
pub(super) struct Cell {
    /// The set of zygotes that its interpreters are of.
    pub(super) set: u32,
    pub(super) owner_id: u32,
    pub(super) init: Child,
    pub(super) group: Option<String>,
    pub(super) state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Live,
    /// Init is killed; its end is awaited.
    Dying,
    /// Init ended without being asked to; the daemon has yet to say that it lets go.
    Dead,
    /// Nothing runs any more; the cgroups are being removed.
    Removing,
}

/// A cgroup that is to be removed, with what follows.
pub(super) struct Removal {
    group: String,
    tries: u32,
    pub(super) again_at: Instant,
    then: Then,
}

/// What follows the removal of a cgroup.
#[derive(Debug, Clone, Copy)]
enum Then {
    /// The cell is gone.
    Gone(u64),
    /// A cell that was never made: its id is free again.
    Free(u32),
}

/// What a new cell is handed to the daemon with.
struct Made {
    cell: Cell,
    control: OwnedFd,
    workspace: OwnedFd,
    meters: (Meters, Vec<OwnedFd>),
}

/// What init starts in cells of this image.
pub(super) fn program(spec: &RootSpec) -> Result<Program, NulError> {
    Ok(Program { shell: plan::c_string(&spec.shell)?, environment: environment(spec)? })
}

pub(super) fn environment(spec: &RootSpec) -> Result<Strings, NulError> {
    let lines = spec.environment.iter().map(|(name, value)| CString::new(format!("{name}={value}")));
    Ok(Strings::new(lines.collect::<Result<_, _>>()?))
}

impl Keeper {
    pub(super) fn make_cell(&mut self, number: u64, image: u32, set: u32) {
        match self.try_make_cell(number, image, set) {
            Ok(made) => {
                let (meters, files) = made.meters;
                let message = FromKeeper::CellMade { cell: number, owner_id: made.cell.owner_id, meters };
                self.inits.insert(made.cell.init.pid, number);
                self.cells.insert(number, made.cell);
                let fds = [made.control, made.workspace].into_iter().chain(files).collect();
                self.outbox.push(message, fds);
            }
            Err(Failure { step, errno }) => {
                self.outbox.push(FromKeeper::CellFailed { cell: number, step: step.number(), errno }, Vec::new());
            }
        }
    }

    fn try_make_cell(&mut self, number: u64, image: u32, set: u32) -> Result<Made, Failure> {
        let failure = |step, errno: Errno| Failure { step, errno: errno.raw_os_error() };
        if self.cells.contains_key(&number) {
            return Err(failure(StepName::Number, Errno::EXIST));
        }
        let image = image as usize;
        if image >= self.images.len() {
            return Err(failure(StepName::Image, Errno::NOENT));
        }
        self.wake_zygote(set, image)?;
        let owner_id = self.ids.take().ok_or(failure(StepName::Id, Errno::AGAIN))?;
        let group = self.groups.as_ref().map(|_| {
            self.groups_made += 1;
            format!("cell-{}", self.groups_made)
        });
        let made = self.populate(image, set, owner_id, group.clone());
        if made.is_err() {
            // Whatever there was is dead and reaped; what may be left of it is its cgroup.
            match group {
                Some(group) => self.remove_group(group, Then::Free(owner_id)),
                None => self.ids.give_back(owner_id),
            }
        }
        made
    }

    fn populate(&self, image_index: usize, set: u32, owner_id: u32, group: Option<String>) -> Result<Made, Failure> {
        let at = |step| move |error: io::Error| Failure::new(step, &error);
        let mut doors = Vec::new();
        if let (Some(groups), Some(name)) = (&self.groups, &group) {
            let image = self.images.get(image_index).ok_or(Failure { step: StepName::Image, errno: libc::ENOENT })?;
            groups.make(name, &image.limits).map_err(at(StepName::MakeCgroup))?;
            doors = groups.doors(name).map_err(at(StepName::MakeCgroup))?;
        }
        let (init, control) = self.start_init(image_index, owner_id, &doors)?;
        let finish = || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let path = format!("/proc/{}/root/workspace", init.pid);
            let workspace = openat(CWD, path, flags, Mode::empty());
            let workspace = workspace.map_err(io::Error::from).map_err(at(StepName::OpenWorkspace))?;
            let meters = match (&self.groups, &group) {
                (Some(groups), Some(name)) => groups.meters(name).map_err(at(StepName::MakeCgroup))?,
                _ => Default::default(),
            };
            Ok((workspace, meters))
        };
        match finish() {
            Ok((workspace, meters)) => {
                let cell = Cell { set, owner_id, init, group, state: State::Live };
                Ok(Made { cell, control, workspace, meters })
            }
            Err(failure) => {
                end(&init);
                Err(failure)
            }
        }
    }

    /// Clones init, lets it carry out the plan, and waits for its report. On failure nothing of it is left.
    fn start_init(&self, image_index: usize, owner_id: u32, doors: &[OwnedFd]) -> Result<(Child, OwnedFd), Failure> {
        let at = |step| move |error: io::Error| Failure::new(step, &error);
        let image = self.images.get(image_index).ok_or(Failure { step: StepName::Image, errno: libc::ENOENT })?;
        let facts = CellFacts {
            root: &image.root,
            spec: &image.spec,
            limits: &image.limits,
            owner_id,
            single_id: self.single_id,
            cgroups: self.groups.is_some(),
            masks: &self.masks,
            way: self.way,
        };
        let plan = plan::cell(&facts).map_err(|error| Failure::new(StepName::Image, &error.into()))?;
        let (control, control_of_init) = packet::pair().map_err(at(StepName::CloneCell))?;
        let (report, report_of_init) =
            pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from).map_err(at(StepName::CloneCell))?;
        let null = (self.null.as_fd(), false);
        let hands = Hands {
            doors,
            stay: &[null, null, null, (control_of_init.as_fd(), true), (report_of_init.as_fd(), true)],
            report_number: init::REPORT,
            report: report_of_init.as_fd(),
            filter: Some(&self.filter),
        };
        let kinds = kinds(&[
            (Namespaces::PID, Mitigation::PidNamespace),
            (Namespaces::MOUNT, Mitigation::MountNamespace),
            (Namespaces::NET, Mitigation::NetworkNamespace),
            (Namespaces::IPC, Mitigation::IpcNamespace),
            (Namespaces::UTS, Mitigation::UtsNamespace),
        ]);
        match process::fork(&self.single, kinds).map_err(at(StepName::CloneCell))? {
            Forked::Child => {
                steps::run_or_exit(&plan, &hands);
                steps::report_success(init::REPORT);
                init::run(&image.program)
            }
            Forked::Parent(child) => {
                drop(report_of_init);
                wait_report(&report, CELL_STEPS_WAIT_MAX).inspect_err(|_| end(&child))?;
                Ok((child, control))
            }
        }
    }

    pub(super) fn destroy_cell(&mut self, number: u64) {
        let Some(cell) = self.cells.get_mut(&number) else {
            self.outbox.push(FromKeeper::CellGone { cell: number }, Vec::new());
            return;
        };
        match cell.state {
            State::Live => {
                cell.state = State::Dying;
                // ESRCH: it is ending already, and will be reaped.
                if holds(Mitigation::KilledAtRelease) {
                    let _ = pidfd_send_signal(&cell.init.pidfd, Signal::KILL);
                }
            }
            State::Dead => self.take_apart(number),
            State::Dying | State::Removing => {}
        }
    }

    /// Init has been reaped: no process of the cell is left.
    pub(super) fn init_ended(&mut self, number: u64, status: i32) {
        let Some(cell) = self.cells.get_mut(&number) else { return };
        if cell.state == State::Live {
            cell.state = State::Dead;
            self.outbox.push(FromKeeper::CellDied { cell: number, status }, Vec::new());
        } else {
            self.take_apart(number);
        }
    }

    fn take_apart(&mut self, number: u64) {
        let Some(cell) = self.cells.get_mut(&number) else { return };
        cell.state = State::Removing;
        match cell.group.clone() {
            Some(group) => self.remove_group(group, Then::Gone(number)),
            None => self.removed(Then::Gone(number)),
        }
    }

    fn remove_group(&mut self, group: String, then: Then) {
        let mut removal = Removal { group, tries: 0, again_at: Instant::now(), then };
        if self.try_remove(&mut removal) {
            self.removed(then);
        } else {
            self.removals.push(removal);
        }
    }

    /// Whether it is gone, or given up for the warden to remove at the end.
    fn try_remove(&self, removal: &mut Removal) -> bool {
        removal.tries += 1;
        removal.again_at = Instant::now() + CGROUP_REMOVE_PAUSE;
        let gone = self.groups.as_ref().is_none_or(|groups| groups.remove(&removal.group).is_ok());
        gone || removal.tries >= CGROUP_REMOVE_TRIES_MAX
    }

    pub(super) fn retry_removals(&mut self) {
        let now = Instant::now();
        let mut removals = std::mem::take(&mut self.removals);
        let mut over = Vec::new();
        removals.retain_mut(|removal| {
            let done = removal.again_at <= now && self.try_remove(removal);
            if done {
                over.push(removal.then);
            }
            !done
        });
        self.removals = removals;
        for then in over {
            self.removed(then);
        }
    }

    fn removed(&mut self, then: Then) {
        match then {
            Then::Free(id) => self.ids.give_back(id),
            Then::Gone(number) => {
                if let Some(cell) = self.cells.remove(&number) {
                    self.ids.give_back(cell.owner_id);
                    self.rest_zygote(cell.set);
                }
                self.outbox.push(FromKeeper::CellGone { cell: number }, Vec::new());
            }
        }
    }
}

/// Kills a child that was just made, and reaps it.
pub(crate) fn end(child: &Child) {
    let _ = signal::send(child.pid.cast_signed(), libc::SIGKILL);
    let _ = wait_for(child.pid);
}

/// Waits for the child's report; an end of the pipe without one is a death.
pub(crate) fn wait_report(report: &OwnedFd, wait_max: Duration) -> Result<(), Failure> {
    let mut bytes = [0; REPORT_BYTES];
    match read_report(report.as_fd(), &mut bytes, wait_max) {
        Ok(REPORT_BYTES) => Failure::from_report(bytes),
        Ok(_) => Err(Failure { step: StepName::Answer, errno: libc::ECHILD }),
        Err(error) => Err(Failure::new(StepName::Answer, &error)),
    }
}

/// How many bytes came before the end of the pipe; at most one report is written.
pub(crate) fn read_report(pipe: BorrowedFd<'_>, bytes: &mut [u8], wait_max: Duration) -> io::Result<usize> {
    if !readable(pipe, Instant::now() + wait_max)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    // A report is smaller than a pipe's atomic write, so it comes whole.
    Ok(rustix::io::read(pipe, bytes)?)
}
