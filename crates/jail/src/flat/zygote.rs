//! The keeper's side of an image's zygote: starting it on the machine's own disk, forking guards.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

use ringfence_frame::zygote::{FromZygote, ToZygote};
use ringfence_op::{CellLimits, RootSpec};
use ringfence_sys::namespace::Namespaces;
use ringfence_sys::packet;
use ringfence_sys::process::{Child, Single, Strings};
use ringfence_weaken::kept_source;
use serde::Serialize;

use super::place::Folders;
use super::view::{self, View};
use crate::config::{KeeperConfig, memfd};
use crate::limits::{CELL_STEPS_WAIT_MAX, GUARD_DEATHS_KEPT_MAX};
use crate::plan::{Step, c_string};
use crate::sets::Process;
use crate::step::StepName;
use crate::steps::Failure;
use crate::wait::readable;
use crate::zygote;

/// A running zygote.
pub(super) struct Running {
    pub(super) child: Child,
    pub(super) link: OwnedFd,
    /// Its own folders, which go when it has ended.
    pub(super) folder: PathBuf,
}

impl Process for Running {
    fn pid(&self) -> u32 {
        self.child.pid
    }

    fn link(&self) -> &OwnedFd {
        &self.link
    }
}

/// What every zygote is started with.
pub(super) struct Starter {
    pub(super) zygote_source: String,
    pub(super) worker_source: String,
    pub(super) guard_source: String,
    pub(super) seccomp_hex: String,
    /// What sessions may use of which their image says nothing.
    pub(super) limits: CellLimits,
    pub(super) own_ids: bool,
    pub(super) keeper_id: u32,
    pub(super) landlock: bool,
}

/// The zygote's configuration, as it reads it from fd 5.
#[derive(Serialize)]
struct ZygoteConfig<'a> {
    worker_source: &'a str,
    guard_source: &'a str,
    preloads: &'a [String],
    environment: BTreeMap<&'a str, String>,
    /// The same for sessions, whose own folders are named as a cell would see them.
    session_environment: BTreeMap<&'a str, &'a str>,
    shell: &'a str,
    seccomp_hex: &'a str,
    rlimits: &'a [(u32, u64, u64)],
    keeper_id: u32,
    landlock: bool,
}

impl Starter {
    pub(super) fn new(config: &KeeperConfig, filter: &[u8], keeper_id: u32, own_ids: bool, landlock: bool) -> Starter {
        Starter {
            zygote_source: kept_source(config.zygote_source.clone()),
            worker_source: config.worker_source.clone(),
            guard_source: kept_source(config.guard_source.clone()),
            seccomp_hex: filter.iter().map(|byte| format!("{byte:02x}")).collect(),
            limits: config.limits.clone(),
            own_ids,
            keeper_id,
            landlock,
        }
    }

    fn config(&self, view: &View, spec: &RootSpec, own: &Folders) -> io::Result<OwnedFd> {
        let rlimits = super::cells::resource_limits(&spec.limits.within(&self.limits), self.own_ids);
        let config = ZygoteConfig {
            worker_source: &self.worker_source,
            guard_source: &self.guard_source,
            preloads: &spec.preloads,
            environment: view
                .environment
                .iter()
                .map(|(name, value)| (name.as_str(), view::in_folders(value, &own.root)))
                .collect(),
            session_environment: view.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            shell: view.shell.to_str().ok_or(io::ErrorKind::InvalidInput)?,
            seccomp_hex: &self.seccomp_hex,
            rlimits: &rlimits,
            keeper_id: self.keeper_id,
            landlock: self.landlock,
        };
        memfd("zygote-config", &serde_json::to_vec(&config)?)
    }
}

impl Running {
    pub(super) fn start(
        single: &Single,
        null: &OwnedFd,
        starter: &Starter,
        view: &View,
        spec: &RootSpec,
        own: &Folders,
    ) -> Result<Running, Failure> {
        let at = |error: io::Error| Failure::new(StepName::StartZygote, &error);
        let value = |value: &str| view::in_folders(value, &own.root);
        let lines = view.environment.iter().map(|(name, text)| CString::new(format!("{name}={}", value(text))));
        let plan = [
            Step::ChangeFolder(c_string(&own.root.join("workspace")).map_err(|error| at(error.into()))?),
            Step::Descriptors,
        ];
        let start = zygote::Start {
            python: view.python.as_deref(),
            environment: Strings::new(lines.collect::<Result<_, _>>().map_err(|error| at(error.into()))?),
            source: &starter.zygote_source,
            config: starter.config(view, spec, own).map_err(at)?,
            namespaces: Namespaces::NONE,
            plan: &plan,
        };
        let (child, link) = zygote::start(single, null, start)?;
        Ok(Running { child, link, folder: own.root.clone() })
    }

    /// Has a guard forked, and waits for its process id. Ends of other guards that it hears of meanwhile are put
    /// into `deaths`.
    pub(super) fn fork(
        &self,
        cell: u64,
        id: u32,
        fds: &[BorrowedFd<'_>],
        deaths: &mut Vec<(u32, i32)>,
    ) -> io::Result<u32> {
        packet::send(self.link.as_fd(), &ToZygote::Fork { cell, cgroups: 0, id }.encode(), fds)?;
        let deadline = Instant::now() + CELL_STEPS_WAIT_MAX;
        loop {
            match self.hear()? {
                Some(FromZygote::Forked { cell: of, pid }) if of == cell => return Ok(pid),
                Some(FromZygote::ForkFailed { cell: of, errno }) if of == cell => {
                    return Err(io::Error::from_raw_os_error(errno));
                }
                Some(FromZygote::Died { pid, status }) => {
                    if deaths.len() < GUARD_DEATHS_KEPT_MAX {
                        deaths.push((pid, status));
                    }
                }
                Some(_) => {}
                None if readable(&self.link, deadline)? => {}
                None => return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
            }
        }
    }

    /// One message; `None` where there is none now.
    pub(super) fn hear(&self) -> io::Result<Option<FromZygote>> {
        zygote::hear(&self.link)
    }
}
