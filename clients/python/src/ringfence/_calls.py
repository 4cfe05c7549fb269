"""The operations, as data: what is sent, how long to wait, when to try again, and what the answer is made into.

Nothing in here does I/O over the network; the two transports send what this file describes.
"""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Callable, Generic, TypeVar, Union
from urllib.parse import quote

import httpx

from . import _limits as limits
from ._answers import Json, Listing, ProducedFile, SessionHandle, StoredFile, Unusable
from ._errors import (
    AnswerError,
    AnswerTimeout,
    CapacityError,
    ConnectFailed,
    NotFound,
    RingfenceError,
    SessionGone,
    TransportError,
)
from ._sinks import Ignored, Memory, Parsed, Refusal, Sink, ToPath, ToStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._answers import O

T = TypeVar("T")
LocalPath = Union[str, "os.PathLike[str]"]
Content = Union[LocalPath, bytes, IO[bytes]]
"""What can be uploaded: the path of a local file, bytes, or an open binary file, which is sent from its beginning."""

_SUCCESS = range(200, 300)


@dataclass(frozen=True)
class Call(Generic[T]):
    """One operation."""

    operation: str
    method: str
    path: str
    """Escaped, below the base URL."""
    sink: Callable[[], Sink[T]] = field(repr=False)
    """What the answer's body becomes."""
    body: dict[str, Any] = field(default_factory=dict, repr=False)
    """The body, as arguments of httpx."""
    patience: float = limits.PATIENCE_SECONDS
    """Seconds to wait for the answer; of a transfer, for each step of it."""
    transfer: bool = False
    """Whether it may take longer, as long as it moves."""
    repeatable: bool = False
    """Whether doing it twice is doing it once."""
    missing: type[NotFound] = NotFound
    """What a 404 means."""
    gone: Sink[T] | None = field(default=None, repr=False)
    """What takes the place of a 404, where that is a success."""
    wait: float = 0.0
    """Seconds to try again for while the backend has no room."""

    def options(self) -> dict[str, Any]:
        """The arguments of httpx's `stream`."""
        waits = httpx.Timeout(
            self.patience, connect=limits.CONNECT_SECONDS_MAX, write=limits.STALL_SECONDS_MAX, pool=None
        )
        return {**self.body, "timeout": waits}

    def receive(self, response: httpx.Response) -> Sink[T]:
        """Where the body of this answer goes."""
        if response.status_code in _SUCCESS:
            return self.sink()
        if response.status_code == httpx.codes.NOT_FOUND and self.gone is not None:
            return self.gone
        hint = response.headers.get("Retry-After")
        return Refusal(self.operation, response.status_code, hint, self.missing)


class Attempts:
    """When an operation is tried again, and what its failure is called where it is not."""

    def __init__(self, call: Call[Any], now: float) -> None:
        self._call = call
        self._left = limits.ATTEMPTS_MAX - 1
        self._pause = limits.RETRY_PAUSE_SECONDS
        self._room_until = now + call.wait
        self._answer_until = math.inf if call.transfer else now + call.patience + call.wait

    def in_time(self, now: float) -> None:
        """Fails an answer that trickles in for longer than the call waits."""
        if now > self._answer_until:
            raise AnswerTimeout(self._call.operation, f"no whole answer within {self._call.patience:g} s")

    def pause(self, error: Exception, now: float) -> float:
        """Seconds until the next attempt; raises where there is none."""
        if isinstance(error, CapacityError):
            delay = limits.CAPACITY_PAUSE_SECONDS if error.retry_after is None else error.retry_after
            delay = max(delay, limits.RETRY_PAUSE_SECONDS)
            if now + delay > self._room_until:
                raise error
            return delay
        failure = self._named(error)
        again = isinstance(failure, ConnectFailed) or self._call.repeatable
        if isinstance(failure, AnswerTimeout) or not isinstance(failure, TransportError) or not again or not self._left:
            raise failure from error
        self._left -= 1
        self._pause *= 2
        return self._pause / 2

    def _named(self, error: Exception) -> RingfenceError:
        operation, text = self._call.operation, str(error) or type(error).__name__
        if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError)):
            return ConnectFailed(operation, f"cannot connect: {text}")
        if isinstance(error, httpx.TimeoutException):
            return AnswerTimeout(operation, f"no whole answer within {self._call.patience:g} s")
        if isinstance(error, httpx.DecodingError):
            return AnswerError(operation, text)
        return TransportError(operation, f"the connection broke: {text}")


