"""What a call's outcome says: return codes, tracebacks, hints."""

import sys
import unittest

from harness import DISK, EXITED, INTERRUPTED, MEMORY, PROCESSES, RAISED, Case


class Outcomes(Case):
    def test_an_exit_code_that_fits_no_long_is_no_success(self):
        for code in ("2**70", "-(2**70)", "2**63"):
            self.assertEqual(self.s.run("import sys; sys.exit(%s)" % code).code, 255)

    def test_variables_imports_and_functions_live_on(self):
        self.ok("import math\nx = 41\ndef f(n): return n + x")
        self.ok("print(f(1), math.pi > 3)", "42 True\n")

    def test_an_exception_keeps_what_was_before_it(self):
        self.fails("before = 1\n1/0", "ZeroDivisionError: division by zero")
        self.ok("print(before)", "1\n")

    def test_exit_codes_are_those_of_a_process(self):
        for code, expected in (("", 0), ("None", 0), ("0", 0), ("3", 3), ("256", 0), ("-1", 255), ("True", 1), ("2**70 + 5", 255)):
            result = self.s.run("import sys; sys.exit(%s)" % code)
            self.assertEqual((result.code, result.ended, result.stderr), (expected, EXITED, ""), code)
        for call in ("exit()", "quit()", "raise SystemExit"):
            self.assertEqual(self.s.run(call).code, 0, call)
        self.assertEqual(self.s.run("exit(4)").code, 4)

    def test_exit_with_a_text_says_it(self):
        for value, text in (("'why not'", "why not\n"), ("1.5", "1.5\n"), ("['a']", "['a']\n"), ("''", "\n")):
            result = self.s.run("import sys; sys.exit(%s)" % value)
            self.assertEqual((result.code, result.ended, result.stderr), (1, EXITED, text))

    def test_exit_does_not_close_the_input(self):
        self.s.run("exit()")
        self.fails("input()", "EOFError: EOF when reading a line")

    def test_exit_keeps_the_session(self):
        self.s.run("kept = 7\nimport sys\nsys.exit(1)")
        self.ok("print(kept)", "7\n")

    def test_an_interrupt_of_its_own_is_an_interrupt(self):
        result = self.s.run("raise KeyboardInterrupt")
        self.assertEqual((result.code, result.ended), (130, INTERRUPTED))
        self.assertIn("KeyboardInterrupt", result.stderr)

    def test_cpu_time_is_that_of_the_call(self):
        busy = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
        self.assertGreaterEqual(self.s.run(busy).cpu_us, 150000)
        self.assertLess(self.s.run("pass").cpu_us, 150000)


