"""The interpreter of a session: takes a call, runs it in a real `__main__`, answers, and waits for the next.

This program is one source in five parts, put together in this order: ground, tracebacks, library, figures, worker.
This part has what user code must not be able to take away, the streams, the sources, and the socket to the daemon.

The zygote executes this source once, before it forks, in a namespace of its own, and calls `prepare()` when it has
imported what sessions want, and `rehearse()` last of all; the locked-down child then calls `serve(frame_fd)`, which never returns. By then fd 0 is /dev/null, fds 1 and 2 are the cell's output pipes, the frame
socket is the only other descriptor, and the working directory is the workspace. docs/interpreter.md says what users
may rely on; crates/frame/src/worker.rs documents the frames.

Invariants
- User code shares this process and can reach everything in it. Nothing here is a secret and nothing here is a guard:
  the daemon trusts no frame. What is promised is only that vandalism ends this process (exit status 71), and soon,
  instead of making it hang or answer for a call that it did not run.
- Whatever is needed after user code has run was looked up before: our builtins are a private copy, and functions of
  other modules are held by name in this namespace. Rebinding a builtin or emptying sys.modules does not reach us.
- A process that user code forked never speaks on the frame socket.
- SIGINT raises KeyboardInterrupt in user code, or in what runs on its behalf, and never in the loop below. Other handlers of the
  user's run during calls only.
- A call that succeeds imports nothing and formats nothing.
"""

import __future__
import _signal
import ast
import asyncio
import builtins
import errno
import fcntl
import functools
import gc
import inspect
import io
import linecache
import os
import re
import socket
import struct
import sys
import time
import traceback
import types
import warnings
import weakref
from importlib.machinery import PathFinder

__builtins__ = dict(vars(builtins))  # functions below this line look names up in here
OURS = globals()

VERSION, RUN, HELLO, DONE = 1, 1, 129, 130
HEADER, RUN_HEAD = struct.Struct("<IBBH"), struct.Struct("<QIB3x")
HELLO_BODY, DONE_BODY = struct.Struct("<IBB2x"), struct.Struct("<QiBB2xQ")
RETURNED, RAISED, EXITED, INTERRUPTED = range(4)
HINT_MEMORY, HINT_DISK, HINT_PROCESSES = 1, 2, 4
ECHO_LAST, COUNT_CPU = 1, 2
DISGUISE = "__ringfence__"  # marks the globals of functions of ours that stand in for a library's

EXIT_BROKEN = 71
RUN_BYTES_MAX = 16 << 20
READ_BYTES = 4 << 10  # most calls whole; no more, since the memory for it is asked for before each call
READ_BYTES_MAX = 1 << 20
READ_RETRIES_MAX = 1000
HIGH_FD_MIN = 500
SOURCES_MAX = 512
SOURCE_BYTES_MAX = 8 << 20
CHAIN_MAX = 64
BARE_LINES_MAX = 100
RECURSION_LIMIT_MIN = 500
RECURSION_LIMIT = 1000

