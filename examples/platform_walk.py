#!/usr/bin/env python3
"""The checks of examples/platform.sh, which says what they are. Needs Python's standard library alone."""

from __future__ import annotations

import argparse
import base64
import collections
import http.client
import json
import os
import pathlib
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from typing import Any

PATIENCE_SECONDS = 120
ISSUER, AUDIENCE = "https://control.example", "https://gate.example"
TOOLS = ["code_execution", "bash_code_execution"]
# The next key is published for this long before it signs; the doors read the set more often.
LEAD_SECONDS, REFRESH_SECONDS = 6, 2
# Statuses that the contract allows a call that was right: gone with its backend, unknown, or not now.
WEATHER = (404, 502, 503)


def fail(text: str) -> None:
    raise SystemExit(f"NOT HELD: {text}")


def hold(condition: bool, text: str) -> None:
    if not condition:
        fail(text)


class Process:
    """A server of ours: started, its address read from what it prints, killed at the end."""

    everyone: list["Process"] = []

    def __init__(self, name: str, command: list[str], log: pathlib.Path):
        self.name, self.command, self.log = name, command, log
        self.child: subprocess.Popen[str] | None = None
        Process.everyone.append(self)
        self.start()

    def start(self) -> None:
        self.child = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=self.log.open("a"), stdin=subprocess.DEVNULL, text=True
        )
        self.url = ""
        for line in self.child.stdout:
            if found := re.search(r"http://([0-9.]+:\d+)", line):
                self.url = found[0]
            # A backend has more to say before it serves; the others say their address when they do.
            if self.url and (line.strip() == "ready" or "listens on" in line):
                break
        hold(bool(self.url), f"{self.name} did not start; {self.log.read_text()[-2000:]}")
        self.address = self.url.removeprefix("http://")
        threading.Thread(target=self.child.stdout.read, daemon=True).start()

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait()


class Answer:
    def __init__(self, status: int, headers: Any, body: bytes):
        self.status, self.headers, self.body = status, headers, body

    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    address: str,
    method: str,
    path: str,
    token: str,
    body: Any = None,
    raw: tuple[str, bytes] | None = None,
    workspace: str | None = None,
) -> Answer:
    """One request; OSError where there is no whole answer."""
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_SECONDS)
    headers = {"Authorization": f"Bearer {token}"}
    if workspace is not None:
        headers["X-Ringfence-Workspace"] = workspace
    content = None
    if raw is not None:
        headers["Content-Type"], content = raw
    elif body is not None:
        headers["Content-Type"], content = "application/json", json.dumps(body).encode()
    try:
        connection.request(method, path, content, headers)
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())
    except http.client.HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()


def check_error(answer: Answer, allowed: tuple[int, ...], doing: str) -> None:
    """An error is the contract's: an allowed status, `{"detail": ...}`, and when to come again with a 503."""
    hold(answer.status in allowed, f"{doing}: {answer.status} {answer.body[:300]!r}")
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        fail(f"{doing}: {answer.status} without a detail: {answer.body[:300]!r}")
    hold(isinstance(detail, str) and bool(detail), f"{doing}: no text in {detail!r}")
    if answer.status == 503:
        hold(answer.headers["Retry-After"] is not None, f"{doing}: 503 without Retry-After")


