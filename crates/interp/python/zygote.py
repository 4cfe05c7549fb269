"""The zygote: an interpreter that has imported what sessions want, and forks itself into cells.

Started by the keeper inside the fleet's user namespace, with the image as its root and no network. It runs no user
code. Descriptors: 3 this source, 4 the SEQPACKET link to the keeper (frame::zygote has the messages), 5 a JSON
configuration. It has one thread: entering a user namespace is refused to a process that has more.

One Fork message makes one child. The child enters the cell and lets go of every right *before* it runs the worker
program; then it looks at itself, and ends with status 70 if anything is not as it must be.
"""

import builtins
import ctypes
import functools
import gc
import io
import json
import mmap
import os
import random
import resource
import select
import signal
import socket
import struct
import sys
import types

LINK_FD, CONFIG_FD = 4, 5
PACKET = struct.Struct("<BB6x7Q")
VERSION = 1
FORK = 1
READY, FORKED, FORK_FAILED, DIED = 129, 130, 131, 132
DESCRIPTORS_MAX = 12
LOCKDOWN_FAILED = 70
FRAME_FD_MIN = 500  # out of the way of what programs do with low numbers; below the soft limit of 1024

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
# The pid namespace is entered before the fork: it takes effect for children only (setns(2)).
CELL_NAMESPACES = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP

PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_READ = 23
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION_3 = 0x20080522
CAPABILITIES_MAX = 64
STATUS_BYTES_MAX = 64 << 10
MADV_COLLAPSE = 25
HUGE_PAGE = 2 << 20
MT19937_WORDS = 624
POOL_BYTES = (16 if sys.version_info >= (3, 10) else 4) << 10
SMALL_BYTES_MAX = 512  # what is larger comes from malloc
HOLES_MAX = 20_000  # of one size
REHEARSALS = 8  # so often, and the interpreter has rewritten its code (PEP 659)

libc = ctypes.CDLL(None, use_errno=True)


