"""The guard: first process of a session that has no namespaces, forked by the zygote of its image.

Run in the zygote's own module (see jail's `flat`). The guard does for its session what two do in a cell: like init it
starts shell commands, sends signals and kills (frame::init), like a zygote it forks interpreters (frame::zygote). It
runs no user code. It holds the session's id and the session's Landlock domain; what it starts is put into a second
domain within the first, so the kernel lets the guard signal all of the session, and none of the session the guard.

Every process of the session descends from the guard, and stays so: orphans become its children. When the keeper's end
of its link closes, the guard kills them all, waits until the last is gone, and ends.
"""

import contextlib
import errno
import time

GUARD_FDS = 7  # init's link, keeper's link, report, workspace, temporary folder, domain of the guard, of the session
SPAWN, SIGNAL, KILL_SINCE, INTERRUPT = 1, 2, 3, 4
SPAWNED, SPAWN_FAILED, EXITED, KILLED = 129, 130, 131, 132
COMMAND_BYTES_MAX = 96 * 1024
COMMANDS_MAX = 64
BATCH = 256  # processes waited for at a time: each takes a descriptor
KILL_ROUNDS = (False, False, True, True, True, True)  # whether everything is stopped first
KILL_WAIT = 1.0  # seconds that one round waits for the killed to be gone
STORM = 64  # so many at a time are stopped before they are killed: they would take the processor from the killer
END_PAUSE = 0.002
PR_SET_CHILD_SUBREAPER = 36
SYS_LANDLOCK_RESTRICT_SELF = 446
REPORT = struct.Struct("<Ii")
STEP_LOCK_DOWN = 56  # of jail's step names


def restrict(ruleset):
    """Puts this process, and what it will start, under a Landlock ruleset."""
    syscall("syscall", ctypes.c_long(SYS_LANDLOCK_RESTRICT_SELF), ctypes.c_int(ruleset), ctypes.c_uint(0))


def own_place(value, folders):
    """An environment's value with the session's own folders in the place of those that a cell would see."""
    places = []
    for place in value.split(":"):
        for seen, real in folders.items():
            if place == seen or place.startswith(seen + "/"):
                place = real + place[len(seen) :]
                break
        places.append(place)
    return ":".join(places)


def read_all(proc, path):
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def report(fd, error=None):
    """Tells the keeper, once, how it went."""
    number = 0 if error is None else getattr(error, "errno", None) or 5
    os.write(fd, REPORT.pack(0 if error is None else STEP_LOCK_DOWN, number))
    os.close(fd)


class FlatZygote(Zygote):
    """Forks guards, one for each session."""

    FORK_FDS = GUARD_FDS

    def __init__(self, link, config, worker):
        super().__init__(link, config, worker)
        self.secured = config["landlock"]

    def fork(self, identity, descriptors):
        pid = os.fork()
        if pid == 0:
            self.become_guard(identity, descriptors)
        return pid

    def become_guard(self, identity, descriptors):
        """In the child; never returns."""
        telling = descriptors[2]
        try:
            signal.set_wakeup_fd(-1)
            guard = Guard(self, identity, descriptors)
            report(telling)
        except BaseException as error:
            os.write(2, f"ringfence: a session could not be locked down: {error}\n".encode("utf-8", "replace"))
            report(telling, error)
            os._exit(LOCKDOWN_FAILED)
        try:
            guard.serve()
        finally:
            guard.end()