write, fstat, dup2, close, leave = os.write, os.fstat, os.dup2, os.close, os._exit
getpid, getcwd, set_blocking, get_blocking = os.getpid, os.getcwd, os.set_blocking, os.get_blocking
os_open, unlink, lstat, set_inheritable, O_RDONLY = os.open, os.unlink, os.lstat, os.set_inheritable, os.O_RDONLY
O_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
O_AGAIN = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
# Those of `signal` turn each result into an enum, by raising and catching an exception.
getsignal, set_signal, sigmask, setitimer = _signal.getsignal, _signal.signal, _signal.pthread_sigmask, _signal.setitimer
SIGINT, SIG_SETMASK, SIG_BLOCK, SIG_DFL = _signal.SIGINT, _signal.SIG_SETMASK, _signal.SIG_BLOCK, _signal.SIG_DFL
WATCHED_SIGNALS = tuple(n for n in range(1, 32) if n not in (SIGINT, _signal.SIGKILL, _signal.SIGSTOP))
ITIMER_REAL = _signal.ITIMER_REAL
RARE_TIMERS = (_signal.SIGVTALRM, _signal.ITIMER_VIRTUAL), (_signal.SIGPROF, _signal.ITIMER_PROF)
cpu_ns = time.process_time_ns
settrace, setprofile = sys.settrace, sys.setprofile
getrecursionlimit, setrecursionlimit = sys.getrecursionlimit, sys.setrecursionlimit
original_excepthook = sys.__excepthook__
format_exception, format_exception_only = traceback.format_exception, traceback.format_exception_only
FileIO, BufferedReader, TextIOWrapper, StringIO = io.FileIO, io.BufferedReader, io.TextIOWrapper, io.StringIO
BytesIO, BUFFERED_FILES = io.BytesIO, (TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
flush_text, write_text = TextIOWrapper.flush, TextIOWrapper.write
catch_warnings, simplefilter = warnings.catch_warnings, warnings.simplefilter
new_event_loop, set_event_loop = asyncio.new_event_loop, asyncio.set_event_loop
Expr, Interactive = ast.Expr, ast.Interactive
compile_pattern, escape, MULTILINE = re.compile, re.escape, re.MULTILINE
modules = sys.modules

CO_COROUTINE = inspect.CO_COROUTINE
TOP_LEVEL_AWAIT, ONLY_AST = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, ast.PyCF_ONLY_AST
FUTURES = __future__.annotations.compiler_flag | __future__.barry_as_FLUFL.compiler_flag


class Output(io.BufferedWriter):
    """What is under sys.stdout: closing it is only flushing it.

    A program that wraps `sys.stdout.buffer` in a text stream of its own and drops that closes it without meaning to.
    """

    def close(self):
        self.flush()


def open_stream(fd, name):
    """A text stream over `fd`, like the interpreter's own, except that every string can be written to it."""
    raw = FileIO(fd, "w" if fd else "r", closefd=False)
    raw.name = name
    buffer = Output(raw) if fd else BufferedReader(raw)
    stream = TextIOWrapper(buffer, "utf-8", "backslashreplace", "\n" if fd else None, line_buffering=fd != 0)
    stream.mode = "w" if fd else "r"
    return stream


class Streams:
    """sys.stdin, sys.stdout and sys.stderr: the same objects for the whole life, whatever is done to them."""

    NAMES = ("stdin", "stdout", "stderr")
    PLACES = tuple((fd, name, "__%s__" % name) for fd, name in enumerate(NAMES))

    def __init__(self):
        """On pipes; which, is all one to the objects."""
        self.streams = [None] + [open_stream(fd, "<%s>" % self.NAMES[fd]) for fd in (1, 2)]
        self.places = vars(sys)

    def settle_in(self):
        """On the descriptors of the session."""
        self.streams[0] = open_stream(0, "<stdin>")
        self.saved = {fd: high_fd(fd) for fd in (1, 2)}
        self.known = {fd: identity(fd) for fd in (1, 2)}

    def restore(self):
        """Before a call: its output goes into the pipes and waits where they are full, and the stream objects and their
        places in `sys` are as they were at the start."""
        try:
            # Both may be set by whoever else has the pipes, such as a process that an earlier call has left.
            if not (get_blocking(1) and get_blocking(2)):
                self.repair()
        except OSError:
            self.repair()
        places = self.places
        for fd, name, original in self.PLACES:
            stream = self.streams[fd]
            if is_closed(stream):
                stream = self.streams[fd] = open_stream(fd, "<%s>" % name)
            if places.get(name) is not stream:
                places[name] = stream
            if places.get(original) is not stream:
                places[original] = stream

    def take_back(self):
        """After a call: descriptors that it closed or put something else in the place of are what they were."""
        try:
            get_blocking(0)
            if fstat(1)[1:3] != self.known[1] or fstat(2)[1:3] != self.known[2]:
                self.repair()
        except OSError:
            self.repair()

    def repair(self):
        """Puts the cell's pipes back on 1 and 2, and something on 0; without the saved ones there is no way on."""
        for fd, known in self.known.items():
            if identity(self.saved[fd]) != known:
                leave(EXIT_BROKEN)
            if identity(fd) != known:
                dup2(self.saved[fd], fd)
            set_blocking(fd, True)
        if identity(0) is None:
            null = os_open("/dev/null", O_RDONLY)
            if null == 0:
                set_inheritable(0, True)
            else:
                dup2(null, 0)
                close(null)

    def flush(self):
        """After a call: all that was printed is in the pipes, or this process ends rather than claim so."""
        for fd in (1, 2):
            stream = self.streams[fd]
            if is_closed(stream):
                continue
            try:
                flush_text(stream)
            except OSError:
                self.repair()
                flush_text(stream)

    def flush_users(self):
        """Flushes what user code put in the place of our streams; that is user code, and may do anything."""
        for fd in (1, 2):
            stream = getattr(sys, self.NAMES[fd], None)
            if stream is not self.streams[fd] and stream is not None:
                try:
                    stream.flush()
                except BaseException:
                    pass


def identity(fd):
    """What `fd` is open on, or None."""
    try:
        return fstat(fd)[1:3]  # inode and device
    except OSError:
        return None


def high_fd(fd):
    """A copy of `fd` out of the way of the numbers that programs get, closed on exec."""
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH_FD_MIN)
    except OSError:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


