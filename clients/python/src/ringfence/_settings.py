"""Where the backend is, and the credential: from arguments, else from the environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from ._limits import TOKEN_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Generator

BASE_URL_DEFAULT = "http://127.0.0.1:8080"


def base_url(given: str | None) -> str:
    """The base URL without a slash at its end: as given, else `RINGFENCE_URL`, else the default."""
    text = given or os.environ.get("RINGFENCE_URL") or BASE_URL_DEFAULT
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise ValueError(f"the base URL cannot be used: {error}") from None
    if url.userinfo:
        raise ValueError("the base URL must hold no user or password: use a bearer token")
    if url.scheme not in {"http", "https"} or not url.host:
        raise ValueError(f"the base URL {text!r} must begin with http:// or https:// and a host")
    if url.query or "?" in text or "#" in text:
        raise ValueError(f"the base URL {text!r} must have no query and no fragment")
    return text.rstrip("/")


class Bearer(httpx.Auth):
    """A bearer token that shows itself nowhere but in the header that carries it."""

    def __init__(self, text: str) -> None:
        token = text.strip()
        if not token:
            raise ValueError("the bearer token is empty")
        if not all("!" <= character <= "~" for character in token):
            raise ValueError("the bearer token holds white space or characters outside ASCII")
        self._header = f"Bearer {token}"

    def __repr__(self) -> str:
        return "Bearer(hidden)"

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Adds the header."""
        request.headers["Authorization"] = self._header
        yield request


def bearer(given: str | None) -> Bearer | None:
    """The token: as given ("" is none), else of the file that `RINGFENCE_TOKEN_FILE` names, else `RINGFENCE_TOKEN`."""
    if given is not None:
        return Bearer(given) if given else None
    if path := os.environ.get("RINGFENCE_TOKEN_FILE"):
        with Path(path).open("rb") as file:
            content = file.read(TOKEN_BYTES_MAX)
        return Bearer(content.decode("ascii", errors="replace"))
    if text := os.environ.get("RINGFENCE_TOKEN"):
        return Bearer(text)
    return None
