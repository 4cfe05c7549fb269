"""The guard in a gVisor sandbox: zygote and guard in one process, the first of the sandbox.

Run after the guard's program (see jail's `sandbox`). In a sandbox nothing is forked in from outside: the process that
imports what sessions want is the one that starts the session's programs. It is root of the sandbox, so that it can
signal what it starts, which has the session's id and no capability; what holds all of them is the sandbox.
"""

import _thread

CONTROL_FD = 6  # init's link
TICK_NS = 10_000_000  # of `starttime` in /proc
CLOCK_LOOKS = 16
FOLDER_MODE = 0o1777


class SandboxZygote:
    """In the place of the zygote: the one guard of this sandbox."""

    def __init__(self, link, config, worker):
        self.guard = SandboxGuard(link, config, worker)

    @staticmethod
    def prepare(config):
        """The session's own temporary folder is the one that the imports see: what they look for in it must be there."""
        os.umask(0o022)
        for link, target in config["tmp_links"]:
            parent = os.path.dirname(link)
            if not os.path.isdir(parent):
                os.makedirs(parent)
                os.chmod(parent, FOLDER_MODE)
            os.symlink(target, link)

    def run(self):
        guard = self.guard
        try:
            guard.tell_keeper(READY)
            guard.serve()
        finally:
            guard.end()


class SandboxGuard(Guard):
    def __init__(self, link, config, worker):
        prctl(PR_SET_DUMPABLE, 0)
        self.config, self.worker = config, worker
        self.init, self.orders = socket.socket(fileno=CONTROL_FD), link
        os.set_inheritable(CONTROL_FD, False)
        self.environment = config["session_environment"]
        self.identity = config["identity"]
        self.proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.commands = {}  # process id -> token
        self.workers = set()
        self.parting = False
        self.fenced = True  # every process but this one is the session's
        os.umask(0o022)
        os.chdir("/")
        tempfile = sys.modules.get("tempfile")
        if tempfile is not None:
            tempfile.tempdir = None  # what was found before the session's folders is not the session's
        self.host_boot_ns, self.boot_ns = config["boot_ns"], self.boot_of_this_kernel()

    def boot_of_this_kernel(self):
        """When `/proc` in here began to count, nanoseconds since the epoch: the latest moment that it can have been.

        It counts in ticks: a thread that starts between two looks at the clock tells a span in which the boot lies, and
        several spans leave little of it.
        """
        latest = None
        for _ in range(CLOCK_LOOKS):
            started, seen = _thread.allocate_lock(), _thread.allocate_lock()
            started.acquire()
            seen.acquire()
            ids = []

            def wait(started=started, seen=seen, ids=ids):
                ids.append(_thread.get_native_id())
                started.release()
                seen.acquire()

            _thread.start_new_thread(wait, ())
            started.acquire()
            after = time.time_ns()
            stat = read_all(self.proc, f"self/task/{ids[0]}/stat")
            seen.release()
            start = int(stat[stat.rindex(b")") + 2 :].split()[19])
            upper = after - start * TICK_NS
            latest = upper if latest is None else min(latest, upper)
        while threads() != 1:  # a fork is for a process of one thread
            time.sleep(END_PAUSE)
        return latest

    def here(self, since):
        """A moment in ticks since the host's boot, as the daemon names it, in ticks of this kernel's."""
        return (self.host_boot_ns + since * TICK_NS - self.boot_ns) // TICK_NS

    def kill_since(self, since, keep):
        return super().kill_since(self.here(since), keep)

    def interrupt(self, pid, since):
        super().interrupt(pid, self.here(since))

    def lock_down(self):
        """In a child: the limits and the id of the session's programs."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        for limit, soft, hard in self.config["rlimits"]:
            resource.setrlimit(limit, (soft, hard))
        drop_bounding_set()
        os.setgroups([])
        os.setresgid(self.identity, self.identity, self.identity)
        os.setresuid(self.identity, self.identity, self.identity)
        self.drop_capabilities()
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        os.chdir("/workspace")
        os.environ.clear()
        os.environ.update(self.environment)
        self.look_at_itself()

    @staticmethod
    def drop_capabilities():
        header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)  # gVisor knows no ambient ones
        syscall("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))

    def look_at_itself(self):
        """Holds the sandbox's own account of this process to what it must be."""
        fields = dict(line.split(b":", 1) for line in read_all(self.proc, "self/status").splitlines() if b":" in line)
        for name in (b"CapInh", b"CapPrm", b"CapEff", b"CapBnd"):
            if int(fields[name], 16) != 0:
                raise PermissionError(f"{name.decode()} is not empty")
        if os.getresuid() != (self.identity,) * 3 or os.getresgid() != (self.identity,) * 3 or self.identity == 0:
            raise PermissionError("the user is not the session's")

    def kill_these(self, processes, deadline):
        # There are no pidfds in there.
        aim = {pid: start for pid, start in processes}
        for pid in aim:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass  # it is gone
        while time.monotonic() < deadline:
            self.reap()
            family = self.family()
            if not any(pid in family and family[pid][2] == start for pid, start in aim.items()):
                return
            time.sleep(END_PAUSE)


KIND = SandboxZygote