class SockFprog(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def syscall(name, *arguments):
    """Calls a libc function that answers -1 on failure; a failure is an OSError that names it."""
    if getattr(libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def prctl(option, value=0):
    arguments = (ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    syscall("prctl", ctypes.c_int(option), *arguments)


def drop_bounding_set():
    for capability in range(CAPABILITIES_MAX):
        if libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            if capability == 0:
                raise OSError(ctypes.get_errno(), "dropping the bounding set")
            return  # the kernel knows no capability of this number


def drop_capabilities():
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    syscall("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def load_seccomp(program):
    """Loads the filter given as bytes of sock_filter, 8 each."""
    instructions = ctypes.create_string_buffer(program, len(program))
    prog = SockFprog(len(program) // 8, ctypes.cast(instructions, ctypes.c_void_p))
    pointer = ctypes.c_ulong(ctypes.addressof(prog))
    syscall("prctl", ctypes.c_int(PR_SET_SECCOMP), ctypes.c_ulong(SECCOMP_MODE_FILTER), pointer, 0, 0)


def verify(identity):
    """Holds the kernel's own account of this process to what it must be."""
    fields = status_fields()
    for name in (b"CapInh", b"CapPrm", b"CapEff", b"CapBnd", b"CapAmb"):
        if int(fields[name], 16) != 0:
            raise PermissionError(f"{name.decode()} is not empty")
    if int(fields[b"NoNewPrivs"]) != 1 or int(fields[b"Seccomp"]) != SECCOMP_MODE_FILTER:
        raise PermissionError("no_new_privs or seccomp is not in force")
    # The keeper's filter is on this process as well, and is a filter: only the cell's refuses this.
    if libc.unshare(0) == 0:
        raise PermissionError("the cell's filter is not in force")
    if os.getresuid() != (identity,) * 3 or os.getresgid() != (identity,) * 3 or identity == 0:
        raise PermissionError("the user is not the cell's")


def status_fields():
    status = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return dict(line.split(b":", 1) for line in os.read(status, STATUS_BYTES_MAX).splitlines())
    finally:
        os.close(status)


SOURCES = []  # what preloaded modules draw random numbers from, besides `random` and `numpy.random` themselves


def random_sources():
    """The generators that modules hold by a name of theirs. Whatever lies deeper is not found."""
    # Not asked for by attribute: a module may import on demand.
    numpy_random = vars(sys.modules.get("numpy.random", random))
    kinds = (random.Random, *filter(None, map(numpy_random.get, ("Generator", "RandomState"))))
    own = (vars(random).get("_inst"), numpy_random.get("mtrand") and vars(numpy_random["mtrand"]).get("_rand"))
    found = {}
    for module in list(sys.modules.values()):
        for value in list(getattr(module, "__dict__", {}).values()):
            # By type: a proxy would load what it stands for when it is asked.
            if issubclass(type(value), kinds) and not any(value is each for each in own):
                found[id(value)] = value
    return list(found.values())


def reseed():
    """Gives this fork randomness of its own. The hash seed is the zygote's: it cannot be changed."""
    random.seed()
    for source in list(SOURCES):
        kind = type(source)
        try:
            if issubclass(kind, random.Random) and kind.random is random.Random.random:
                random.Random.seed(source)  # whatever its own kind makes of `seed`: it may take the same number always
            elif issubclass(kind, random.Random):
                source.seed()
            else:
                generator = getattr(source, "bit_generator", None) or source._bit_generator
                generator.state = type(generator)().state
        except Exception as error:
            SOURCES[:] = [other for other in SOURCES if other is not source]
            sys.stderr.write(f"ringfence: a {kind.__name__} of a preloaded module keeps its state: {error}\n")
    numpy, numpy_random = sys.modules.get("numpy"), sys.modules.get("numpy.random")
    if numpy is not None and numpy_random is not None:
        # The whole state drawn: numpy's own `seed` draws a part of it, and takes twice as long.
        words = numpy.frombuffer(os.urandom(MT19937_WORDS * 4), dtype="uint32")
        numpy_random.set_state(("MT19937", words, MT19937_WORDS))


def receive(link):
    """One message of the keeper with its descriptors; None at the end."""
    space = socket.CMSG_SPACE(DESCRIPTORS_MAX * 4)
    data, ancillary, _, _ = link.recvmsg(PACKET.size, space, socket.MSG_CMSG_CLOEXEC)
    return (data, received_descriptors(ancillary)) if data else None


def received_descriptors(ancillary):
    descriptors = []
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            count = len(payload) // 4
            descriptors.extend(struct.unpack(f"{count}i", payload[: count * 4]))
    return descriptors


def lock_down(config, seccomp, identity, descriptors):
    """In the child: enters the cell and gives everything up. Returns the worker's frame socket."""
    pidfd, frame, out, err, *cgroups = descriptors
    # The cell's other processes see this one, some of them under the same user. Until it holds nothing of the zygote's
    # (the log, the link, the wake-up pipe), none of them may reach its descriptors through /proc.
    prctl(PR_SET_DUMPABLE, 0)
    for procs in cgroups:
        os.write(procs, b"0")
    try:
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        os.write(score, b"500")
        os.close(score)
    except OSError:
        pass  # only a hint, so that the kernel prefers it to the cell's init
    syscall("setns", pidfd, CELL_NAMESPACES)
    drop_bounding_set()
    if not config["uid_count_single"]:
        os.setgroups([])
    os.setresgid(identity, identity, identity)
    os.setresuid(identity, identity, identity)
    drop_capabilities()
    for limit, soft, hard in config["rlimits"]:
        resource.setrlimit(limit, (soft, hard))
    os.umask(0o022)
    os.chdir(config["cwd"])
    os.setsid()
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    load_seccomp(seccomp)
    verify(identity)
    null = os.open("/dev/null", os.O_RDONLY)
    import fcntl  # imported by the zygote already

    kept = fcntl.fcntl(frame, fcntl.F_DUPFD_CLOEXEC, FRAME_FD_MIN)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
    prctl(PR_SET_DUMPABLE, 1)  # without it a program cannot look at itself in /proc
    return kept


class Zygote:
    FORK_FDS = 4  # beside those of cgroups

    @staticmethod
    def prepare(config):
        """Before the imports."""

    def __init__(self, link, config, worker):
        self.link = link
        self.config = config
        self.seccomp = bytes.fromhex(config["seccomp_hex"])
        self.worker = worker
        self.own_pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    def say(self, kind, *fields):
        self.link.send(PACKET.pack(VERSION, kind, *fields, *(0,) * (7 - len(fields))))

    def run(self):
        """Serves the keeper until it is gone."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        poll = select.poll()
        poll.register(self.link, select.POLLIN)
        poll.register(woken, select.POLLIN)
        self.say(READY)
        while True:
            ready = dict(poll.poll())
            if woken in ready:
                os.read(woken, 4096)
                self.reap()
            if self.link.fileno() in ready:
                message = receive(self.link)
                if message is None:
                    return
                self.answer(*message)

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.say(DIED, pid, status)

    def answer(self, data, descriptors):
        try:
            version, kind, cell, cgroups, identity, *_ = PACKET.unpack(data)
            if version != VERSION or kind != FORK or len(descriptors) != self.FORK_FDS + cgroups:
                raise SystemExit("zygote: a message that the keeper does not send")
            try:
                pid = self.fork(identity, descriptors)
            except OSError as error:
                self.say(FORK_FAILED, cell, error.errno or 0)
            else:
                self.say(FORKED, cell, pid)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def fork(self, identity, descriptors):
        syscall("setns", descriptors[0], CLONE_NEWPID)
        try:
            pid = os.fork()
            if pid == 0:
                self.become_worker(identity, descriptors)
        finally:
            syscall("setns", self.own_pid_namespace, CLONE_NEWPID)
        return pid

    def become_worker(self, identity, descriptors):
        """In the child; never returns."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            frame = lock_down(self.config, self.seccomp, identity, descriptors)
            self.link.detach()
            reseed()
            gc.enable()
        except BaseException as error:
            os.write(2, f"ringfence: a worker could not lock itself down: {error}\n".encode("utf-8", "replace"))
            os._exit(LOCKDOWN_FAILED)
        try:
            self.worker.serve(frame)
        finally:
            os._exit(71)


def preload(modules):
    """Imports what sessions want; what is missing is said and left out."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    for name in modules:
        try:
            __import__(name)
        except Exception as error:
            sys.stderr.write(f"ringfence: the zygote could not import {name}: {error}\n")


def warm_up():
    """Uses once what most programs use first: what these libraries then load and remember is shared by every fork.

    Tables come last, since most programs begin with them: the interpreter's cache of methods is one for all, and
    drawing fills it.
    """
    pandas, numpy = sys.modules.get("pandas"), sys.modules.get("numpy")
    pyplot, fonts = sys.modules.get("matplotlib.pyplot"), sys.modules.get("matplotlib.font_manager")
    try:
        reseed()
        if pyplot is not None:
            figure, axes = pyplot.subplots()
            axes.plot([1, 2, 3], [2, 3, 5], label="line")
            axes.set_title("title")
            axes.legend()
            figure.savefig(io.BytesIO(), format="png")
            pyplot.close(figure)
        # matplotlib does so in every fork, which then writes to the pages that the fonts lie on.
        forget = getattr(getattr(fonts, "_get_font", None), "cache_clear", None)
        if forget is not None:
            forget()
        if pandas is not None and numpy is not None:
            table = pandas.read_csv(io.StringIO("key,value\na,1.5\nb,2.5\na,3.5\n"))
            repr(table.groupby("key")["value"].mean())
            repr(table.describe())
            table = pandas.DataFrame({"key": numpy.arange(100) % 7, "value": numpy.arange(100.0)})
            repr(table.groupby("key").value.mean())
    except Exception as error:
        sys.stderr.write(f"ringfence: a preloaded library could not be used: {error}\n")


def fill_holes():
    """Objects for every free place in the pools of Python's allocator, to be kept for ever.

    Imports leave holes all over. A fork would put its own first objects there, and get a copy of a page for each of a
    few of them; without holes they lie close together on pages of its own.
    """
    kept = []
    for size in range(16, SMALL_BYTES_MAX + 1, 16):
        make = {16: object, 32: complex}.get(size) or functools.partial(bytes, size - bytes.__basicsize__)
        # A whole pool, but for its head and a few places that the numbers of this loop may take.
        whole = (POOL_BYTES - 48) // size - 3
        made, pool, run = [], None, 0
        while run < whole:
            if len(made) == HOLES_MAX:
                return kept  # another allocator: nothing is known of its holes
            made.append(make())
            run = run + 1 if id(made[-1]) // POOL_BYTES == pool else 1
            pool = id(made[-1]) // POOL_BYTES
        # That pool was empty.
        del made[-run:]
        kept.append(made)
    return kept


def mappings():
    """This process's own: first and last address, rights, offset in the file, the file."""
    with open("/proc/self/maps") as maps:
        lines = [line.split(None, 5) for line in maps]
    for place, rights, offset, _, _, *name in lines:
        first, last = (int(end, 16) for end in place.split("-"))
        yield first, last, rights, int(offset, 16), name[0].strip() if name else ""


def join_pages():
    """Puts the zygote's memory on huge pages where the kernel can (6.1 and later).

    A fork copies, and its end frees, one entry for two megabytes instead of 512: a third to a half of both. A page
    that a fork writes to is still copied alone.
    """
    for first, last, rights, _, name in list(mappings()):
        if rights.startswith("rw") and name in ("", "[heap]"):
            first = -(-first // HUGE_PAGE) * HUGE_PAGE
            length = last // HUGE_PAGE * HUGE_PAGE - first
            if length > 0:
                # What cannot be joined stays as it is.
                libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(length), MADV_COLLAPSE)


def join_libraries():
    """Makes one mapping of each library's code and constants, by giving both the same rights.

    A fork copies, and its end takes apart, every mapping: a third fewer are left. That constants can be executed
    is no new power for programs, which may map what they want to execute.
    """
    areas = list(mappings())
    for one, two in zip(areas, areas[1:]):
        touch = one[1] == two[0] and one[3] + one[1] - one[0] == two[3]
        if touch and one[4] == two[4] and one[4].startswith("/") and {one[2], two[2]} == {"r--p", "r-xp"}:
            first, last = (one if one[2] == "r--p" else two)[:2]
            rights = ctypes.c_int(mmap.PROT_READ | mmap.PROT_EXEC)
            libc.mprotect(ctypes.c_void_p(first), ctypes.c_size_t(last - first), rights)


def rehearse(worker):
    """What each fork begins with, as far as that leaves the zygote as it is: what is remembered of it is shared."""
    try:
        for _ in range(REHEARSALS):
            status_fields()
            for capability in range(CAPABILITIES_MAX):
                libc.prctl(PR_CAPBSET_READ, ctypes.c_ulong(capability), 0, 0, 0)
            reseed()
            worker.rehearse()
    except Exception as error:
        sys.stderr.write(f"ringfence: what a session begins with could not be rehearsed: {error}\n")


def threads():
    return len(os.listdir("/proc/self/task"))


def main():
    with os.fdopen(CONFIG_FD, "rb") as file:
        config = json.load(file)
    os.environ.clear()
    os.environ.update(config["environment"])
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
        os.environ[name] = "1"  # a thread of a library would forbid setns
    sys.argv = [""]
    worker = types.ModuleType("ringfence_worker")
    # A private copy: what programs do to the builtins does not reach the worker's own code.
    worker.__builtins__ = dict(vars(builtins))
    exec(compile(config["worker_source"], "<ringfence>", "exec"), worker.__dict__)
    import fcntl  # noqa: F401  (before the fork: nothing is imported on the way into a cell)

    kind = Zygote
    if config.get("guard_source"):  # sessions without namespaces, or in a sandbox each
        exec(compile(config["guard_source"], "<guard>", "exec"), globals())
        kind = KIND  # noqa: F821
    kind.prepare(config)
    preload(config["preloads"])
    warm_up()
    SOURCES.extend(random_sources())
    reseed()  # what cannot be seeded anew is told here, where the log hears it, and not in each fork
    worker.prepare()
    # What was for the imports alone is for no session.
    os.environ.clear()
    os.environ.update(config["environment"])
    if threads() != 1:
        raise SystemExit("zygote: a preloaded module started a thread; take it out of the image's preloads")
    link = socket.socket(fileno=LINK_FD)
    os.set_inheritable(LINK_FD, False)
    zygote = kind(link, config, worker)
    gc.collect()
    gc.disable()  # nothing is collected until a fork turns it on again: shared pages stay shared
    gc.freeze()
    holes = fill_holes()  # noqa: F841  (kept for ever)
    join_pages()
    join_libraries()
    rehearse(worker)
    zygote.run()
    os._exit(0)  # nothing is to be taken apart, and what it has forked lives on


main()
