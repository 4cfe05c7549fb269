"""The bounds of the client, each with its reason. Seconds and bytes."""

from __future__ import annotations

from typing import Final

CONNECT_SECONDS_MAX: Final = 5.0
"""How long a connection may take to be made."""

PATIENCE_SECONDS: Final = 30.0
"""How long an operation other than Execute may take, transfers apart."""

TIMEOUT_SECONDS: Final = 60.0
"""The budget that is sent with an Execute whose call names none."""

HEADROOM_SECONDS: Final = 10.0
"""What is waited beyond a granted budget, which bounds the backend's execution alone (contract, Execute)."""

STALL_SECONDS_MAX: Final = 30.0
"""How long an upload or a download may stand still."""

RELEASE_SECONDS_MAX: Final = 5.0
"""How long a session that was forgotten rather than closed tries to release itself."""

ATTEMPTS_MAX: Final = 3
"""How often one operation is tried, the first time included, where trying again is safe."""

RETRY_PAUSE_SECONDS: Final = 0.1
"""The pause before the second attempt; it doubles for each further one."""

CAPACITY_PAUSE_SECONDS: Final = 1.0
"""The pause between two leases tried while a backend has no room and names no delay itself."""

IDLE_CONNECTION_SECONDS_MAX: Final = 4.0
"""An idle connection is not used again after this: common servers close theirs after five seconds."""

JSON_BYTES_MAX: Final = 64 << 20
"""The largest JSON answer that is read."""

ERROR_BYTES_MAX: Final = 64 << 10
"""The largest part of an error answer that is read."""

DETAIL_CHARS_MAX: Final = 2000
"""The longest text of a refusal that is kept."""

READ_BYTES_MAX: Final = 256 << 20
"""The largest file that is downloaded into memory; larger ones go to a file or a stream."""

TOKEN_BYTES_MAX: Final = 64 << 10
"""The largest token file that is read."""

FIGURES_MAX: Final = 8
"""The most figures of one result that a notebook shows."""

FIGURE_BYTES_MAX: Final = 8 << 20
"""The largest figure that a notebook shows."""

SHOWN_CHARS_MAX: Final = 100_000
"""The most that a notebook shows of one output stream: its end."""