class Platform:
    def __init__(self, ringfence: str, folder: pathlib.Path):
        self.ringfence, self.folder = ringfence, folder
        (folder / "id-keys").write_text(base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=") + "\n")
        (folder / "backend-token").write_text(secrets.token_urlsafe(32) + "\n")
        for name in ("id-keys", "backend-token"):
            (folder / name).chmod(0o600)
        self.run("control", "init", "--folder", folder / "control")
        self.control = self.process(
            "control", "control", "serve", "--folder", folder / "control", "--listen", "127.0.0.1:0",
            "--issuer", ISSUER, "--audience", AUDIENCE, "--key-lead", LEAD_SECONDS,
        )
        self.manage("tokens", "create", "--kind", "gate", "--name", "doors", "--out", folder / "usage-token")
        self.backends = [
            self.process(
                f"backend-{number}", "serve", "--image", "bare", "--listen", "127.0.0.1:0", "--state-dir", folder / "state",
                "--require-tenancy", "--auth-token-file", folder / "backend-token", "--id-base", 1_000_000_000 + number * 65_536,
            )
            for number in range(3)
        ]
        self.doors = [self.door(number) for number in range(2)]
        for door in self.doors:
            self.wait_until(lambda: ask(door.address, "GET", "/ready", "none").status == 200, f"{door.name} is ready")

    def process(self, name: str, *arguments: Any) -> Process:
        return Process(name, [self.ringfence, *map(str, arguments)], self.folder / f"{name}.log")

    def door(self, number: int, listen: str = "127.0.0.1:0") -> Process:
        backends = [part for n, backend in enumerate(self.backends) for part in ("--backend", f"b{n}={backend.url}")]
        return self.process(
            f"door-{number}", "gate", "--listen", listen, "--name", f"door-{number}", "--issuer", ISSUER,
            "--audience", AUDIENCE, "--keys", f"{self.control.url}/.well-known/jwks.json",
            "--keys-refresh", REFRESH_SECONDS, "--id-keys-file", self.folder / "id-keys",
            "--backend-token-file", self.folder / "backend-token", *backends,
            "--usage-spool", self.folder / f"spool-{number}", "--usage-url", f"{self.control.url}/v1/usage",
            "--usage-token-file", self.folder / "usage-token",
        )

    def run(self, *arguments: Any) -> str:
        environment = dict(os.environ, RINGFENCE_CONTROL_TOKEN_FILE=str(self.folder / "control" / "admin-token"))
        if hasattr(self, "control"):
            environment["RINGFENCE_CONTROL_URL"] = self.control.url
        done = subprocess.run([self.ringfence, *map(str, arguments)], capture_output=True, text=True, env=environment)
        hold(done.returncode == 0, f"ringfence {arguments[:3]}: {done.stderr}")
        return done.stdout

    def manage(self, *arguments: Any) -> Any:
        said = self.run("control", *arguments)
        return json.loads(said) if said else None

    @staticmethod
    def wait_until(condition: Any, what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                if condition():
                    return
            except OSError:
                pass
            time.sleep(0.05)
        fail(f"{what}: not in {PATIENCE_SECONDS} s")


class Workspace:
    """A workspace, its gateway, and what became of its calls."""

    def __init__(self, platform: Platform, name: str, door: int):
        self.platform, self.name, self.door = platform, name, door
        self.mark = f"{name}-{secrets.token_hex(8)}"
        tools = [part for tool in TOOLS for part in ("--tool", tool)]
        platform.manage("workspaces", "create", name, "--enabled", "true", *tools, "--timeout-max", "60")
        path = platform.folder / f"{name}-token"
        platform.manage("tokens", "create", "--kind", "gateway", "--name", name, "--workspace", name, "--out", path)
        self.token = path.read_text().strip()
        self.lock = threading.Lock()
        self.finished: collections.Counter[str] = collections.Counter()
        self.lost: collections.Counter[str] = collections.Counter()
        self.refused: collections.Counter[int] = collections.Counter()
        self.unreached = 0
        self.signers: set[str] = set()

    def grant(self) -> tuple[str, str]:
        """A fresh grant and its id."""
        answer = ask(self.platform.control.address, "POST", "/v1/grants", self.token, {"workspace": self.name})
        hold(answer.status == 201, f"a grant for {self.name}: {answer.status} {answer.body!r}")
        made = answer.json()
        head = made["grant"].split(".")[0]
        with self.lock:
            self.signers.add(json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))["kid"])
        return made["grant"], made["grant_id"]

    def address(self, door: int | None = None) -> str:
        return self.platform.doors[self.door if door is None else door].address

    def walk(self) -> str:
        """The six operations, start to end. The session lives on."""
        grant, grant_id = self.grant()
        door = self.address()
        leased = ask(door, "POST", "/sessions", grant, {})
        hold(leased.status == 201, f"{self.name} leases: {leased.status} {leased.body!r}")
        session = leased.json()["session_id"]
        self.call(door, session, grant, grant_id, f"secret = {self.mark!r}\nopen('mark.txt', 'w').write(secret)")
        said = self.call(door, session, grant, grant_id, "print(secret)")
        hold(said == self.mark + "\n", f"{self.name}: variables stay: {said!r}")
        boundary = uuid.uuid4().hex
        part = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="up.txt"\r\n\r\nup\r\n--{boundary}--\r\n'
        kind = f"multipart/form-data; boundary={boundary}"
        put = ask(door, "POST", f"/sessions/{session}/files?path=up.txt", grant, raw=(kind, part.encode()))
        hold(put.status in (200, 201, 204), f"{self.name} uploads: {put.status} {put.body!r}")
        got = ask(door, "GET", f"/sessions/{session}/files?path=mark.txt", grant)
        hold(got.status == 200 and got.body.decode() == self.mark, f"{self.name} downloads: {got.status} {got.body!r}")
        listed = ask(door, "GET", f"/sessions/{session}/files/list", grant)
        hold(listed.status == 200 and b"up.txt" in listed.body, f"{self.name} lists: {listed.status} {listed.body!r}")
        return session

    def call(self, door: str, session: str, grant: str, grant_id: str, code: str) -> str | None:
        """Standard output of a program that succeeded; None where the weather did not allow it."""
        body = {"tool": "code_execution", "input": {"code": code}}
        try:
            answer = ask(door, "POST", f"/sessions/{session}/exec", grant, body)
        except ConnectionRefusedError:
            # The door is down: nothing was sent.
            with self.lock:
                self.unreached += 1
            return None
        except OSError:
            with self.lock:
                self.lost[grant_id] += 1
            return None
        if answer.status != 200:
            check_error(answer, WEATHER, f"a call of {self.name}")
            with self.lock:
                self.refused[answer.status] += 1
            return None
        with self.lock:
            self.finished[grant_id] += 1
        result = answer.json()["result_block"]["content"]
        hold(result["return_code"] == 0, f"a program of {self.name} failed: {result}")
        return result["stdout"]

    def load(self, stop: threading.Event) -> None:
        """Leases, calls and releases until told to end, with a fresh grant each; goes to the other door when its own
        is down, with the same sessions."""
        turn = 0
        while not stop.is_set():
            grant, grant_id = self.grant()
            turn += 1
            try:
                leased = ask(self.address((self.door + turn) % 2), "POST", "/sessions", grant, {})
            except OSError:
                time.sleep(0.05)
                continue
            if leased.status != 201:
                check_error(leased, (502, 503), f"a lease of {self.name}")
                time.sleep(0.05)
                continue
            session = leased.json()["session_id"]
            for _ in range(6):
                turn += 1
                door = self.address((self.door + turn) % 2)
                code = f"import os\nprint({self.mark!r}, {turn}, sorted(os.listdir('.')))\nopen('mark', 'w').write({self.mark!r})"
                said = self.call(door, session, grant, grant_id, code)
                if said is None:
                    break
                hold(said.startswith(f"{self.mark} {turn} "), f"{self.name} got another's output: {said!r}")
                hold("mark.txt" not in said, f"{self.name} got a session that was another's: {said!r}")
            try:
                released = ask(self.address(), "DELETE", f"/sessions/{session}", grant)
                if released.status != 204:
                    check_error(released, WEATHER, f"a release of {self.name}")
            except OSError:
                pass


