"""What hostile or careless code does to its interpreter costs it that interpreter at most: never a hang, a wrong
answer, or the answer of another call."""

import unittest

from harness import BROKEN, RAISED, Case, Violation

HARMLESS = {
    "builtins are rebound": "import builtins\nfor n in ('print', 'len', 'open', 'isinstance', 'getattr', 'exec', 'compile', 'eval', 'type', 'tuple', 'bytes', 'hasattr', 'list', 'int', 'any', 'zip', 'map', 'callable', 'next', 'iter', 'sum', 'BaseException', 'Exception', 'OSError', 'ValueError', 'KeyboardInterrupt', 'SystemExit', 'MemoryError', '__import__', '__build_class__'):\n    setattr(builtins, n, None)",
    "builtins are gone": "import builtins\nbuiltins.__dict__.clear()",
    "the main module's names are gone": "globals().clear()",
    "the builtins of main are replaced": "__builtins__ = {}",
    "modules are gone": "import sys\nsys.modules.clear()",
    "modules are replaced": "import sys\nsys.modules = {}",
    "os is bare": "import os\nfor n in list(vars(os)):\n    if not n.startswith('__'): delattr(os, n)",
    "sys is bare": "import sys\nfor n in ('stdout', 'stderr', 'stdin', '__stdout__', '__stderr__', 'excepthook', '__excepthook__', 'displayhook', 'settrace', 'setprofile', 'path_importer_cache', 'getrecursionlimit'):\n    delattr(sys, n)",
    "libraries are bare": "import io, struct, signal, time, traceback, linecache, types, asyncio, socket, inspect\nfor m in (io, struct, signal, time, traceback, linecache, types, asyncio, socket, inspect):\n    for n in list(vars(m)):\n        if not n.startswith('__'): delattr(m, n)",
    "a trace function raises": "import sys\ndef t(*a): raise ValueError('traced')\nsys.settrace(t)",
    "a profile function raises": "import sys\ndef t(*a): raise ValueError('profiled')\nsys.setprofile(t)",
    "a trace function traces": "import sys\nseen = []\ndef t(f, e, a):\n    seen.append(f.f_code.co_filename)\n    return t\nsys.settrace(t); sys.setprofile(t)",
    "the recursion limit is low": "import sys\nsys.setrecursionlimit(60)",
    "warnings are errors": "import warnings\nwarnings.simplefilter('error')",
    "collections call back": "import gc\ngc.callbacks.append(lambda *a: 1/0)\ngc.set_threshold(1)",
    "the collector is off": "import gc\ngc.disable()",
    "methods of the streams are replaced": "import sys\nsys.stdout.flush = sys.stdout.write = sys.stderr.write = sys.stderr.flush = lambda *a: 1/0",
    "finders raise": "import sys\nclass F:\n    def find_spec(self, *a): raise ValueError\nsys.meta_path.insert(0, F())\nsys.path_hooks.clear()",
    "the path is gone": "import sys\nsys.path = None\nsys.meta_path = None",
    "the environment is gone": "import os\nos.environ.clear()",
    "the folder is gone": "import os, shutil\nos.mkdir('d'); os.chdir('d'); os.rmdir('../d')",
    "a destructor raises": "class D:\n    def __del__(self): raise ValueError\nx = D()",
    "names are shadowed": "print2 = print\nstr = int = len = list = dict = type = None",
    "descriptors above ours are opened": "import os\nfds = [os.open('/dev/null', 0) for _ in range(300)]",
    "limits on descriptors": "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
    "the signal handlers are all replaced": "import signal\nfor n in signal.valid_signals():\n    try: signal.signal(n, lambda *a: 1/0)\n    except (OSError, ValueError): pass",
    "signals wake a descriptor": "import signal, socket\na, b = socket.socketpair(); a.setblocking(False)\nsignal.set_wakeup_fd(a.fileno())",
    "threads run on": "import threading, time\ngo = True\ndef spin():\n    while go: time.sleep(0.001)\nfor _ in range(5): threading.Thread(target=spin).start()",
    "a thread removes the streams": "import threading, sys\ndef f():\n    sys.stdout = sys.stderr = None\nt = threading.Thread(target=f); t.start(); t.join()",
    "a module of the user's hides a library's": "for n in ('traceback', 'linecache', 'struct', 'asyncio', 'unicodedata', 'ast', 'tokenize', '_colorize'):\n    with open(n + '.py', 'w') as f: f.write('1/0')",
    "linecache is poisoned": "import linecache\nlinecache.cache = None",
    "the source table is poisoned": "import linecache\nlinecache.cache.clear(); linecache.cache['<cell 1>'] = 5",
}

COSTLY = {
    "descriptors are flooded and closed": "import os\nfor fd in range(3, 1024):\n    try: os.write(fd, b'\\xff' * 4096)\n    except OSError: pass\nfor fd in range(0, 1024):\n    try: os.close(fd)\n    except OSError: pass",
    "every descriptor is closed": "import os\nos.closerange(0, 1024)",
    "every descriptor is something else": "import os\nf = os.open('f', os.O_RDWR | os.O_CREAT)\nfor fd in range(3, 1024):\n    if fd != f: os.dup2(f, fd)",
    "our state is dug up and wrecked": "import sys\nf = sys._getframe()\nwhile f:\n    if 'self' in f.f_locals:\n        try: f.f_locals['self'].__dict__.clear()\n        except Exception: pass\n    f = f.f_back",
    "our module is dug up and emptied": "import gc\nfor o in gc.get_objects():\n    if type(o) is dict and 'EXIT_BROKEN' in o: o.clear()",
    "our classes are emptied": "import sys\nf = sys._getframe()\nwhile f:\n    w = f.f_locals.get('self')\n    if type(w).__name__ == 'Worker':\n        type(w).keep_signals_out = type(w).prepare = type(w).report = None\n        type(w.streams).flush = None\n    f = f.f_back",
}


class Vandals(Case):
    pass


def harmless(code):
    def test(self):
        result = self.s.run(code)
        self.assertIsNone(result.status, result)
        result = self.s.run("1/0")
        self.assertEqual((result.code, result.ended, result.stdout), (1, RAISED, ""), result)
        self.assertIn("ZeroDivisionError", result.stderr)
        self.assertIsNone(self.s.run("raise SystemExit(5)").status)

    return test


def costly(code):
    def test(self):
        for call in (code, "1/0"):
            try:
                result = self.s.run(call)
            except Violation:
                return
            if result.status is not None:
                self.assertEqual(result.status, BROKEN, result)
                return
        self.assertEqual((result.code, result.ended), (1, RAISED), result)
        self.assertIn("ZeroDivisionError", result.stderr)

    return test


for kind, programs in ((harmless, HARMLESS), (costly, COSTLY)):
    for name, code in programs.items():
        setattr(Vandals, "test_" + name.replace(" ", "_").replace("'", ""), kind(code))


if __name__ == "__main__":
    unittest.main()
