"""The frames: their bytes, their bounds, and what ends a session."""

import os
import signal
import struct
import unittest

from harness import BROKEN, DONE, HEADER, NONCE, RETURNED, RUN, Case, Result


class Frames(Case):
    def frame(self, payload, kind=RUN, version=1, zero=0, length=None):
        return HEADER.pack(len(payload) if length is None else length, version, kind, zero) + payload

    def run_payload(self, source, call=1):
        return struct.pack("<QIB3x", NONCE, call, 0) + source

    def done(self):
        result = Result()
        kind, payload = self.s.frame(result)
        self.assertEqual(kind, DONE)
        self.s.drain(result)
        return struct.unpack("<QiBB2xQ", payload), result

    def test_frames_may_come_in_parts(self):
        for byte in self.frame(self.run_payload(b"print('parts')")):
            self.s.frames.sendall(bytes([byte]))
        (nonce, code, ended, hints, _), result = self.done()
        self.assertEqual((nonce, code, ended, hints, result.stdout), (NONCE, 0, RETURNED, 0, "parts\n"))

    def test_frames_may_come_together(self):
        self.s.frames.sendall(b"".join(self.frame(self.run_payload(b"print(%d)" % n, n)) for n in range(1, 6)))
        for _ in range(5):
            self.assertEqual(self.done()[0][:4], (NONCE, 0, RETURNED, 0))

    def test_a_long_source(self):
        source = "x = '%s'\nprint(len(x))" % ("\u00e9" * (4 << 20))
        self.ok(source, "%d\n" % (4 << 20))

    def test_an_empty_source(self):
        self.ok("")

    def test_the_call_number_names_the_source(self):
        self.s.calls = 4294967294
        self.assertIn('File "<cell 4294967295>", line 1', self.fails("1/0").stderr)

    def test_each_answer_has_its_nonce(self):
        for nonce in (1, (1 << 64) - 1, 12345):
            self.s.send("pass", nonce=nonce)
            self.assertEqual(self.done()[0][0], nonce)

    def test_the_end_of_the_stream_ends_the_interpreter_quietly(self):
        self.s.frames.shutdown(1)
        self.assertEqual(self.s.reap(), 0)

    def test_the_end_of_the_stream_during_a_call(self):
        self.s.send("import time\ntime.sleep(0.05)")
        self.s.frames.close()
        self.assertIn(self.s.reap(), (0, BROKEN))

    def test_wrong_frames_end_the_interpreter(self):
        good = self.run_payload(b"print('ran')")
        for bad in (
            self.frame(good, kind=2),
            self.frame(good, version=2),
            self.frame(good, zero=1),
            self.frame(good[:15]),
            self.frame(good, length=(16 << 20) + 1),
            self.frame(self.run_payload(b"\xff\xfe")),
            b"\xff" * 64,
        ):
            session = self.session()
            session.frames.sendall(bad)
            self.assertEqual(session.reap(), BROKEN, bad)

    def test_a_forged_answer_is_seen_before_the_true_one(self):
        """Nothing here can keep a program from the socket: the daemon tells by the nonce, and by what comes next."""
        forge = (
            "import os, stat, struct\nfor fd in range(3, 1024):\n    try:\n        if stat.S_ISSOCK(os.fstat(fd).st_mode): os.write(fd, struct.pack('<IBBHQiBB2xQ', 24, 1, 130, 0, 5, 0, 0, 0, 0))\n    except OSError: pass"
        )
        self.s.send(forge)
        self.assertEqual(self.done()[0][0], 5)
        self.assertEqual(self.done()[0][0], NONCE)

    def test_a_dead_interpreter_is_seen_as_it_died(self):
        for code, status in (("import os; os._exit(5)", 5), ("import os; os.abort()", -signal.SIGABRT), ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV)):
            session = self.session()
            result = session.run("print('last words')\n" + code)
            self.assertEqual((result.status, result.stdout), (status, "last words\n"), code)

    def test_output_pipes_that_are_gone_end_the_interpreter(self):
        os.close(self.s.out)
        self.s.send("print('y', end='')")
        self.assertEqual(self.s.reap(), BROKEN)
        self.s.out = os.open(os.devnull, os.O_RDONLY)


if __name__ == "__main__":
    unittest.main()
