//! A container as Docker starts one by default, by `runc`: its capabilities, a filter of the same effect as its own,
//! masked and read-only parts of `/proc`, read-only control groups.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

/// How the container differs from the default.
#[derive(Debug, Clone, Default)]
pub struct Container {
    added: Vec<&'static str>,
    user: u32,
    forbidden: Vec<&'static str>,
}

/// Where the program lies in the container.
const PROGRAM: &str = "/ringfence";
/// Where the folder that may be written lies in the container.
pub(crate) const STATE: &str = "/state";
/// The capabilities of a container, without `CAP_`.
const CAPABILITIES: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];
/// System calls that are forbidden even with CAP_SYS_ADMIN.
const FORBIDDEN: [&str; 30] = [
    "acct",
    "add_key",
    "clock_adjtime",
    "clock_settime",
    "delete_module",
    "finit_module",
    "get_mempolicy",
    "init_module",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "ioperm",
    "iopl",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "mbind",
    "move_pages",
    "open_by_handle_at",
    "pivot_root",
    "quotactl",
    "reboot",
    "request_key",
    "set_mempolicy",
    "settimeofday",
    "swapoff",
    "swapon",
    "userfaultfd",
    "vhangup",
    "kcmp",
];
/// System calls that come with CAP_SYS_ADMIN.
const WITH_ADMIN: [&str; 18] = [
    "bpf",
    "fanotify_init",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "lookup_dcookie",
    "mount",
    "mount_setattr",
    "move_mount",
    "open_tree",
    "perf_event_open",
    "setdomainname",
    "sethostname",
    "setns",
    "umount2",
    "unshare",
    "syslog",
];
/// Parts of `/proc` and `/sys` over which nothing or an empty folder is mounted.
const MASKED: [&str; 10] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/firmware",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

impl Container {
    /// As by default: root in the container, without CAP_SYS_ADMIN.
    #[must_use]
    pub fn new() -> Self {
        Container::default()
    }

    /// With one capability more, as by `--cap-add`.
    #[must_use]
    pub fn capability(mut self, name: &'static str) -> Self {
        self.added.push(name);
        self
    }

    /// With this user in it, as by `--user`.
    #[must_use]
    pub fn user(mut self, id: u32) -> Self {
        self.user = id;
        self
    }

    /// With a filter that forbids one more kind of namespace or call: `user-namespaces` or a system call's name.
    #[must_use]
    pub fn forbid(mut self, what: &'static str) -> Self {
        self.forbidden.push(what);
        self
    }

