"""Processes that a program forks: they end where the program's code ends, and never speak to the daemon."""

import os
import unittest

from harness import Case, Result


class Forks(Case):
    def test_a_child_that_falls_out_of_the_code_ends(self):
        self.ok("import os\npid = os.fork()\nif pid: print('parent', os.waitpid(pid, 0)[1])\nelse: print('child')", "child\nparent 0\n")
        self.ok("print('alive')", "alive\n")

    def test_a_child_that_raises_ends_with_its_traceback(self):
        result = self.s.run("import os\npid = os.fork()\nif pid == 0: raise ValueError('in the child')\nprint(os.waitpid(pid, 0)[1] >> 8)")
        self.assertEqual((result.code, result.stdout), (0, "1\n"), result)
        self.assertEqual(result.stderr.splitlines()[-1], "ValueError: in the child")
        self.assertNotIn("ringfence", result.stderr)

    def test_a_child_that_exits_has_that_status(self):
        self.ok("import os, sys\npid = os.fork()\nif pid == 0: sys.exit(7)\nprint(os.waitpid(pid, 0)[1] >> 8)", "7\n")
        self.ok("pid = os.fork()\nif pid == 0: os._exit(8)\nprint(os.waitpid(pid, 0)[1] >> 8)", "8\n")
        self.ok("pid = os.fork()\nif pid == 0: exit()\nprint(os.waitpid(pid, 0)[1] >> 8)", "0\n")

    def test_a_child_does_not_hold_the_frame_socket(self):
        self.ok("import os, stat\ndef sockets():\n    n = 0\n    for fd in range(1024):\n        try: n += stat.S_ISSOCK(os.fstat(fd).st_mode)\n        except OSError: pass\n    return n")
        self.ok("print(sockets())\npid = os.fork()\nif pid == 0: print(sockets())\nelse: os.waitpid(pid, 0)", "1\n0\n")

    def test_a_child_that_lives_on_does_not_hold_the_call(self):
        self.ok("import os, time\npid = os.fork()\nif pid == 0:\n    time.sleep(1000)\nprint('up')", "up\n")
        self.ok("import signal\nos.kill(pid, signal.SIGKILL); print(os.waitpid(pid, 0)[1])", "9\n")

    def test_a_child_of_c_code_ends_too(self):
        self.ok("import ctypes, os\nlibc = ctypes.CDLL(None)\npid = libc.fork()\nif pid: print('parent', os.waitpid(pid, 0)[1])\nelse: print('child')", "child\nparent 0\n")
        self.ok("print('alive')", "alive\n")

    def test_a_fork_in_a_hook(self):
        for fork in ("os.fork()", "libc.fork()"):
            session = self.session()
            result = session.run("import ctypes, os, sys\nlibc = ctypes.CDLL(None)\ndef hook(*a):\n    pid = %s\n    if pid: os.waitpid(pid, 0)\nsys.excepthook = hook\n1/0" % fork)
            self.assertEqual((result.code, result.stderr), (1, ""))
            self.assertEqual(session.run("print('mine')").stdout, "mine\n")

    def test_files_that_a_child_leaves_open_are_written(self):
        self.ok("import os\npid = os.fork()\nif pid == 0:\n    f = open('left', 'w'); f.write('text'); g = open('bytes', 'wb'); g.write(b'raw')\nelse: os.waitpid(pid, 0)")
        self.ok("print(open('left').read(), open('bytes').read())", "text raw\n")

    def test_a_fork_below_a_top_level_await(self):
        self.ok("import asyncio, os\nawait asyncio.sleep(0)\npid = os.fork()\nif pid: print('parent', os.waitpid(pid, 0)[1])\nelse: print('child')", "child\nparent 0\n")
        self.ok("print(await asyncio.sleep(0, 'alive'))", "alive\n")

    def test_a_fork_in_a_thread(self):
        self.ok(
            "import os, threading\ndef f():\n    pid = os.fork()\n    if pid: print('parent', os.waitpid(pid, 0)[1])\n    else: os.write(1, b'child\\n')\n"
            "import warnings; warnings.simplefilter('ignore')\nt = threading.Thread(target=f); t.start(); t.join()",
            "child\nparent 0\n",
        )
        self.ok("print('alive')", "alive\n")

    def test_a_fork_within_a_fork(self):
        self.ok("import os\nfor i in range(3):\n    pid = os.fork()\n    if pid: os.waitpid(pid, 0)\nprint('x')", "x\n" * 8)

    def test_a_thread_that_forks_between_calls(self):
        self.ok("import os, threading, warnings\nwarnings.simplefilter('ignore')\ngo, done = threading.Event(), []\ndef f():\n    go.wait()\n    pid = os.fork()\n    if pid == 0: return\n    done.append(os.waitpid(pid, 0)[1])\nt = threading.Thread(target=f); t.start()")
        self.ok("threading.Timer(0.02, go.set).start()")
        self.ok("t.join(); print(done)", "[0]\n")

    def test_a_preexec_function_and_pty(self):
        self.ok("import subprocess, os\nprint(subprocess.run(['echo', 'hi'], stdout=subprocess.PIPE, preexec_fn=lambda: None).stdout)", "b'hi\\n'\n")

    def test_a_child_that_outlives_the_session_ends_nothing(self):
        session = self.session()
        result = session.run("import os, time\nif os.fork() == 0:\n    time.sleep(1000)")
        self.assertEqual(result.code, 0)
        session.send("time.sleep(1000)")
        os.kill(session.pid, 9)
        # The end of the stream is seen although the child lives: it does not hold the socket.
        self.assertIsNone(session.frame(Result()))
        self.assertEqual(session.reap(), -9)


if __name__ == "__main__":
    unittest.main()
