"""Where the body of an answer goes: piece by piece, each sink within its bound."""

from __future__ import annotations

import contextlib
import errno
import json
import secrets
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Callable, Generic, NoReturn, TypeVar

from ._answers import Json, Unusable, local_name
from ._errors import AnswerError, NotFound, refused
from ._limits import DETAIL_CHARS_MAX, ERROR_BYTES_MAX, JSON_BYTES_MAX, READ_BYTES_MAX

if TYPE_CHECKING:
    from types import TracebackType

T = TypeVar("T")


class Sink(Generic[T]):
    """Takes the pieces of one answer and makes a value of them; leaving it unfinished undoes what it did."""

    blocking = False
    """Whether a piece may wait for a disk."""

    def add(self, piece: bytes) -> bool:
        """Takes a piece; False where no more is wanted."""
        raise NotImplementedError

    def finish(self) -> T:
        """The value."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Undoes what was done, unless it is finished."""

    def __enter__(self) -> Sink[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()


class Memory(Sink[bytes]):
    """A body in memory; one that is larger than the bound is an error."""

    def __init__(self, operation: str, bytes_max: int = READ_BYTES_MAX, hint: str = "") -> None:
        self._operation = operation
        self._bytes_max = bytes_max
        self._hint = hint
        self._content = bytearray()

    def add(self, piece: bytes) -> bool:
        if len(self._content) + len(piece) > self._bytes_max:
            raise AnswerError(self._operation, f"it is larger than {self._bytes_max} bytes{self._hint}")
        self._content += piece
        return True

    def finish(self) -> bytes:
        return bytes(self._content)


class Parsed(Sink[T]):
    """A JSON object, made into a value by `read`."""

    def __init__(self, operation: str, read: Callable[[Json], T]) -> None:
        self._operation = operation
        self._memory = Memory(operation, JSON_BYTES_MAX)
        self._read = read

    def add(self, piece: bytes) -> bool:
        return self._memory.add(piece)

    def finish(self) -> T:
        try:
            answer = json.loads(self._memory.finish())
            if not isinstance(answer, dict):
                raise Unusable("it is no JSON object")
            return self._read(answer)
        except Unusable as error:
            raise AnswerError(self._operation, str(error)) from None
        except (ValueError, RecursionError) as error:
            raise AnswerError(self._operation, f"it is no JSON: {error}") from error


class Ignored(Sink[None]):
    """A body that says nothing."""

    def add(self, piece: bytes) -> bool:
        del piece
        return False

    def finish(self) -> None:
        return None


class Refusal(Sink[Any]):
    """The answer of a status that is no success."""

    def __init__(self, operation: str, status: int, retry_after: str | None, missing: type[NotFound]) -> None:
        self._operation = operation
        self._status = status
        self._retry_after = retry_after
        self._missing = missing
        self._content = bytearray()

    def add(self, piece: bytes) -> bool:
        self._content += piece[: ERROR_BYTES_MAX - len(self._content)]
        return len(self._content) < ERROR_BYTES_MAX

    def finish(self) -> NoReturn:
        raise refused(self._operation, self._status, self._detail(), self._seconds(), self._missing)

    def _seconds(self) -> int | None:
        """Delay-seconds of one to six ASCII digits; any other hint is dropped (contract, HTTP/JSON binding)."""
        text = self._retry_after or ""
        return int(text) if 1 <= len(text) <= 6 and text.isascii() and text.isdigit() else None  # noqa: PLR2004

    def _detail(self) -> str:
        """The backend's own words: `detail` where the body is JSON that has it, else the body's text."""
        text = self._content.decode("utf-8", errors="replace")
        with contextlib.suppress(ValueError, RecursionError):
            answer: Any = json.loads(text)
            detail = answer.get("detail") if isinstance(answer, dict) else None
            text = text if detail is None else detail if isinstance(detail, str) else json.dumps(detail)
        shown = "".join(character if character.isprintable() else " " for character in text[:DETAIL_CHARS_MAX])
        return shown.strip() or "the backend gave no reason"


class ToStream(Sink[int]):
    """A body that is written to an open binary file as it comes; the value is its length."""

    blocking = True

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._bytes = 0

    def add(self, piece: bytes) -> bool:
        self._stream.write(piece)
        self._bytes += len(piece)
        return True

    def finish(self) -> int:
        return self._bytes


class ToPath(Sink[Path]):
    """A local file that appears whole, in place of an older one, or not at all. In a folder it keeps its own name.

    What is there and is no regular file stays: a device or a link would be replaced, not written to.
    """

    blocking = True

    def __init__(self, path: str, to: Path) -> None:
        self._to = to / local_name(path) if to.is_dir() else to
        if self._to.is_symlink() or (self._to.exists() and not self._to.is_file()):
            raise FileExistsError(errno.EEXIST, "is there and is no regular file", str(self._to))
        self._part = self._to.with_name(f".ringfence-{secrets.token_hex(8)}.part")
        self._file = self._part.open("xb")

    def add(self, piece: bytes) -> bool:
        self._file.write(piece)
        return True

    def finish(self) -> Path:
        self._file.close()
        self._part.replace(self._to)
        return self._to

    def abandon(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._part.unlink()
        self._file.close()
