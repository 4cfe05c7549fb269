"""Fourth part of the worker program: charts."""


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
        if hasattr(spec, "loader") and hasattr(spec.loader, "exec_module"):
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                self.attach(module)

            spec.loader.exec_module = disguised(exec_module, execute)  # tracebacks leave the import system out
        return spec


class Figures:
    """Charts become files: pyplot's open figures are written as PNG by `show` and at the end of a call."""

    def __init__(self):
        self.home = self.say = None
        self.managers = None  # pyplot's table of open figures, once pyplot is imported
        self.saved = weakref.WeakSet()  # figures that the code has saved itself
        self.written = weakref.WeakKeyDictionary()  # figure -> (path, identity) of what we wrote
        self.last = 0
        self.writing = False
        if "matplotlib.pyplot" in modules:
            self.attach(modules["matplotlib.pyplot"])
        else:
            sys.meta_path.insert(0, PyplotWatch(self.attach))

    def settle_in(self, home, say):
        """In the session: its workspace, and what to say a failure with."""
        self.home = home
        self.say = say

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
