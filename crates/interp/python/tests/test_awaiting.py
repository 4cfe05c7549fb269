"""Top-level await: one event loop for the session, beside programs that run their own."""

import unittest

from harness import INTERRUPTED, Case


class Awaiting(Case):
    def test_await_for_and_with(self):
        self.ok(
            "import asyncio, contextlib\nasync def g():\n    for i in range(3): yield i\n@contextlib.asynccontextmanager\nasync def c():\n    yield 'in'\n"
            "async for i in g(): print(i)\nasync with c() as v: print(v)\nprint([i async for i in g()], await asyncio.sleep(0, 'v'))",
            "0\n1\n2\nin\n[0, 1, 2] v\n",
        )

    def test_the_loop_lives_on(self):
        self.ok("import asyncio\nasync def loop(): return asyncio.get_running_loop()\nfirst = await loop()\nq = asyncio.Queue()\nt = asyncio.create_task(q.get())")
        self.ok("await q.put('across calls')\nprint(await t, (await loop()) is first)", "across calls True\n")

    def test_asyncio_run_still_works(self):
        self.ok("import asyncio\nasync def f(): return 5\nprint(await f())", "5\n")
        self.ok("print(asyncio.run(f()))", "5\n")
        self.ok("print(await f())", "5\n")
        self.ok("print(asyncio.new_event_loop().run_until_complete(f()))", "5\n")
        self.ok("print(asyncio.get_event_loop().run_until_complete(f()))", "5\n")
        result = self.fails("await f()\nc = f()\nasyncio.run(c)")
        self.assertIn("cannot be called from a running event loop", result.stderr)

    def test_a_closed_loop_is_replaced(self):
        self.ok("import asyncio\nl = None\nasync def f(): return asyncio.get_running_loop()\nl = await f()")
        self.ok("l.close()")
        self.ok("print((await f()) is l)", "False\n")

    def test_tracebacks_show_only_the_users_frames(self):
        result = self.fails("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    1/0\nawait f()")
        self.assertEqual([line for line in result.stderr.splitlines() if line.startswith("  File ")], [
            '  File "<cell 1>", line 5, in <module>', '  File "<cell 1>", line 4, in f'])

    def test_exits_and_interrupts_leave_no_complaint(self):
        for code, expected in (("import sys\nsys.exit(3)", 3), ("raise KeyboardInterrupt", 130)):
            result = self.s.run("import asyncio, gc\nawait asyncio.sleep(0)\n" + code)
            self.assertEqual(result.code, expected)
            self.ok("gc.collect()")
            self.ok("import asyncio; await asyncio.sleep(0); gc.collect()")

    def test_variables_are_global(self):
        self.ok("import asyncio\nx = await asyncio.sleep(0, 4)\ndef f(): return x")
        self.ok("print(f())", "4\n")

    def test_an_interrupt_cancels_what_is_awaited_and_keeps_the_loop(self):
        self.ok("import asyncio\nkept = 1")
        result = self.s.run(
            "async def f():\n    try:\n        print('ready')\n        await asyncio.sleep(1000)\n    finally:\n        print('cleaned')\nawait f()",
            on_output=lambda session, so_far: session.interrupt() if so_far.stdout == "ready\n" else None,
        )
        self.assertEqual((result.code, result.ended, result.stdout), (130, INTERRUPTED, "ready\ncleaned\n"), result)
        self.ok("print(kept, await asyncio.sleep(0, 'goes on'))", "1 goes on\n")

    def test_await_outside_a_coroutine_is_still_an_error(self):
        self.assertIn("SyntaxError", self.fails("def f():\n    await g()").stderr)
        self.assertIn("SyntaxError", self.fails("return 5").stderr)
        self.assertIn("SyntaxError", self.fails("yield 5").stderr)


if __name__ == "__main__":
    unittest.main()
