"""The client that waits for its answers."""

from __future__ import annotations

import contextlib
import threading
import weakref
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, overload

from . import _calls as calls
from . import _display
from ._answers import Json, Listing, Outcome, ProducedFile, SessionHandle, StoredFile
from ._errors import AnswerError, NotFound, RingfenceError
from ._limits import FIGURE_BYTES_MAX, RELEASE_SECONDS_MAX, TIMEOUT_SECONDS
from ._session import SessionBase
from ._transport import Transport

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    import httpx
    from typing_extensions import Unpack

    from ._session import SessionOptions


@dataclass(frozen=True)
class OutputFile(ProducedFile):
    """A file that a call created or changed. It can be fetched as long as its session lives."""

    _session: Session = field(repr=False, compare=False)

    def read(self) -> bytes:
        """Its content.

        Example:
            >>> with Session() as s:
            ...     result = s.run("open('out.txt', 'w').write('done')")
            ...     result.files[0].read()
            b'done'
        """
        return self._session.download(self.filename)

    def save(self, to: calls.LocalPath = ".") -> Path:
        """Saves it as a local file, or under its own name in a local folder; the path that it got.

        The name never leads out of the folder, whatever the session called its file.
        """
        return self._session.download(self.filename, to)


@dataclass(frozen=True)
class Result(Outcome[OutputFile]):
    """What a call came to: streams, status, and the files that it produced. Notebooks show it with its figures."""

    def figures(self) -> dict[str, bytes]:
        """The pictures (PNG, JPEG, GIF) among `files`, by name: at most 8, fetched once, then kept.

        Raises:
            AnswerError: When one is larger than 8 MiB.
        """
        for file in _display.figures(self):
            self._fetch(file)
        return self._figures

    def _fetch(self, file: OutputFile) -> None:
        if file.filename not in self._figures:
            session = file._session
            call = calls.read_file(session._ready(), file.filename, FIGURE_BYTES_MAX)
            self._figures[file.filename] = session._client._transport.send(call)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        # A figure that is too large, or cannot be fetched any more, is named among the files.
        with contextlib.suppress(RingfenceError):
            for file in _display.figures(self):
                with contextlib.suppress(AnswerError, NotFound):
                    self._fetch(file)
        return super()._repr_mimebundle_(include, exclude)


