"""A worker whose streams, sources and charts were made before the fork, as the zygote does."""

import os
import unittest

from harness import WORKER, Case


class Prepared(Case):
    def setUp(self):
        self.s = self.session(WORKER.prepare)

    def test_streams_lead_to_the_session(self):
        self.ok("import sys\nprint('out')\nprint('err', file=sys.stderr)\nprint(repr(sys.stdin.read()))", "out\n''\n", "err\n")
        self.ok("print(sys.stdout.fileno(), sys.stdout.seekable(), sys.stdout is sys.__stdout__, sys.stdin.fileno())", "1 False True 0\n")
        self.ok("import os\nos.dup2(2, 1)\nprint('elsewhere')", "", "elsewhere\n")
        self.ok("print('back')", "back\n")

    def test_sources_are_found(self):
        self.ok("class C:\n    pass")
        self.ok("import inspect; print(inspect.getsource(C), end='')", "class C:\n    pass\n")
        self.assertIn("1/0 # here", self.fails("1/0 # here").stderr)

    def test_nothing_is_left_open(self):
        self.ok("import os\nprint(sorted(int(n) for n in os.listdir('/proc/self/fd') if int(n) < 100)[:3], os.open('.', 0))", "[0, 1, 2] 3\n")


class Preparing(unittest.TestCase):
    def test_it_leaves_the_descriptors_of_its_process_as_they_were(self):
        pid = os.fork()
        if pid == 0:
            before = [WORKER.identity(fd) for fd in range(100)]
            try:
                WORKER.prepare()
                os._exit(0 if [WORKER.identity(fd) for fd in range(100)] == before else 1)
            finally:
                os._exit(2)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)


if __name__ == "__main__":
    unittest.main()
