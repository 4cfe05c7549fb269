"""`__main__` is real: what ordinary programs do with their own module works."""

import unittest

from harness import RAISED, Case


class MainModule(Case):
    def test_it_is_the_main_module(self):
        self.ok("import sys\nm = sys.modules['__main__']\nprint(m.__dict__ is globals(), __name__, type(m).__name__, hasattr(m, '__file__'))", "True __main__ module False\n")
        self.ok("if __name__ == '__main__': print('main', __builtins__ is __import__('builtins'), __spec__)", "main True None\n")

    def test_nothing_of_ours_is_found(self):
        self.ok("import sys\nprint(sys.argv, [m for m in sys.modules if 'ringfence' in m], sys.path[0] == '', sys.path.count(''))", "[''] [] True 1\n")
        self.ok("print(sorted(n for n in dir() if not n.startswith('__')))", "['sys']\n")

    def test_classes_pickle(self):
        self.ok("import pickle\nclass P:\n    def __init__(self, v): self.v = v\ndef sq(n): return n * n")
        self.ok("print(pickle.loads(pickle.dumps(P(3))).v, pickle.loads(pickle.dumps(sq))(4), P.__module__)", "3 16 __main__\n")

    def test_functions_have_source(self):
        self.ok("def sq(n):\n    return n * n")
        self.ok("pass")
        self.ok("import inspect\nprint(inspect.getsource(sq), end='')", "def sq(n):\n    return n * n\n")
        self.ok("f = lambda: 5")
        self.ok("print(inspect.getsource(f), inspect.getsourcefile(f))", "f = lambda: 5\n <cell 4>\n")

    def test_classes_have_source(self):
        self.ok("class A:\n    x = 1\n\n    def f(self): return 1\n\nclass B: pass\nclass C(A): y = 2")
        self.ok("import inspect\nprint(inspect.getsource(A), end='')", "class A:\n    x = 1\n\n    def f(self): return 1\n")
        self.ok("print(inspect.getsource(B), inspect.getsource(C), end='')", "class B: pass\n class C(A): y = 2\n")
        self.ok("class A:\n    def f(self): return 2")
        self.ok("print(inspect.getsource(A), inspect.getsource(A.f), end='')", "class A:\n    def f(self): return 2\n     def f(self): return 2\n")
        self.assertEqual(self.s.run("inspect.getsource(type('Made', (), {}))").ended, RAISED)
        self.assertEqual(self.s.run("inspect.getsource(int)").stderr.splitlines()[-1][:10], "TypeError:")
        self.ok("print(inspect.getfile(inspect).endswith('inspect.py'))", "True\n")

    def test_dataclasses_and_type_hints(self):
        self.ok("from __future__ import annotations\nimport dataclasses, typing\n@dataclasses.dataclass\nclass D:\n    a: int\n    b: typing.List[D] = dataclasses.field(default_factory=list)")
        self.ok("print(D(1), typing.get_type_hints(D)['a'])", "D(a=1, b=[]) <class 'int'>\n")
        self.ok("import enum, collections\nclass E(enum.Enum): A = 1\nN = collections.namedtuple('N', 'x')\nimport pickle\nprint(pickle.loads(pickle.dumps((E.A, N(2)))))", "(<E.A: 1>, N(x=2))\n")

    def test_future_imports_hold_as_in_a_notebook_and_none_of_ours_leaks(self):
        self.ok("def f(x: int): pass\nprint(f.__annotations__)", "{'x': <class 'int'>}\n")
        self.ok("from __future__ import annotations")
        self.ok("def f(x: int): pass\nprint(f.__annotations__)", "{'x': 'int'}\n")
        self.ok("def f(x: int): pass\nf.__annotations__", "{'x': 'int'}\n", echo=True)

    def test_scripts_that_use_main_conventions(self):
        result = self.s.run("import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(1, 1)\nif __name__ == '__main__': unittest.main()")
        self.assertEqual(result.code, 0, result)
        self.assertIn("Ran 1 test", result.stderr)
        self.ok("import argparse\np = argparse.ArgumentParser(); p.add_argument('--n', default=3)\nprint(p.parse_args().n)", "3\n")
        self.ok("import doctest\ndef d():\n    '''\n    >>> 1 + 1\n    2\n    '''\nprint(tuple(doctest.testmod()))", "(0, 1)\n")

    def test_a_replaced_main_module_comes_back(self):
        self.ok("import sys, types\nx = 1\nsys.modules['__main__'] = types.ModuleType('__main__')\n__name__ = 'other'")
        self.ok("print(sys.modules['__main__'].x, __name__)", "1 __main__\n")
        self.ok("del sys.modules['__main__']")
        self.ok("print(sys.modules['__main__'].x)", "1\n")