class Session(SessionBase):
    r"""A leased session: variables, imports and files live from call to call.

    It is leased when a `with` block is entered, or at its first call, and released at the end of the block, by
    `close`, or as well as that can be done when it is forgotten.

    Example:
        >>> with Session() as s:
        ...     s.run("x = 6 * 7").ok
        ...     s.run("print(x)").stdout
        True
        '42\n'

    Args:
        base_url: Where the backend is; else `RINGFENCE_URL`, else `http://127.0.0.1:8080`.
        token: The bearer token; else that of `RINGFENCE_TOKEN_FILE` or `RINGFENCE_TOKEN`. "" sends none.
        image: The image to run; a hint.
        idle_timeout_seconds: Reclaim the session after so long without a call; a hint.
        max_lifetime_seconds: Reclaim the session so long after its lease; a hint.
        timeout: The budget in seconds of calls that name none.
        wait_for_capacity: Seconds to try for while the backend has no room.
        session_id: Attach to a session that was leased elsewhere; it is not released on close.
        client: Use this client's connections instead of own ones.
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
        client: Client | None = None,
    ) -> None:
        lease = calls.lease(image, idle_timeout_seconds, max_lifetime_seconds, wait_for_capacity)
        self._own_client = client is None
        self._client = client or Client(base_url, token)
        super().__init__(lease, session_id, self._client.timeout if timeout is None else timeout)
        self._lock = threading.Lock()
        self._forgotten: weakref.finalize[[Transport, bool, str], Session] | None = None

    def open(self) -> Session:
        """Leases the session, where that is not done yet.

        Raises:
            CapacityError: When the backend has no room.
        """
        self._ready()
        return self

    def run(self, code: str, timeout: float | None = None, echo: bool | None = None) -> Result:
        r"""Runs Python in the session's interpreter. A program that fails is a result like any other.

        Args:
            code: The source.
            timeout: The budget in seconds (whole, rounded up); the answer is waited for 10 seconds longer.
            echo: Print the value of a last expression, as a notebook does; None leaves it to the backend.

        Raises:
            SessionGone: When the session was reclaimed.
            TransportError: When no answer came; `maybe_done` says whether the code may have run.

        Example:
            >>> with Session() as s:
            ...     s.run("1 / 0").return_code
            ...     s.run("6 * 7", echo=True).stdout
            1
            '42\n'
        """
        return self.execute(*calls.python(code, echo), timeout=timeout)

    def bash(self, command: str, timeout: float | None = None) -> Result:
        r"""Runs a shell command in the session's workspace.

        Example:
            >>> with Session() as s:
            ...     s.bash("echo hello | tr a-z A-Z").stdout
            'HELLO\n'
        """
        return self.execute(*calls.bash(command), timeout=timeout)

    def view(self, path: str, view_range: tuple[int, int] | None = None) -> Result:
        """Shows a file, or its lines from first to last (1-based, -1 is the end), or a folder."""
        return self.execute(*calls.editor("view", path, view_range=view_range))

    def create(self, path: str, file_text: str) -> Result:
        """Makes a new text file.

        Example:
            >>> with Session() as s:
            ...     s.create("note.md", "the wetest station").ok
            ...     s.str_replace("note.md", "wetest", "wettest").ok
            ...     s.view("note.md").stdout
            True
            True
            'the wettest station'
        """
        return self.execute(*calls.editor("create", path, file_text=file_text))

    def str_replace(self, path: str, old_str: str, new_str: str) -> Result:
        """Replaces the one occurrence of a text in a file."""
        return self.execute(*calls.editor("str_replace", path, old_str=old_str, new_str=new_str))

    def insert(self, path: str, insert_line: int, new_str: str) -> Result:
        """Inserts a text after a line of a file; 0 is before the first."""
        return self.execute(*calls.editor("insert", path, insert_line=insert_line, new_str=new_str))

    def undo(self, path: str) -> Result:
        """Takes back the last edit of a file."""
        return self.execute(*calls.editor("undo_edit", path))

    def execute(
        self,
        tool: str,
        tool_input: Json,
        timeout: float | None = None,
        *,
        patience: float | None = None,
        tool_use_id: str | None = None,
    ) -> Result:
        """Runs any tool, such as one that the backend knows and this package does not.

        Args:
            tool: The tool kind.
            tool_input: Its input.
            timeout: The budget in seconds.
            patience: How long to wait for the answer, where budget and 10 seconds are not right: such as for a call
                that queues behind a long one of the same session.
            tool_use_id: A correlation id of your own.
        """
        budget = self.timeout if timeout is None else timeout
        call = calls.execute(
            self._ready(), (tool, tool_input), Result, self._output_file, budget, patience, tool_use_id
        )
        return self._client._transport.send(call)

    def upload(self, content: calls.Content, name: str | None = None) -> StoredFile:
        r"""Puts a file into the workspace: a local one by its path, bytes, or an open binary file from its beginning.

        Local files of any size are streamed.

        Args:
            content: What to upload. A string is the path of a local file.
            name: Its path in the workspace; without one, a local file keeps its name.

        Raises:
            TooLarge: When it is larger than the backend takes.

        Example:
            >>> with Session() as s:
            ...     s.upload(b"a,b\n1,2\n", "data/table.csv").path
            ...     s.bash("wc -l < data/table.csv").stdout
            'data/table.csv'
            '2\n'
        """
        with calls.opened(content, name) as (body, path):
            return self._client._transport.send(calls.upload(self._ready(), body, path))

    @overload
    def download(self, path: str, to: None = None) -> bytes: ...
    @overload
    def download(self, path: str, to: calls.LocalPath) -> Path: ...
    @overload
    def download(self, path: str, to: IO[bytes]) -> int: ...
    def download(self, path: str, to: calls.LocalPath | IO[bytes] | None = None) -> bytes | Path | int:
        r"""Takes a file out of the workspace.

        Args:
            path: Its path in the workspace.
            to: A local file or folder, or an open binary file, for files of any size. A local file appears whole or
                not at all. Without it the content is returned, up to 256 MiB.

        Returns:
            The content; or the path of the local file; or how many bytes were written to the open file.

        Raises:
            NotFound: When the file, or its session, does not exist.

        Example:
            >>> with Session() as s:
            ...     s.bash("echo 42 > answer.txt").ok
            ...     s.download("answer.txt")
            True
            b'42\n'
        """
        content: bytes | Path | int = self._client._transport.send(calls.download(self._ready(), path, to))
        return content

    def files(self, path: str = ".", recursive: bool = False) -> Listing:
        """The files of a folder of the workspace, and with `recursive` of all folders below it.

        Example:
            >>> with Session() as s:
            ...     s.bash("mkdir -p a/b; echo x > a/b/c.txt").ok
            ...     [(file.path, file.size_bytes) for file in s.files(recursive=True)]
            True
            [('a/b/c.txt', 2)]
        """
        return self._client._transport.send(calls.listing(self._ready(), path, recursive))

    def delete(self, path: str) -> None:
        """Removes a file of the workspace (an addition of ringfence)."""
        self._client._transport.send(calls.delete(self._ready(), path))

    def describe(self) -> SessionHandle:
        """The session's handle as it is now (an addition of ringfence)."""
        return self._client._transport.send(calls.describe(self._ready()))

    def interrupt(self) -> bool:
        """Interrupts the call that runs, as ctrl-C does (an addition of ringfence): from another thread.

        The call ends when its program does, and its own result says how. A second interrupt ends it as its timeout
        would.

        Returns:
            Whether a call was running.
        """
        return self._client._transport.send(calls.interrupt(self._ready()))

    def keep(self) -> str:
        """Leaves the session alive when this object is closed; its id, for a later `Session(session_id=...)`."""
        session_id = self._ready()
        self._release = False
        self._remember()
        return session_id

    def destroy(self) -> None:
        """Releases the session whoever leased it, and closes this object."""
        self._release = True
        self.close()

    def close(self) -> None:
        """Releases the session, where it was leased here and is not kept. Closing twice is closing once."""
        self._remember()
        release = self._close()
        try:
            if release is not None:
                self._client._transport.send(release)
        finally:
            if self._own_client:
                self._client.close()

    def __enter__(self) -> Session:
        try:
            return self.open()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except RingfenceError:
            # What went wrong in the block is what the caller must see; the backend reclaims the session by itself.
            if error is None:
                raise

    def __repr__(self) -> str:
        return f"<Session {self._state()} at {self._client.base_url}>"

    def _ready(self) -> str:
        """Its id; leases it first where that is not done yet."""
        with self._lock:
            if (known := self._known_id()) is not None:
                return known
            leased = self._leased(self._client._transport.send(self._lease))
            self._forgotten = weakref.finalize(self, _forget, self._client._transport, self._own_client, leased)
            return leased

    def _remember(self) -> None:
        if self._forgotten is not None:
            self._forgotten.detach()

    def _output_file(self, filename: str, file_id: str) -> OutputFile:
        return OutputFile(filename, file_id, self)