class Guard:
    def __init__(self, zygote, identity, descriptors):
        prctl(PR_SET_DUMPABLE, 0)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.config, self.worker, self.seccomp = zygote.config, zygote.worker, zygote.seccomp
        self.secured = zygote.secured
        zygote.link.detach()
        self.keep_only(descriptors)
        init, orders, _, self.workspace, self.scratch, outer, self.inner = descriptors
        self.init, self.orders = socket.socket(fileno=init), socket.socket(fileno=orders)
        self.folders = {
            "/workspace": os.readlink(f"/proc/self/fd/{self.workspace}"),
            "/tmp": os.readlink(f"/proc/self/fd/{self.scratch}"),
        }
        self.environment = {
            name: own_place(value, self.folders) for name, value in self.config["session_environment"].items()
        }
        self.proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.commands = {}  # process id -> token
        self.workers = set()
        self.parting = False
        self.give_up_rights(identity, outer)
        self.look_at_itself()
        # A signal to every process reaches the session's alone: by the domain, or by an id that no other has.
        self.fenced = self.secured or identity != self.config["keeper_id"]

    @staticmethod
    def keep_only(descriptors):
        """Closes whatever else came from the zygote, but its log."""
        first = 3
        for fd in sorted(descriptors):
            os.closerange(first, fd)
            first = fd + 1
        os.closerange(first, os.sysconf("SC_OPEN_MAX"))

    def give_up_rights(self, identity, outer):
        if identity != self.config["keeper_id"]:
            drop_bounding_set()
            os.setgroups([])
            os.setresgid(identity, identity, identity)
            os.setresuid(identity, identity, identity)
        drop_capabilities()
        prctl(PR_SET_DUMPABLE, 0)  # a change of ids may set it anew
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        os.umask(0o022)
        os.setsid()
        os.fchdir(self.workspace)
        os.environ.clear()
        os.environ.update(self.environment)
        tempfile = sys.modules.get("tempfile")
        if tempfile is not None:
            tempfile.tempdir = None  # what the zygote found is not the session's
        if self.secured:
            restrict(outer)
        os.close(outer)

    def look_at_itself(self):
        """Holds the kernel's own account of this process to what it must be."""
        fields = dict(line.split(b":", 1) for line in read_all(self.proc, "self/status").splitlines() if b":" in line)
        for name in (b"CapInh", b"CapPrm", b"CapEff", b"CapAmb"):
            if int(fields[name], 16) != 0:
                raise PermissionError(f"{name.decode()} is not empty")
        if int(fields[b"NoNewPrivs"]) != 1:
            raise PermissionError("no_new_privs is not in force")
        if 0 in os.getresuid() + os.getresgid():
            raise PermissionError("the session would be root")
        # The interpreter must be readable to the session, or nothing can be imported in it.
        os.close(os.open(os.__file__, os.O_RDONLY))

    def serve(self):
        """Until the keeper lets go of the session."""
        self.woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        for source in (self.init, self.orders, self.woken):
            poll.register(source, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self.woken in ready:
                os.read(self.woken, 4096)
                self.reap()
            if self.init.fileno() in ready and not self.hear_daemon():
                poll.unregister(self.init)
            if self.orders.fileno() in ready and not self.hear_keeper():
                return

    def hear_daemon(self):
        """One request of the daemon's; False at the end of its link, which ends nothing else."""
        space = socket.CMSG_SPACE(DESCRIPTORS_MAX * 4)
        data, ancillary, _, _ = self.init.recvmsg(PACKET.size + COMMAND_BYTES_MAX, space, socket.MSG_CMSG_CLOEXEC)
        descriptors = received_descriptors(ancillary)
        try:
            if not data:
                return False
            version, kind, first, second, third, *_ = PACKET.unpack_from(data)
            if version != VERSION:
                return True
            if kind == SPAWN:
                self.spawn(first, data[PACKET.size :], descriptors)
            elif kind == SIGNAL:
                self.signal(first, second)
            elif kind == KILL_SINCE:
                count, everything = self.kill_since(second, third)
                self.reap()  # their ends are told before the end of the killing
                self.answer(KILLED, first, count, everything)
            elif kind == INTERRUPT:
                self.interrupt(first, second)
            return True
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def hear_keeper(self):
        """One order to fork an interpreter; False once the session is let go."""
        message = receive(self.orders)
        if message is None:
            return False
        data, descriptors = message
        try:
            _, _, cell, *_ = PACKET.unpack(data)
            try:
                pid = os.fork()
            except OSError as error:
                self.tell_keeper(FORK_FAILED, cell, error.errno or 0)
                return True
            if pid == 0:
                self.become_worker(descriptors)
            self.workers.add(pid)
            self.tell_keeper(FORKED, cell, pid)
            return True
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def tell_keeper(self, kind, *fields):
        self.orders.send(PACKET.pack(VERSION, kind, *fields, *(0,) * (7 - len(fields))))

    def answer(self, kind, *fields):
        try:
            self.init.send(PACKET.pack(VERSION, kind, *fields, *(0,) * (7 - len(fields))))
        except OSError:
            pass  # nobody asks any more

    def lock_down(self):
        """In a child: the limits, the domain and the filter of the session's programs."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        try:
            fd = os.open("self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC, dir_fd=self.proc)
            os.write(fd, b"500")
            os.close(fd)
        except OSError:
            pass  # only a hint, so that the kernel prefers it to the guard
        for limit, soft, hard in self.config["rlimits"]:
            resource.setrlimit(limit, (soft, hard))
        status = os.open("self/status", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.proc)
        if self.secured:
            restrict(self.inner)
            load_seccomp(self.seccomp)
            fields = dict(line.split(b":", 1) for line in os.read(status, 4096).splitlines() if b":" in line)
            if int(fields[b"Seccomp"]) != SECCOMP_MODE_FILTER:
                raise PermissionError("seccomp is not in force")
            try:
                os.open("self/stat", os.O_RDONLY, dir_fd=self.proc)
            except PermissionError:
                pass
            else:
                raise PermissionError("Landlock is not in force")
        os.close(status)

    def become_worker(self, descriptors):
        """In the child; never returns."""
        try:
            self.lock_down()
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # until the worker has a handler
            frame, out, err = descriptors
            import fcntl  # imported by the zygote already

            kept = fcntl.fcntl(frame, fcntl.F_DUPFD_CLOEXEC, FRAME_FD_MIN)
            null = os.open("/dev/null", os.O_RDONLY)
            for number, fd in enumerate((null, out, err)):
                os.dup2(fd, number)
            self.init.detach()
            self.orders.detach()
            os.closerange(3, kept)
            os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
            reseed()
            gc.enable()
        except BaseException as error:
            os.write(2, f"ringfence: a worker could not lock itself down: {error}\n".encode("utf-8", "replace"))
            os._exit(LOCKDOWN_FAILED)
        try:
            self.worker.serve(kept)
        finally:
            os._exit(71)

    def spawn(self, token, command, descriptors):
        """Starts a shell command, and answers."""
        if len(self.commands) >= COMMANDS_MAX:
            self.answer(SPAWN_FAILED, token, errno.EAGAIN)
            return
        if len(descriptors) != (2 if command else 3):
            self.answer(SPAWN_FAILED, token, errno.EINVAL)
            return
        told, tell = os.pipe2(os.O_CLOEXEC)
        try:
            with self.own_processes_counted():
                pid = os.fork()
            if pid == 0:
                self.become_command(command, descriptors, tell)
        except OSError as error:
            os.close(tell)
            self.answer(SPAWN_FAILED, token, error.errno or 0)
        else:
            os.close(tell)
            failed = os.read(told, 4)
            if failed:
                os.waitpid(pid, 0)
                self.answer(SPAWN_FAILED, token, int.from_bytes(failed, "little"))
            else:
                self.commands[pid] = token
                self.answer(SPAWNED, token, pid)
        finally:
            os.close(told)

    @contextlib.contextmanager
    def own_processes_counted(self):
        """The session's limit of processes counts for the guard's fork as well, or a command that can start nothing
        would be started."""
        limit = next((soft for number, soft, _ in self.config["rlimits"] if number == resource.RLIMIT_NPROC), None)
        soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        if limit is None or hard != resource.RLIM_INFINITY and hard < limit:
            yield
            return
        resource.setrlimit(resource.RLIMIT_NPROC, (limit, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))

    def become_command(self, command, descriptors, tell):
        """In the child; never returns."""
        try:
            self.lock_down()
            null = os.open("/dev/null", os.O_RDONLY)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            shell = self.config["shell"]
            arguments = [shell, "-c", os.fsdecode(command)] if command else [shell, "/proc/self/fd/3"]
            import fcntl  # imported by the zygote already

            high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 16) for fd in (null, *descriptors)]
            tell = fcntl.fcntl(tell, fcntl.F_DUPFD_CLOEXEC, 16)
            for number, fd in enumerate(high):
                os.dup2(fd, number)
            os.execve(shell, arguments, self.environment)
        except BaseException as error:
            os.write(tell, (getattr(error, "errno", None) or errno.EPERM).to_bytes(4, "little"))
        os._exit(127)

    def signal(self, pid, number):
        if pid > 1 and pid in self.family():
            try:
                os.kill(pid, number)
            except OSError:
                pass  # it is gone

    def interrupt(self, pid, since):
        """SIGINT for one process and for the young ones of its group, each once."""
        family = self.family()
        group = family[pid][3] if pid in family else None
        for young, (_, _, start, own) in family.items():
            if young == pid or own == group and group is not None and start >= since:
                try:
                    os.kill(young, signal.SIGINT)
                except OSError:
                    pass

    def names(self):
        return [name for name in os.listdir(self.proc) if name.isdecimal()]

    def stat(self, name):
        """Of a process: (parent, state, start, group); none where it is gone."""
        try:
            stat = read_all(self.proc, name + "/stat")
        except OSError:
            return None
        fields = stat[stat.rindex(b")") + 2 :].split()
        # The first thread can have ended and left others: then it is not dead.
        state = b"S" if fields[0] == b"Z" and int(fields[17]) > 1 else fields[0]
        return int(fields[1]), state, int(fields[19]), int(fields[2])

    def family(self):
        """Every process of the session but the guard: process id -> (parent, state, start, group)."""
        processes = {}
        for name in self.names():
            stat = self.stat(name)
            if stat:
                processes[int(name)] = stat
        children = {}
        for pid, (parent, *_) in processes.items():
            children.setdefault(parent, []).append(pid)
        family, todo = {}, list(children.get(os.getpid(), ()))
        while todo:
            pid = todo.pop()
            if pid not in family:
                family[pid] = processes[pid]
                todo.extend(children.get(pid, ()))
        return family

    def kill_since(self, since, keep):
        """Kills every process that started at or after `since`, but `keep`: how many, and whether `keep` as well."""

        def victims(family):
            return [
                (pid, start)
                for pid, (_, state, start, _) in family.items()
                if start >= since and pid != keep and state not in (b"Z", b"X")
            ]

        killed = set()
        for stopping in KILL_ROUNDS:
            names = set(self.names())
            before = self.family()
            aim = victims(before)
            # What forks and ends, again and again, is gone each time that its state is read: it is found stopped.
            if not aim and names.issuperset(self.names()):
                return len(killed), 0
            stopping = stopping or not aim or len(aim) > STORM
            if stopping:
                self.signal_all(signal.SIGSTOP)
                aim = victims(self.family())
            deadline = time.monotonic() + KILL_WAIT
            for start in range(0, len(aim), BATCH):
                self.kill_these(aim[start : start + BATCH], deadline)
            killed.update(aim)
            if stopping:
                # Those that are spared go on, but for those that the session itself had stopped.
                stopped = {pid for pid, (_, state, *_) in before.items() if state == b"T"}
                family = self.family()
                aim = victims(family)
                for pid in family.keys() - stopped - {pid for pid, _ in aim}:
                    try:
                        os.kill(pid, signal.SIGCONT)
                    except OSError:
                        pass
                if self.fenced and not aim:
                    return len(killed), 0
        if victims(self.family()):
            self.signal_all(signal.SIGKILL)
            return len(killed), int(keep != 0)
        return len(killed), 0

    def kill_these(self, processes, deadline):
        handles = select.poll()
        opened = []
        for pid, _ in processes:
            try:
                opened.append(os.pidfd_open(pid))
                os.kill(pid, signal.SIGKILL)
                handles.register(opened[-1], select.POLLIN)
            except OSError:
                pass  # it is gone
        try:
            left = len(opened)
            while left and time.monotonic() < deadline:
                for fd, _ in handles.poll(max(0, (deadline - time.monotonic()) * 1000)):
                    handles.unregister(fd)
                    left -= 1
                self.reap()
        finally:
            for fd in opened:
                os.close(fd)

    def signal_all(self, number):
        if self.fenced:
            try:
                os.kill(-1, number)
            except OSError:
                pass  # nobody is left
            return
        for pid in self.family():
            try:
                os.kill(pid, number)
            except OSError:
                pass

    def reap(self):
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid in self.workers:
                self.workers.discard(pid)
                if not self.parting:
                    self.tell_keeper(DIED, pid, status)
            elif pid in self.commands:
                micros = int((usage.ru_utime + usage.ru_stime) * 1_000_000)
                self.answer(EXITED, self.commands.pop(pid), status, micros)

    def end(self):
        """Kills everything, waits until nothing is left, and ends."""
        self.parting = True
        try:
            self.signal_all(signal.SIGKILL)
            while self.reap():
                time.sleep(END_PAUSE)
                self.signal_all(signal.SIGKILL)
        finally:
            os._exit(0)


KIND = FlatZygote
