"""The worker: a session's interpreter. Runs one call after another and keeps its variables between them.

The zygote executes this source once, in a module of its own, and calls `serve` in each locked-down child. By then
fd 0 is /dev/null, fds 1 and 2 are pipes that the daemon reads, and the frame socket (frame::worker has the messages)
is the only other descriptor.

What a user's program does to the interpreter may cost it this interpreter, never a wrong answer. So everything that
the loop needs is taken out of its module when this source runs, and the zygote gives it a private copy of the
builtins: rebinding `os.write` or `builtins.len` changes nothing here. When something goes wrong in here all the same,
the process ends with status 71 and the daemon starts another.
"""

import __future__
import ast
import asyncio
import builtins
import errno
import fcntl
import io
import linecache
import os
import signal
import struct
import sys
import time
import traceback
import types
import warnings

OWN_NAME = "<ringfence>"
VERSION = 1
RUN, HELLO, DONE = 1, 129, 130
HEADER = struct.Struct("<IBBH")
RUN_HEAD = struct.Struct("<QIB3x")
HELLO_BODY = struct.Struct("<IBB2x")
DONE_BODY = struct.Struct("<QiBB2xQ")
RUN_BYTES_MAX = 16 << 20
RETURNED, RAISED, EXITED, INTERRUPTED = 0, 1, 2, 3
HINT_MEMORY, HINT_DISK, HINT_PROCESSES = 1, 2, 4
ECHO_LAST = 1
LOST = 71
SAVED_FD_MIN = 510  # behind the frame socket, out of the way of what programs do with low numbers
CELLS_KEPT_MAX = 500  # sources kept for tracebacks and inspect.getsource
CELL_BYTES_KEPT_MAX = 8 << 20
IDLE_ERRORS_MAX = 1000
FUTURE_FLAGS = 0
for _name in __future__.all_feature_names:
    FUTURE_FLAGS |= getattr(__future__, _name).compiler_flag
TOP_LEVEL_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
CO_COROUTINE = 0x80

os_read, os_write, os_exit, getpid, fstat, dup2, os_close = (
    os.read, os.write, os._exit, os.getpid, os.fstat, os.dup2, os.close
)
path_exists, path_join = os.path.lexists, os.path.join
process_time_ns = time.process_time_ns
getsignal, set_signal, pthread_sigmask = signal.getsignal, signal.signal, signal.pthread_sigmask
SIGINT, SIG_UNBLOCK = signal.SIGINT, signal.SIG_UNBLOCK
SIGINT_SET = frozenset({SIGINT})
header_pack, header_unpack = HEADER.pack, HEADER.unpack
run_head_unpack, done_pack, hello_pack = RUN_HEAD.unpack_from, DONE_BODY.pack, HELLO_BODY.pack
modules = sys.modules
source_cache = linecache.cache
TracebackException = traceback.TracebackException
new_event_loop, set_event_loop = asyncio.new_event_loop, asyncio.set_event_loop
default_excepthook = sys.excepthook
gettrace, settrace, getprofile, setprofile = sys.gettrace, sys.settrace, sys.getprofile, sys.setprofile


