//! What is set for all sessions, and what is told of one of them or of all.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ringfence_op::{CallLimits, CellLimits, SessionId, Tenant, Tier};

/// What the sessions of a server have in common.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Sessions at the same time.
    pub sessions_max: usize,
    /// The idle timeout of a lease that names none.
    pub idle_default: Duration,
    /// Longer idle timeouts are clamped to this.
    pub idle_max: Duration,
    /// The lifetime of a lease that names none.
    pub lifetime_default: Duration,
    /// Longer lifetimes are clamped to this.
    pub lifetime_max: Duration,
    /// Limits of a call.
    pub calls: CallLimits,
    /// Limits of a cell, as the handle states them.
    pub cell: CellLimits,
    /// The tier in force, as the handle states it.
    pub tier: Tier,
    /// How workspaces share the server; it counts for leases that name one.
    pub sharing: Sharing,
    /// What a lease may call an image, and the number of the one that it gets.
    pub images: HashMap<String, u32>,
    /// Hears of what no image is called, where something may come of it.
    pub absent: Option<Arc<dyn Absent>>,
}

/// Whoever can bring an image that is not there.
pub trait Absent: fmt::Debug + Send + Sync {
    /// A lease names an image that is not there. Whether it is on its way, to be told by [`crate::Sessions::learn`]:
    /// then nobody wonders that it is not there yet. Never waits.
    fn is_coming(&self, name: &str) -> bool;
}

/// How many sessions the workspaces of a shared server may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    /// Sessions of one workspace, whatever its grant says; `None` is as many as there are.
    pub sessions_each_max: Option<usize>,
    /// Sessions kept free for workspaces below their fair share; `None` is a tenth of all, and at least one.
    pub reserve: Option<usize>,
}

impl Default for SessionConfig {
    fn default() -> Self {
        SessionConfig {
            sessions_max: 100,
            idle_default: Duration::from_secs(300),
            idle_max: Duration::from_secs(3600),
            lifetime_default: Duration::from_secs(3600),
            lifetime_max: Duration::from_secs(24 * 3600),
            calls: CallLimits::default(),
            cell: CellLimits::default(),
            tier: Tier::Cell,
            sharing: Sharing { sessions_each_max: None, reserve: None },
            images: HashMap::new(),
            absent: None,
        }
    }
}

/// Hints of a lease.
#[derive(Debug, Clone, Default)]
pub struct Lease {
    /// The image asked for; one that is not there is as good as none.
    pub image: Option<String>,
    /// The idle timeout asked for.
    pub idle: Option<Duration>,
    /// The lifetime asked for.
    pub lifetime: Option<Duration>,
    /// Who it is for, where the server is shared; `None` is nobody's, and there for whoever has its id.
    pub tenant: Option<Tenant>,
}

/// A session as its holder sees it.
#[derive(Debug, Clone)]
pub struct Handle {
    /// Its id.
    pub id: SessionId,
    /// When it was created.
    pub created: SystemTime,
    /// When it was last used.
    pub last_activity: SystemTime,
    /// The idle timeout in force.
    pub idle: Duration,
    /// The lifetime in force.
    pub lifetime: Duration,
    /// The image that it runs.
    pub image: String,
    /// The tier that holds it.
    pub tier: Tier,
    /// What its cell may use.
    pub limits: CellLimits,
    /// Longer timeouts of its calls are clamped to this.
    pub timeout_max: Duration,
}

/// Numbers of the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions that exist.
    pub sessions: usize,
    /// Sessions that may exist.
    pub sessions_max: usize,
    /// Calls that run or wait.
    pub calls: usize,
    /// Ended sessions whose cells are not gone yet.
    pub ending: usize,
    /// Cells ready to be leased.
    pub warm: usize,
    /// Zygotes that are one workspace's, or in reserve for one.
    pub zygotes_apart: usize,
    /// No lease is taken any more.
    pub draining: bool,
}
