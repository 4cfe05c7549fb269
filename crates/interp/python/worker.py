"""The interpreter of a session: takes a call, runs it in a real `__main__`, answers, and waits for the next.

The zygote executes this source once, before it forks, in a namespace of its own; the locked-down child then calls
`serve(frame_fd)`, which never returns. By then fd 0 is /dev/null, fds 1 and 2 are the cell's output pipes, the frame
socket is the only other descriptor, and the working directory is the workspace. docs/interpreter.md says what users
may rely on; crates/frame/src/worker.rs documents the frames.

Invariants
- User code shares this process and can reach everything in it. Nothing here is a secret and nothing here is a guard:
  the daemon trusts no frame. What is promised is only that vandalism ends this process (exit status 71), and soon,
  instead of making it hang or answer for a call that it did not run.
- Whatever is needed after user code has run was looked up before: our builtins are a private copy, and functions of
  other modules are held by name in this namespace. Rebinding a builtin or emptying sys.modules does not reach us.
- A process that user code forked never speaks on the frame socket.
- SIGINT raises KeyboardInterrupt in user code, or in what runs on its behalf, and never in the loop below.
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
ECHO_LAST = 1
DISGUISE = "__ringfence__"  # marks the globals of functions of ours that stand in for a library's

EXIT_BROKEN = 71
RUN_BYTES_MAX = 16 << 20
READ_BYTES = 64 << 10
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

    def __init__(self):
        self.streams = [open_stream(fd, "<%s>" % name) for fd, name in enumerate(self.NAMES)]
        self.saved = {fd: high_fd(fd) for fd in (1, 2)}
        self.known = {fd: identity(fd) for fd in (1, 2)}
        self.restore()

    def restore(self):
        """Before a call: descriptors, stream objects and their places in `sys` are as they were at the start."""
        for fd, known in self.known.items():
            if identity(fd) != known or not get_blocking(fd):
                self.repair()
        try:
            get_blocking(0)
        except OSError:
            self.repair()
        for fd, name in enumerate(self.NAMES):
            stream = self.streams[fd]
            if getattr(sys, name, None) is not stream:
                setattr(sys, name, stream)
            if is_closed(stream):
                stream = self.streams[fd] = open_stream(fd, "<%s>" % name)
                setattr(sys, name, stream)
            setattr(sys, "__%s__" % name, stream)

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
        status = fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


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
        """The payload of the next Run frame; the end of the stream is the end of the session."""
        received = self.received
        while len(received) < HEADER.size:
            received += self.read_some()
        length, version, kind, zero = HEADER.unpack_from(received)
        if version != VERSION or kind != RUN or zero != 0 or not RUN_HEAD.size <= length <= RUN_BYTES_MAX:
            leave(EXIT_BROKEN)
        end = HEADER.size + length
        while len(received) < end:
            received += self.read_some()
        payload = bytes(received[HEADER.size : end])
        del received[:end]
        return payload

    def read_some(self):
        data = self.receive_bytes(READ_BYTES)
        if not data:
            leave(0)
        return data

    def is_whole(self):
        return identity(self.fd) == self.known


class Worker:
    """One session's interpreter."""

    def __init__(self, frame_fd):
        self.pid = getpid()
        self.link = Link(frame_fd)
        self.streams = Streams()
        self.sources = Sources()
        self.figures = Figures(getcwd(), self.say)
        self.loop = None
        self.futures = 0
        # `busy`: a call has begun and not ended. `live`: what runs may be interrupted by an exception.
        self.busy = self.live = self.pending = False
        self.interrupt_handler = self.on_interrupt
        self.handlers = tuple(map(getsignal, WATCHED_SIGNALS))
        self.main = types.ModuleType("__main__")
        self.names = self.main.__dict__
        self.settle_in()

    def settle_in(self):
        """What a program finds: its own folder first on the path, no arguments, `exit`, and files that import."""
        sys.argv[:] = [""]
        sys.path[:] = [""] + [entry for entry in sys.path if entry != ""]
        sys.dont_write_bytecode = True  # no __pycache__ among the user's files, and none that is stale
        sys.meta_path.append(LateFinder())
        inspect.getfile = getfile_for(self.sources)
        if not hasattr(builtins, "exit"):
            import _sitebuiltins

            builtins.exit = _sitebuiltins.Quitter("exit", "")
            builtins.quit = _sitebuiltins.Quitter("quit", "")
        os.register_at_fork(after_in_child=self.after_fork)
        self.prepare()

    def after_fork(self):
        """In every process that is forked from here: it has no business with the daemon."""
        try:
            close(self.link.fd)
        except OSError:
            pass

    def on_interrupt(self, _signal, frame):
        """SIGINT. `frame` is where an exception would appear: in user code, or in what runs on its behalf."""
        while frame is not None and frame.f_globals is OURS:
            if frame.f_code in BASE:
                frame = None
            else:
                frame = frame.f_back
        if self.live and frame is not None:
            raise KeyboardInterrupt
        self.pending = self.busy

    def serve(self):
        self.link.send(HELLO, HELLO_BODY.pack(self.pid, *sys.version_info[:2]))
        while True:
            payload = self.wait()
            begun = cpu_ns()
            nonce, number, flags = RUN_HEAD.unpack_from(payload)
            self.prepare()
            ended, code, hints = self.call(number, payload[RUN_HEAD.size :].decode("utf-8"), flags & ECHO_LAST)
            self.streams.flush()
            self.disarm()
            self.busy = False
            self.link.send(DONE, DONE_BODY.pack(nonce, code, ended, hints, (cpu_ns() - begun) // 1000))

    def wait(self):
        """The payload of the next Run frame. A signal handler of the user's may raise into the waiting."""
        error = None
        for _ in range(READ_RETRIES_MAX):
            try:
                if error is not None:
                    self.show(error)
                    self.streams.flush()
                    error = None
                return self.link.next_run()
            except BaseException as raised:
                error = raised
                if not self.link.is_whole():
                    break
                self.link.socket.setblocking(True)
        return leave(EXIT_BROKEN)

    def prepare(self):
        """Before a call: undoes what an earlier one did to the ground that calls stand on."""
        self.streams.restore()
        if modules.get("__main__") is not self.main:
            modules["__main__"] = self.main
        self.names["__builtins__"] = builtins
        self.names["__name__"] = "__main__"
        if getsignal(SIGINT) is not self.interrupt_handler:
            set_signal(SIGINT, self.interrupt_handler)

    def let_signals_in(self):
        """At the start of a call; what came since the last one is handled now, and is not this one's failure."""
        try:
            sigmask(SIG_SETMASK, ())
        except BaseException as error:
            self.show(error)

    def keep_signals_out(self):
        """At the end of a call: handlers of the user's run during calls, or they would raise into our own code."""
        handlers = tuple(map(getsignal, WATCHED_SIGNALS))
        if handlers != self.handlers:
            sigmask(SIG_BLOCK, [number for number, handler in zip(WATCHED_SIGNALS, handlers) if callable(handler)])

    def disarm(self):
        """After a call: an alarm that it forgot must not go off in a later one."""
        setitimer(ITIMER_REAL, 0)
        for number, timer in RARE_TIMERS:
            if getsignal(number) != SIG_DFL:
                setitimer(timer, 0)

    def call(self, number, source, echo):
        """Runs one call: how it ended, its return code, hints."""
        error = None
        try:
            try:
                self.let_signals_in()
                self.busy, self.pending = True, False
                units = self.translate(source, "<cell %d>" % number, echo)
                if self.pending:
                    raise KeyboardInterrupt
                self.live = True
                for unit in units:
                    if unit.co_flags & CO_COROUTINE:
                        self.run_coroutine(eval(unit, self.names))
                    else:
                        exec(unit, self.names)
            finally:
                # Nothing of ours that a trace function would see was called so far. One that raises is gone by that.
                for stop in (setprofile, settrace):
                    try:
                        stop(None)
                    except BaseException:
                        stop(None)
                self.keep_signals_out()
        except BaseException as raised:
            error = raised
            self.keep_signals_out()
        if getrecursionlimit() < RECURSION_LIMIT_MIN:
            setrecursionlimit(RECURSION_LIMIT)
        if getpid() != self.pid:
            self.end_fork(error)
        self.live = True
        outcome = (RETURNED, 0, 0) if error is None else self.report(error)
        error = None  # it leads to the user's frames and they lead back to this one: nothing would be freed
        self.streams.flush_users()
        if outcome[0] != INTERRUPTED:
            self.figures.capture_open()
        self.live = False
        return outcome

    def translate(self, source, name, echo):
        """The code objects of a call. As in a notebook, what it imports from __future__ holds for later calls."""
        if source.startswith("\ufeff"):
            source = source[1:]
        self.sources.add(name, source)
        flags = self.futures | TOP_LEVEL_AWAIT
        if not echo:
            units = [compile(source, name, "exec", flags, True)]
            self.futures |= units[0].co_flags & FUTURES
            return units
        tree = compile(source, name, "exec", flags | ONLY_AST, True)
        last = None
        if tree.body and isinstance(tree.body[-1], Expr) and not source.rstrip().endswith(";"):
            last = tree.body.pop()
        units = [compile(tree, name, "exec", flags, True)]
        self.futures |= units[0].co_flags & FUTURES
        if last is not None:
            units.append(compile(Interactive([last]), name, "single", self.futures | TOP_LEVEL_AWAIT, True))
        return units

    def run_coroutine(self, coroutine):
        """Runs a call that awaits at its top level, in the one event loop of the session."""
        loop = self.loop
        if loop is None or loop.is_closed() or loop.is_running():
            loop = self.loop = new_event_loop()
        set_event_loop(loop)
        task = loop.create_task(coroutine)
        try:
            loop.run_until_complete(task)
        except BaseException:
            if not task.done() and getpid() == self.pid:
                task.cancel()
                try:
                    loop.run_until_complete(task)
                except BaseException:
                    pass  # what became of the cancelled rest is not what ended the call
            if task.done() and not task.cancelled():
                task.exception()  # seen: asyncio need not complain of it
            raise

    def report(self, error):
        """Says on stderr what ended the call, as Python would at the end of a program; its outcome."""
        try:
            if isinstance(error, SystemExit):
                code = error.code
                if code is None or isinstance(code, int):
                    return EXITED, 0 if code is None else int(code) & 0xFF, 0
                self.say("%s\n" % (code,))
                return EXITED, 1, 0
            self.show(error)
            if isinstance(error, KeyboardInterrupt):
                return INTERRUPTED, 130, 0
            return RAISED, 1, hints(error)
        except BaseException:
            return RAISED, 1, 0

    def show(self, error):
        try:
            text = self.describe(error)
        except BaseException:
            text = bare_text(error)
        self.say(text)

    def describe(self, error):
        """The text of a traceback, or nothing when the user's sys.excepthook has taken it."""
        cut_chain(error)
        self.sources.publish_again()
        hook = getattr(sys, "excepthook", None)
        if hook is None or hook is original_excepthook:
            return traceback_text(error)
        try:
            hook(type(error), error, error.__traceback__)
            return ""
        except BaseException as second:
            second.__context__ = None
            cut_chain(second)
            parts = "Error in sys.excepthook:\n", traceback_text(second), "\nOriginal exception was:\n"
            return "".join(parts) + traceback_text(error)

    def say(self, text):
        """Writes to the cell's stderr, whatever the user made of sys.stderr."""
        try:
            write_text(self.streams.streams[2], text)
        except BaseException:
            data = text.encode("utf-8", "backslashreplace")
            try:
                self.streams.repair()
                while data:
                    data = data[write(2, data) :]
            except OSError:
                leave(EXIT_BROKEN)

    def end_fork(self, error):
        """In a process that user code forked, which has come to the end of it: ends as a program would."""
        code = 0
        try:
            if error is not None:
                code = self.report(error)[1]
            for thing in gc.get_objects():
                if type(thing) in BUFFERED_FILES or type(thing) is Output:
                    try:
                        thing.flush()
                    except BaseException:
                        pass
        finally:
            leave(code)


BASE = {Worker.serve.__code__, Worker.call.__code__}


def traceback_text(error):
    if error.__traceback__ is None and error.__cause__ is None and error.__context__ is None:
        return "".join(format_exception_only(type(error), error))  # a call that does not compile
    return "".join(format_exception(type(error), error, error.__traceback__))


def bare_text(error):
    """A traceback where the library cannot make one any more."""
    lines, trace = ["Traceback (most recent call last):"], error.__traceback__
    while trace is not None and len(lines) < BARE_LINES_MAX:
        if not is_ours(trace.tb_frame):
            code = trace.tb_frame.f_code
            lines.append('  File "%s", line %d, in %s' % (code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    return "\n".join(lines) + "\n%s\n" % (type(error).__name__,)


def chain(error):
    """The error and those it came from, a bounded number."""
    found, todo = [], [error]
    while todo and len(found) < CHAIN_MAX:
        one = todo.pop(0)
        if one is None or any(one is other for other in found):
            continue
        found.append(one)
        todo += [one.__cause__, one.__context__]
        parts = getattr(one, "exceptions", ())
        todo += [part for part in parts if isinstance(part, BaseException)] if isinstance(parts, tuple) else []
    return found


def cut_chain(error):
    for one in chain(error):
        one.__traceback__ = cut(one.__traceback__)


def cut(trace):
    """A traceback without our frames, nor those of the event loop under a top-level await."""
    if trace is not None and is_ours(trace.tb_frame):
        users = trace
        while users is not None and not users.tb_frame.f_code.co_filename.startswith("<cell "):
            users = users.tb_next
        trace = users or trace
    kept = []
    while trace is not None:
        if not is_ours(trace.tb_frame):
            kept.append(trace)
        trace = trace.tb_next
    for one, following in zip(kept, kept[1:] + [None]):
        one.tb_next = following
    return kept[0] if kept else None


def is_ours(frame):
    return frame.f_globals is OURS or DISGUISE in frame.f_globals


def hints(error):
    """What an uncaught exception, or one that it came from, says of a limit; for the daemon to look into."""
    found = 0
    for one in chain(error):
        number = one.errno if isinstance(one, OSError) else None
        if isinstance(one, MemoryError) or number == errno.ENOMEM:
            found |= HINT_MEMORY
        elif number in (errno.ENOSPC, errno.EDQUOT):
            found |= HINT_DISK
        elif number == errno.EAGAIN:
            found |= HINT_PROCESSES
        elif isinstance(one, RuntimeError) and one.args and one.args[0] == "can't start new thread":
            found |= HINT_PROCESSES
    return found


class LateFinder:
    """Asked when every other finder has failed: looks again for a module that was written a moment ago.

    Finders remember a folder's content by its time of change, and a file can be written within the same tick.
    """

    def find_spec(self, name, path=None, target=None):
        try:
            folders = [entry or getcwd() for entry in (sys.path if path is None else path)]
        except OSError:  # the working directory is gone
            return None
        for folder in folders:
            finder = sys.path_importer_cache.get(folder)
            if path is None and folder.startswith((sys.prefix, sys.base_prefix)):
                continue  # the image's own: large, and read-only
            if hasattr(finder, "invalidate_caches"):
                finder.invalidate_caches()
        return PathFinder.find_spec(name, path, target)


def getfile_for(sources):
    """inspect.getfile, with the classes that calls define: a class has no file but its module's."""
    original = inspect.getfile

    def getfile(object):
        try:
            return original(object)
        except (OSError, TypeError):
            name = None
            if isinstance(object, type) and object.__module__ == "__main__":
                name = sources.file_of_class(object)
            if name is None:
                raise
            return name

    return disguised(getfile, original)


def disguised(function, original):
    """`function` in the place of `original`: warnings that skip the library's frames skip it too."""
    code = function.__code__.replace(co_filename=original.__code__.co_filename)
    names = {"__name__": original.__module__, "__builtins__": __builtins__, DISGUISE: True}
    made = types.FunctionType(code, names, original.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return functools.update_wrapper(made, original)


class PyplotWatch:
    """First among the finders until matplotlib.pyplot is imported, to be there when it has been."""

    def __init__(self, attach):
        self.attach = attach

    def find_spec(self, name, path=None, target=None):
        if name != "matplotlib.pyplot":
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                self.attach(module)

            spec.loader.exec_module = exec_module
        return spec


class Figures:
    """Charts become files: pyplot's open figures are written as PNG by `show` and at the end of a call."""

    def __init__(self, home, say):
        self.home = home
        self.say = say
        self.managers = None  # pyplot's table of open figures, once pyplot is imported
        self.saved = weakref.WeakSet()  # figures that the code has saved itself
        self.written = weakref.WeakKeyDictionary()  # figure -> (path, identity) of what we wrote
        self.last = 0
        self.writing = False
        if "matplotlib.pyplot" in modules:
            self.attach(modules["matplotlib.pyplot"])
        else:
            sys.meta_path.insert(0, PyplotWatch(self.attach))

    def attach(self, pyplot):
        try:
            canvas = modules["matplotlib.backend_bases"].FigureCanvasBase
            managers = modules["matplotlib._pylab_helpers"].Gcf
            canvas.print_figure = self.marking(canvas.print_figure)
            pyplot.show = self.showing(pyplot.show, pyplot.isinteractive)
            self.managers = managers
        except (KeyError, AttributeError):
            pass  # not the pyplot that we know: figures are the program's own affair

    def marking(self, original):
        """All ways to save a figure lead through its canvas."""

        def print_figure(canvas, *arguments, **options):
            result = original(canvas, *arguments, **options)
            if not self.writing:
                self.saved.add(canvas.figure)
            return result

        return disguised(print_figure, original)

    def showing(self, original, is_interactive):
        def show(*arguments, **options):
            block = options.get("block", arguments[0] if arguments else None)
            if block or (block is None and not is_interactive()):
                self.write_open()

        return disguised(show, original)

    def capture_open(self):
        """At the end of a call; costs a look at two empty tables when there are no figures."""
        if self.managers is None or not (self.managers.figs or self.written):
            return
        try:
            for figure in [figure for figure in self.written if figure.stale and figure not in self.saved]:
                self.write(figure)
            self.write_open()
        except BaseException:
            pass  # interrupted; the outcome of the call stands

    def write_open(self):
        """Writes each open figure that the code has not saved, and closes all, as a notebook does after a cell."""
        for number in list(self.managers.figs):
            figure = self.managers.figs[number].canvas.figure
            if figure not in self.saved and (figure.axes or figure.lines or figure.texts or figure.images):
                self.write(figure)
            self.managers.destroy(number)

    def write(self, figure):
        self.writing = True
        try:
            with catch_warnings():
                simplefilter("ignore")
                data = BytesIO()
                figure.savefig(data, format="png", bbox_inches="tight")
            figure.stale = False  # from here on it tells whether the figure has changed since
            self.written[figure] = self.put(data.getbuffer(), self.written.get(figure))
        except Exception as error:
            self.say("ringfence: a figure could not be written: %s: %s\n" % (type(error).__name__, error))
        finally:
            self.writing = False

    def put(self, data, earlier):
        """Writes a file: the figure's own once more, if that is still there, or the next free name."""
        fd = None
        if earlier is not None and path_identity(earlier[0]) == earlier[1]:
            path = earlier[0]
            fd = os_open(path, O_AGAIN)
        folder = self.folder()
        while fd is None:
            self.last += 1
            path = "%s/figure-%d.png" % (folder, self.last)
            try:
                fd = os_open(path, O_NEW, 0o644)
            except FileExistsError:
                pass
        try:
            while data:
                data = data[write(fd, data) :]
            return path, path_identity(path)
        except BaseException:
            unlink(path)
            raise
        finally:
            close(fd)

    def folder(self):
        """The working directory, or the workspace when the program has gone elsewhere."""
        try:
            here = getcwd()
        except OSError:
            return self.home
        return here if here == self.home or here.startswith(self.home + "/") else self.home


def path_identity(path):
    try:
        status = lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def serve(frame_fd):
    """Serves the daemon's calls on a locked-down process's descriptors; never returns."""
    end, broken, say = leave, EXIT_BROKEN, write
    try:
        Worker(frame_fd).serve()
    except BaseException as error:
        say(2, ("ringfence: the interpreter's own loop failed: %r\n" % (error,)).encode("utf-8", "replace"))
    finally:
        end(broken)
