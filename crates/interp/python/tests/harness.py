"""Drives the worker program as the daemon does: a forked child, a stream socket for frames, pipes for its output.

There is no cell around it here: what holds a program in is tested elsewhere. Waiting is for events alone; a wait that
lasts WAIT_SECONDS_MAX is a hang, and fails.
"""

import os
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
import types
import unittest
import warnings

SOURCE_FILES = ("ground.py", "tracebacks.py", "library.py", "figures.py", "worker.py")
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADER = struct.Struct("<IBBH")
RUN, HELLO, DONE = 1, 129, 130
COUNT_CPU = 2
RETURNED, RAISED, EXITED, INTERRUPTED = range(4)
MEMORY, DISK, PROCESSES = 1, 2, 4
WAIT_SECONDS_MAX = 60
BROKEN = 71
NONCE = 0x1122334455667788


def worker_module():
    """The worker's module, made as the zygote makes it."""
    module = types.ModuleType("ringfence_worker")
    whole = os.environ.get("RINGFENCE_WORKER_SOURCE")  # a file with the program as it is built in
    parts = []
    for path in [whole] if whole else [os.path.join(FOLDER, name) for name in SOURCE_FILES]:
        with open(path, encoding="utf-8") as file:
            parts.append(file.read())
    exec(compile("\n".join(parts), "<ringfence>", "exec"), module.__dict__)
    return module


WORKER = worker_module()
ORDINARY_WARNINGS = warnings.filters[:]  # before unittest turns all of them on


class Violation(AssertionError):
    """What came is no frame. The daemon kills such an interpreter."""


class Result:
    """What a call came to. `status` is the exit status of a worker that died instead of answering, else None."""

    def __init__(self):
        self.stdout = self.stderr = ""
        self.ended = self.code = self.hints = self.cpu_us = self.status = None

    def __repr__(self):
        return "Result(%r)" % (vars(self),)


