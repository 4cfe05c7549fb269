"""What a session knows of itself, whether its calls wait or are awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from . import _calls as calls
from ._errors import SessionGone

if TYPE_CHECKING:
    from ._answers import SessionHandle


class SessionOptions(TypedDict, total=False):
    """What a client's `session` takes; see `Session`."""

    image: str | None
    idle_timeout_seconds: float | None
    max_lifetime_seconds: float | None
    timeout: float | None
    wait_for_capacity: float


class SessionBase:
    """The state of a session: not leased yet, leased, attached to, or closed."""

    def __init__(self, lease: calls.Call[SessionHandle], session_id: str | None, timeout: float) -> None:
        self._lease = lease
        self._handle: SessionHandle | None = None
        self._id = session_id
        self._release = session_id is None
        self._closed = False
        self.timeout = timeout
        """The budget of calls that name none, in seconds."""

    @property
    def id(self) -> str | None:
        """Its id; None before it is leased."""
        return self._id

    @property
    def handle(self) -> SessionHandle | None:
        """What the backend said when it was leased here: the timeouts in force, the image, the limits."""
        return self._handle

    def _state(self) -> str:
        return "closed" if self._closed else self._id or "not leased yet"

    def _known_id(self) -> str | None:
        if self._closed:
            raise SessionGone("session", 404, "it was closed in this program")
        return self._id

    def _leased(self, handle: SessionHandle) -> str:
        self._handle, self._id = handle, handle.session_id
        return handle.session_id

    def _close(self) -> calls.Call[None] | None:
        """Closes it; the call that releases it, where there is something to release."""
        held = self._release and not self._closed and self._id is not None
        self._closed = True
        return calls.release(self._id) if held and self._id is not None else None