def strangers(platform: Platform, owner: Workspace, session: str, other: Workspace) -> None:
    """Nothing of a session is there for another workspace, through either door; and its owner keeps it."""
    grant, _ = other.grant()
    exec_body = {"tool": "code_execution", "input": {"code": "print(secret)"}}
    for door in platform.doors:
        answers = [
            ask(door.address, "POST", f"/sessions/{session}/exec", grant, exec_body),
            ask(door.address, "GET", f"/sessions/{session}", grant),
            ask(door.address, "GET", f"/sessions/{session}/files?path=mark.txt", grant),
            ask(door.address, "GET", f"/sessions/{session}/files/list", grant),
            ask(door.address, "DELETE", f"/sessions/{session}", grant),
        ]
        for answer in answers:
            check_error(answer, (404,), f"{other.name} in a session of {owner.name}")
            hold(owner.mark.encode() not in answer.body, f"{other.name} saw what is {owner.name}'s")
        # Neither without a grant, nor with the token that asks for grants, nor straight at a backend.
        for token in ("none", other.token):
            check_error(ask(door.address, "GET", f"/sessions/{session}", token), (401,), "a session without a grant")
    for backend in platform.backends:
        check_error(ask(backend.address, "POST", "/sessions", grant, {}), (401,), "a backend with a grant")
    own, grant_id = owner.grant()
    said = owner.call(owner.address(), session, own, grant_id, "print(secret)")
    hold(said == owner.mark + "\n", f"{owner.name} keeps its session: {said!r}")


