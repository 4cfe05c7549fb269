"""Sends operations: one driver that waits, one that awaits. All that decides is in `_calls` and `_sinks`."""

from __future__ import annotations

import asyncio
import time
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from ._calls import FAILURES, Attempts, Call
from ._limits import IDLE_CONNECTION_SECONDS_MAX
from ._settings import base_url, bearer
from ._version import __version__

if TYPE_CHECKING:
    from ._sinks import Sink

T = TypeVar("T")


def _options(url: str | None, token: str | None) -> dict[str, Any]:
    return {
        "base_url": base_url(url),
        "auth": bearer(token),
        "headers": {"User-Agent": f"ringfence-python/{__version__}", "Accept-Encoding": "identity"},
        "limits": httpx.Limits(keepalive_expiry=IDLE_CONNECTION_SECONDS_MAX),
    }


class Transport:
    """Connections to one backend; safe to share between threads."""

    def __init__(self, url: str | None, token: str | None, transport: httpx.BaseTransport | None) -> None:
        self.http = httpx.Client(**_options(url, token), transport=transport)

    def send(self, call: Call[T]) -> T:
        """Carries an operation out, trying again where that is safe."""
        attempts = Attempts(call, monotonic())
        while True:
            try:
                return self._once(call, attempts)
            except FAILURES as error:
                pause = attempts.pause(error, monotonic())
            time.sleep(pause)

    def _once(self, call: Call[T], attempts: Attempts) -> T:
        with self.http.stream(call.method, call.path, **call.options()) as response, call.receive(response) as sink:
            for piece in response.iter_bytes():
                attempts.in_time(monotonic())
                if not sink.add(piece):
                    break
            return sink.finish()


class AsyncTransport:
    """The same for asyncio."""

    def __init__(self, url: str | None, token: str | None, transport: httpx.AsyncBaseTransport | None) -> None:
        self.http = httpx.AsyncClient(**_options(url, token), transport=transport)

    async def send(self, call: Call[T]) -> T:
        """Carries an operation out, trying again where that is safe."""
        attempts = Attempts(call, monotonic())
        while True:
            try:
                return await self._once(call, attempts)
            except FAILURES as error:
                pause = attempts.pause(error, monotonic())
            await asyncio.sleep(pause)

    async def _once(self, call: Call[T], attempts: Attempts) -> T:
        async with self.http.stream(call.method, call.path, **call.options()) as response:
            with call.receive(response) as sink:
                async for piece in response.aiter_bytes():
                    attempts.in_time(monotonic())
                    if not await _add(sink, piece):
                        break
                return sink.finish()


async def _add(sink: Sink[Any], piece: bytes) -> bool:
    """A piece that may wait for a disk is added beside the event loop."""
    return await asyncio.to_thread(sink.add, piece) if sink.blocking else sink.add(piece)
