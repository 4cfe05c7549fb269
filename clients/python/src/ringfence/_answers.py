"""What a backend answers, read leniently: what the contract requires must be there, everything else may be.

A field that is known and of an unknown shape counts as absent, an unknown one is kept in `raw`; only what would make
a failed call look like an empty success is an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Callable, Generic, TypeVar

from . import _display
from ._errors import ProgramError

Json = dict[str, Any]


class Unusable(Exception):
    """An answer that does not follow the contract; the text says how."""


def _integer(value: object) -> int | None:
    """An integer; `300.0` is the integer 300, as in JSON Schema."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if abs(value) < 1 << 63 and value == int(value) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _required_object(holder: Json, name: str, where: str) -> Json:
    value = holder.get(name)
    if not isinstance(value, dict):
        raise Unusable(f"{where} has no {name}" if value is None else f"{where}.{name} is no object")
    return value


def _stream(content: Json, name: str) -> str:
    value = content.get(name)
    if value is not None and not isinstance(value, str):
        raise Unusable(f"result_block.content.{name} is no string")
    return value or ""


@dataclass(frozen=True)
class SessionHandle:
    """What the backend said about a session when it was leased."""

    session_id: str
    idle_timeout_seconds: int | None = None
    """The idle timeout in force; None where no idle reclaim will come."""
    max_lifetime_seconds: int | None = None
    created_at: float | None = None
    """POSIX seconds."""
    last_activity_at: float | None = None
    image: str | None = None
    tier: str | None = None
    limits: Json = field(default_factory=dict)
    """What the session and a call of it may use."""
    raw: Json = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, answer: Json) -> SessionHandle:
        """Reads CreateSession's answer."""
        session_id = answer.get("session_id")
        if not isinstance(session_id, str) or not session_id:
            raise Unusable("session_id is no text")
        limits = answer.get("limits")
        return cls(
            session_id=session_id,
            idle_timeout_seconds=_integer(answer.get("idle_timeout_seconds")),
            max_lifetime_seconds=_integer(answer.get("max_lifetime_seconds")),
            created_at=_number(answer.get("created_at")),
            last_activity_at=_number(answer.get("last_activity_at")),
            image=_text(answer.get("image")),
            tier=_text(answer.get("tier")),
            limits=limits if isinstance(limits, dict) else {},
            raw=answer,
        )


@dataclass(frozen=True)
class Usage:
    """What a call used; None is what the backend did not say."""

    cpu_ms: int | None = None
    memory_peak_bytes: int | None = None
    stdout_bytes: int | None = None
    """Written to stdout, before any cap."""
    stderr_bytes: int | None = None

    @classmethod
    def read(cls, value: object) -> Usage | None:
        """Reads `usage`."""
        if not isinstance(value, dict):
            return None
        return cls(*(_integer(value.get(name)) for name in cls.__dataclass_fields__))


@dataclass(frozen=True)
class Background:
    """What threads and processes of earlier calls wrote between the calls."""

    stdout: str = ""
    stderr: str = ""

    @classmethod
    def read(cls, value: object) -> Background | None:
        """Reads `background`."""
        if not isinstance(value, dict):
            return None
        return cls(_text(value.get("stdout")) or "", _text(value.get("stderr")) or "")


@dataclass(frozen=True)
class ProducedFile:
    """A file that a call created or changed."""

    filename: str
    """Its path relative to the workspace."""
    file_id: str

    def local_name(self) -> str:
        """The last part of its path: a name that is safe to use in a local folder.

        Raises:
            ValueError: When there is no such name.
        """
        return local_name(self.filename)


def local_name(path: str) -> str:
    """The last part of a path of the workspace, refused where it would lead out of a local folder."""
    name = PurePosixPath(path.replace("\\", "/")).name
    if not name or name == ".." or ":" in name or "\0" in name:
        raise ValueError(f"{path!r} has no name for a local file: say where to save it")
    return name


@dataclass(frozen=True)
class FileEntry:
    """One file of a listing."""

    path: str
    """Relative to the workspace."""
    size_bytes: int
    mime_type: str | None = None
    modified_at: float | None = None
    """POSIX seconds, with their fraction."""


