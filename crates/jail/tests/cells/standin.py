"""Stands in for the zygote: forks workers into cells by the same protocol, without imports or frames.

A worker runs the Python text that it reads from its socket, its output going to its fds 1 and 2, and answers with one
byte per text; it ends at the socket's end.
"""
import ctypes, json, os, resource, select, socket, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
PACKET = struct.Struct("<BB6x7Q")
NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (
    0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)


def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def setns(fd, kinds):
    check(libc.setns(fd, kinds))


config = json.load(os.fdopen(5))
link = socket.socket(fileno=4)
program = bytes.fromhex(config["seccomp_hex"])
own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)


def lock_down(fds, cgroups, ident):
    pidfd, frames, out, err = fds[:4]
    for door in fds[4:4 + cgroups]:
        os.write(door, b"0")
    with open("/proc/self/oom_score_adj", "w") as score:
        score.write("500")
    setns(pidfd, NEWUSER | NEWNS | NEWNET | NEWIPC | NEWUTS | NEWCGROUP)
    os.chdir(config["cwd"])
    os.setresgid(ident, ident, ident)
    os.setresuid(ident, ident, ident)
    for number, soft, hard in config["rlimits"]:
        resource.setrlimit(number, (soft, hard))
    for capability in range(64):
        if libc.prctl(24, capability, 0, 0, 0) < 0:
            break
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    check(libc.capset(header, (ctypes.c_uint32 * 6)()))
    check(libc.prctl(38, 1, 0, 0, 0))
    check(libc.prctl(4, 1, 0, 0, 0))
    null = os.open("/dev/null", os.O_RDONLY)
    for fd, place in ((null, 0), (out, 1), (err, 2), (frames, 3)):
        os.dup2(fd, place)
    os.closerange(4, 1 << 16)
    filter_bytes = ctypes.create_string_buffer(program, len(program))
    class Program(ctypes.Structure):
        _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
    prog = Program(len(program) // 8, ctypes.addressof(filter_bytes))
    check(libc.prctl(22, 2, ctypes.byref(prog), 0, 0))


def work():
    frames = socket.socket(fileno=3)
    while text := frames.recv(1 << 20):
        try:
            exec(compile(text, "<test>", "exec"), {"__name__": "__main__"})
        except BaseException:
            import traceback
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        frames.send(b".")
    os._exit(0)


def fork(cell, cgroups, ident, fds):
    try:
        setns(fds[0], NEWPID)
        pid = -1
        try:
            pid = os.fork()
        finally:
            # The child may have the very number that its parent has; only what fork gave tells them apart.
            if pid != 0:
                setns(own_pids, NEWPID)
    except OSError as error:
        return PACKET.pack(1, 131, cell, error.errno, 0, 0, 0, 0, 0)
    if pid == 0:
        try:
            lock_down(fds, cgroups, ident)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(70)
        work()
    return PACKET.pack(1, 130, cell, pid, 0, 0, 0, 0, 0)


link.send(PACKET.pack(1, 129, 0, 0, 0, 0, 0, 0, 0))
poller = select.poll()
poller.register(link, select.POLLIN)
while True:
    ready = poller.poll(5)
    if ready:
        data, fds, _, _ = socket.recv_fds(link, 64, 16)
        if not data:
            os._exit(0)
        version, kind, cell, cgroups, ident, *_ = PACKET.unpack(data)
        link.send(fork(cell, cgroups, ident, fds))
        for fd in fds:
            os.close(fd)
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            break
        link.send(PACKET.pack(1, 132, pid, status, 0, 0, 0, 0, 0))