def round_the_doors(platform: Platform, owner: Workspace, other: Workspace) -> None:
    """Straight at the backends, with the secret that only the doors have: still no session of another workspace. Without
    the secret, or without a workspace, nothing at all."""
    secret = (platform.folder / "backend-token").read_text().strip()
    body = {"tool": "code_execution", "input": {"code": "print(secret)"}}
    seen = 0
    for backend in platform.backends:
        for token in ("none", other.token):
            check_error(ask(backend.address, "GET", "/sessions", token, workspace=owner.name), (401,), "no proof")
        check_error(ask(backend.address, "GET", "/sessions", secret), (400,), "no workspace")
        check_error(ask(backend.address, "POST", "/sessions", secret, {}), (400,), "a lease without a workspace")
        listed = ask(backend.address, "GET", "/sessions", secret, workspace=owner.name).json()["sessions"]
        counted = ask(backend.address, "GET", "/tenancy", secret, workspace=owner.name).json()
        hold(counted == {"workspace": owner.name, "session_count": len(listed)}, f"{backend.name} counts: {counted}")
        for session in (handle["session_id"] for handle in listed):
            seen += 1
            theirs = ask(backend.address, "GET", "/sessions", secret, workspace=other.name).json()["sessions"]
            hold(all(handle["session_id"] != session for handle in theirs), f"{other.name} lists what is {owner.name}'s")
            for method, path, content in [
                ("GET", "", None), ("POST", "/exec", body), ("POST", "/interrupt", {}), ("GET", "/files/list", None),
                ("GET", "/files?path=mark.txt", None), ("DELETE", "/files?path=mark.txt", None), ("GET", "/archive", None),
                ("DELETE", "", None),
            ]:
                answer = ask(backend.address, method, f"/sessions/{session}{path}", secret, content, workspace=other.name)
                check_error(answer, (404,), f"{other.name} at {owner.name}'s {method} {path} round the doors")
                hold(owner.mark.encode() not in answer.body, f"{other.name} saw what is {owner.name}'s")
            own = ask(backend.address, "GET", f"/sessions/{session}", secret, workspace=owner.name)
            hold(own.status == 200, f"{owner.name} keeps its session: {own.status}")
    hold(seen == 1, f"{owner.name} has one session: {seen}")


def wait_for_usage(platform: Platform, workspaces: list[Workspace]) -> dict[str, collections.Counter[str]]:
    """One more call through each door, in a workspace of its own: doors ship in order, so when it is there,
    everything before it is."""
    last = Workspace(platform, "last", 0)
    for number in range(2):
        grant, grant_id = last.grant()

        def leased() -> bool:
            answer = ask(last.address(number), "POST", "/sessions", grant, {})
            if answer.status == 201:
                session = answer.json()["session_id"]
                return last.call(last.address(number), session, grant, grant_id, "pass") is not None
            check_error(answer, (502, 503), "the last lease")
            return False

        platform.wait_until(leased, f"a last call through door {number}")

    def rows(name: str) -> list[dict[str, Any]]:
        return platform.manage("usage", "--workspace", name, "--by", "tool")["rows"]

    def arrived() -> bool:
        return sum(row["ok"] for row in rows("last") if row["tool"]) == 2

    platform.wait_until(arrived, "usage arrives")
    # By grant, which the reports do not tell apart: from a copy of the database.
    copy = platform.folder / "copy.db"
    platform.run("control", "backup", "--folder", platform.folder / "control", copy)
    import sqlite3

    counted: dict[str, collections.Counter[str]] = {workspace.name: collections.Counter() for workspace in workspaces}
    with sqlite3.connect(copy) as database:
        query = "SELECT workspace, grant_id, COUNT(*) FROM usage_records WHERE kind = 'call' AND outcome = 'ok' GROUP BY 1, 2"
        for name, grant_id, count in database.execute(query):
            if name in counted:
                counted[name][grant_id] = count
    for workspace in workspaces:
        total = sum(row["ok"] for row in rows(workspace.name) if row["tool"])
        hold(total == sum(counted[workspace.name].values()), f"the report of {workspace.name} is the sum of its records")
    return counted