class Streams:
    """sys.stdin, sys.stdout and sys.stderr over fds 0, 1 and 2, made once and put back before each call."""

    def __init__(self):
        self.saved = tuple(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, SAVED_FD_MIN) for fd in (1, 2))
        self.identity = tuple(self.identify(fd) for fd in (1, 2))
        self.make()

    @staticmethod
    def identify(fd):
        found = fstat(fd)
        return found.st_dev, found.st_ino

    def make(self):
        self.stdin = io.TextIOWrapper(io.BufferedReader(named(0, "r", "<stdin>")), encoding="utf-8", errors="replace")
        self.stdout = self.writer(1, "<stdout>")
        self.stderr = self.writer(2, "<stderr>")
        self.put_back()
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = self.stdin, self.stdout, self.stderr

    @staticmethod
    def writer(fd, name):
        # backslashreplace: a lone surrogate is shown, and never ends a program that prints it.
        buffer = io.BufferedWriter(named(fd, "w", name))
        return io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace", line_buffering=True)

    def put_back(self):
        sys.stdin, sys.stdout, sys.stderr = self.stdin, self.stdout, self.stderr

    def repair(self):
        """Before a call: whatever the last one did to them, they are the daemon's pipes again."""
        for fd, saved, identity in zip((1, 2), self.saved, self.identity):
            try:
                if self.identify(fd) == identity:
                    continue
            except OSError:
                pass
            if self.identify(saved) != identity:
                os_exit(LOST)
            dup2(saved, fd)
        if self.stdin.closed or self.stdout.closed or self.stderr.closed or self.detached():
            self.make()
        elif sys.stdout is not self.stdout or sys.stderr is not self.stderr or sys.stdin is not self.stdin:
            self.put_back()

    def detached(self):
        try:
            return self.stdout.buffer is None or self.stderr.buffer is None or self.stdin.buffer is None
        except ValueError:
            return True

    def flush(self):
        for stream in (sys.stdout, sys.stderr, self.stdout, self.stderr):
            try:
                stream.flush()
            except BaseException:
                pass  # closed, or replaced by something that cannot be flushed: the next call repairs it


def named(fd, mode, name):
    raw = io.FileIO(fd, mode, closefd=False)
    raw.name = name
    return raw


class Sources:
    """The sources of past calls, kept where linecache looks: tracebacks and inspect.getsource show them."""

    def __init__(self):
        self.kept = []
        self.bytes = 0

    def keep(self, filename, source):
        lines = [line + "\n" for line in source.split("\n")]
        source_cache[filename] = (len(source), None, lines, filename)
        self.kept.append((filename, len(source)))
        self.bytes += len(source)
        while len(self.kept) > 1 and (len(self.kept) > CELLS_KEPT_MAX or self.bytes > CELL_BYTES_KEPT_MAX):
            oldest, size = self.kept.pop(0)
            self.bytes -= size
            source_cache.pop(oldest, None)


class Figures:
    """Writes figures that the code left open, or showed, as PNG files into the workspace."""

    def __init__(self, folder):
        self.folder = folder
        self.pyplot = None

    def hook(self):
        """Takes over `show` once pyplot is there; costs a dictionary look-up until then."""
        pyplot = modules.get("matplotlib.pyplot")
        if pyplot is None or pyplot is self.pyplot or not hasattr(pyplot, "show"):
            return
        from matplotlib._pylab_helpers import Gcf
        from matplotlib.figure import Figure

        if not hasattr(Figure, "_ringfence_savefig"):
            savefig = Figure._ringfence_savefig = Figure.savefig

            def saving(figure, *arguments, **options):
                saved = savefig(figure, *arguments, **options)
                figure._ringfence_saved = True
                return saved

            saving.__name__, saving.__qualname__, saving.__doc__ = "savefig", savefig.__qualname__, savefig.__doc__
            Figure.savefig = saving

        def show(*_, **__):
            """Writes each open figure that was not saved as a PNG file into the workspace, and closes it."""
            self.capture()

        pyplot.show = show
        self.pyplot, self.managers, self.savefig = pyplot, Gcf, Figure._ringfence_savefig

    def capture(self):
        if self.pyplot is None:
            return
        for manager in list(self.managers.figs.values()):
            figure = manager.canvas.figure
            try:
                if not getattr(figure, "_ringfence_saved", False) and figure.get_axes():
                    self.savefig(figure, self.free_name(), format="png")
            except KeyboardInterrupt:
                raise
            except BaseException:
                pass  # a figure that cannot be drawn is the program's; its result stays what it was
            self.pyplot.close(figure)

    def free_name(self):
        number = 1
        while path_exists(path_join(self.folder, f"figure-{number}.png")):
            number += 1
        return path_join(self.folder, f"figure-{number}.png")

    def left_open(self):
        return self.pyplot is not None and bool(self.managers.figs)