class Listing(list[FileEntry]):
    """The files of a folder. `truncated` says that there are more than a listing may have."""

    truncated: bool = False

    @classmethod
    def read(cls, answer: Json) -> Listing:
        """Reads ListFiles' answer."""
        entries = answer.get("files")
        if not isinstance(entries, list):
            raise Unusable("files is no list")
        listing = cls()
        for entry in entries:
            path = _text(entry.get("path")) if isinstance(entry, dict) else None
            size = _integer(entry.get("size_bytes")) if path is not None else None
            if path is None or size is None:
                raise Unusable("an entry of files has no path or no size_bytes")
            modified = _number(entry.get("modified_at"))
            listing.append(FileEntry(path, size, _text(entry.get("mime_type")), modified))
        listing.truncated = answer.get("truncated") is True
        return listing


@dataclass(frozen=True)
class StoredFile:
    """Where an upload was stored."""

    path: str
    """Relative to the workspace."""
    size_bytes: int

    @classmethod
    def read(cls, answer: Json) -> StoredFile:
        """Reads PutFile's answer."""
        path, size = _text(answer.get("path")), _integer(answer.get("size_bytes"))
        if path is None or size is None:
            raise Unusable("there is no path or no size_bytes")
        return cls(path, size)


F = TypeVar("F", bound=ProducedFile)
O = TypeVar("O", bound="Outcome[Any]")  # noqa: E741


@dataclass(frozen=True)
class Outcome(Generic[F]):
    """What a call came to. A program that failed is no error: see `ok` and `raise_for_status`."""

    stdout: str
    stderr: str
    """For Python that failed, the traceback."""
    return_code: int
    """0; 1 for an exception; the program's own; 124 for the timeout; 128+n for death by signal n."""
    files: list[F]
    """Files that the call created or changed, most likely wanted first."""
    tool_use_id: str = ""
    block_type: str = ""
    """The kind of result, as the backend says it; it may be one that this package does not know."""
    execution_time_ms: int | None = None
    limit_exceeded: str | None = None
    """`wall_clock`, `memory`, `processes`, `disk`, `output` or `cpu`: what ended or damaged the call."""
    interpreter_restarted: bool = False
    """The interpreter was lost: variables are gone, files are kept."""
    timeout_seconds: int | None = None
    """The timeout that was in force."""
    files_omitted: int = 0
    """How many more files were produced than `files` names."""
    usage: Usage | None = None
    background: Background | None = None
    raw: Json = field(default_factory=dict, repr=False)
    """The whole answer, for fields that this package does not know."""
    _figures: dict[str, bytes] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def read(cls: type[O], answer: Json, file: Callable[[str, str], Any]) -> O:
        """Reads Execute's answer; `file` makes a file of its name and id."""
        block = _required_object(answer, "result_block", "the answer")
        content = _required_object(block, "content", "result_block")
        if "error_code" in content:
            raise Unusable("result_block.content is an error variant, which contract version 1 rules out")
        entries = content.get("content")
        if not isinstance(entries, (list, type(None))):
            raise Unusable("result_block.content.content is no list")
        code = content.get("return_code", 0)
        return_code = 0 if code is None else _integer(code)
        if return_code is None:
            raise Unusable("result_block.content.return_code is no integer")
        known = [
            (entry["filename"], entry["file_id"])
            for entry in entries or []
            if isinstance(entry, dict) and _text(entry.get("filename")) and _text(entry.get("file_id"))
        ]
        return cls(
            stdout=_stream(content, "stdout"),
            stderr=_stream(content, "stderr"),
            return_code=return_code,
            files=[file(filename, file_id) for filename, file_id in known],
            tool_use_id=_text(answer.get("tool_use_id")) or _text(block.get("tool_use_id")) or "",
            block_type=_text(block.get("type")) or "",
            execution_time_ms=_integer(answer.get("execution_time_ms")),
            limit_exceeded=_text(answer.get("limit_exceeded")),
            interpreter_restarted=answer.get("interpreter_restarted") is True,
            timeout_seconds=_integer(answer.get("timeout_seconds")),
            files_omitted=_integer(answer.get("files_omitted")) or 0,
            usage=Usage.read(answer.get("usage")),
            background=Background.read(answer.get("background")),
            raw=answer,
        )

    @property
    def ok(self) -> bool:
        """Whether the program ended with status 0."""
        return self.return_code == 0

    def raise_for_status(self: O) -> O:
        """Raises where the program failed; else gives the result back, so that calls can be chained.

        Raises:
            ProgramError: With the program's status and its stderr.
        """
        if not self.ok:
            raise ProgramError(self)
        return self

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """What a notebook shows: both streams, and the figures that are known."""
        del include, exclude
        return _display.bundle(self, self._figures)