def check_metering(platform: Platform, workspaces: list[Workspace]) -> None:
    counted = wait_for_usage(platform, workspaces)
    for workspace in workspaces:
        records = counted[workspace.name]
        for grant_id in set(records) | set(workspace.finished):
            # A call whose answer was lost with a door may have finished.
            least, most = workspace.finished[grant_id], workspace.finished[grant_id] + workspace.lost[grant_id]
            hold(
                least <= records[grant_id] <= most,
                f"{workspace.name}: {least} to {most} calls finished with a grant, {records[grant_id]} were metered",
            )
        exact = sum(1 for grant_id in workspace.finished if not workspace.lost[grant_id])
        hold(exact > 0, f"{workspace.name}: no grant without a lost answer")
        print(
            f"  {workspace.name}: {sum(workspace.finished.values())} calls finished, {sum(records.values())} metered,"
            f" {sum(workspace.lost.values())} answers lost with a door, {workspace.unreached} met none, refused {dict(workspace.refused)}"
        )


def under_load(platform: Platform, workspaces: list[Workspace], victim: Process, lost_session: str) -> None:
    stop, failures = threading.Event(), []

    def guarded(workspace: Workspace) -> None:
        try:
            workspace.load(stop)
        except BaseException as failure:
            failures.append(failure)
            stop.set()

    threads = [threading.Thread(target=guarded, args=(workspace,)) for workspace in workspaces for _ in range(2)]
    for thread in threads:
        thread.start()

    def finished() -> int:
        return sum(sum(workspace.finished.values()) for workspace in workspaces)

    def go_on(calls: int, what: str) -> None:
        goal = finished() + calls
        platform.wait_until(lambda: bool(failures) or finished() >= goal, what)

    go_on(30, "calls before anything happens")
    print("  the signing key is rotated")
    next_key = platform.manage("keys", "rotate")["kid"]
    go_on(20, "calls while the next key waits")
    print("  a backend is killed")
    victim.kill()
    grant, grant_id = workspaces[0].grant()
    said = workspaces[0].call(workspaces[0].address(), lost_session, grant, grant_id, "print(secret)")
    hold(said is None and bool(workspaces[0].refused), f"a session of a dead backend is refused, not answered: {said!r}")
    go_on(30, "calls without one backend")
    print("  a door is killed")
    platform.doors[0].kill()
    platform.wait_until(lambda: bool(failures) or all(workspace.unreached for workspace in workspaces), "calls that meet it")
    platform.doors[0].command[platform.doors[0].command.index("--listen") + 1] = platform.doors[0].address
    platform.doors[0].start()
    go_on(30, "calls through both doors again")
    platform.wait_until(
        lambda: bool(failures) or all(next_key in workspace.signers for workspace in workspaces), "the next key signs"
    )
    go_on(30, "calls with the next key")
    stop.set()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    for workspace in workspaces:
        hold(len(workspace.signers) == 2, f"grants of {workspace.name} are signed by two keys: {workspace.signers}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--ringfence", required=True, help="the program")
    ringfence = arguments.parse_args().ringfence
    with tempfile.TemporaryDirectory(prefix="ringfence-platform-") as folder:
        try:
            print("control plane, two doors, three backends come up")
            platform = Platform(ringfence, pathlib.Path(folder))
            a, b = Workspace(platform, "team-a", 0), Workspace(platform, "team-b", 1)
            print("each workspace walks through a door of its own")
            first = a.walk()
            # Nothing else is leased yet: this is where the session of the first workspace is.
            secret = (pathlib.Path(folder) / "backend-token").read_text().strip()
            held = [ask(one.address, "GET", "/health", secret).json()["session_count"] for one in platform.backends]
            hold(sorted(held) == [0, 0, 1], f"one session is leased: {held}")
            sessions = first, b.walk()
            print("neither sees the other's")
            strangers(platform, a, sessions[0], b)
            strangers(platform, b, sessions[1], a)
            print("nor round the doors")
            round_the_doors(platform, a, b)
            round_the_doors(platform, b, a)
            print("under load")
            under_load(platform, [a, b], platform.backends[held.index(1)], first)
            print("usage")
            check_metering(platform, [a, b])
        finally:
            for process in Process.everyone:
                process.kill()
    print("the platform holds")


if __name__ == "__main__":
    sys.exit(main())
