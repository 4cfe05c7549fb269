"""Output and input: exact, never lost, whatever a program does to its streams and descriptors."""

import os
import unittest

from harness import Case


class Output(Case):
    def test_output_is_exact(self):
        self.ok("print(5);print(5)", "5\n5\n")
        self.ok("print('no newline', end='')", "no newline")
        self.ok("import sys; sys.stderr.write('e'); sys.stdout.write('\\n\\n')", "\n\n", "e")
        self.ok("print('a\\r\\nb')", "a\r\nb\n")

    def test_order_with_children_and_descriptors(self):
        self.ok(
            "import os, subprocess\nprint('one')\nos.system('echo two')\nsubprocess.run(['printf', 'three\\n'])\n"
            "os.write(1, b'four\\n')\nos.write(2, b'err\\n')\nprint('five')",
            "one\ntwo\nthree\nfour\nfive\n",
            "err\n",
        )

    def test_the_streams_are_real(self):
        self.ok(
            "import sys, io\nfor s, n in ((sys.stdin, 0), (sys.stdout, 1), (sys.stderr, 2)):\n"
            "    print(s.fileno() == n, s.encoding, s.name, s.mode, s.isatty(), s.buffer.fileno() == n, s.buffer.raw.name)\n"
            "print(sys.stdout.line_buffering, sys.stderr.line_buffering, isinstance(sys.stdout, io.TextIOWrapper), isinstance(sys.stdout.buffer, io.BufferedWriter))\n"
            "print(sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__, sys.stdin is sys.__stdin__)",
            "True utf-8 <stdin> r False True <stdin>\nTrue utf-8 <stdout> w False True <stdout>\n"
            "True utf-8 <stderr> w False True <stderr>\nTrue True True True\nTrue True True\n",
        )
        self.ok("sys.stdout.buffer.write(b'raw \\xff\\n')", "raw \ufffd\n")

    def test_every_string_prints(self):
        self.ok("print('\\ud800|\\udcff|\\U0001f600')", "\\ud800|\\udcff|\U0001f600\n")
        self.ok("import sys; print('\\ud800', file=sys.stderr)", "", "\\ud800\n")
        self.assertIn("ValueError: \\ud800", self.fails("raise ValueError('\\ud800')").stderr)

    def test_much_output(self):
        result = self.s.run("print('\u2615' * 1000000)")
        self.assertEqual(result.stdout, "\u2615" * 1000000 + "\n")
        result = self.s.run("for i in range(20000): print(i)")
        self.assertEqual(result.stdout, "".join("%d\n" % i for i in range(20000)))

    def test_logging_and_warnings_work_across_calls(self):
        self.ok("import logging, sys, warnings\nlogging.basicConfig(stream=sys.stdout, format='%(message)s', level=10)\nlogging.info('one')", "one\n")
        self.ok("logging.info('two')", "two\n")
        self.ok("sys.stdout = None")
        self.ok("logging.info('three')", "three\n")
        result = self.s.run("warnings.warn('careful')")
        self.assertEqual(result.stderr, "<cell 5>:1: UserWarning: careful\n  warnings.warn('careful')\n")

    def test_replaced_streams_come_back(self):
        self.ok("import sys, io\nkept = sys.stdout\nsys.stdout = io.StringIO()\nsys.stderr = None\nsys.stdin = None\nprint('hidden')")
        self.ok("print(sys.stdout is kept, sys.stderr is sys.__stderr__, sys.stdin.read() == '')", "True True True\n")
        self.ok("del sys.stdout, sys.stderr, sys.__stdout__")
        self.ok("print(sys.stdout is kept, sys.__stdout__ is kept)", "True True\n")

    def test_an_uncaught_exception_is_seen_whatever_stderr_is(self):
        self.fails("import sys, io\nsys.stderr = io.StringIO()\n1/0", "ZeroDivisionError: division by zero")
        self.fails("sys.stderr = None\n1/0", "ZeroDivisionError: division by zero")
        self.fails("sys.stderr.reconfigure(encoding='ascii', errors='strict')\nraise ValueError('\u2603')", "ValueError: \u2603")

    def test_a_wrapper_around_the_buffer_is_flushed_and_harms_nothing(self):
        self.ok("import sys, io\nkept = sys.stdout\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\nprint('wrapped')", "wrapped\n")
        self.ok("print('next', sys.stdout is kept)", "next True\n")
        self.ok("import codecs\nsys.stdout = codecs.getwriter('utf-8')(sys.stdout.buffer)\nprint('again', end='')", "again")
        self.ok("print('last')", "last\n")

    def test_closed_streams_come_back(self):
        self.s.run("import sys\nprint('said', end='')\nsys.stdout.close()\nsys.stderr.close()\nsys.stdin.close()")
        self.ok("print('out'); print('err', file=sys.stderr)", "out\n", "err\n")
        self.s.run("b = sys.stdout.detach()")
        self.ok("print('after detach')", "after detach\n")
        self.s.run("import io; io.BufferedWriter.close(sys.stdout.buffer)")
        self.ok("print('after close')", "after close\n")
        self.fails("input()", "EOFError: EOF when reading a line")

    def test_what_was_printed_before_a_close_is_not_lost(self):
        self.assertEqual(self.s.run("import os\nprint('partial', end='')\nos.close(1)").stdout, "partial")
        self.ok("print('next')", "next\n")

    def test_closed_and_redirected_descriptors_are_repaired(self):
        self.s.run("import os\nfor fd in (0, 1, 2): os.close(fd)")
        self.ok("import subprocess, sys\nprint('out')\nsubprocess.run(['sh', '-c', 'cat; echo child; echo err >&2'])", "out\nchild\n", "err\n")
        self.s.run("f = os.open('file', os.O_RDWR | os.O_CREAT)\nos.dup2(f, 1)\nos.dup2(f, 2)\nprint('into the file')")
        self.ok("print('into the pipe')", "into the pipe\n")
        with open(self.s.path("file")) as file:
            self.assertEqual(file.read(), "into the file\n")
        self.s.run("r, w = os.pipe(); os.dup2(w, 1)")
        self.ok("print('pipe')", "pipe\n")
        self.s.run("os.dup2(1, 2)")
        self.ok("print('e', file=sys.stderr)", "", "e\n")

    def test_pipes_that_do_not_block_do_again(self):
        self.s.run("import os; os.set_blocking(1, False); os.set_blocking(2, False)")
        result = self.s.run("print('x' * 10000000)")
        self.assertEqual((result.code, len(result.stdout)), (0, 10000001), result.stderr)

    def test_what_does_not_fit_a_pipe_that_does_not_block_is_not_lost(self):
        result = self.s.run("import os, sys; os.set_blocking(1, False)\nsys.stdout.reconfigure(line_buffering=False)\nprint('y' * 5000, end='')")
        self.assertEqual((result.code, result.stdout), (0, "y" * 5000))

    def test_threads_print_during_a_call(self):
        self.ok("import threading\nts = [threading.Thread(target=print, args=(i,)) for i in range(3)]\nfor t in ts: t.start(); t.join()", "0\n1\n2\n")


