"""Charts where the session itself imports matplotlib: the zygote of its image has not."""

import sys
import unittest

import test_figures


class Imported(test_figures.FigureCase):
    def setUp(self):
        self.assertNotIn("matplotlib", sys.modules)
        super().setUp()

    def test_shown_saved_and_left_open_in_the_call_that_imports(self):
        self.leaves(
            test_figures.START
            + "plt.plot([1]); plt.show()\nplt.plot([2]); plt.savefig('own.png'); plt.show()\nplt.plot([3])",
            "figure-1.png", "figure-2.png", "own.png",
        )
        self.leaves("plt.plot([4]); plt.show()", "figure-1.png", "figure-2.png", "figure-3.png", "own.png")

    def test_imported_through_pandas_and_by_name(self):
        self.leaves("import pandas as pd\npd.DataFrame({'a': [1, 2]}).plot()", "figure-1.png")
        self.leaves("from matplotlib.pyplot import show, plot\nplot([1]); show(); show()", "figure-1.png", "figure-2.png")

    def test_only_part_of_matplotlib(self):
        self.leaves("import matplotlib, matplotlib.figure\nmatplotlib.figure.Figure()")

    def test_an_import_that_fails_shows_no_frame_of_ours(self):
        self.ok("import os\nos.mkdir('matplotlib')\nfor n, t in (('__init__', ''), ('pyplot', '1/0')): open('matplotlib/%s.py' % n, 'w').write(t)")
        result = self.fails("import matplotlib.pyplot", "ZeroDivisionError: division by zero")
        self.assertEqual(result.stderr.count("  File "), 2, result.stderr)

    def test_something_else_of_that_name(self):
        self.ok("import os\nos.mkdir('matplotlib')\nfor n in ('__init__', 'pyplot'): open('matplotlib/%s.py' % n, 'w').close()")
        self.ok("import matplotlib.pyplot")
        self.ok("import sys; print(any('Watch' in type(f).__name__ for f in sys.meta_path))", "False\n")


if __name__ == "__main__":
    unittest.main()
