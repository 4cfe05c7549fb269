"""SIGINT: ends what the user runs, never the loop that serves calls."""

import os
import signal
import unittest

from harness import BROKEN, INTERRUPTED, RAISED, RETURNED, Case


def when(text, times=1):
    """Interrupts the session once its output ends with `text`; as often as asked, once for each time it is seen."""
    seen = []

    def on_output(session, so_far):
        if so_far.stdout.endswith(text) and len(seen) < times and so_far.stdout not in seen:
            seen.append(so_far.stdout)
            session.interrupt()

    return on_output


class Interrupts(Case):
    def interrupted(self, code, stdout="ready\n", **options):
        result = self.s.run(code, on_output=when("ready\n"), **options)
        self.assertEqual((result.code, result.ended, result.stdout), (130, INTERRUPTED, stdout), result)
        return result

    def test_partial_output_and_variables_survive(self):
        self.ok("x = 1")
        result = self.interrupted("import time\nx = 2\nprint('ready')\ntime.sleep(1000)")
        self.assertRegex(result.stderr, 'File "<cell 2>", line [34], in <module>\n    (time.sleep|print)')
        self.assertEqual(result.stderr.splitlines()[-1], "KeyboardInterrupt")
        self.assertNotIn("ringfence", result.stderr)
        self.ok("print(x)", "2\n")

    def test_a_busy_loop(self):
        self.interrupted("n = 0\nprint('ready')\nwhile True: n += 1")
        self.ok("print(n >= 0)", "True\n")

    def test_waits_in_libraries(self):
        for wait in (
            "import threading; e = threading.Event(); print('ready'); e.wait()",
            "import queue; print('ready'); queue.Queue().get()",
            "import subprocess; print('ready'); subprocess.run(['sleep', '1000'])",
            "import socket; a, b = socket.socketpair(); print('ready'); a.recv(1)",
            "import select; print('ready'); select.select([], [], [])",
            "import threading; l = threading.Lock(); l.acquire(); print('ready'); l.acquire()",
            "import asyncio; print('ready'); asyncio.run(asyncio.sleep(1000))",
        ):
            self.interrupted(wait)
        self.ok("print('alive')", "alive\n")

    def test_the_echo_and_the_hooks_can_be_interrupted(self):
        self.interrupted("import time\nclass R:\n    def __repr__(self):\n        print('ready')\n        time.sleep(1000)\nR()", echo=True)
        self.ok("import sys\ndef hook(*a):\n    print('ready')\n    time.sleep(1000)\nsys.excepthook = hook")
        result = self.s.run("1/0", on_output=when("ready\n"))
        self.assertEqual((result.code, result.ended), (1, RAISED), result)
        self.ok("print('alive')", "alive\n")

    def test_a_flush_of_the_users_can_be_interrupted(self):
        result = self.s.run(
            "import sys, time, os\nclass Out:\n    def write(self, text): pass\n    def flush(self):\n        os.write(1, b'ready\\n')\n        time.sleep(1000)\nsys.stdout = Out()",
            on_output=when("ready\n"),
        )
        self.assertEqual((result.code, result.ended), (0, RETURNED), result)
        self.ok("print('alive')", "alive\n")

    def test_a_program_may_catch_it(self):
        result = self.s.run("import time\ntry:\n    print('ready')\n    time.sleep(1000)\nexcept KeyboardInterrupt: print('caught')", on_output=when("ready\n"))
        self.assertEqual((result.code, result.ended, result.stdout), (0, RETURNED, "ready\ncaught\n"))

    def test_each_of_several_is_raised(self):
        code = "import time\nfor i in range(3):\n    try:\n        print('ready')\n        time.sleep(1000)\n    except KeyboardInterrupt: print('caught')"
        result = self.s.run(code, on_output=when("ready\n", times=3))
        self.assertEqual((result.code, result.stdout), (0, "ready\ncaught\n" * 3))

    def test_when_idle_it_is_nothing(self):
        for _ in range(50):
            self.s.interrupt()
        self.ok("print('alive')", "alive\n")

    def test_no_moment_is_wrong_for_it(self):
        outcomes = set()
        for number in range(400):
            self.s.send("for _ in range(%d): pass\nprint('x')" % (number * 5))
            for _ in range(number % 7):
                os.getpid()
            self.s.interrupt()
            result = self.result_of_sent()
            outcomes.add((result.code, result.ended))
        self.assertLessEqual(outcomes, {(0, RETURNED), (130, INTERRUPTED)})
        self.ok("print('alive')", "alive\n")

    def test_a_storm_of_them_ends_nothing_but_calls(self):
        self.ok("import os, signal")
        for _ in range(30):
            result = self.s.run("for i in range(100):\n    try: os.kill(os.getpid(), signal.SIGINT)\n    except KeyboardInterrupt: pass\n1/0")
            self.assertIn((result.code, result.ended), {(1, RAISED), (130, INTERRUPTED)})
        self.ok("print('alive')", "alive\n")

    def result_of_sent(self):
        from harness import Result
        import struct

        result = Result()
        _, payload = self.s.frame(result)
        _, result.code, result.ended, result.hints, _ = struct.unpack("<QiBB2xQ", payload)
        return result

    def test_it_works_again_after_a_program_ignored_or_blocked_it(self):
        self.ok("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)")
        self.interrupted("import time\nprint('ready')\ntime.sleep(1000)")
        self.ok("signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())")
        self.interrupted("print('ready')\ntime.sleep(1000)")
        self.ok("signal.signal(signal.SIGINT, lambda *a: print('mine'))")
        self.interrupted("print('ready')\ntime.sleep(1000)")

    def test_one_that_was_held_back_does_not_end_a_later_call(self):
        self.ok("import os, signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\nos.kill(os.getpid(), signal.SIGINT)")
        self.ok("print('alive')", "alive\n")

    def test_a_handler_of_the_users_is_called_in_its_own_call(self):
        result = self.s.run("import signal, time\nseen = []\nsignal.signal(signal.SIGINT, lambda *a: seen.append('mine'))\nprint('ready')\nwhile not seen: time.sleep(0.01)\nprint(seen)", on_output=when("ready\n"))
        self.assertEqual((result.code, result.stdout), (0, "ready\n['mine']\n"))

    def test_while_compiling(self):
        self.s.send("x = 1\n" * 100000)
        self.s.interrupt()
        result = self.result_of_sent()
        self.assertIn((result.code, result.ended), {(0, RETURNED), (130, INTERRUPTED)})
        self.ok("print('alive')", "alive\n")