class Interpreter:
    """The user's module, and what running a call in it takes."""

    def __init__(self, streams, figures):
        self.streams = streams
        self.figures = figures
        self.sources = Sources()
        self.pid = getpid()
        self.running = False
        self.future_flags = 0
        self.loop = None
        main = types.ModuleType("__main__")
        main.__builtins__ = builtins
        modules["__main__"] = main
        self.globals = main.__dict__

    def on_interrupt(self, *_):
        """SIGINT: ends the user's code, and nothing else."""
        if self.running:
            raise KeyboardInterrupt

    def settle(self):
        """Before a call: signal, streams and tracing are ours again."""
        if getsignal(SIGINT) != self.on_interrupt:
            set_signal(SIGINT, self.on_interrupt)
        pthread_sigmask(SIG_UNBLOCK, SIGINT_SET)
        self.streams.repair()
        self.figures.hook()

    def run(self, number, echo_last, source):
        """Runs one call: (return code, how it ended, hints)."""
        filename = f"<cell {number}>"
        self.sources.keep(filename, source)
        try:
            try:
                self.running = True
                for code in self.compile(source, filename, echo_last):
                    self.execute(code)
                self.show_figures()
            finally:
                self.running = False
            return 0, RETURNED, 0
        except KeyboardInterrupt as error:
            self.running = False
            self.report(error)
            return 130, INTERRUPTED, 0
        except SystemExit as error:
            return self.exited(error.code)
        except BaseException as error:
            self.report(error)
            self.show_figures_of_failed()
            return 1, RAISED, hints_of(error)
        finally:
            if gettrace() is not None:
                settrace(None)
            if getprofile() is not None:
                setprofile(None)

    def compile(self, source, filename, echo_last):
        flags = TOP_LEVEL_AWAIT | self.future_flags
        if not echo_last:
            codes = [compile(source, filename, "exec", flags, True)]
        else:
            tree = compile(source, filename, "exec", flags | ast.PyCF_ONLY_AST, True)
            last = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
            codes = [compile(tree, filename, "exec", flags, True)]
            codes += [compile(ast.Interactive([one]), filename, "single", flags, True) for one in last]
        # As in a notebook, `from __future__ import` holds for the calls that follow.
        self.future_flags |= codes[0].co_flags & FUTURE_FLAGS
        return codes

    def execute(self, code):
        if not code.co_flags & CO_COROUTINE:
            exec(code, self.globals)
            return
        if self.loop is None or self.loop.is_closed():
            self.loop = new_event_loop()
        set_event_loop(self.loop)
        task = self.loop.create_task(eval(code, self.globals))
        try:
            self.loop.run_until_complete(task)
        except KeyboardInterrupt:
            if not task.done():
                task.cancel()
                try:
                    self.loop.run_until_complete(task)
                except BaseException:
                    pass  # what it said of its cancellation is not what ended the call
            raise

    def show_figures(self):
        if self.figures.left_open():
            self.figures.capture()

    def show_figures_of_failed(self):
        """What a program had drawn before it failed is shown as well; its own failure stays the result."""
        try:
            self.running = True
            self.show_figures()
        except BaseException:
            pass
        finally:
            self.running = False

    def exited(self, code):
        if code is None:
            return 0, EXITED, 0
        if isinstance(code, int):
            return code & 0xFF, EXITED, 0
        try:
            self.streams.stdout.flush()
            sys.stderr.write(f"{code}\n")
        except BaseException:
            pass
        return 1, EXITED, 0

    def report(self, error):
        """Prints the traceback as Python would, without a frame of ours."""
        self.streams.flush()
        hook = sys.excepthook
        if hook is not default_excepthook:
            try:
                hook(type(error), error, own_frames_cut(error.__traceback__))
                return
            except BaseException:
                pass  # the program's own hook failed: the ordinary report says more
        try:
            text = "".join(described(error).format())
        except BaseException:
            text = f"{type(error).__name__}: the traceback cannot be printed\n"
        try:
            sys.stderr.write(text)
        except BaseException:
            try:
                self.streams.stderr.write(text)
            except BaseException:
                pass