class Imports(Case):
    def test_modules_of_the_workspace_import_at_once(self):
        for number in range(20):  # within one tick of the file system's clock
            name = "mod%d" % number
            self.ok("open('%s.py', 'w').write('value = %d')\nimport %s\nprint(%s.value)" % (name, number, name, name), "%d\n" % number)
        self.assertNotIn("__pycache__", self.s.files())

    def test_a_module_that_appears_between_calls(self):
        self.fails("import late", "ModuleNotFoundError: No module named 'late'")
        with open(self.s.path("late.py"), "w") as file:
            file.write("value = 5")
        self.ok("import late; print(late.value)", "5\n")

    def test_packages_and_their_new_parts(self):
        self.ok("import os\nos.makedirs('pkg')\nopen('pkg/__init__.py', 'w').close()\nopen('pkg/a.py', 'w').write('x = 1')\nimport pkg.a\nprint(pkg.a.x)", "1\n")
        self.ok("open('pkg/b.py', 'w').write('y = 2')\nfrom pkg import b\nprint(b.y)", "2\n")

    def test_a_changed_module_reloads_as_it_is_now(self):
        for value in (1, 2, 3):  # same size, same second
            self.ok("open('m.py', 'w').write('v = %d')\nimport importlib, m\nimportlib.reload(m)\nprint(m.v)" % value, "%d\n" % value)

    def test_the_path_follows_the_working_directory(self):
        self.ok("import os\nos.mkdir('sub')\nopen('sub/inner.py', 'w').write('v = 1')\nos.chdir('sub')\nimport inner\nprint(inner.v)", "1\n")

    def test_a_missing_module_is_an_ordinary_error(self):
        result = self.fails("import no_such_module_here", "ModuleNotFoundError: No module named 'no_such_module_here'")
        self.assertEqual(result.stderr.count("File "), 1)
        self.fails("import os, shutil\nos.mkdir('gone'); os.chdir('gone'); os.rmdir(os.getcwd())\nimport no_such_module_here", "ModuleNotFoundError: No module named 'no_such_module_here'")
        self.ok("print('alive')", "alive\n")

    def test_an_odd_path_changes_nothing(self):
        self.ok("import sys, pathlib\nsys.path.insert(0, pathlib.Path('.'))\nsys.path.append(5)\nsys.path.append('/no/such/place')")
        self.fails("import no_such_module_here", "ModuleNotFoundError: No module named 'no_such_module_here'")

    def test_an_error_inside_a_module_shows_the_module(self):
        self.ok("open('bad.py', 'w').write('1/0')")
        result = self.fails("import bad", "ZeroDivisionError: division by zero")
        self.assertEqual(result.stderr.count("File "), 2)


class Processes(Case):
    def test_multiprocessing_forks(self):
        self.ok("def sq(n): return n * n")
        self.ok("import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: print(p.map(sq, [1, 2, 3]))", "[1, 4, 9]\n")
        self.ok("p = m.get_context('fork').Process(target=print, args=('child',)); p.start(); p.join(); print(p.exitcode)", "child\n0\n")
        result = self.s.run("def bad(): raise ValueError('in the child')\np = m.get_context('fork').Process(target=bad); p.start(); p.join(); print(p.exitcode)")
        self.assertEqual(result.stdout, "1\n")
        self.assertIn("ValueError: in the child", result.stderr)

    def test_executors(self):
        self.ok("from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor\nimport multiprocessing as m\ndef sq(n): return n * n")
        self.ok("with ProcessPoolExecutor(2, mp_context=m.get_context('fork')) as e: print(list(e.map(sq, range(4))))", "[0, 1, 4, 9]\n")
        self.ok("with ThreadPoolExecutor(2) as e: print(list(e.map(sq, range(4))))", "[0, 1, 4, 9]\n")

    def test_an_executor_lives_across_calls(self):
        self.ok("from concurrent.futures import ProcessPoolExecutor\nimport multiprocessing as m\ndef sq(n): return n * n\ne = ProcessPoolExecutor(1, mp_context=m.get_context('fork'))\nprint(e.submit(sq, 3).result())", "9\n")
        self.ok("print(e.submit(sq, 4).result()); e.shutdown()", "16\n")

    def test_multiprocessing_spawns_functions_of_modules(self):
        self.ok("open('work.py', 'w').write('def sq(n): return n * n')\nimport work, multiprocessing as m")
        self.ok("with m.get_context('spawn').Pool(1) as p: print(p.map(work.sq, [2, 3]))", "[4, 9]\n")


class Echo(Case):
    def test_the_last_expression_is_printed_when_asked(self):
        self.ok("x = 5\nx + 1", "6\n", echo=True)
        self.ok("x + 1")
        self.ok("print('p')\n'text'", "p\n'text'\n", echo=True)
        self.ok("_ + '!'", "'text!'\n", echo=True)

    def test_what_is_no_expression_or_none_is_not(self):
        for code in ("x = 5", "None", "", "# only a comment", "def f(): 5", "for i in (1,): i", "5;", "5 ;"):
            self.ok(code, "", echo=True)

    def test_errors_have_their_lines(self):
        self.assertIn('File "<cell 1>", line 2, in <module>', self.fails("x = 1\n1/0", echo=True).stderr)
        self.assertIn("SyntaxError", self.fails("x = = 1", echo=True).stderr)
        self.fails("class R:\n    def __repr__(self): raise ValueError('r')\nR()", "ValueError: r", echo=True)

    def test_awaited_values_and_surrogates(self):
        self.ok("import asyncio\nawait asyncio.sleep(0, 'slept')", "'slept'\n", echo=True)
        self.ok("class R:\n    def __repr__(self): return '\\ud800'\nR()", "\\ud800\n", echo=True)

    def test_the_users_displayhook_is_asked(self):
        self.ok("import sys\nsys.displayhook = lambda v: print('<', v, '>')")
        self.ok("7", "< 7 >\n", echo=True)


if __name__ == "__main__":
    unittest.main()