def _forget(transport: Transport, own: bool, session_id: str) -> None:
    """Releases a session that nobody closed: beside the program, or at its end, for a short while at most."""

    def release() -> None:
        with contextlib.suppress(RingfenceError, RuntimeError):
            transport.send(calls.release(session_id, RELEASE_SECONDS_MAX))
        if own:
            transport.http.close()

    # No thread outlives the main one's end, which is when sessions of a finished program are released.
    if threading.main_thread().is_alive():
        threading.Thread(target=release, name="ringfence-release").start()
    else:
        release()


class Client:
    """A client of one backend, for several sessions over shared connections. Threads may share it.

    Example:
        >>> with Client() as client, client.session() as a, client.session() as b:
        ...     a.run("x = 1").ok, b.run("x").ok
        (True, False)

    Args:
        base_url: Where the backend is; else `RINGFENCE_URL`, else `http://127.0.0.1:8080`.
        token: The bearer token; else that of `RINGFENCE_TOKEN_FILE` or `RINGFENCE_TOKEN`. "" sends none.
        timeout: The budget in seconds of calls that name none.
        transport: httpx's own, such as one with a certificate of yours.
    """

    def __init__(
        self,
        base_url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._transport = Transport(base_url, token, transport)
        self.timeout = timeout

    @property
    def base_url(self) -> str:
        """Where the backend is."""
        return str(self._transport.http.base_url).rstrip("/")

    def session(self, **options: Unpack[SessionOptions]) -> Session:
        """A session that is leased over this client's connections; the options are those of `Session`."""
        return Session(**options, client=self)

    def attach(self, session_id: str) -> Session:
        """A session that was leased elsewhere. Nothing is sent, and nothing is released on close."""
        return Session(session_id=session_id, client=self)

    def sessions(self) -> list[SessionHandle]:
        """The sessions of the backend, the oldest first (an addition of ringfence).

        Raises:
            BackendError: With status 403, where the server asks for no token: then ids are what keeps callers apart.
        """
        return self._transport.send(calls.sessions())

    def health(self) -> Json:
        """What `/health` says. Outside the contract: a backend may not have it."""
        return self._transport.send(calls.health())

    def close(self) -> None:
        """Closes the connections. Sessions are not released by it."""
        self._transport.http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self.base_url}>"
