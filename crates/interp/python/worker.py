"""Last part of the worker program: the loop that serves calls, and how a call runs."""


class Worker:
    """One session's interpreter."""

    def __init__(self, frame_fd):
        self.pid = getpid()
        self.link = Link(frame_fd)
        made = PREPARED[0] if PREPARED else Prepared()
        self.streams, self.sources, self.figures = made.streams, made.sources, made.figures
        self.streams.settle_in()
        self.figures.settle_in(getcwd(), self.say)
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
        if not hasattr(builtins, "exit"):
            import _sitebuiltins

            builtins.exit = _sitebuiltins.Quitter("exit", "")
            builtins.quit = _sitebuiltins.Quitter("quit", "")
        self.prepare()

    def after_fork(self):
        """In every process that is forked from here: it has no business with the daemon."""
        try:
            self.link.socket.close()  # the object, too: it must not close the number again when that is another's
        except BaseException:
            close(self.link.fd)

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
        os.register_at_fork(after_in_child=self.after_fork)
        self.link.send(HELLO, HELLO_BODY.pack(self.pid, *sys.version_info[:2]))
        while True:
            nonce, number, flags, source = self.wait()
            begun = cpu_ns() if flags & COUNT_CPU else 0
            self.prepare()
            ended, code, hints = self.call(number, source.decode("utf-8"), flags & ECHO_LAST)
            self.streams.flush()
            self.busy = False
            if getpid() != self.pid:  # forked by a hook of the user's, without our knowing
                leave(0)
            cpu_us = (cpu_ns() - begun) // 1000 if flags & COUNT_CPU else 0
            self.link.send(DONE, DONE_BODY.pack(nonce, code, ended, hints, cpu_us))
            # Nobody waits for what comes now.
            self.disarm()
            self.streams.take_back()

    def wait(self):
        """The next call. A signal handler of the user's may raise into the waiting."""
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
                    number = 0 if code is None else int(code)
                    # As Python itself: what is no C long counts as -1.
                    return EXITED, number & 0xFF if -(1 << 63) <= number < 1 << 63 else 255, 0
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


class Prepared:
    """What is the same in every session. Made before the fork, it costs a session neither time nor memory."""

    def __init__(self):
        self.streams = Streams()
        self.sources = Sources()
        self.figures = Figures()
        inspect.getfile = getfile_for(self.sources)


PREPARED = []  # one, where it was made before the fork


def prepare():
    """In a process that forks itself into sessions: all that they want is imported."""
    on_a_pipe(lambda: PREPARED.append(Prepared()))


def on_a_pipe(what):
    """Does it while 1 and 2 are a pipe."""
    kept = [high_fd(fd) for fd in (1, 2)]
    ends = os.pipe()
    try:
        for fd in (1, 2):
            dup2(ends[1], fd)
        what()
    finally:
        for fd, own in zip((1, 2), kept):
            dup2(own, fd)
        for fd in (*kept, *ends):
            close(fd)


def rehearse():
    """Does what each session begins with, and takes it back: last of all before the fork.

    What the interpreter remembers of it is shared then. A method that is not in its cache costs a session a page for the
    place in the cache, one for the name that comes in and one for the name that goes out.
    """
    on_a_pipe(rehearse_a_call)


def rehearse_a_call():
    lists, handler = (sys.argv, sys.path, sys.meta_path), getsignal(SIGINT)
    before, places, main = [each[:] for each in lists], dict(vars(sys)), modules.get("__main__")
    other, frames = socket.socketpair()
    fds = []
    try:
        worker = Worker(frames.detach())
        fds += worker.streams.saved.values()
        worker.call(0, "print(1+1)", 0)
        worker.streams.flush()
        worker.link.send(HELLO, HELLO_BODY.pack(0, 0, 0))
        worker.disarm()
        worker.streams.take_back()
        worker.prepare()
        worker.link.socket.close()
        worker.sources.forget()
    finally:
        other.close()
        for fd in fds:
            close(fd)
        for each, kept in zip(lists, before):
            each[:] = kept
        for name in (*Streams.NAMES, *(name for _, _, name in Streams.PLACES), "dont_write_bytecode"):
            setattr(sys, name, places[name])
        modules["__main__"] = main
        set_signal(SIGINT, handler)


def serve(frame_fd):
    """Serves the daemon's calls on a locked-down process's descriptors; never returns. The daemon says what 71 means."""
    end, broken = leave, EXIT_BROKEN
    try:
        Worker(frame_fd).serve()
    finally:
        end(broken)