    /// The command that runs the program with these arguments in a container. `own` is a folder that outlives it; the
    /// container may write to it at `/state`.
    ///
    /// # Panics
    /// Where there is no `runc` (Debian: `apt-get install runc`), or the folder cannot be written.
    #[must_use]
    pub fn command<T: AsRef<OsStr>>(
        &self,
        own: &Path,
        program: &Path,
        arguments: impl IntoIterator<Item = T>,
    ) -> Command {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let there = Command::new("runc").arg("--version").output();
        assert!(there.is_ok(), "tests in containers need runc: apt-get install runc ({there:?})");
        let id = format!("ringfence-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let bundle = own.join(&id);
        let (root, state) = (bundle.join("root"), bundle.join("state"));
        for folder in ["usr", "etc", "proc", "dev", "sys", "tmp", "var/tmp", "state"] {
            std::fs::create_dir_all(root.join(folder)).expect("a folder can be made");
        }
        for link in ["bin", "sbin", "lib", "lib64"] {
            if Path::new("/").join(link).exists() {
                symlink(format!("usr/{link}"), root.join(link)).expect("a link can be made");
            }
        }
        std::fs::create_dir(&state).expect("a folder can be made");
        if self.user != 0 {
            std::os::unix::fs::chown(&state, Some(self.user), Some(self.user)).expect("root may give a folder away");
        }
        let arguments = arguments.into_iter().map(|one| one.as_ref().to_string_lossy().into_owned());
        let arguments: Vec<String> = [PROGRAM.to_owned()].into_iter().chain(arguments).collect();
        let config = self.config(program, &state, &arguments);
        std::fs::write(bundle.join("config.json"), config.to_string()).expect("a file can be written");
        let mut command = Command::new("runc");
        let words: [OsString; 6] =
            ["--root".into(), bundle.join("run").into(), "run".into(), "--bundle".into(), bundle.into(), id.into()];
        command.args(words);
        command
    }

    fn config(&self, program: &Path, state: &Path, arguments: &[String]) -> Value {
        let bind = |source: &Path, destination: &str, access: &str| json!({"destination": destination, "type": "bind", "source": source, "options": ["rbind", access]});
        let fresh = |destination: &str, kind: &str, options: &[&str]| json!({"destination": destination, "type": kind, "source": kind, "options": options});
        let names: Vec<String> = CAPABILITIES.iter().chain(&self.added).map(|name| format!("CAP_{name}")).collect();
        // No network namespace: the host's is used, so that a test reaches the port.
        // As Docker: another user has none but what the bounding set lets a set-user-id program have.
        let held: &[String] = if self.user == 0 { &names } else { &[] };
        json!({
            "ociVersion": "1.0.2",
            "hostname": "container",
            "root": {"path": "root", "readonly": false},
            "process": {
                "terminal": false,
                "user": {"uid": self.user, "gid": self.user},
                "args": arguments,
                "env": ["PATH=/usr/sbin:/usr/bin", format!("HOME={STATE}")],
                "cwd": "/",
                "capabilities": {"bounding": names, "effective": held, "permitted": held},
                "noNewPrivileges": false,
            },
            "mounts": [
                fresh("/proc", "proc", &["nosuid", "noexec", "nodev"]),
                fresh("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
                fresh("/dev/pts", "devpts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
                fresh("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
                fresh("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
                fresh("/tmp", "tmpfs", &["nosuid", "nodev", "mode=1777"]),
                fresh("/sys/fs/cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", "ro"]),
                bind(Path::new("/usr"), "/usr", "ro"),
                bind(Path::new("/etc"), "/etc", "ro"),
                bind(program, PROGRAM, "ro"),
                bind(state, STATE, "rw"),
            ],
            "linux": {
                "namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}],
                "maskedPaths": MASKED,
                "readonlyPaths": READ_ONLY,
                "seccomp": self.filter(),
            },
        })
    }

    /// Forbids by list what Docker's filter leaves out of its list of what it allows.
    fn filter(&self) -> Value {
        const NEW_USER: u64 = 0x1000_0000;
        const NEW_ANY: u64 = 0x7e02_0000;
        let admin = self.added.contains(&"SYS_ADMIN");
        let refuse =
            |names: &[&str], errno: i32| json!({"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": errno});
        let with_flags = |name: &str, mask: u64| {
            let bits = (0..u64::BITS).map(|shift| 1u64 << shift).filter(|bit| mask & bit != 0);
            bits.map(|bit| {
                let arguments = [json!({"index": 0, "value": bit, "valueTwo": bit, "op": "SCMP_CMP_MASKED_EQ"})];
                json!({"names": [name], "action": "SCMP_ACT_ERRNO", "errnoRet": 1, "args": arguments})
            })
            .collect::<Vec<_>>()
        };
        let mut rules = vec![refuse(&FORBIDDEN, 1)];
        if !admin {
            rules.push(refuse(&WITH_ADMIN, 1));
            rules.push(refuse(&["clone3"], 38));
            rules.extend(with_flags("clone", NEW_ANY));
        }
        for what in &self.forbidden {
            if *what == "user-namespaces" {
                rules.push(refuse(&["clone3"], 38));
                rules.extend(with_flags("clone", NEW_USER));
                rules.extend(with_flags("unshare", NEW_USER));
            } else {
                rules.push(refuse(&[what], 1));
            }
        }
        json!({"defaultAction": "SCMP_ACT_ALLOW", "architectures": ARCHITECTURES, "syscalls": rules})
    }
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURES: [&str; 3] = ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"];
#[cfg(target_arch = "aarch64")]
const ARCHITECTURES: [&str; 2] = ["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"];
