r"""Runs untrusted Python, shell commands and file edits in a session of a ringfence server.

Any backend of version 1 of the code-execution protocol will do; what only ringfence says is None where it is missing.

Example:
    >>> from ringfence import Session
    >>> with Session() as s:
    ...     result = s.run("print('hello')").raise_for_status()
    >>> result.stdout
    'hello\n'
"""

from ._answers import Background, FileEntry, Listing, Outcome, SessionHandle, StoredFile, Usage
from ._async import AsyncClient, AsyncOutputFile, AsyncResult, AsyncSession
from ._errors import (
    AnswerError,
    AnswerTimeout,
    BackendError,
    BadRequest,
    CapacityError,
    ConnectFailed,
    NotFound,
    PathRefused,
    ProgramError,
    RingfenceError,
    SessionGone,
    TooLarge,
    TransportError,
    Unauthorized,
)
from ._sync import Client, OutputFile, Result, Session
from ._version import __version__

__all__ = [
    "AnswerError",
    "AnswerTimeout",
    "AsyncClient",
    "AsyncOutputFile",
    "AsyncResult",
    "AsyncSession",
    "BackendError",
    "Background",
    "BadRequest",
    "CapacityError",
    "Client",
    "ConnectFailed",
    "FileEntry",
    "Listing",
    "NotFound",
    "Outcome",
    "OutputFile",
    "PathRefused",
    "ProgramError",
    "Result",
    "RingfenceError",
    "Session",
    "SessionGone",
    "SessionHandle",
    "StoredFile",
    "TooLarge",
    "TransportError",
    "Unauthorized",
    "Usage",
    "__version__",
]
