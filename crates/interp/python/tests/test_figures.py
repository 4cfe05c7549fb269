"""Charts become PNG files in the workspace, each once, without a word on the streams.

Needs matplotlib, pandas and seaborn in the Python that runs it, and fails without: a run that may do without them
leaves this file out, and says so.
"""

import os
import struct
import unittest

from harness import EXITED, INTERRUPTED, RAISED, RETURNED, Case

START = "import matplotlib.pyplot as plt\n"


class FigureCase(Case):
    def png(self, name):
        """Width and height of a PNG file of the workspace."""
        with open(self.s.path(name), "rb") as file:
            head = file.read(24)
        self.assertEqual(head[:8], b"\x89PNG\r\n\x1a\n", name)
        return struct.unpack(">II", head[16:24])

    def leaves(self, code, *names, **options):
        """Runs a call that must end well and silently, and leave exactly these PNG files."""
        self.ok(code, **options)
        self.pngs(*names)

    def pngs(self, *names):
        self.assertEqual([name for name in self.s.files() if name.endswith(".png")], sorted(names))
        for name in names:
            self.png(name)


class Shown(FigureCase):
    def test_show_writes_each_open_figure(self):
        self.leaves(START + "plt.plot([1, 2]); plt.show()", "figure-1.png")
        self.leaves("plt.figure(); plt.plot([1])\nplt.figure(); plt.plot([2])\nplt.show()", "figure-1.png", "figure-2.png", "figure-3.png")

    def test_show_closes_what_it_wrote(self):
        self.ok(START + "plt.plot([1]); plt.show(); print(plt.get_fignums())", "[]\n")
        self.pngs("figure-1.png")

    def test_show_twice_in_a_call(self):
        self.leaves(START + "for i in range(3):\n    plt.plot([i]); plt.show()", "figure-1.png", "figure-2.png", "figure-3.png")

    def test_show_without_figures(self):
        self.leaves(START + "plt.show()\nplt.show(block=True)")

    def test_show_that_does_not_block_leaves_the_figure_to_the_end(self):
        self.ok(START + "plt.plot([1]); plt.show(block=False); print(len(plt.get_fignums()))", "1\n")
        self.pngs("figure-1.png")
        self.leaves("for i in range(3):\n    plt.plot([i]); plt.pause(0.001)", "figure-1.png", "figure-2.png")

    def test_interactive_mode(self):
        self.leaves(START + "plt.ion(); plt.plot([1]); plt.show(); plt.plot([2])", "figure-1.png")

    def test_show_imported_by_name_and_through_libraries(self):
        self.leaves("from matplotlib.pyplot import plot, show\nplot([1]); show()", "figure-1.png")
        self.leaves("from pylab import *\nplot([1]); show()", "figure-1.png", "figure-2.png")

    def test_other_backends(self):
        self.leaves("import matplotlib\nmatplotlib.use('Agg')\n" + START + "plt.plot([1]); plt.show()", "figure-1.png")
        self.leaves("plt.switch_backend('pdf'); plt.plot([1]); plt.show()", "figure-1.png", "figure-2.png")
        self.leaves("plt.switch_backend('svg'); plt.plot([1])", "figure-1.png", "figure-2.png", "figure-3.png")

    def test_show_looks_like_the_original(self):
        self.ok(START + "import inspect\nprint(plt.show.__name__, plt.show.__module__, 'figures' in plt.show.__doc__, list(inspect.signature(plt.show).parameters))", "show matplotlib.pyplot True ['args', 'kwargs']\n")


