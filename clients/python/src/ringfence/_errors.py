"""What can go wrong. A program that fails is no error until `raise_for_status` is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._answers import Outcome


class RingfenceError(Exception):
    """Everything that this package raises on account of a backend."""


class TransportError(RingfenceError):
    """No whole answer came back.

    Attributes:
        operation: The operation of the contract, such as `Execute`.
        maybe_done: Whether the backend may have carried the operation out all the same.
    """

    def __init__(self, operation: str, reason: str, *, maybe_done: bool = True) -> None:
        super().__init__(f"{operation}: {reason}")
        self.operation = operation
        self.maybe_done = maybe_done


class ConnectFailed(TransportError):
    """The connection was never made, so nothing was sent and nothing was done."""

    def __init__(self, operation: str, reason: str) -> None:
        super().__init__(operation, reason, maybe_done=False)


class AnswerTimeout(TransportError):
    """No whole answer in time: the budget of the call and its headroom are spent."""


class AnswerError(RingfenceError):
    """The answer says success and is not what the contract describes, or is larger than this client reads."""

    def __init__(self, operation: str, reason: str) -> None:
        super().__init__(f"{operation}: the answer cannot be used: {reason}")
        self.operation = operation


class BackendError(RingfenceError):
    """The backend refused the operation.

    Attributes:
        operation: The operation of the contract.
        status: The HTTP status.
        detail: The backend's own words. Informational: backends word the same refusal differently.
        retry_after: When to come back, in seconds, where the backend says so (of a 503).
    """

    def __init__(self, operation: str, status: int, detail: str, retry_after: int | None = None) -> None:
        super().__init__(f"{operation}: refused with {status}: {detail}")
        self.operation = operation
        self.status = status
        self.detail = detail
        self.retry_after = retry_after


class BadRequest(BackendError):
    """400 or 422: the request is malformed, or asks for a tool that the backend does not know."""


class Unauthorized(BackendError):
    """401: the bearer token is missing or not accepted."""


class PathRefused(BackendError):
    """403: the path leads out of the session's workspace."""


class NotFound(BackendError):
    """404: the file, or the session that it was looked for in, does not exist."""


class SessionGone(NotFound):
    """404: the session does not exist (any more): released, reclaimed, or lost with its server."""


class TooLarge(BackendError):
    """413: the file or the request is larger than the backend takes, or than its session has room for."""


class CapacityError(BackendError):
    """503: the backend has no room now. Nothing was leased and nothing ran; see `retry_after`."""


class ProgramError(RingfenceError):
    """A program ended with a status other than 0.

    Attributes:
        result: The whole result.
        return_code: The program's status.
        stderr: What it wrote to stderr; for Python, the traceback.
    """

    def __init__(self, result: Outcome[Any]) -> None:
        limit = f" (limit exceeded: {result.limit_exceeded})" if result.limit_exceeded else ""
        said = result.stderr.rstrip() or "it wrote nothing to stderr"
        super().__init__(f"the program ended with status {result.return_code}{limit}:\n{said}")
        self.result = result
        self.return_code = result.return_code
        self.stderr = result.stderr


def refused(operation: str, status: int, detail: str, retry_after: int | None, missing: type[NotFound]) -> BackendError:
    """The error of a status that is no success."""
    kinds: dict[int, type[BackendError]] = {
        400: BadRequest,
        401: Unauthorized,
        403: PathRefused,
        404: missing,
        413: TooLarge,
        422: BadRequest,
        503: CapacityError,
    }
    return kinds.get(status, BackendError)(operation, status, detail, retry_after)