def is_closed(stream):
    try:
        return stream.closed
    except ValueError:  # detached
        return True


class Sources:
    """The text of the last calls, where tracebacks and inspect look for it; bounded in number and size."""

    def __init__(self):
        self.texts = {}  # name -> text, oldest first
        self.size = 0

    def add(self, name, text):
        self.texts[name] = text
        self.size += len(text)
        cache = line_cache()
        cache[name] = cache_entry(name, text)
        while len(self.texts) > 1 and (len(self.texts) > SOURCES_MAX or self.size > SOURCE_BYTES_MAX):
            oldest = next(iter(self.texts))
            self.size -= len(self.texts.pop(oldest))
            cache.pop(oldest, None)

    def forget(self):
        for name in self.texts:
            line_cache().pop(name, None)
        self.texts.clear()
        self.size = 0

    def publish_again(self):
        """For a traceback, after linecache.clearcache()."""
        cache = line_cache()
        for name, text in self.texts.items():
            if name not in cache:
                cache[name] = cache_entry(name, text)

    def file_of_class(self, kind):
        """The call that defined a class of `__main__`, or None."""
        for member in vars(kind).values():
            code = getattr(getattr(member, "__func__", member), "__code__", None)
            if code is not None and code.co_filename in self.texts and member.__qualname__.startswith(kind.__qualname__):
                return code.co_filename
        definition = compile_pattern(r"^[ \t]*class[ \t]+%s\b" % escape(kind.__name__), MULTILINE)
        return next((name for name in reversed(list(self.texts)) if definition.search(self.texts[name])), None)


def line_cache():
    """linecache's table, or one that nobody reads where a program has put something else."""
    cache = getattr(linecache, "cache", None)
    return cache if isinstance(cache, dict) else {}


def cache_entry(name, text):
    lines = list(StringIO(text, None))  # as the tokenizer counts lines: not at form feeds or U+2028
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return len(text), None, lines, name  # no time of change: checkcache leaves it alone


class Link:
    """The frame socket."""

    def __init__(self, fd):
        self.fd = fd if fd >= HIGH_FD_MIN else high_fd(fd)
        if self.fd != fd:
            close(fd)
        os.set_inheritable(self.fd, False)
        self.known = identity(self.fd)
        # A socket's calls fail on a file that a program opened under the same number; `write` would fill it.
        self.socket = socket.socket(fileno=self.fd)
        self.socket.setblocking(True)
        self.send_bytes, self.receive_bytes = self.socket.send, self.socket.recv
        self.received = bytearray()

    def send(self, kind, body):
        data = HEADER.pack(len(body), VERSION, kind, 0) + body
        if self.send_bytes(data) != len(data):
            leave(EXIT_BROKEN)

    def next_run(self):
        """Nonce, number, flags and source of the next Run frame; the end of the stream is the end of the session."""
        received = self.received
        while len(received) < HEADER.size:
            received += self.read_some(READ_BYTES)
        length, version, kind, zero = HEADER.unpack_from(received)
        if version != VERSION or kind != RUN or zero != 0 or not RUN_HEAD.size <= length <= RUN_BYTES_MAX:
            leave(EXIT_BROKEN)
        end = HEADER.size + length
        while len(received) < end:
            received += self.read_some(min(end - len(received), READ_BYTES_MAX))
        nonce, number, flags = RUN_HEAD.unpack_from(received, HEADER.size)
        source = received[HEADER.size + RUN_HEAD.size : end]
        del received[:end]
        return nonce, number, flags, source

    def read_some(self, size):
        data = self.receive_bytes(size)
        if not data:
            leave(0)
        return data

    def is_whole(self):
        return identity(self.fd) == self.known