class LeftOpen(FigureCase):
    def test_a_figure_left_open_is_written(self):
        self.leaves(START + "fig, ax = plt.subplots(); ax.plot([1, 2])", "figure-1.png")
        self.ok("print(plt.get_fignums())", "[]\n")
        self.pngs("figure-1.png")

    def test_each_call_starts_afresh(self):
        self.leaves(START + "plt.plot([1])", "figure-1.png")
        self.ok("plt.plot([2]); print(len(plt.gca().lines))", "1\n")
        self.pngs("figure-1.png", "figure-2.png")

    def test_a_figure_that_a_later_call_changes_is_written_again_under_its_name(self):
        self.leaves(START + "fig, ax = plt.subplots(figsize=(4, 3)); ax.plot([1, 2])", "figure-1.png")
        before = os.stat(self.s.path("figure-1.png")).st_mtime_ns, self.png("figure-1.png")
        self.ok("x = 1")
        self.assertEqual((os.stat(self.s.path("figure-1.png")).st_mtime_ns, self.png("figure-1.png")), before)
        self.leaves("fig.set_size_inches(8, 6)", "figure-1.png")
        self.assertGreater(self.png("figure-1.png")[0], 1.5 * before[1][0])
        self.leaves("ax.set_title('later')\nfig.savefig('own.png')", "figure-1.png", "own.png")
        self.leaves("ax.set_title('later still')", "figure-1.png", "own.png")

    def test_a_file_that_the_program_took_over_is_not_written_again(self):
        self.ok(START + "import os\nfig, ax = plt.subplots(); ax.plot([1])")
        self.ok("os.rename('figure-1.png', 'mine.png'); ax.set_title('t')")
        self.pngs("figure-2.png", "mine.png")
        self.ok("open('figure-2.png', 'w').write('my text'); ax.set_title('u')")
        with open(self.s.path("figure-2.png")) as file:
            self.assertEqual(file.read(), "my text")
        self.png("figure-3.png")

    def test_no_file_is_overwritten(self):
        self.ok("for n in (1, 2): open('figure-%d.png' % n, 'w').write('kept')")
        self.ok("import os; os.symlink('elsewhere', 'figure-3.png')")
        self.ok(START + "plt.plot([1])")
        for name in ("figure-1.png", "figure-2.png"):
            with open(self.s.path(name)) as file:
                self.assertEqual(file.read(), "kept")
        self.png("figure-4.png")
        self.assertFalse(os.path.exists(self.s.path("elsewhere")))

    def test_empty_and_closed_figures_leave_nothing(self):
        self.leaves(START + "plt.figure()\nplt.plot([1]); plt.close()\nplt.figure()")
        self.ok("print(plt.get_fignums())", "[]\n")

    def test_in_the_working_directory_but_never_outside_of_the_workspace(self):
        self.leaves(START + "import os\nos.mkdir('sub'); os.chdir('sub'); plt.plot([1])")
        self.png("sub/figure-1.png")
        self.ok("os.chdir('/'); plt.plot([1])")
        self.png("figure-2.png")
        self.ok("os.chdir('%s'); os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone'); plt.plot([1])" % self.s.folder)
        self.png("figure-3.png")

    def test_after_a_failure_and_after_an_exit(self):
        result = self.s.run(START + "plt.plot([1])\n1/0")
        self.assertEqual((result.code, result.ended), (1, RAISED))
        self.assertTrue(result.stderr.endswith("ZeroDivisionError: division by zero\n"), result)
        self.pngs("figure-1.png")
        result = self.s.run("plt.plot([1])\nexit(3)")
        self.assertEqual((result.code, result.ended, result.stderr), (3, EXITED, ""))
        self.pngs("figure-1.png", "figure-2.png")

    def test_an_interrupted_call_leaves_its_figures_to_the_next(self):
        result = self.s.run(
            START + "import time\nplt.plot([1])\nprint('ready')\ntime.sleep(1000)",
            on_output=lambda session, so_far: session.interrupt() if so_far.stdout == "ready\n" else None,
        )
        self.assertEqual(result.ended, INTERRUPTED)
        self.pngs()
        self.leaves("pass", "figure-1.png")

    def test_an_interrupt_while_drawing_keeps_the_outcome(self):
        code = START + "from matplotlib.artist import Artist\nclass Slow(Artist):\n    def draw(self, renderer):\n        import os, time\n        os.write(1, b'drawing\\n')\n        time.sleep(1000)\nplt.gca().add_artist(Slow())"
        result = self.s.run(code, on_output=lambda session, so_far: session.interrupt() if so_far.stdout == "drawing\n" else None)
        self.assertEqual((result.code, result.ended, result.stderr), (0, RETURNED, ""), result)
        self.ok("plt.close('all')")

    def test_a_figure_that_cannot_be_drawn_is_told_and_changes_no_outcome(self):
        result = self.s.run(START + "plt.title(r'$\\frac{$')\nprint('x')")
        self.assertEqual((result.code, result.ended, result.stdout), (0, RETURNED, "x\n"))
        self.assertTrue(result.stderr.startswith("ringfence: a figure could not be written: "), result)
        self.assertEqual(result.stderr.count("\n"), result.stderr.strip().count("\n") + 1)
        self.ok("print(plt.get_fignums())", "[]\n")
        self.pngs()

    def test_a_full_disk_is_told_and_leaves_no_part(self):
        self.ok(START + "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))")
        result = self.s.run("plt.plot([1])")
        self.assertEqual(result.code, 0)
        self.assertIn("could not be written", result.stderr)
        self.pngs()

    def test_warnings_as_errors_and_odd_glyphs(self):
        self.leaves(START + "import warnings\nwarnings.simplefilter('error')\nplt.title('\U0001f600 \u4e2d')", "figure-1.png")

    def test_many(self):
        self.leaves(START + "plt.rcParams['figure.max_open_warning'] = 0\nfor i in range(30): plt.figure(figsize=(1, 1)); plt.plot([i])", *["figure-%d.png" % n for n in range(1, 31)])