FAILURES = (httpx.RequestError, CapacityError)
"""What an attempt may fail with that another one may mend."""


def _whole_seconds(seconds: float) -> int:
    """Seconds as the contract counts them: whole, rounded up, at least one."""
    if not seconds > 0 or math.isinf(seconds):
        raise ValueError(f"{seconds} is no number of seconds that can be waited")
    return math.ceil(seconds)


def _given(**values: object) -> Json:
    return {name: value for name, value in values.items() if value is not None}


def _session(session_id: str, rest: str = "", **query: str | None) -> str:
    segment = session_id.replace(".", "%2E") if session_id in {".", ".."} else quote(session_id, safe="")
    parts = [f"{name}={quote(value, safe='/')}" for name, value in query.items() if value is not None]
    return f"/sessions/{segment}{rest}" + ("?" + "&".join(parts) if parts else "")


def lease(
    image: str | None, idle_timeout: float | None, max_lifetime: float | None, wait: float
) -> Call[SessionHandle]:
    """CreateSession. A 503 leased nothing, so it may be tried again."""
    hints = _given(
        image=image,
        idle_timeout_seconds=None if idle_timeout is None else _whole_seconds(idle_timeout),
        max_lifetime_seconds=None if max_lifetime is None else _whole_seconds(max_lifetime),
    )
    name = "CreateSession"
    return Call(name, "POST", "/sessions", lambda: Parsed(name, SessionHandle.read), {"json": hints}, wait=wait)


def describe(session_id: str) -> Call[SessionHandle]:
    """The handle as it is now; an addition of ringfence."""
    name = "DescribeSession"
    return Call(
        name,
        "GET",
        _session(session_id),
        lambda: Parsed(name, SessionHandle.read),
        repeatable=True,
        missing=SessionGone,
    )


def interrupt(session_id: str) -> Call[bool]:
    """Interrupts the call that runs; an addition of ringfence. Never sent twice: a second one is a harder one."""
    name = "Interrupt"

    def read(answer: Json) -> bool:
        interrupted = answer.get("interrupted")
        if not isinstance(interrupted, bool):
            raise Unusable("interrupted is no boolean")
        return interrupted

    return Call(name, "POST", _session(session_id, "/interrupt"), lambda: Parsed(name, read), missing=SessionGone)


def sessions() -> Call[list[SessionHandle]]:
    """The sessions that live; an addition of ringfence."""
    name = "ListSessions"

    def read(answer: Json) -> list[SessionHandle]:
        handles = answer.get("sessions")
        if not isinstance(handles, list) or not all(isinstance(handle, dict) for handle in handles):
            raise Unusable("sessions is no list of handles")
        return [SessionHandle.read(handle) for handle in handles]

    return Call(name, "GET", "/sessions", lambda: Parsed(name, read), repeatable=True)


def release(session_id: str, patience: float = limits.PATIENCE_SECONDS) -> Call[None]:
    """DestroySession. One that is gone is as good as released."""
    return Call(
        "DestroySession", "DELETE", _session(session_id), Ignored, patience=patience, repeatable=True, gone=Ignored()
    )


def health() -> Call[Json]:
    """`/health`; outside the contract."""
    return Call("health", "GET", "/health", lambda: Parsed("health", dict), repeatable=True)


Tool = tuple[str, Json]
"""A tool kind and its input."""


def python(code: str, echo: bool | None) -> Tool:
    """Source for the interpreter."""
    return "code_execution", _given(code=code, echo_last_expression=echo)


