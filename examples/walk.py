#!/usr/bin/env python3
"""What a gateway does with a backend, start to end, on a real file:

    python3 examples/walk.py --base-url http://127.0.0.1:8080

leases a session, uploads examples/rainfall.csv, runs pandas over two calls that share their variables, looks at the
result with a shell command, corrects a note with the text editor, draws a chart, fetches it and releases the session.
Needs Python's standard library alone, and a server with the scientific image. Exits non-zero at the first thing that
is not as it should be.
"""

from __future__ import annotations

import argparse
import http.client
import json
import pathlib
import sys
import urllib.parse
import uuid
from typing import Any

PATIENCE_SECONDS = 120
TABLE = pathlib.Path(__file__).with_name("rainfall.csv")

CLEAN = """
import pandas as pd
rain = pd.read_csv("data/rainfall.csv", parse_dates=["month"])
gaps = int(rain.millimetres.isna().sum())
rain["millimetres"] = rain.groupby("station").millimetres.transform(lambda s: s.interpolate())
print(len(rain), "rows,", gaps, "gap filled")
"""
SUM_UP = """
totals = rain.groupby("station").millimetres.sum().round(1).sort_values(ascending=False)
totals.to_csv("totals.csv")
print(totals.to_string())
"""
CHART = """
import matplotlib.pyplot as plt
for station, rows in rain.groupby("station"):
    plt.plot(rows.month, rows.millimetres, marker="o", label=station)
plt.ylabel("rain (mm)")
plt.legend()
plt.savefig("rain.png", dpi=120)
"""


class Backend:
    """One connection to a backend of the code-execution protocol."""

    def __init__(self, base_url: str, token: str | None) -> None:
        url = urllib.parse.urlsplit(base_url)
        self.connection = http.client.HTTPConnection(url.hostname or "127.0.0.1", url.port or 80, timeout=PATIENCE_SECONDS)
        self.prefix = url.path.rstrip("/")
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def call(self, method: str, path: str, wanted: int, body: bytes = b"", kind: str = "") -> bytes:
        """One request that must be answered with the wanted status; the body of the answer."""
        headers = {**self.headers, "Content-Type": kind} if kind else self.headers
        self.connection.request(method, self.prefix + path, body=body, headers=headers)
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.status != wanted:
            sys.exit(f"{method} {path} answered {answer.status}, not {wanted}: {content[:500]!r}")
        return content

    def post(self, path: str, wanted: int, payload: dict[str, Any]) -> dict[str, Any]:
        """The same with JSON both ways."""
        return json.loads(self.call("POST", path, wanted, json.dumps(payload).encode(), "application/json"))


class Session:
    """A leased session."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.path = "/sessions/" + backend.post("/sessions", 201, {})["session_id"]

    def run(self, tool: str, **tool_input: Any) -> str:
        """One tool call that must succeed; what it wrote to standard output."""
        answer = self.backend.post(f"{self.path}/exec", 200, {"tool": tool, "input": tool_input})
        result = answer["result_block"]["content"]
        if result["return_code"] != 0:
            sys.exit(f"{tool} ended with {result['return_code']}:\n{result['stdout']}{result['stderr']}")
        print(f"--- {tool}, {answer['execution_time_ms']} ms\n{result['stdout']}", end="")
        return result["stdout"]

    def upload(self, path: str, content: bytes) -> None:
        """Puts a file into the workspace."""
        mark = uuid.uuid4().hex
        part = f'--{mark}\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n'
        parts = [(part % ("path", "")).encode(), path.encode(), (f"\r\n{part}" % ("file", '; filename="upload"')).encode()]
        body = b"".join(parts) + content + f"\r\n--{mark}--\r\n".encode()
        self.backend.call("POST", f"{self.path}/files", 201, body, f"multipart/form-data; boundary={mark}")

    def download(self, path: str) -> bytes:
        """Takes a file out of the workspace."""
        return self.backend.call("GET", f"{self.path}/files?path={urllib.parse.quote(path, safe='')}", 200)


def must(holds: bool, what: str) -> None:
    """Ends the walk where something does not hold."""
    if not holds:
        sys.exit(f"not as it should be: {what}")


def walk(session: Session, chart: pathlib.Path | None) -> None:
    """The calls of one session."""
    session.upload("data/rainfall.csv", TABLE.read_bytes())
    must("18 rows, 1 gap filled" in session.run("code_execution", code=CLEAN), "the table is read and mended")
    totals = session.run("code_execution", code=SUM_UP)
    must(totals.split().index("Ridge") < totals.split().index("Valley"), "variables live from call to call")
    must("4 totals.csv" in session.run("bash_code_execution", command="wc -l totals.csv; head -n 2 totals.csv"), "rows")
    edit = "text_editor_code_execution"
    session.run(edit, command="create", path="note.md", file_text="# Rain\n\nThe Valley is the wettest.\n")
    session.run(edit, command="str_replace", path="note.md", old_str="Valley", new_str="Ridge")
    must("The Ridge is the wettest." in session.run(edit, command="view", path="note.md"), "the note is corrected")
    session.run("code_execution", code=CHART)
    image = session.download("rain.png")
    must(image.startswith(b"\x89PNG\r\n\x1a\n") and len(image) > 5000, "the chart is a PNG")
    listing = json.loads(session.backend.call("GET", f"{session.path}/files/list", 200))
    must("rain.png" in json.dumps(listing), "the chart is listed")
    if chart:
        chart.write_bytes(image)
    print(f"--- chart of {len(image)} bytes fetched")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base-url", default="http://127.0.0.1:8080")
    parser.add_argument("--token-file", type=pathlib.Path, help="the server's bearer token")
    parser.add_argument("--chart", type=pathlib.Path, help="where to put the chart")
    options = parser.parse_args()
    backend = Backend(options.base_url, options.token_file.read_text().strip() if options.token_file else None)
    session = Session(backend)
    try:
        walk(session, options.chart)
    finally:
        backend.call("DELETE", session.path, 204)
    print("--- released; the walk is done")


if __name__ == "__main__":
    main()
