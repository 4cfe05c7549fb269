"""The backends that the tests run against: the real server, and one of the test's own making."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from fake import Fake

import ringfence

READY_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60


def program() -> Path:
    """The newest build of the server in the repository that this package lies in."""
    root = Path(__file__).resolve().parents[3]
    builds = sorted(root.glob("target/*/ringfence"), key=lambda path: path.stat().st_mtime)
    if not builds:
        pytest.fail("no server to test against: set RINGFENCE_TEST_URL, or build one with `cargo build`")
    return builds[-1]


@pytest.fixture(scope="session")
def server_url(tmp_path_factory):
    """The URL of a real server: the one of RINGFENCE_TEST_URL, or one that is started for these tests."""
    if url := os.environ.get("RINGFENCE_TEST_URL"):
        yield url
        return
    folder = tmp_path_factory.mktemp("server")
    settings = ["--image", "bare", "--listen", "127.0.0.1:0", "--state-dir", str(folder)]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([program(), "serve", *settings], stdout=subprocess.PIPE, stderr=log, text=True)
    watchdog = threading.Timer(READY_SECONDS_MAX, server.kill)
    watchdog.start()
    url = None
    try:
        for line in server.stdout:
            url = line.partition("address: ")[2].strip() or url
            if line == "ready\n":
                break
        else:
            pytest.fail(f"the server did not come up: {(folder / 'log').read_text()}")
        watchdog.cancel()
        yield url
    finally:
        watchdog.cancel()
        server.terminate()
        server.communicate(timeout=STOP_SECONDS_MAX)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch):
    """Settings of whoever runs the tests are none of the tests'."""
    for name in [name for name in os.environ if name.startswith("RINGFENCE_") and name != "RINGFENCE_TEST_URL"]:
        monkeypatch.delenv(name)


@pytest.fixture
def fake():
    """A backend in this process that answers as the test says."""
    with Fake() as backend:
        yield backend


class Waiting:
    """An object of the awaiting client whose coroutines are waited for, so that a test is written once for both."""

    def __init__(self, loop: asyncio.AbstractEventLoop, inner: Any) -> None:
        self._loop = loop
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return self._wrap(getattr(self._inner, name))

    def _wrap(self, value: Any) -> Any:
        if inspect.iscoroutinefunction(value):
            return lambda *args, **options: self._wrap(self._loop.run_until_complete(value(*args, **options)))
        if type(value) is list:
            return [self._wrap(item) for item in value]
        if inspect.ismethod(value):
            return lambda *args, **options: self._wrap(value(*args, **options))
        ours = (ringfence.AsyncSession, ringfence.AsyncResult, ringfence.AsyncOutputFile)
        return Waiting(self._loop, value) if isinstance(value, ours) else value

    def __enter__(self) -> Any:
        self._loop.run_until_complete(self._inner.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.run_until_complete(self._inner.__aexit__(*error))


class Flavour:
    """One of the two clients, used as if it were the waiting one."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop() if name == "async" else None
        self._made_so_far: list[Any] = []

    def session(self, *args: Any, **options: Any) -> Any:
        return self._made(ringfence.Session, ringfence.AsyncSession, args, options)

    def client(self, *args: Any, **options: Any) -> Any:
        return self._made(ringfence.Client, ringfence.AsyncClient, args, options)

    def _made(self, waiting: Any, awaiting: Any, args: Any, options: Any) -> Any:
        kind = waiting if self._loop is None else awaiting
        plain = kind(*args, **options)
        made = plain if self._loop is None else Waiting(self._loop, plain)
        self._made_so_far.append(made)
        return made

    def close(self) -> None:
        """Closes what the test left open; what it leased there it may have lost on purpose."""
        for made in reversed(self._made_so_far):
            with contextlib.suppress(ringfence.RingfenceError):
                made.close()
        if self._loop is not None:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()


@pytest.fixture(params=["sync", "async"])
def flavour(request):
    """Both clients, one after the other."""
    made = Flavour(request.param)
    yield made
    made.close()


@pytest.fixture
def session(flavour, server_url):
    """A leased session of the real server."""
    with flavour.session(server_url) as leased:
        yield leased


@pytest.fixture
def run_python():
    """Runs a program in a process of its own."""

    def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run