def own_frames_cut(tb):
    while tb is not None and tb.tb_frame.f_code.co_filename == OWN_NAME:
        tb = tb.tb_next
    return tb


def described(error):
    report = TracebackException(type(error), error, error.__traceback__)
    pending, seen = [report], set()
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        cut_stack(one.stack)
        pending += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())]
    return report


def cut_stack(stack):
    """Takes our frames out, and with them those of asyncio between ours and the first of the user's."""
    first = next((at for at, frame in enumerate(stack) if frame.filename == OWN_NAME), None)
    if first == 0:
        users = next((at for at, frame in enumerate(stack) if frame.filename.startswith("<cell ")), len(stack))
        del stack[:users]
    stack[:] = [frame for frame in stack if frame.filename != OWN_NAME]


def hints_of(error):
    if isinstance(error, MemoryError):
        return HINT_MEMORY
    if isinstance(error, OSError):
        if error.errno == errno.ENOMEM:
            return HINT_MEMORY
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return HINT_DISK
        if error.errno == errno.EAGAIN:
            return HINT_PROCESSES
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return HINT_PROCESSES
    return 0


class Link:
    """The frame socket. It blocks; an exception that a program's signal handler throws into a wait is swallowed."""

    def __init__(self, fd):
        self.fd = fd
        self.held = b""

    def take(self, count):
        errors = 0
        while len(self.held) < count:
            try:
                more = os_read(self.fd, 65536 if count <= 65536 else count - len(self.held))
            except BaseException:
                errors += 1
                if errors > IDLE_ERRORS_MAX:
                    os_exit(LOST)
                continue
            if not more:
                os_exit(0)  # the daemon let go of this session
            self.held += more
        taken, self.held = self.held[:count], self.held[count:]
        return taken

    def receive(self):
        length, version, kind, zero = header_unpack(self.take(8))
        if version != VERSION or kind != RUN or zero != 0 or not 16 <= length <= RUN_BYTES_MAX:
            os_exit(LOST)
        payload = self.take(length)
        return (*run_head_unpack(payload), payload[16:].decode("utf-8"))

    def send(self, kind, body):
        data = header_pack(len(body), VERSION, kind, 0) + body
        if os_write(self.fd, data) != len(data):
            os_exit(LOST)


def leave_child(interpreter, code):
    """A fork of the user's that has come to the end of the user's code: it ends here, and says nothing to the daemon."""
    interpreter.streams.flush()
    os_exit(code)


def close_in_child(fd):
    try:
        os_close(fd)
    except OSError:
        pass


def serve(frame_fd):
    """Serves the daemon's calls; never returns."""
    try:
        streams = Streams()
        interpreter = Interpreter(streams, Figures(os.getcwd()))
        pid = interpreter.pid
        os.register_at_fork(after_in_child=lambda: close_in_child(frame_fd))
        set_signal(SIGINT, interpreter.on_interrupt)
        warnings.filterwarnings("ignore", message=".*is non-interactive, and thus cannot be shown")
        if "" not in sys.path:
            sys.path.insert(0, "")
        sys.argv[:] = [""]
        link = Link(frame_fd)
        link.send(HELLO, hello_pack(pid, *sys.version_info[:2]))
        while True:
            nonce, number, flags, source = link.receive()
            interpreter.settle()
            begun = process_time_ns()
            outcome = interpreter.run(number, flags & ECHO_LAST, source)
            if getpid() != pid:
                leave_child(interpreter, outcome[0])
            streams.flush()
            link.send(DONE, done_pack(nonce, *outcome, (process_time_ns() - begun) // 1000))
    except BaseException:
        os_exit(LOST)
    os_exit(LOST)
