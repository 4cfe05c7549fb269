//! Executing a plan in the child. Between clone and the end of this nothing allocates, locks or formats; what fails
//! goes back to the keeper as eight bytes, (step, errno).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfence_sys::seccomp::Filter;
use ringfence_sys::{caps, ids, limit, namespace, net, process};
use ringfence_weaken::{Mitigation, holds};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, chmodat, mkdirat, openat, symlinkat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags, fsconfig_create, fsmount, fsopen, mount, mount_bind,
    mount_move, unmount,
};
use rustix::process::{chdir, chroot, pivot_root};
use rustix::system::sethostname;

use crate::cgroup;
use crate::plan::{HOST_NAME, Step};
use crate::step::StepName;

/// What the steps work with.
pub(crate) struct Hands<'a> {
    /// Doors of the cell's cgroups.
    pub(crate) doors: &'a [OwnedFd],
    /// The descriptors that stay, from 0 on, and whether they end at exec.
    pub(crate) stay: &'a [(BorrowedFd<'a>, bool)],
    /// Which of them is the report pipe.
    pub(crate) report_number: i32,
    /// The report pipe, as long as the descriptors are not laid out.
    pub(crate) report: BorrowedFd<'a>,
    /// The filter of cells.
    pub(crate) filter: Option<&'a Filter>,
}

/// Why a plan was not carried out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failure {
    pub(crate) step: StepName,
    pub(crate) errno: i32,
}

/// Bytes of a report.
pub(crate) const REPORT_BYTES: usize = 8;

impl Failure {
    pub(crate) fn new(step: StepName, error: &io::Error) -> Failure {
        Failure { step, errno: error.raw_os_error().unwrap_or(libc::EIO) }
    }

    /// As the report pipe carries it; a report of zeros is success.
    fn to_report(self) -> [u8; REPORT_BYTES] {
        let [s0, s1, s2, s3] = self.step.number().to_le_bytes();
        let [e0, e1, e2, e3] = self.errno.to_le_bytes();
        [s0, s1, s2, s3, e0, e1, e2, e3]
    }

    /// What a report says.
    pub(crate) fn from_report(report: [u8; REPORT_BYTES]) -> Result<(), Failure> {
        let [s0, s1, s2, s3, e0, e1, e2, e3] = report;
        let errno = i32::from_le_bytes([e0, e1, e2, e3]);
        match u32::from_le_bytes([s0, s1, s2, s3]) {
            0 => Ok(()),
            number => Err(Failure { step: StepName::from_number(number).unwrap_or(StepName::Answer), errno }),
        }
    }
}

/// Carries the plan out. Where that fails, the report is sent and the process ends. Success is reported by
/// [`report_success`] or, for a zygote, by the exec that closes the pipe. Child-safe.
pub(crate) fn run_or_exit(plan: &[Step], hands: &Hands<'_>) {
    let mut run = Run { hands, proc: None, laid_out: false };
    for step in plan {
        if let Err(error) = run.step(step) {
            let failure = Failure::new(name(step), &error);
            fail(failure, if run.laid_out { None } else { Some(hands.report) }, hands.report_number);
        }
    }
    // Its number may be another's by now; the process keeps it as the last of the laid-out descriptors.
    std::mem::forget(run);
}

/// Reports and ends the process. Child-safe.
pub(crate) fn fail(failure: Failure, report: Option<BorrowedFd<'_>>, report_number: i32) -> ! {
    let bytes = failure.to_report();
    // Nobody is left to hear of a failure to report.
    match report {
        Some(report) => {
            let _ = rustix::io::write(report, &bytes);
        }
        None => {
            if let Ok(report) = process::adopt(report_number) {
                let _ = rustix::io::write(&report, &bytes);
            }
        }
    }
    process::exit_now(1)
}

/// Says that the plan was carried out, and closes the pipe.
pub(crate) fn report_success(report_number: i32) {
    if let Ok(report) = process::adopt(report_number) {
        let _ = rustix::io::write(&report, &[0; REPORT_BYTES]);
    }
}

struct Run<'a> {
    hands: &'a Hands<'a>,
    proc: Option<OwnedFd>,
    laid_out: bool,
}