class Saved(FigureCase):
    def test_a_saved_figure_is_not_written_again(self):
        self.leaves(START + "plt.plot([1]); plt.savefig('own.png')", "own.png")
        self.leaves("plt.plot([1]); plt.savefig('own.png'); plt.show()", "own.png")
        self.leaves("fig, ax = plt.subplots(); fig.savefig('own.png')", "own.png")
        self.leaves("import io\nplt.plot([1]); plt.savefig(io.BytesIO(), format='svg')", "own.png")
        self.leaves("fig, ax = plt.subplots(); fig.canvas.print_figure('own.png')", "own.png")
        self.leaves("plt.plot([1]); plt.savefig('own.pdf', dpi=50, bbox_inches='tight', transparent=True); plt.show()", "own.png")
        self.ok("print(plt.get_fignums())", "[]\n")

    def test_only_the_saved_one_is_left_out(self):
        self.leaves(START + "a = plt.figure(); plt.plot([1]); a.savefig('own.png')\nb = plt.figure(); plt.plot([2])", "figure-1.png", "own.png")

    def test_saving_after_the_call_that_drew_it(self):
        self.leaves(START + "fig, ax = plt.subplots(); ax.plot([1])", "figure-1.png")
        self.leaves("fig.savefig('own.png')", "figure-1.png", "own.png")

    def test_a_save_that_fails_does_not_count(self):
        result = self.fails(START + "plt.plot([1]); plt.savefig('own.nonsense')")
        self.assertNotIn("ringfence", result.stderr)
        self.pngs("figure-1.png")

    def test_pages_and_animations(self):
        self.leaves(START + "from matplotlib.backends.backend_pdf import PdfPages\nwith PdfPages('all.pdf') as p:\n    plt.plot([1]); p.savefig(); plt.close()\n    plt.plot([2]); p.savefig()")
        self.leaves("from matplotlib.animation import FuncAnimation, PillowWriter\nfig, ax = plt.subplots()\na = FuncAnimation(fig, lambda i: ax.plot([i]), frames=2)\na.save('a.gif', writer=PillowWriter())")
        self.assertIn("a.gif", self.s.files())

    def test_warnings_name_the_users_line(self):
        result = self.s.run(START + "plt.title('\u4e2d')\nplt.savefig('own.png')")
        self.assertIn("<cell 1>:3: UserWarning: Glyph", result.stderr)


class Libraries(FigureCase):
    def test_pandas(self):
        self.leaves("import pandas as pd\npd.DataFrame({'a': [1, 2]}).plot()", "figure-1.png")
        self.leaves("pd.Series([1, 2]).plot.bar()\npd.DataFrame({'a': [1, 2]}).hist()", "figure-1.png", "figure-2.png", "figure-3.png")

    def test_seaborn(self):
        self.leaves("import seaborn as sns\nsns.lineplot(x=[1, 2], y=[3, 4])", "figure-1.png")
        self.leaves("sns.pairplot(__import__('pandas').DataFrame({'a': [1, 2], 'b': [2, 1]}))", "figure-1.png", "figure-2.png")

    def test_figures_without_pyplot_are_the_programs_own(self):
        self.leaves("from matplotlib.figure import Figure\nf = Figure(); f.add_subplot().plot([1])")

    def test_a_pickled_figure(self):
        self.leaves(START + "import pickle\nf, ax = plt.subplots(); ax.plot([1]); s = pickle.dumps(f)", "figure-1.png")
        self.leaves("g = pickle.loads(s)", "figure-1.png", "figure-2.png")

    def test_collected_figures_are_forgotten(self):
        self.leaves(START + "plt.plot([1])", "figure-1.png")
        self.ok("import gc; gc.collect()\nfrom matplotlib.figure import Figure\nprint(sum(type(o) is Figure for o in gc.get_objects()))", "0\n")


def setUpModule():
    """Sessions of this file fork from a process that has the libraries, as sessions of a scientific image do."""
    os.environ["MPLBACKEND"] = "Agg"
    import matplotlib.pyplot
    import pandas  # noqa: F401
    import seaborn  # noqa: F401

    assert matplotlib.pyplot.get_backend().lower() == "agg"


if __name__ == "__main__":
    unittest.main()