class Alarms(Case):
    def test_a_forgotten_alarm_is_cancelled(self):
        self.ok("import signal\nsignal.signal(signal.SIGALRM, lambda *a: 1/0)\nsignal.alarm(1000)\nsignal.setitimer(signal.ITIMER_REAL, 1000)")
        self.ok("print(signal.getitimer(signal.ITIMER_REAL), signal.alarm(0))", "(0.0, 0.0) 0\n")
        self.ok("signal.signal(signal.SIGPROF, print)\nsignal.signal(signal.SIGVTALRM, print)\nsignal.setitimer(signal.ITIMER_PROF, 1000)\nsignal.setitimer(signal.ITIMER_VIRTUAL, 1000)")
        self.ok("print(signal.getitimer(signal.ITIMER_PROF), signal.getitimer(signal.ITIMER_VIRTUAL))", "(0.0, 0.0) (0.0, 0.0)\n")

    def test_an_alarm_within_its_call_works(self):
        self.fails("import signal, time\ndef h(*a): raise TimeoutError('late')\nsignal.signal(signal.SIGALRM, h)\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\ntime.sleep(1000)", "TimeoutError: late")

    def test_a_handler_that_raises_while_idle_is_told_and_harmless(self):
        self.ok("import signal\ndef h(*a): raise OSError(11, 'idle')\nsignal.signal(signal.SIGUSR1, h)")
        for _ in range(100):
            for _ in range(5):
                os.kill(self.s.pid, signal.SIGUSR1)
            result = self.s.run("print('alive')")
            self.assertEqual((result.code, result.ended, result.stdout), (0, RETURNED, "alive\n"), result)
            self.assertTrue(result.stderr.startswith('Traceback (most recent call last):\n  File "<cell 1>", line 2, in h'), result)
            self.assertTrue(result.stderr.endswith("BlockingIOError: [Errno 11] idle\n"), result)

    def test_a_handler_may_run_in_the_waiting_loop_when_a_thread_takes_the_signal(self):
        self.ok("import signal, threading, os\ndef h(*a): raise ValueError('idle')\nsignal.signal(signal.SIGUSR1, h)\ngo = threading.Event()")
        self.ok("t = threading.Thread(target=lambda: (go.wait(), signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)), daemon=True)\nt.start()")
        result = self.s.run("import time\nthreading.Timer(0.05, go.set).start()")
        self.assertEqual(result.code, 0)
        self.s.run("try: t.join()\nexcept ValueError: pass")
        self.ok("print('alive')", "alive\n")

    def test_handlers_live_on(self):
        self.ok("import signal, os\nsignal.signal(signal.SIGUSR1, lambda *a: print('usr1'))")
        self.ok("os.kill(os.getpid(), signal.SIGUSR1)", "usr1\n")

    def test_ordinary_signals_kill(self):
        for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGSEGV):
            session = self.session()
            result = session.run("import os; print('last words'); os.kill(os.getpid(), %d)" % number)
            self.assertEqual((result.status, result.stdout), (-number, "last words\n"))
            self.assertNotEqual(result.status, BROKEN)


if __name__ == "__main__":
    unittest.main()
