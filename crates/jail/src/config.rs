//! What the daemon hands to the keeper, and the keeper's outer process to its inner one.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use ringfence_op::{CellLimits, RootSpec, Tier};
use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};

use crate::cgroup::Layout;
use crate::limits::CONFIG_BYTES_MAX;

/// The keeper's configuration. Nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeeperConfig {
    /// Limits of every cell.
    pub limits: CellLimits,
    /// The images' roots; `MakeCell` names them by index.
    pub images: Vec<RootSpec>,
    /// The zygote's program (Python).
    pub zygote_source: String,
    /// The worker's program (Python), handed to the zygote.
    pub worker_source: String,
    /// First host id of the fleet's range, where the keeper may map a range (it is root).
    pub id_base: u32,
    /// Length of that range; at least 65534.
    pub id_count: u32,
    /// Whether to limit by cgroups where they can be written; `false` is rlimits only.
    pub cgroups: bool,
    /// The server's state folder.
    pub state_dir: PathBuf,
    /// How sessions are held: by cells, or without namespaces ([`Tier::Confined`], [`Tier::None`]).
    pub tier: Tier,
    /// What the zygote runs beside its own program where sessions have no namespaces, or in each sandbox (Python).
    pub guard_source: String,
    /// Images that may come later, where any may; only with namespaces.
    pub pulled: Option<Pulled>,
    /// gVisor's program, for [`Tier::Gvisor`].
    pub runsc: PathBuf,
}

/// Images that come while the server runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pulled {
    /// The folder of the store, absolute and without links: whatever such an image is made of lies beneath it.
    pub store: PathBuf,
    /// How many may come.
    pub most: usize,
}

/// First host id of the range, by default: above what `/etc/subuid` usually gives away.
const ID_BASE_DEFAULT: u32 = 1_000_000_000;
/// Length of the range, by default.
const ID_COUNT_DEFAULT: u32 = 65_536;

impl KeeperConfig {
    /// A configuration of these images with every limit at its default.
    #[must_use]
    pub fn new(images: Vec<RootSpec>, zygote_source: String, worker_source: String, state_dir: PathBuf) -> Self {
        KeeperConfig {
            limits: CellLimits::default(),
            images,
            zygote_source,
            worker_source,
            id_base: ID_BASE_DEFAULT,
            id_count: ID_COUNT_DEFAULT,
            cgroups: true,
            state_dir,
            tier: Tier::Cell,
            guard_source: String::new(),
            pulled: None,
            runsc: PathBuf::new(),
        }
    }
}

/// What the configuration's descriptor holds: the same subcommand runs twice.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// Outside, as started by the daemon.
    Warden(KeeperConfig),
    /// Inside the fleet's namespaces.
    Keeper(Inside),
}

/// What the inner process needs to know beside the configuration. Its descriptors lie in a fixed order from
/// [`Inside::FDS_FIRST`] on: the cgroup folders in the layout's order, then the trees of each image, if any; where images
/// may come later, the tree of their store, if it was opened outside, and the puller's socket.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Inside {
    pub(crate) config: KeeperConfig,
    /// The fleet has one id only.
    pub(crate) single_id: bool,
    /// The cgroups that are ours.
    pub(crate) layout: Option<Layout>,
    /// Trees of binds and devices were opened outside, for each image in order.
    pub(crate) trees: Option<Vec<usize>>,
}

impl Inside {
    /// The daemon's socket; the configuration itself is next to it.
    pub(crate) const SOCKET: i32 = 3;
    /// A pipe whose end says that the outer process is gone.
    pub(crate) const LIFE: i32 = 5;
    /// The first of the others.
    pub(crate) const FDS_FIRST: i32 = 6;
}

/// A sealed-off file of memory with `bytes` in it, to be read from its start.
pub(crate) fn memfd(name: &str, bytes: &[u8]) -> std::io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

pub(crate) fn read_stage(config: OwnedFd) -> std::io::Result<Stage> {
    let mut bytes = Vec::new();
    File::from(config).take(CONFIG_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

pub(crate) fn write_stage(stage: &Stage) -> std::io::Result<OwnedFd> {
    memfd("ringfence-keeper", &serde_json::to_vec(stage)?)
}