impl Run<'_> {
    fn step(&mut self, step: &Step) -> io::Result<()> {
        match step {
            Step::EnterCgroups => self.hands.doors.iter().try_for_each(|door| cgroup::enter(door.as_fd())),
            Step::CgroupNamespace => namespace::unshare(namespace::Namespaces::CGROUP),
            Step::HostName => Ok(sethostname(HOST_NAME.as_bytes())?),
            Step::Loopback => net::loopback_up(),
            Step::ChangeFolder(path) => Ok(chdir(path.as_c_str())?),
            Step::Mount { kind, target, flags, data } => Ok(mount(*kind, *target, *kind, *flags, data.as_c_str())?),
            Step::Mask(target) => Ok(mount_bind(c"dev/null", target.as_c_str())?),
            Step::SharedFolder(folder) => {
                mkdirat(CWD, folder.as_c_str(), Mode::RWXU)?;
                // Not by mkdir: the mask of whoever started us would take from it.
                Ok(chmodat(CWD, folder.as_c_str(), Mode::from_raw_mode(0o1777), AtFlags::empty())?)
            }
            Step::Link { target, link } => Ok(symlinkat(target.as_c_str(), CWD, link.as_c_str())?),
            Step::InitProc => self.init_proc(),
            Step::Pivot => Ok(pivot_root(c".", c".")?),
            Step::LeaveOldRoot => {
                if holds(Mitigation::OldRootDetached) {
                    unmount(c".", UnmountFlags::DETACH)?;
                }
                Ok(chdir(c"/")?)
            }
            Step::Cover => {
                mount_move(c".", c"/")?;
                chroot(c".")?;
                Ok(chdir(c"/")?)
            }
            Step::LeaveGroups => ids::leave_groups(),
            Step::BecomeGroup(id) => ids::become_group(*id),
            Step::BecomeUser(id) => ids::become_user(*id),
            Step::Dumpable(yes) => process::dumpable(*yes),
            Step::UserNamespace => namespace::unshare(namespace::Namespaces::USER),
            Step::CellMap(line) => self.map(line.to_bytes()),
            Step::KernelCount(file, most) => self.count(file, most.to_bytes()),
            Step::Descriptors => self.lay_out(),
            Step::ResourceLimit(one) => limit::set(*one),
            Step::BoundCapabilities => caps::bound(0),
            Step::DropCapabilities => caps::keep(0),
            Step::KeepCapabilities(mask) => caps::bound(*mask).and_then(|()| caps::keep(*mask)),
            Step::NoNewPrivileges => process::no_new_privileges(),
            Step::LoadFilter => self.hands.filter.map_or(Ok(()), Filter::load),
        }
    }

    /// A mount of the pid namespace's proc that is nowhere in the tree.
    fn init_proc(&mut self) -> io::Result<()> {
        let context = fsopen(c"proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let attributes =
            MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        self.proc = Some(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?);
        Ok(())
    }

    fn map(&self, line: &[u8]) -> io::Result<()> {
        let proc = self.proc.as_ref().ok_or(io::ErrorKind::NotFound)?;
        for (file, text) in [(c"self/setgroups", &b"deny"[..]), (c"self/gid_map", line), (c"self/uid_map", line)] {
            let file = openat(proc, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::io::write(&file, text)?;
        }
        Ok(())
    }

    fn count(&self, file: &CStr, most: &[u8]) -> io::Result<()> {
        let proc = self.proc.as_ref().ok_or(io::ErrorKind::NotFound)?;
        match openat(proc, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => rustix::io::write(&file, most).map(drop).map_err(io::Error::from),
            Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn lay_out(&mut self) -> io::Result<()> {
        let mut number = 0;
        for (fd, close_on_exec) in self.hands.stay {
            process::place(*fd, number, *close_on_exec)?;
            number += 1;
        }
        if let Some(proc) = &self.proc {
            process::place(proc.as_fd(), number, true)?;
            number += 1;
        }
        if holds(Mitigation::DescriptorsOfInit) {
            process::close_from(number.cast_unsigned())?;
        }
        self.laid_out = true;
        Ok(())
    }
}

fn name(step: &Step) -> StepName {
    match step {
        Step::EnterCgroups => StepName::EnterCgroup,
        Step::CgroupNamespace => StepName::CgroupNamespace,
        Step::HostName => StepName::HostName,
        Step::Loopback => StepName::Loopback,
        Step::ChangeFolder(_) => StepName::ChangeFolder,
        Step::Mount { .. } => StepName::Mount,
        Step::Mask(_) => StepName::Mask,
        Step::SharedFolder(_) => StepName::SharedFolder,
        Step::Link { .. } => StepName::Link,
        Step::InitProc => StepName::InitProc,
        Step::Pivot => StepName::Pivot,
        Step::LeaveOldRoot => StepName::LeaveOldRoot,
        Step::Cover => StepName::Pivot,
        Step::LeaveGroups => StepName::LeaveGroups,
        Step::BecomeGroup(_) => StepName::BecomeGroup,
        Step::BecomeUser(_) => StepName::BecomeUser,
        Step::Dumpable(_) => StepName::Dumpable,
        Step::UserNamespace => StepName::UserNamespace,
        Step::CellMap(_) => StepName::CellMap,
        Step::KernelCount(..) => StepName::KernelCount,
        Step::Descriptors => StepName::Descriptors,
        Step::ResourceLimit(_) => StepName::ResourceLimit,
        Step::BoundCapabilities => StepName::BoundCapabilities,
        Step::DropCapabilities | Step::KeepCapabilities(_) => StepName::DropCapabilities,
        Step::NoNewPrivileges => StepName::NoNewPrivileges,
        Step::LoadFilter => StepName::LoadFilter,
    }
}
