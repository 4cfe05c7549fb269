# Run before every attack: names that the programs use.
import ctypes, errno, os, platform, signal, socket, struct, subprocess, sys, time
from errno import EPERM, ENOSYS

libc = ctypes.CDLL(None, use_errno=True)
NUMBERS = {
    # name: (x86-64, arm64); None where the architecture has no such call
    "ptrace": (101, 117), "unshare": (272, 97), "setns": (308, 268), "clone": (56, 220), "clone3": (435, 435),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "fsopen": (430, 430),
    "open_tree": (428, 428), "move_mount": (429, 429), "mount_setattr": (442, 442), "fspick": (433, 433),
    "setuid": (105, 146), "setgid": (106, 144), "setresuid": (117, 147), "setgroups": (116, 159),
    "process_vm_readv": (310, 270), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "prlimit64": (302, 261),
    "bpf": (321, 280), "perf_event_open": (298, 241), "keyctl": (250, 219), "add_key": (248, 217),
    "io_uring_setup": (425, 425), "userfaultfd": (323, 282), "kexec_load": (246, 104), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224),
    "swapoff": (168, 225), "quotactl": (179, 60), "acct": (163, 89), "clock_settime": (227, 112),
    "settimeofday": (164, 170), "sethostname": (170, 161), "open_by_handle_at": (304, 265), "timer_create": (222, 107),
}
NUMBERS = {name: pair[platform.machine() == "aarch64"] for name, pair in NUMBERS.items()}


def raw_number(number, *arguments):
    """A system call by number: its value, or the negative error number."""
    ctypes.set_errno(0)
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    value = libc.syscall(ctypes.c_long(number), *wide)
    return -ctypes.get_errno() if value == -1 else value


def raw(name, *arguments):
    return raw_number(NUMBERS[name], *arguments)


def syscall(name, *arguments):
    """The error number of a system call, 0 where it worked."""
    value = raw(name, *arguments)
    return -value if value < 0 else 0


def held(met):
    print("held" if met else "NOT HELD")
