//! What `runsc` is told of a sandbox (an OCI bundle's `config.json`), and the guard in it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use ringfence_op::{CellLimits, RootSpec};
use serde::Serialize;
use serde_json::{Value, json};

use crate::config::KeeperConfig;
use crate::plan::{self, CELL_ID, HOST_NAME};

/// What the first process runs: it takes four descriptors out of the socket on fd 0, and then the program in the first.
const BOOTSTRAP: &str = "\
import fcntl, os, socket, struct
door = socket.socket(fileno=0)
_, ancillary, _, _ = door.recvmsg(64, socket.CMSG_SPACE(16), socket.MSG_CMSG_CLOEXEC)
came = [fd for *_, data in ancillary for fd in struct.unpack('4i', data)]
came = [fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for fd in came]
door.detach()
os.dup2(os.open('/dev/null', os.O_RDONLY), 0)
os.closerange(3, 64)
for number, fd in enumerate(came, 3):
    os.dup2(fd, number)
os.closerange(64, 68)
exec(compile(os.fdopen(3).read(), '<zygote>', 'exec'))
";
/// What the guard needs to become the session's user for those whom it starts, and to signal them.
const CAPABILITIES: [&str; 4] = ["CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_KILL"];

/// What all guards are started with.
pub(super) struct Programs {
    pub(super) zygote_source: String,
    worker_source: String,
    guard_source: String,
}

/// The guard's configuration, as it reads it from fd 5.
#[derive(Serialize)]
struct GuardConfig<'a> {
    worker_source: &'a str,
    guard_source: &'a str,
    preloads: &'a [String],
    environment: BTreeMap<&'a str, &'a str>,
    session_environment: BTreeMap<&'a str, &'a str>,
    tmp_links: Vec<(&'a Path, &'a Path)>,
    shell: &'a Path,
    rlimits: &'a [(u32, u64, u64)],
    identity: u32,
    /// The host's boot, nanoseconds since the epoch.
    boot_ns: i64,
}

impl Programs {
    pub(super) fn new(config: &KeeperConfig) -> Programs {
        Programs {
            zygote_source: config.zygote_source.clone(),
            worker_source: config.worker_source.clone(),
            guard_source: config.guard_source.clone(),
        }
    }

    pub(super) fn guard_config(&self, spec: &RootSpec, limits: &CellLimits, boot_ns: i64) -> io::Result<Vec<u8>> {
        // The kernel of a sandbox lets nobody change these two; it counts them for itself, not for a user of the host.
        const FIXED: [u32; 2] = [libc::RLIMIT_SIGPENDING, libc::RLIMIT_MSGQUEUE];
        let limits = plan::resource_limits(limits, false).into_iter();
        let limits = limits.filter(|limit| !FIXED.contains(&limit.resource));
        let rlimits: Vec<_> = limits.map(|limit| (limit.resource, limit.soft, limit.hard)).collect();
        let environment: BTreeMap<&str, &str> =
            spec.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let config = GuardConfig {
            worker_source: &self.worker_source,
            guard_source: &self.guard_source,
            preloads: &spec.preloads,
            environment: environment.clone(),
            session_environment: environment,
            tmp_links: spec.tmp_symlinks.iter().map(|link| (link.link.as_path(), link.target.as_path())).collect(),
            shell: &spec.shell,
            rlimits: &rlimits,
            identity: CELL_ID,
            boot_ns,
        };
        Ok(serde_json::to_vec(&config)?)
    }
}

/// The sandbox's own description. `root` is the image's, `workspace` the session's.
pub(super) fn config(root: &Path, workspace: &Path, spec: &RootSpec, python: &Path, limits: &CellLimits) -> Value {
    let environment: Vec<String> = spec.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let tmpfs = |place: &str, bytes: u64| {
        json!({
            "destination": place,
            "type": "tmpfs",
            "source": "tmpfs",
            "options": ["nosuid", "nodev", "mode=1777", format!("size={bytes}")],
        })
    };
    json!({
        "ociVersion": "1.0.0",
        "process": {
            "user": { "uid": 0, "gid": 0 },
            "args": [python, "-u", "-c", BOOTSTRAP],
            "env": environment,
            "cwd": "/",
            "capabilities": {
                "bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES,
                "inheritable": [], "ambient": [],
            },
            "noNewPrivileges": true,
        },
        "root": { "path": root, "readonly": true },
        "hostname": HOST_NAME,
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            tmpfs("/tmp", limits.tmp_bytes),
            tmpfs("/dev/shm", limits.shm_bytes),
            {
                "destination": "/workspace", "type": "bind", "source": workspace,
                "options": ["rbind", "rw", "nosuid", "nodev"],
            },
        ],
        "linux": {
            "namespaces": [
                { "type": "pid" }, { "type": "network" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" },
            ],
        },
    })
}

/// What `runsc` is started with. `folder` holds the bundle, and what it remembers; no two sandboxes of the machine have the
/// same name, by which `runsc` calls a socket in the abstract namespace.
pub(super) fn arguments(folder: &Path, name: &str) -> Vec<PathBuf> {
    let words = ["--platform=ptrace", "--network=none", "--ignore-cgroups", "--host-uds=none", "--host-fifo=none"];
    let mut arguments = vec![PathBuf::from("runsc"), "--root".into(), folder.join("state")];
    arguments.extend(words.map(PathBuf::from));
    arguments.extend(["run".into(), "--bundle".into(), folder.to_path_buf(), name.into()]);
    arguments
}
