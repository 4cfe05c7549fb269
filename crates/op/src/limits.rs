//! What a cell may use, what a call may use, and which tier holds it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits of one cell, the same for every cell of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellLimits {
    /// Memory of all its processes and its tmpfs pages, bytes (cgroup), or address space of each process (rlimit).
    pub memory_bytes: u64,
    /// Processes and threads.
    pub processes: u64,
    /// CPU bandwidth in thousandths of one CPU.
    pub cpu_millis: u64,
    /// Bytes of `/workspace`.
    pub workspace_bytes: u64,
    /// Inodes of `/workspace`.
    pub workspace_inodes: u64,
    /// Bytes of `/tmp`.
    pub tmp_bytes: u64,
    /// Bytes of `/dev/shm`.
    pub shm_bytes: u64,
    /// Open descriptors of each process.
    pub open_files: u64,
}

impl Default for CellLimits {
    fn default() -> Self {
        CellLimits {
            memory_bytes: 2 << 30,
            processes: 256,
            cpu_millis: 1000,
            workspace_bytes: 1 << 30,
            workspace_inodes: 100_000,
            tmp_bytes: 256 << 20,
            shm_bytes: 256 << 20,
            open_files: 1024,
        }
    }
}

/// Limits of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallLimits {
    /// The timeout of a call that names none (30 s, as the reference).
    pub timeout_default: Duration,
    /// Larger timeouts are clamped to this.
    pub timeout_max: Duration,
    /// How long an interrupted program may take to unwind before it is killed.
    pub interrupt_grace: Duration,
    /// Bytes kept of each output stream: half from its head, half from its tail.
    pub output_bytes_max: usize,
    /// How many produced files a result names.
    pub produced_files_max: usize,
    /// Calls that may wait in one session behind the running one.
    pub queue_calls_max: usize,
    /// How long a call may wait in its session's queue before it is refused with 503.
    pub queue_wait_max: Duration,
}

impl Default for CallLimits {
    fn default() -> Self {
        CallLimits {
            timeout_default: Duration::from_secs(30),
            timeout_max: Duration::from_secs(600),
            interrupt_grace: Duration::from_secs(1),
            output_bytes_max: 1 << 20,
            produced_files_max: 50,
            queue_calls_max: 64,
            queue_wait_max: Duration::from_secs(600),
        }
    }
}

/// How strongly a session is held; stated in the start-up line, `/health` and every handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Namespaces, cgroup or rlimits, seccomp, read-only root, no network.
    Cell,
}

impl Tier {
    /// The name on the wire and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Tier::Cell => "cell",
        }
    }
}
