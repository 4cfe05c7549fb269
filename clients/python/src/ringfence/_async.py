"""The client that awaits its answers, for asyncio. What a method does is told where its twin in `_sync` is."""

from __future__ import annotations

import asyncio
import warnings
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, overload

from . import _calls as calls
from . import _display
from ._answers import Json, Listing, Outcome, ProducedFile, SessionHandle, StoredFile
from ._errors import RingfenceError
from ._limits import FIGURE_BYTES_MAX, TIMEOUT_SECONDS
from ._session import SessionBase
from ._transport import AsyncTransport

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    import httpx
    from typing_extensions import Unpack

    from ._session import SessionOptions


@dataclass(frozen=True)
class AsyncOutputFile(ProducedFile):
    """A file that a call created or changed. It can be fetched as long as its session lives."""

    _session: AsyncSession = field(repr=False, compare=False)

    async def read(self) -> bytes:
        """Its content."""
        return await self._session.download(self.filename)

    async def save(self, to: calls.LocalPath = ".") -> Path:
        """As `OutputFile.save`."""
        return await self._session.download(self.filename, to)


@dataclass(frozen=True)
class AsyncResult(Outcome[AsyncOutputFile]):
    """What a call came to. Notebooks show it with the figures that `figures` has fetched."""

    async def figures(self) -> dict[str, bytes]:
        """As `Result.figures`."""
        for file in _display.figures(self):
            if file.filename not in self._figures:
                call = calls.read_file(await file._session._ready(), file.filename, FIGURE_BYTES_MAX)
                self._figures[file.filename] = await file._session._client._transport.send(call)
        return self._figures