class Input(Case):
    def test_input_is_at_its_end(self):
        result = self.s.run("input('name? ')")
        self.assertEqual((result.code, result.stdout), (1, "name? "))
        self.assertEqual(result.stderr.splitlines()[-1], "EOFError: EOF when reading a line")
        self.ok("import sys; print(repr(sys.stdin.read()), list(sys.stdin))", "'' []\n")

    def test_children_inherit_an_empty_input(self):
        self.ok("import subprocess; print(subprocess.run(['cat'], stdout=subprocess.PIPE).stdout)", "b''\n")

    def test_a_debugger_ends_at_once(self):
        self.assertEqual(self.s.run("breakpoint()\nx = 1").status, None)
        self.ok("print('alive')", "alive\n")


class Descriptors(Case):
    def test_children_inherit_nothing_else(self):
        result = self.s.run("import subprocess, os\nprint(subprocess.run(['ls', '/proc/self/fd'], stdout=subprocess.PIPE, close_fds=False).stdout.decode().split())")
        self.assertEqual(result.stdout, "['0', '1', '2', '3']\n", result)

    def test_calls_leak_no_descriptor(self):
        count = "import os\nprint(len(os.listdir('/proc/self/fd')))"
        before = self.s.run(count).stdout
        for code in ("1/0", "import sys; sys.stdout = None", "await __import__('asyncio').sleep(0)", "os.close(1)", "def f(:"):
            self.s.run(code)
        self.s.run("await __import__('asyncio').sleep(0)")
        after = self.s.run(count).stdout
        self.assertLessEqual(int(after), int(before) + 3)  # the event loop's own
        for code in ("1/0", "await __import__('asyncio').sleep(0)", "os.close(1)", "os.close(0)", "sys.stdout.detach()"):
            self.s.run(code)
        self.assertEqual(self.s.run(count).stdout, after)

    def test_low_numbers_are_the_programs(self):
        self.ok("import os\nprint(sorted(int(n) for n in os.listdir('/proc/self/fd') if int(n) < 100)[:3], os.open('.', 0))", "[0, 1, 2] 3\n")


if __name__ == "__main__":
    unittest.main()