class Tracebacks(Case):
    def test_source_lines_and_only_the_users_frames(self):
        result = self.fails("def broken():\n    return 1/0\nbroken()")
        lines = result.stderr.splitlines()
        self.assertEqual(lines[0], "Traceback (most recent call last):")
        self.assertEqual([line for line in lines if line.startswith("  File ")], [
            '  File "<cell 1>", line 3, in <module>',
            '  File "<cell 1>", line 2, in broken',
        ])
        self.assertIn("    return 1/0", lines)

    def test_lines_of_an_earlier_call_are_shown(self):
        self.ok("def broken():\n    return 1/0  # here")
        result = self.fails("broken()")
        self.assertIn('File "<cell 1>", line 2, in broken\n    return 1/0  # here', result.stderr)
        self.assertIn('File "<cell 2>", line 1, in <module>\n    broken()', result.stderr)

    def test_lines_are_counted_as_python_counts_them(self):
        self.fails("x = 'a\u2028b\x0cc'\r\ny = 1\r\n1/0  # third")
        self.assertIn("line 3, in <module>\n    1/0  # third", self.fails("x = 'a\u2028b\x0cc'\r\ny = 1\r\n1/0  # third").stderr)

    def test_lines_survive_linecache_being_checked_and_cleared(self):
        self.ok("def broken():\n    return 1/0  # here")
        self.ok("import linecache; linecache.checkcache(); print(linecache.getline('<cell 1>', 2), end='')", "    return 1/0  # here\n")
        self.ok("linecache.clearcache()")
        self.assertIn("return 1/0  # here", self.fails("broken()").stderr)

    def test_old_sources_are_let_go(self):
        self.s.run("a = 1")
        for _ in range(3):
            self.s.run("#" + "x" * (4 << 20))
        self.ok("import linecache\nprint('<cell 1>' in linecache.cache, '<cell 4>' in linecache.cache)", "False True\n")
        self.ok("print(sum(entry[0] for name, entry in linecache.cache.items() if name.startswith('<cell')) < 9 << 20)", "True\n")
        for _ in range(600):
            self.s.run("pass")
        self.ok("print(sum(name.startswith('<cell') for name in linecache.cache))", "512\n")

    def test_a_syntax_error_shows_the_place(self):
        result = self.fails("x = 1\ndef f(:\n  pass")
        self.assertNotIn("Traceback", result.stderr)
        lines = result.stderr.splitlines()
        self.assertEqual(lines[:2], ['  File "<cell 1>", line 2', "    def f(:"])
        self.assertIn("^", lines[2])
        self.assertTrue(lines[3].startswith("SyntaxError: "), lines)

    def test_a_syntax_error_in_eval_has_the_users_frames(self):
        result = self.fails("eval('1 +')")
        self.assertIn('File "<cell 1>", line 1, in <module>', result.stderr)
        self.assertIn('File "<string>", line 1', result.stderr)

    def test_chains_are_shown(self):
        result = self.fails("try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e", "KeyError: 'k'")
        self.assertIn("The above exception was the direct cause", result.stderr)
        result = self.fails("try:\n    1/0\nexcept ZeroDivisionError:\n    raise KeyError('k')")
        self.assertIn("During handling of the above exception", result.stderr)
        self.assertNotIn("ringfence", result.stderr)

    def test_a_loop_in_the_chain_ends(self):
        self.fails("a, b = ValueError('a'), ValueError('b')\na.__cause__, b.__cause__ = b, a\nraise a", "ValueError: a")

    @unittest.skipIf(sys.version_info < (3, 11), "exception groups came with 3.11")
    def test_groups_are_shown(self):
        result = self.fails("raise ExceptionGroup('g', [ValueError(1), ExceptionGroup('h', [MemoryError()])])")
        self.assertIn("| ExceptionGroup: g (2 sub-exceptions)", result.stderr)
        self.assertEqual(result.hints, MEMORY)

    def test_endless_recursion_is_an_exception(self):
        result = self.fails("def f(): return f()\nf()")
        self.assertIn("RecursionError: maximum recursion depth exceeded", result.stderr)
        self.assertIn("[Previous line repeated", result.stderr)
        self.ok("print('alive')", "alive\n")

    def test_deep_nesting_in_source_is_an_exception(self):
        result = self.s.run("(" * 100000)
        self.assertEqual((result.code, result.ended), (1, RAISED), result)
        result = self.s.run("x = " + "-" * 200000 + "1")
        if result.status is None:  # some versions of the compiler run out of stack
            self.ok("print('alive')", "alive\n")

    def test_an_exception_that_cannot_be_printed(self):
        for method in ("1/0", "raise SystemExit", "raise KeyboardInterrupt", "return 5", "return '\\ud800'"):
            result = self.fails("class E(Exception):\n    def __str__(self): %s\nraise E" % method)
            self.assertIn("E", result.stderr.splitlines()[-1], method)
            self.ok("print('alive')", "alive\n")

    def test_an_exception_that_lies_about_itself(self):
        self.fails("class E(Exception):\n    __cause__ = property(lambda s: 1/0)\nraise E")
        self.fails("class E(OSError):\n    errno = property(lambda s: 1/0)\nraise E")
        self.fails("class E(Exception):\n    exceptions = property(lambda s: 1/0)\nraise E")
        self.assertEqual(self.s.run("class X(SystemExit):\n    code = property(lambda s: 1/0)\nraise X").code, 1)
        self.ok("print('alive')", "alive\n")

    def test_null_bytes_and_marks_in_the_source(self):
        self.assertRegex(self.fails("x = 1\0").stderr, "null bytes")
        self.ok("\ufeffprint('mark')", "mark\n")
        self.ok("# -*- coding: latin-1 -*-\nprint('\u00e9\u2603')", "\u00e9\u2603\n")

    def test_the_users_excepthook_is_asked(self):
        self.ok("import sys\ndef hook(kind, error, trace): print('hooked', kind.__name__, trace.tb_frame.f_code.co_filename)\nsys.excepthook = hook")
        result = self.s.run("1/0")
        self.assertEqual((result.code, result.stdout, result.stderr), (1, "hooked ZeroDivisionError <cell 2>\n", ""))
        self.ok("sys.excepthook = lambda *a: {}['no']")
        result = self.fails("1/0", "ZeroDivisionError: division by zero")
        self.assertIn("Error in sys.excepthook:\nTraceback", result.stderr)
        self.assertIn("KeyError: 'no'\n\nOriginal exception was:\nTraceback", result.stderr)
        self.ok("del sys.excepthook")
        self.fails("1/0", "ZeroDivisionError: division by zero")

    def test_a_failed_call_keeps_no_locals_alive(self):
        self.ok("import weakref\nclass Big: pass\nseen = []")
        self.fails("def f():\n    big = Big()\n    seen.append(weakref.ref(big))\n    1/0\nf()")
        self.ok("print(seen[0]())", "None\n")

    def test_traceback_functions_of_the_program_show_only_its_frames(self):
        result = self.ok("import traceback\ntry: 1/0\nexcept ZeroDivisionError: print(traceback.format_exc().count('File '))", "1\n")
        self.assertEqual(result.stderr, "")


class Hints(Case):
    def hinted(self, code, hints):
        result = self.s.run(code)
        self.assertEqual((result.ended, result.hints), (RAISED, hints), result)

    def test_each_limit_is_hinted_at(self):
        self.hinted("raise MemoryError", MEMORY)
        self.hinted("x = bytearray(1 << 62)", MEMORY)
        self.hinted("import errno\nraise OSError(errno.ENOMEM, 'm')", MEMORY)
        self.hinted("raise OSError(errno.ENOSPC, 'd')", DISK)
        self.hinted("raise OSError(errno.EDQUOT, 'd')", DISK)
        self.hinted("raise BlockingIOError(errno.EAGAIN, 'p')", PROCESSES)
        self.hinted("raise RuntimeError(\"can't start new thread\")", PROCESSES)
        self.hinted("try:\n    raise OSError(errno.ENOSPC, 'd')\nexcept OSError as e:\n    raise ValueError from e", DISK)

    def test_other_errors_hint_at_nothing(self):
        for error in ("ValueError(28)", "OSError()", "OSError('text')", "FileNotFoundError(2, 'x')", "RuntimeError()"):
            self.hinted("raise " + error, 0)

    def test_a_real_full_disk(self):
        self.hinted("with open('/dev/full', 'w') as f: f.write('x')", DISK)


if __name__ == "__main__":
    unittest.main()