class Session:
    """A worker and the daemon's end of it."""

    def __init__(self, before=None):
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="ringfence-worker-"))
        self.calls = 0
        self.received = b""
        self.streams = {}
        self.gone = None
        frames, child_frames = socket.socketpair()
        out, child_out = os.pipe()
        err, child_err = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self.become_worker(child_frames.detach(), child_out, child_err, before)
        for fd in (child_out, child_err):
            os.close(fd)
        child_frames.close()
        self.frames, self.out, self.err = frames, out, err
        kind, payload = self.frame(Result())
        assert kind == HELLO, kind
        assert struct.unpack("<IBB2x", payload) == (self.pid,) + sys.version_info[:2]

    def become_worker(self, frames, out, err, before):
        try:
            os.setsid()
            frames, out, err = (relocated(fd) for fd in (frames, out, err))
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(out, 1)
            os.dup2(err, 2)
            os.closerange(3, frames)
            os.closerange(frames + 1, 1024)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            warnings.filters[:] = ORDINARY_WARNINGS
            os.chdir(self.folder)
            os.environ["HOME"] = self.folder
            os.environ["MPLBACKEND"] = "Agg"
            if before is not None:
                before()
            WORKER.serve(frames)
        finally:
            os._exit(99)

    def send(self, code, echo=False, nonce=NONCE):
        self.calls += 1
        source = code.encode("utf-8")
        head = struct.pack("<QIB3x", nonce, self.calls, COUNT_CPU | int(echo))
        self.frames.sendall(HEADER.pack(len(head) + len(source), 1, RUN, 0) + head + source)

    def run(self, code, echo=False, on_output=None):
        """One call. `on_output(session, result)` is called whenever output has come, with what there is so far."""
        result = Result()
        self.send(code, echo)
        frame = self.frame(result, on_output)
        if frame is None:
            return result
        kind, payload = frame
        assert kind == DONE and len(payload) == 24, frame
        nonce, result.code, result.ended, result.hints, result.cpu_us = struct.unpack("<QiBB2xQ", payload)
        assert nonce == NONCE, hex(nonce)
        self.drain(result)
        return result

    def frame(self, result, on_output=None):
        """The next frame, or None when the worker has died; output that comes meanwhile goes into `result`."""
        raw = {"stdout": b"", "stderr": b""}
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        poll = select.poll()
        for fd in (self.frames.fileno(), self.out, self.err):
            poll.register(fd, select.POLLIN)
        while True:
            taken = self.take_frame()
            if taken is not None:
                self.note(result, raw)
                return taken
            ready = dict(poll.poll(max(0, deadline - time.monotonic()) * 1000))
            if not ready:
                os.kill(self.pid, signal.SIGKILL)
                raise AssertionError("the worker hangs; so far: %r" % (raw,))
            for name, fd in (("stdout", self.out), ("stderr", self.err)):
                if fd in ready:
                    data = os.read(fd, 1 << 16)
                    if not data:
                        poll.unregister(fd)
                    raw[name] += data
            if on_output is not None and (self.out in ready or self.err in ready):
                self.note(result, raw)
                on_output(self, result)
            if self.frames.fileno() in ready:
                try:
                    data = self.frames.recv(4096)
                except ConnectionResetError:
                    data = b""
                if not data:
                    self.note(result, raw)
                    self.drain(result)
                    result.status = self.reap()
                    return None
                self.received += data

    def take_frame(self):
        if len(self.received) < HEADER.size:
            return None
        length, version, kind, zero = HEADER.unpack_from(self.received)
        if version != 1 or zero != 0 or length > 256:
            raise Violation("no frame: %r" % (self.received[:64],))
        end = HEADER.size + length
        if len(self.received) < end:
            return None
        payload, self.received = self.received[HEADER.size : end], self.received[end:]
        return kind, payload

    def note(self, result, raw):
        result.stdout = raw["stdout"].decode("utf-8", "replace")
        result.stderr = raw["stderr"].decode("utf-8", "replace")

    def drain(self, result):
        """What is in the pipes already."""
        for name, fd in (("stdout", self.out), ("stderr", self.err)):
            data = b""
            while select.select([fd], [], [], 0)[0]:
                more = os.read(fd, 1 << 16)
                if not more:
                    break
                data += more
            setattr(result, name, getattr(result, name) + data.decode("utf-8", "replace"))

    def interrupt(self):
        os.kill(self.pid, signal.SIGINT)

    def reap(self):
        """The exit status of the worker, negative for a signal."""
        if self.gone is None:
            _, status = os.waitpid(self.pid, 0)
            self.gone = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        return self.gone

    def path(self, name):
        return os.path.join(self.folder, name)

    def files(self):
        return sorted(os.listdir(self.folder))

    def close(self):
        """Ends the session and all that it left running."""
        self.frames.close()
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.reap()
        os.close(self.out)
        os.close(self.err)
        shutil.rmtree(self.folder, ignore_errors=True)


def relocated(fd):
    """A descriptor out of the way of the standard ones, as the zygote leaves it."""
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 500)


class Case(unittest.TestCase):
    """A test with a session, `self.s`, and exact comparisons of what calls come to."""

    maxDiff = None

    def setUp(self):
        self.s = self.session()

    def session(self, before=None):
        session = Session(before)
        self.addCleanup(session.close)
        return session

    def ok(self, code, stdout="", stderr="", **options):
        """Runs a call that must end well, with exactly this output."""
        result = self.s.run(code, **options)
        self.assertEqual((result.code, result.ended, result.stdout, result.stderr), (0, RETURNED, stdout, stderr), result)
        return result

    def fails(self, code, last_line=None, **options):
        """Runs a call that must end with an uncaught exception."""
        result = self.s.run(code, **options)
        self.assertEqual((result.code, result.ended), (1, RAISED), result)
        if last_line is not None:
            self.assertEqual(result.stderr.splitlines()[-1], last_line, result.stderr)
        return result

    def breaks(self, code):
        """Runs a call that must cost this interpreter, at once and with the agreed status."""
        result = self.s.run(code)
        self.assertEqual(result.status, BROKEN, result)
        return result
