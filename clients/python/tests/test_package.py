"""The package as a whole: its examples, its types, and that both clients offer the same."""

from __future__ import annotations

import doctest
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import ringfence

MODULES = ["ringfence", "ringfence._sync", "ringfence._async"]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_are_true(module, server_url, monkeypatch, tmp_path):
    monkeypatch.setenv("RINGFENCE_URL", server_url)
    monkeypatch.chdir(tmp_path)
    done = doctest.testmod(importlib.import_module(module), extraglobs=vars(ringfence))
    assert done.attempted > 0
    assert done.failed == 0


def test_the_readme_is_true(server_url, monkeypatch, tmp_path):
    readme = Path(__file__).parents[1] / "README.md"
    monkeypatch.setenv("RINGFENCE_URL", server_url)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rain.csv").write_text("station,mm\nRidge,12\nValley,7\n")
    done = doctest.testfile(str(readme), module_relative=False)
    assert done.attempted > 0
    assert done.failed == 0


USE = """
import io
from pathlib import Path
from ringfence import AsyncClient, AsyncSession, Session

def waiting(s: Session) -> None:
    a: bytes = s.download("x")
    b: Path = s.download("x", "y")
    c: int = s.download("x", io.BytesIO())
    d: bytes = s.run("1").raise_for_status().files[0].read()

async def awaiting(s: AsyncSession) -> bytes:
    return await (await s.run("1")).raise_for_status().files[0].read()

AsyncClient().session(image="x", idle_timeout_seconds=5)
AsyncClient().session(imgae="x")  # type: ignore[call-arg]
"""


def test_the_types_hold(tmp_path):
    """Strictly, of the package as it is installed and of what its users see; an ignore that is not needed fails too."""
    (tmp_path / "use.py").write_text(USE)
    check = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    for what in (["-p", "ringfence"], ["use.py"]):
        done = subprocess.run([*check, *what], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("waiting", "awaiting"),
    [
        (ringfence.Session, ringfence.AsyncSession),
        (ringfence.Client, ringfence.AsyncClient),
        (ringfence.Result, ringfence.AsyncResult),
        (ringfence.OutputFile, ringfence.AsyncOutputFile),
    ],
)
def test_both_clients_offer_the_same(waiting, awaiting):
    def offered(kind):
        public = {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}
        return {
            name: [(p.name, p.default, p.kind) for p in inspect.signature(member).parameters.values()]
            for name, member in public.items()
            if callable(member)
        }

    assert offered(waiting) == offered(awaiting)
    own, other = (list(inspect.signature(kind).parameters) for kind in (waiting, awaiting))
    assert own == other
    for name, member in inspect.getmembers(waiting, callable):
        assert name.startswith("_") or inspect.getdoc(member), f"{name} says what it does"


def test_the_version_is_that_of_the_distribution():
    assert importlib.import_module("importlib.metadata").version("ringfence") == ringfence.__version__