def bash(command: str) -> Tool:
    """A shell command."""
    return "bash_code_execution", {"command": command}


def editor(command: str, path: str, **fields: object) -> Tool:
    """A command of the text editor."""
    return "text_editor_code_execution", _given(command=command, path=path, **fields)


def execute(
    session_id: str,
    tool: Tool,
    result: type[O],
    file: Callable[[str, str], ProducedFile],
    timeout: float,
    patience: float | None = None,
    tool_use_id: str | None = None,
) -> Call[O]:
    """Execute. Never sent twice: what became of the first is not known."""
    kind, tool_input = tool
    budget = _whole_seconds(timeout)
    body = _given(tool=kind, input=tool_input, timeout_seconds=budget, tool_use_id=tool_use_id)
    return Call(
        "Execute",
        "POST",
        _session(session_id, "/exec"),
        lambda: Parsed("Execute", lambda answer: result.read(answer, file)),
        {"json": body},
        patience=budget + limits.HEADROOM_SECONDS if patience is None else patience,
        missing=SessionGone,
    )


def listing(session_id: str, path: str, recursive: bool) -> Call[Listing]:
    """ListFiles."""
    name, whole = "ListFiles", path in {"", "."}
    query = {"path": None if whole else path, "recursive": "true" if recursive else None}
    return Call(
        name,
        "GET",
        _session(session_id, "/files/list", **query),
        lambda: Parsed(name, Listing.read),
        repeatable=True,
        missing=SessionGone if whole else NotFound,
    )


def delete(session_id: str, path: str) -> Call[None]:
    """Removes a file; an addition of ringfence. Tried once: the second try of a removal that worked would say 404."""
    return Call("DeleteFile", "DELETE", _session(session_id, "/files", path=path), Ignored)


def upload(session_id: str, content: bytes | IO[bytes], path: str) -> Call[StoredFile]:
    """PutFile, streamed by httpx in pieces of 64 KiB."""
    file = (path.rpartition("/")[2] or path, content, "application/octet-stream")
    return Call(
        "PutFile",
        "POST",
        _session(session_id, "/files"),
        lambda: Parsed("PutFile", StoredFile.read),
        {"data": {"path": path}, "files": {"file": file}},
        patience=limits.STALL_SECONDS_MAX,
        transfer=True,
        missing=SessionGone,
    )


def _get(session_id: str, path: str, sink: Callable[[], Sink[T]], *, repeatable: bool = True) -> Call[T]:
    return Call(
        "GetFile",
        "GET",
        _session(session_id, "/files", path=path),
        sink,
        patience=limits.STALL_SECONDS_MAX,
        transfer=True,
        repeatable=repeatable,
    )


def read_file(session_id: str, path: str, bytes_max: int = limits.READ_BYTES_MAX) -> Call[bytes]:
    """GetFile into memory."""
    hint = ", which is too much for memory: name a file or a stream to save it to"
    return _get(session_id, path, lambda: Memory("GetFile", bytes_max, hint))


def download(session_id: str, path: str, to: LocalPath | IO[bytes] | None) -> Call[Any]:
    """GetFile into memory (bytes), a local file (its path) or an open file (its length)."""
    if to is None:
        return read_file(session_id, path)
    if isinstance(to, (str, os.PathLike)):
        local = Path(to)
        return _get(session_id, path, lambda: ToPath(path, local))
    stream = to
    # Tried once: what was written stays written.
    return _get(session_id, path, lambda: ToStream(stream), repeatable=False)


@contextlib.contextmanager
def opened(content: Content, name: str | None) -> Iterator[tuple[bytes | IO[bytes], str]]:
    """What is uploaded, ready to be read, and its name in the workspace."""
    if isinstance(content, (str, os.PathLike)):
        with Path(content).open("rb") as file:
            yield file, name or Path(content).name
    elif name:
        yield content, name
    else:
        raise ValueError("an upload that is no local file needs a name")
