"""Prints, as one JSON object, what a process of a cell is, sees and may do."""
import ctypes, errno, fcntl, json, os, resource, socket, struct

libc = ctypes.CDLL(None, use_errno=True)
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)


def call(number, *arguments):
    """The name of the error that a system call gives, or `works`."""
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_ulong(one) if isinstance(one, int) else one for one in arguments))
    return "works" if result >= 0 else errno.errorcode[ctypes.get_errno()]


def attempt(action):
    try:
        action()
        return "works"
    except OSError as error:
        return errno.errorcode[error.errno]


def write(path):
    return attempt(lambda: open(path, "r+b", buffering=0).write(b"1"))


def read(path):
    return attempt(lambda: open(path, "rb").read(1))


def socket_of(family, kind, protocol=0):
    return attempt(lambda: socket.socket(family, kind, protocol).close())


X86 = os.uname().machine == "x86_64"
NUMBERS = dict(mount=165, umount2=166, pivot_root=155, chroot=161, unshare=272, setns=308, ptrace=101, bpf=321,
               perf_event_open=298, userfaultfd=323, keyctl=250, add_key=248, request_key=249, kexec_load=246,
               init_module=175, delete_module=176, reboot=169, syslog=103, acct=163, swapon=167, sethostname=170,
               open_by_handle_at=304, name_to_handle_at=303, process_vm_readv=310, process_vm_writev=311,
               pidfd_getfd=438, fanotify_init=300, open_tree=428, move_mount=429, fsopen=430, mount_setattr=442,
               settimeofday=164, seccomp=317, iopl=172, ioperm=173, modify_ldt=154, quotactl=179, vhangup=153,
               kcmp=312, process_madvise=440, mbind=237, migrate_pages=256) if X86 else {}
ABSENT = dict(clone3=435, io_uring_setup=425, io_uring_enter=426, io_uring_register=427, nothing=999)

refused = {name: call(number, 0, 0, 0, 0, 0, 0) for name, number in NUMBERS.items()}
absent = {name: call(number, 0, 0, 0, 0, 0, 0) for name, number in ABSENT.items()}
if X86:
    for name, flag in dict(newuser=0x10000000, newns=0x20000, newnet=0x40000000, newpid=0x20000000).items():
        refused["clone_" + name] = call(56, flag | 17, 0, 0, 0, 0)
    refused["prlimit_of_init"] = call(302, 1, 7, 0, 0)
master, slave = os.openpty()
refused["tiocsti"] = attempt(lambda: fcntl.ioctl(slave, 0x5412, b"x"))
for name, family in dict(packet=17, alg=38, vsock=40, bluetooth=31, can=29, xdp=44, tipc=30).items():
    refused["socket_" + name] = socket_of(family, socket.SOCK_STREAM)
refused["socket_raw"] = socket_of(socket.AF_INET, socket.SOCK_RAW, 1)
refused["socket_netfilter"] = socket_of(socket.AF_NETLINK, socket.SOCK_RAW, 12)
refused["setuid"] = attempt(lambda: os.setuid(0))
refused["setgroups"] = attempt(lambda: os.setgroups([0]))
refused["mknod"] = attempt(lambda: os.mknod("/workspace/node", 0o20666, os.makedev(1, 1)))

interfaces = {}
for _, name in socket.if_nameindex():
    request = fcntl.ioctl(socket.socket(), 0x8913, struct.pack("16sH14x", name.encode(), 0))
    interfaces[name] = bool(struct.unpack("16sH14x", request)[1] & 1)

print(json.dumps({
    "users": os.getresuid(),
    "groups": os.getresgid(),
    "supplementary": len(os.getgroups()),
    "capabilities": {name: status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")},
    "no_new_privileges": status["NoNewPrivs"].strip(),
    "seccomp": status["Seccomp"].strip(),
    "namespaces": {kind: os.readlink("/proc/self/ns/" + kind) for kind in ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup")},
    "uid_map": open("/proc/self/uid_map").read().split(),
    "gid_map": open("/proc/self/gid_map").read().split(),
    "cgroups": sorted({line.strip().split(":")[2] for line in open("/proc/self/cgroup")}),
    "mounts": {line.split()[1]: line.split()[3].split(",") for line in open("/proc/self/mounts")},
    "descriptors": {fd: os.readlink("/proc/self/fd/" + fd).split(":")[0] for fd in sorted(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd/" + fd) and int(fd) not in (master, slave)},
    "limits": {name: resource.getrlimit(getattr(resource, name)) for name in ("RLIMIT_CORE", "RLIMIT_NOFILE", "RLIMIT_AS", "RLIMIT_NPROC")},
    "processes": sorted(int(pid) for pid in os.listdir("/proc") if pid.isdigit()),
    "pid": os.getpid(),
    "interfaces": interfaces,
    "host_name": os.uname().nodename,
    "root": sorted(os.listdir("/")),
    "devices": sorted(os.listdir("/dev")),
    "environment": dict(os.environ),
    "folder": os.getcwd(),
    "refused": refused,
    "absent": absent,
    "init": {name: read("/proc/1/" + name) for name in ("environ", "mem", "maps", "auxv")}
            | {"fd": attempt(lambda: os.readlink("/proc/1/fd/3")), "open_fd": attempt(lambda: os.open("/proc/1/fd/0", os.O_RDONLY)),
               "root": attempt(lambda: os.listdir("/proc/1/root")),
               "cwd": attempt(lambda: os.readlink("/proc/1/cwd"))},
    "masked": {name: os.path.getsize("/proc/" + name) if os.access("/proc/" + name, os.R_OK) else "unreadable"
               for name in ("kcore", "keys", "kmsg", "timer_list") if os.path.lexists("/proc/" + name)},
    "writes": {path: write(path) for path in (
        "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger",
        "/proc/self/oom_score_adj", "/proc/self/mem", "/etc/passwd", "/usr/bin/env")},
    "makes": {folder: attempt(lambda: open(folder + "/made", "x")) for folder in (
        "/", "/usr", "/etc", "/dev", "/proc", "/workspace", "/tmp", "/dev/shm")},
    "outside": attempt(lambda: socket.create_connection(("192.0.2.1", 80), timeout=5)),
}))