class AsyncSession(SessionBase):
    r"""A leased session, as `Session`, for asyncio. One that is forgotten rather than closed is left to its timeouts.

    Example:
        >>> import asyncio
        >>> async def main():
        ...     async with AsyncSession() as s:
        ...         await s.run("x = 6 * 7")
        ...         return (await s.run("print(x)")).stdout
        >>> asyncio.run(main())
        '42\n'
    """

    def __init__(
        self,
        base_url: str | None = None,
        token: str | None = None,
        *,
        image: str | None = None,
        idle_timeout_seconds: float | None = None,
        max_lifetime_seconds: float | None = None,
        timeout: float | None = None,
        wait_for_capacity: float = 0.0,
        session_id: str | None = None,
        client: AsyncClient | None = None,
    ) -> None:
        lease = calls.lease(image, idle_timeout_seconds, max_lifetime_seconds, wait_for_capacity)
        self._own_client = client is None
        self._client = client or AsyncClient(base_url, token)
        super().__init__(lease, session_id, self._client.timeout if timeout is None else timeout)
        self._lock: asyncio.Lock | None = None

    async def open(self) -> AsyncSession:
        """As `Session.open`."""
        await self._ready()
        return self

    async def run(self, code: str, timeout: float | None = None, echo: bool | None = None) -> AsyncResult:
        """As `Session.run`."""
        return await self.execute(*calls.python(code, echo), timeout=timeout)

    async def bash(self, command: str, timeout: float | None = None) -> AsyncResult:
        """As `Session.bash`."""
        return await self.execute(*calls.bash(command), timeout=timeout)

    async def view(self, path: str, view_range: tuple[int, int] | None = None) -> AsyncResult:
        """As `Session.view`."""
        return await self.execute(*calls.editor("view", path, view_range=view_range))

    async def create(self, path: str, file_text: str) -> AsyncResult:
        """As `Session.create`."""
        return await self.execute(*calls.editor("create", path, file_text=file_text))

    async def str_replace(self, path: str, old_str: str, new_str: str) -> AsyncResult:
        """As `Session.str_replace`."""
        return await self.execute(*calls.editor("str_replace", path, old_str=old_str, new_str=new_str))

    async def insert(self, path: str, insert_line: int, new_str: str) -> AsyncResult:
        """As `Session.insert`."""
        return await self.execute(*calls.editor("insert", path, insert_line=insert_line, new_str=new_str))

    async def undo(self, path: str) -> AsyncResult:
        """As `Session.undo`."""
        return await self.execute(*calls.editor("undo_edit", path))

    async def execute(
        self,
        tool: str,
        tool_input: Json,
        timeout: float | None = None,
        *,
        patience: float | None = None,
        tool_use_id: str | None = None,
    ) -> AsyncResult:
        """As `Session.execute`."""
        budget = self.timeout if timeout is None else timeout
        session_id = await self._ready()
        call = calls.execute(
            session_id, (tool, tool_input), AsyncResult, self._output_file, budget, patience, tool_use_id
        )
        return await self._client._transport.send(call)

    async def upload(self, content: calls.Content, name: str | None = None) -> StoredFile:
        """As `Session.upload`."""
        with calls.opened(content, name) as (body, path):
            return await self._client._transport.send(calls.upload(await self._ready(), body, path))

    @overload
    async def download(self, path: str, to: None = None) -> bytes: ...
    @overload
    async def download(self, path: str, to: calls.LocalPath) -> Path: ...
    @overload
    async def download(self, path: str, to: IO[bytes]) -> int: ...
    async def download(self, path: str, to: calls.LocalPath | IO[bytes] | None = None) -> bytes | Path | int:
        """As `Session.download`."""
        call = calls.download(await self._ready(), path, to)
        content: bytes | Path | int = await self._client._transport.send(call)
        return content

    async def files(self, path: str = ".", recursive: bool = False) -> Listing:
        """As `Session.files`."""
        return await self._client._transport.send(calls.listing(await self._ready(), path, recursive))

    async def delete(self, path: str) -> None:
        """As `Session.delete`."""
        await self._client._transport.send(calls.delete(await self._ready(), path))

    async def describe(self) -> SessionHandle:
        """As `Session.describe`."""
        return await self._client._transport.send(calls.describe(await self._ready()))

    async def interrupt(self) -> bool:
        """As `Session.interrupt`: from another task."""
        return await self._client._transport.send(calls.interrupt(await self._ready()))

    async def keep(self) -> str:
        """As `Session.keep`."""
        session_id = await self._ready()
        self._release = False
        return session_id

    async def destroy(self) -> None:
        """As `Session.destroy`."""
        self._release = True
        await self.close()

    async def close(self) -> None:
        """As `Session.close`."""
        release = self._close()
        try:
            if release is not None:
                await self._client._transport.send(release)
        finally:
            if self._own_client:
                await self._client.close()

    async def __aenter__(self) -> AsyncSession:
        try:
            return await self.open()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except RingfenceError:
            # What went wrong in the block is what the caller must see; the backend reclaims the session by itself.
            if error is None:
                raise

    def __del__(self) -> None:
        if getattr(self, "_id", None) and self._release and not self._closed:
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        return f"<AsyncSession {self._state()} at {self._client.base_url}>"

    async def _ready(self) -> str:
        # Made here rather than at first: a lock of Python 3.9 belongs to the loop that it is made in.
        self._lock = self._lock or asyncio.Lock()
        async with self._lock:
            if (known := self._known_id()) is not None:
                return known
            return self._leased(await self._client._transport.send(self._lease))

    def _output_file(self, filename: str, file_id: str) -> AsyncOutputFile:
        return AsyncOutputFile(filename, file_id, self)


class AsyncClient:
    r"""A client of one backend, as `Client`, for asyncio.

    Example:
        >>> import asyncio
        >>> async def main():
        ...     async with AsyncClient() as client:
        ...         async with client.session() as a, client.session() as b:
        ...             results = await asyncio.gather(a.run("print(1)"), b.run("print(2)"))
        ...             return [result.stdout for result in results]
        >>> asyncio.run(main())
        ['1\n', '2\n']
    """

    def __init__(
        self,
        base_url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._transport = AsyncTransport(base_url, token, transport)
        self.timeout = timeout

    @property
    def base_url(self) -> str:
        """Where the backend is."""
        return str(self._transport.http.base_url).rstrip("/")

    def session(self, **options: Unpack[SessionOptions]) -> AsyncSession:
        """As `Client.session`."""
        return AsyncSession(**options, client=self)

    def attach(self, session_id: str) -> AsyncSession:
        """As `Client.attach`."""
        return AsyncSession(session_id=session_id, client=self)

    async def sessions(self) -> list[SessionHandle]:
        """As `Client.sessions`."""
        return await self._transport.send(calls.sessions())

    async def health(self) -> Json:
        """As `Client.health`."""
        return await self._transport.send(calls.health())

    async def close(self) -> None:
        """As `Client.close`."""
        await self._transport.http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncClient of {self.base_url}>"
