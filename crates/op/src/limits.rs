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

/// A number of bytes as people write it: `1000`, `64KiB`, `2 GiB`; `None` where it is none, or more than a `u64` holds.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        "TiB" | "T" => 1 << 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Limits that an image names for its own sessions; the server's hold where it names none, and where they are lower.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ImageLimits {
    /// As [`CellLimits::memory_bytes`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// As [`CellLimits::processes`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// As [`CellLimits::cpu_millis`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u64>,
    /// As [`CellLimits::workspace_bytes`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_bytes: Option<u64>,
    /// As [`CellLimits::workspace_inodes`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_inodes: Option<u64>,
    /// As [`CellLimits::tmp_bytes`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tmp_bytes: Option<u64>,
    /// The ceiling of a call's timeout, seconds: as [`CallLimits::timeout_max`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds_max: Option<u64>,
}

impl ImageLimits {
    /// Whether it names none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == ImageLimits::default()
    }

    /// What a cell of the image may use on a server with these limits.
    #[must_use]
    pub fn within(&self, server: &CellLimits) -> CellLimits {
        let least = |own: Option<u64>, server: u64| own.map_or(server, |own| own.min(server));
        CellLimits {
            memory_bytes: least(self.memory_bytes, server.memory_bytes),
            processes: least(self.processes, server.processes),
            cpu_millis: least(self.cpu_millis, server.cpu_millis),
            workspace_bytes: least(self.workspace_bytes, server.workspace_bytes),
            workspace_inodes: least(self.workspace_inodes, server.workspace_inodes),
            tmp_bytes: least(self.tmp_bytes, server.tmp_bytes),
            shm_bytes: server.shm_bytes,
            open_files: server.open_files,
        }
    }

    /// The ceiling of a call's timeout on a server with this one.
    #[must_use]
    pub fn timeout_max(&self, server: Duration) -> Duration {
        self.timeout_seconds_max.map_or(server, |own| Duration::from_secs(own).min(server))
    }

    /// The limits of an image on another: each of its own, where it names none the other's.
    #[must_use]
    pub fn or(self, below: ImageLimits) -> ImageLimits {
        ImageLimits {
            memory_bytes: self.memory_bytes.or(below.memory_bytes),
            processes: self.processes.or(below.processes),
            cpu_millis: self.cpu_millis.or(below.cpu_millis),
            workspace_bytes: self.workspace_bytes.or(below.workspace_bytes),
            workspace_inodes: self.workspace_inodes.or(below.workspace_inodes),
            tmp_bytes: self.tmp_bytes.or(below.tmp_bytes),
            timeout_seconds_max: self.timeout_seconds_max.or(below.timeout_seconds_max),
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
///
/// The order is that of strength, weakest first: it is what `--tier-min` compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Nothing holds it: a process of the server's own user. Never chosen by itself.
    None,
    /// Landlock, seccomp and rlimits, in the namespaces of whoever starts the server.
    Confined,
    /// Namespaces, cgroup or rlimits, seccomp, read-only root, no network.
    Cell,
    /// A gVisor sandbox for each session: the host's kernel sees little of what the session asks.
    Gvisor,
}

impl Tier {
    /// All of them, weakest first.
    pub const ALL: [Tier; 4] = [Tier::None, Tier::Confined, Tier::Cell, Tier::Gvisor];

    /// Whether sessions share the namespaces of the server.
    #[must_use]
    pub fn is_flat(self) -> bool {
        matches!(self, Tier::None | Tier::Confined)
    }

    /// The name on the wire and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Tier::None => "none",
            Tier::Confined => "confined",
            Tier::Cell => "cell",
            Tier::Gvisor => "gvisor",
        }
    }

    /// The tier of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Tier> {
        Tier::ALL.into_iter().find(|tier| tier.as_str() == name)
    }
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_images_limits_are_never_above_the_servers() {
        let server = CellLimits::default();
        assert_eq!(ImageLimits::default().within(&server), server);
        let less =
            ImageLimits { memory_bytes: Some(1), processes: Some(u64::MAX), tmp_bytes: Some(2), ..Default::default() };
        let held = less.within(&server);
        assert_eq!((held.memory_bytes, held.processes, held.tmp_bytes), (1, server.processes, 2));
        let timeout =
            |own| ImageLimits { timeout_seconds_max: own, ..less }.timeout_max(Duration::from_secs(60)).as_secs();
        assert_eq!([timeout(None), timeout(Some(5)), timeout(Some(600))], [60, 5, 60]);
        let upper = ImageLimits { tmp_bytes: Some(9), ..Default::default() }.or(less);
        assert_eq!((upper.tmp_bytes, upper.memory_bytes), (Some(9), Some(1)));
    }

    #[test]
    fn tiers_stand_in_the_order_of_their_strength_and_are_found_by_name() {
        assert!(Tier::ALL.is_sorted());
        assert!(Tier::None < Tier::Confined && Tier::Confined < Tier::Cell && Tier::Cell < Tier::Gvisor);
        for tier in Tier::ALL {
            assert_eq!(Tier::parse(tier.as_str()), Some(tier));
            assert_eq!(tier.to_string(), tier.as_str());
        }
        assert_eq!(Tier::parse("auto"), None);
        assert_eq!(Tier::parse("Cell"), None);
    }
}
