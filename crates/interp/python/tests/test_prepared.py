"""A worker whose streams, sources and charts were made, and whose beginning was rehearsed, before the fork, as the
zygote does."""

import os
import signal
import sys
import unittest

from harness import WORKER, Case


def prepare():
    WORKER.prepare()
    WORKER.rehearse()
    WORKER.rehearse()


def state():
    """Of a process, what a session changes in it."""
    names = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__", "dont_write_bytecode")
    kept = [getattr(sys, name) for name in names] + [sys.modules["__main__"], signal.getsignal(signal.SIGINT)]
    return kept, sys.argv[:], sys.path[:], sys.meta_path[:], [WORKER.identity(fd) for fd in range(1000)]


class Prepared(Case):
    def setUp(self):
        self.s = self.session(prepare)

    def test_streams_lead_to_the_session(self):
        self.ok("import sys\nprint('out')\nprint('err', file=sys.stderr)\nprint(repr(sys.stdin.read()))", "out\n''\n", "err\n")
        self.ok("print(sys.stdout.fileno(), sys.stdout.seekable(), sys.stdout is sys.__stdout__, sys.stdin.fileno())", "1 False True 0\n")
        self.ok("import os\nos.dup2(2, 1)\nprint('elsewhere')", "", "elsewhere\n")
        self.ok("print('back')", "back\n")

    def test_sources_are_found(self):
        self.ok("class C:\n    pass")
        self.ok("import inspect; print(inspect.getsource(C), end='')", "class C:\n    pass\n")
        self.assertIn("1/0 # here", self.fails("1/0 # here").stderr)
        self.ok("import linecache; print([name for name in linecache.cache if name == '<cell 0>'])", "[]\n")

    def test_nothing_is_left_open(self):
        self.ok("import os\nprint(sorted(int(n) for n in os.listdir('/proc/self/fd') if int(n) < 100)[:3], os.open('.', 0))", "[0, 1, 2] 3\n")


class Preparing(unittest.TestCase):
    def test_it_leaves_its_process_as_it_was(self):
        pid = os.fork()
        if pid == 0:
            try:
                before = state()
                prepare()
                # A watch over the import of pyplot is there to stay.
                sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder) is not WORKER.PyplotWatch]
                os._exit(0 if state() == before else 1)
            finally:
                os._exit(2)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)


if __name__ == "__main__":
    unittest.main()
