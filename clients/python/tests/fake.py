"""A backend that answers as a test says, byte for byte where it must, and keeps what it was asked."""

from __future__ import annotations

import json
import socket
import struct
import sys
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Callable, Union


@dataclass
class Asked:
    """A request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """An answer. With `cut`, the connection is broken after the body, whatever length was said."""

    status: int = 200
    body: bytes | dict[str, Any] | list[Any] | None = None
    headers: dict[str, str] | None = None
    length: int | None = None
    cut: bool = False

    def content(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return b"" if self.body is None else json.dumps(self.body).encode()


RESET = Reply(status=0)
"""Breaks the connection instead of answering."""

Answer = Union[Reply, Callable[[Asked], Reply]]


def executed(content: Any = None, **envelope: Any) -> Reply:
    """An Execute's answer with this content."""
    block = {"type": "code_execution_tool_result", "tool_use_id": "t", "content": content or {}}
    return Reply(body={"tool_use_id": "t", "result_block": block, **envelope})


class Fake:
    """The backend. Answers are set by method and the end of the path; a list is used up, its last answer stays."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answers: dict[tuple[str, str], list[Answer]] = {}
        self.on("POST", "/sessions", Reply(201, {"session_id": "s"}))
        self.on("DELETE", "/sessions/s", Reply(204))
        self.on("POST", "/exec", executed())
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self) -> None:
                fake._handle(self)

            do_GET = do_POST = do_DELETE = _any  # noqa: N815

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                # A client that gave up has closed its connection; anything else is a fault of these tests.
                if not isinstance(sys.exc_info()[1], OSError):
                    super().handle_error(request, client_address)

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def on(self, method: str, path: str, *answers: Answer) -> None:
        """Sets the answers to a method and the end of a path."""
        self.answers[method, path] = list(answers)

    def count(self) -> Counter[str]:
        """How often each operation was asked for."""
        return Counter(f"{asked.method} {asked.path.partition('?')[0]}" for asked in self.asked)

    def last(self, method: str = "POST") -> Asked:
        return [asked for asked in self.asked if asked.method == method][-1]

    def __enter__(self) -> Fake:
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        body = _read_body(handler)
        asked = Asked(handler.command, handler.path, dict(handler.headers), body)
        self.asked.append(asked)
        path = asked.path.partition("?")[0]
        ends = [end for method, end in self.answers if method == asked.method and path.endswith(end)]
        answers = self.answers[asked.method, max(ends, key=len)] if ends else [Reply(404, {"detail": "no such thing"})]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        reply = answer if isinstance(answer, Reply) else answer(asked)
        handler.close_connection = reply.cut or reply is RESET
        if reply is RESET:
            linger = struct.pack("ii", 1, 0)
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            handler.connection.close()
            return
        content = reply.content()
        handler.send_response(reply.status)
        for name, value in (reply.headers or {}).items():
            handler.send_header(name, value)
        if reply.status != 204:
            handler.send_header("Content-Length", str(len(content) if reply.length is None else reply.length))
        handler.end_headers()
        handler.wfile.write(content)


def _read_body(handler: BaseHTTPRequestHandler) -> bytes:
    if handler.headers.get("Transfer-Encoding") != "chunked":
        return handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
    body = b""
    while size := int(handler.rfile.readline(), 16):
        body += handler.rfile.read(size)
        handler.rfile.readline()
    handler.rfile.readline()
    return body
