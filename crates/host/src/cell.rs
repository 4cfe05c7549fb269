//! Whether the tier `cell` can be had: its namespaces and mounts are made once, in a child that then ends.

use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use ringfence_sys::namespace::Namespaces;
use ringfence_sys::process::{self, Forked, Single, wait_for};
use ringfence_sys::{caps, ids};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::Serialize;

use crate::facts::Facts;
use crate::tier::Missing;

/// How the trial went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CellTrial {
    /// Nobody has tried.
    #[default]
    Untried,
    /// All that a cell is made of could be made.
    Works,
    /// It ended here.
    Failed {
        /// At which step.
        step: TrialStep,
        /// With which error number of the kernel's.
        errno: i32,
    },
}

/// What is tried, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum TrialStep {
    /// `clone3` with a user namespace and all others.
    Clone = 1,
    /// The maps of user and group ids.
    Map,
    /// To be root in the new user namespace.
    Ids,
    /// Private mounts, and a new tmpfs.
    Mount,
    /// A new `/proc`.
    Proc,
}

impl TrialStep {
    const ALL: [TrialStep; 5] = [TrialStep::Clone, TrialStep::Map, TrialStep::Ids, TrialStep::Mount, TrialStep::Proc];

    fn words(self) -> &'static str {
        match self {
            TrialStep::Clone => "namespaces cannot be made",
            TrialStep::Map => "user ids cannot be mapped into a user namespace",
            TrialStep::Ids => "the root of a user namespace cannot be taken on",
            TrialStep::Mount => "nothing can be mounted in a user namespace",
            TrialStep::Proc => "no new /proc can be mounted in a user namespace",
        }
    }
}

/// What the tier `cell` misses here.
pub(crate) fn missing(facts: &Facts) -> Result<(), Vec<Missing>> {
    match facts.cell {
        CellTrial::Works => Ok(()),
        CellTrial::Untried => Err(vec![Missing::new("nobody has tried to make one", "run `ringfence doctor`")]),
        CellTrial::Failed { step, errno } => {
            let error = io::Error::from_raw_os_error(errno);
            Err(vec![Missing::new(format!("{} ({error})", step.words()), lift(step, errno))])
        }
    }
}

fn lift(step: TrialStep, errno: i32) -> &'static str {
    match (step, errno) {
        (TrialStep::Clone, libc::ENOSPC | libc::EUSERS) => {
            "`sysctl user.max_user_namespaces=15000` (and user.max_pid_namespaces, user.max_mnt_namespaces, \
             user.max_net_namespaces alike)"
        }
        (TrialStep::Clone, libc::ENOSYS) => "Linux 5.12 or later, and a seccomp profile that allows clone3",
        (TrialStep::Proc, _) => "in a container, `--security-opt systempaths=unconfined`",
        _ => {
            "`sysctl kernel.unprivileged_userns_clone=1` (Debian), \
             `sysctl kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu), or run as root; in a container, \
             CAP_SYS_ADMIN and a seccomp profile that allows clone3 and mount"
        }
    }
}

/// Makes what a cell is made of, in a child, and lets it go.
pub(crate) fn try_it(single: &Single, id_base: u32) -> io::Result<CellTrial> {
    let needed = caps::SETUID | caps::SETGID | caps::SYS_ADMIN;
    let range = (caps::effective()? & needed == needed).then_some(id_base);
    let kinds = Namespaces::USER
        .and(Namespaces::PID)
        .and(Namespaces::MOUNT)
        .and(Namespaces::NET)
        .and(Namespaces::IPC)
        .and(Namespaces::UTS);
    let (go_read, go_write) = pipe_with(PipeFlags::CLOEXEC)?;
    let (told_read, told_write) = pipe_with(PipeFlags::CLOEXEC)?;
    let child = match process::fork(single, kinds) {
        Err(error) => return Ok(failed(TrialStep::Clone, &error)),
        Ok(Forked::Child) => {
            drop(go_write);
            let [step, errno] = in_child(&go_read, range.is_some());
            // Nobody is left to hear of a failure to tell.
            let _ = rustix::io::write(&told_write, &[step, errno]);
            process::exit_now(0)
        }
        Ok(Forked::Parent(child)) => child,
    };
    drop((go_read, told_write));
    let mapped = write_maps(child.pid, range);
    if mapped.is_ok() {
        // A child that is gone already is heard of below.
        let _ = rustix::io::write(&go_write, b"g");
    }
    drop(go_write);
    let mut told = Vec::new();
    let heard = fs::File::from(told_read).take(2).read_to_end(&mut told);
    wait_for(child.pid)?;
    mapped.map_or_else(
        |error| Ok(failed(TrialStep::Map, &error)),
        |()| {
            heard?;
            Ok(match told.as_slice() {
                [0, 0] => CellTrial::Works,
                [step, errno] => CellTrial::Failed {
                    step: TrialStep::ALL.into_iter().find(|one| *one as u8 == *step).unwrap_or(TrialStep::Clone),
                    errno: i32::from(*errno),
                },
                _ => CellTrial::Failed { step: TrialStep::Ids, errno: libc::ECHILD },
            })
        },
    )
}

fn failed(step: TrialStep, error: &io::Error) -> CellTrial {
    CellTrial::Failed { step, errno: error.raw_os_error().unwrap_or(libc::EIO) }
}

/// The step and the error number, each as a byte; zeros where all went well.
fn in_child(go: &OwnedFd, groups: bool) -> [u8; 2] {
    let mut word = [0];
    if !matches!(rustix::io::read(go, &mut word), Ok(1)) {
        return [TrialStep::Map as u8, 0];
    }
    let steps = [
        (TrialStep::Ids, if groups { ids::leave_groups() } else { Ok(()) }),
        (TrialStep::Ids, ids::become_group(0)),
        (TrialStep::Ids, ids::become_user(0)),
        (TrialStep::Mount, mounts()),
        (TrialStep::Proc, proc()),
    ];
    let number = |error: io::Error| error.raw_os_error().and_then(|errno| u8::try_from(errno).ok()).unwrap_or(5);
    let failed = steps.into_iter().find_map(|(step, result)| Some([step as u8, number(result.err()?)]));
    failed.unwrap_or_default()
}

fn mounts() -> io::Result<()> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    Ok(mount("tmpfs", "/dev", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, None)?)
}

fn proc() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("proc", "/dev", "proc", flags, None)?)
}

/// A range from `base`, or this process's own ids alone.
fn write_maps(pid: u32, base: Option<u32>) -> io::Result<()> {
    let write = |file: &str, text: String| fs::write(format!("/proc/{pid}/{file}"), text);
    match base {
        Some(base) => {
            write("gid_map", format!("0 {base} 65536"))?;
            write("uid_map", format!("0 {base} 65536"))
        }
        None => {
            write("setgroups", "deny".to_owned())?;
            write("gid_map", format!("0 {} 1", rustix::process::getegid().as_raw()))?;
            write("uid_map", format!("0 {} 1", rustix::process::geteuid().as_raw()))
        }
    }
}
