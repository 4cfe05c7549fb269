"""Where the backend is, the credential, and what is sent."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from fake import Reply, executed

import ringfence
from ringfence._settings import base_url

SECRET = "hush-hush"


def test_arguments_come_before_the_environment(flavour, fake, monkeypatch, tmp_path):
    def sent(**options):
        flavour.session(session_id="s", **options).run("pass")
        return fake.last().headers.get("Authorization")

    assert base_url(None) == "http://127.0.0.1:8080"
    monkeypatch.setenv("RINGFENCE_URL", fake.url)
    assert sent() is None
    monkeypatch.setenv("RINGFENCE_TOKEN", f" {SECRET}\n")
    assert sent() == f"Bearer {SECRET}"
    file = tmp_path / "token"
    file.write_text("of-the-file\n")
    monkeypatch.setenv("RINGFENCE_TOKEN_FILE", str(file))
    assert sent() == "Bearer of-the-file"
    assert sent(token="given") == "Bearer given"
    assert sent(token="") is None
    monkeypatch.setenv("RINGFENCE_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        sent()
    monkeypatch.setenv("RINGFENCE_URL", "http://127.0.0.1:1")
    assert sent(base_url=fake.url, token="given") == "Bearer given"


def test_a_token_shows_itself_nowhere(flavour, fake):
    fake.on("POST", "/exec", Reply(401, {"detail": "no"}))
    client = flavour.client(fake.url, SECRET)
    session = client.session().open()
    texts = [repr(client), repr(session), repr(session.handle), str(vars(getattr(client, "_inner", client)))]
    texts.append(repr(client._transport.http.auth))
    with pytest.raises(ringfence.Unauthorized) as raised:
        session.run("pass")
    texts.append(repr(raised.value))
    assert fake.last().headers["Authorization"] == f"Bearer {SECRET}"
    assert not [text for text in texts if SECRET in text]
    assert repr(getattr(session, "_inner", session)).endswith(f"Session s at {fake.url}>")
    session.close()


@pytest.mark.parametrize("token", ["two words", f"{SECRET}\r\nX: y", "päss", " "])
def test_what_no_header_may_hold_is_refused_without_being_shown(token):
    with pytest.raises(ValueError, match="the bearer token") as raised:
        ringfence.Session("http://127.0.0.1:1", token)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:80",
        "ftp://host",
        "http://",
        "http://host?x",
        "http://host#x",
        "http://user:hush@host",
        "http://host:port",
    ],
)
def test_unusable_urls_are_refused(url):
    with pytest.raises(ValueError, match="base URL") as raised:
        ringfence.Client(url)
    assert "hush" not in str(raised.value)


def test_what_is_sent_is_what_the_contract_names(flavour, fake):
    with flavour.session(fake.url) as session:
        assert fake.last().json() == {}
        session.run("1", echo=True, timeout=2)
        assert fake.last().json() == {
            "tool": "code_execution",
            "input": {"code": "1", "echo_last_expression": True},
            "timeout_seconds": 2,
        }
        session.run("1")
        assert fake.last().json() == {"tool": "code_execution", "input": {"code": "1"}, "timeout_seconds": 60}
        session.execute("later_tool", {"x": 1}, tool_use_id="mine")
        assert fake.last().json() == {
            "tool": "later_tool",
            "input": {"x": 1},
            "timeout_seconds": 60,
            "tool_use_id": "mine",
        }
        session.view("f", (1, -1))
        assert fake.last().json()["input"] == {"command": "view", "path": "f", "view_range": [1, -1]}
        fake.on("POST", "/files", Reply(201, {"path": "d/f.txt", "size_bytes": 2}))
        session.upload(b"hi", "d/f.txt")
        body = fake.last().body
        assert b'name="path"\r\n\r\nd/f.txt\r\n' in body
        assert b'name="file"; filename="f.txt"' in body
        assert body.index(b"d/f.txt") < body.index(b"hi"), "the path comes before the content"
    options = {"image": "i", "idle_timeout_seconds": 1.5, "max_lifetime_seconds": 60, "timeout": 7}
    with flavour.client(fake.url) as client, client.session(**options) as session:
        assert fake.last().json() == {"image": "i", "idle_timeout_seconds": 2, "max_lifetime_seconds": 60}
        session.run("1")
        assert fake.last().json()["timeout_seconds"] == 7


def test_a_session_is_leased_at_its_first_call(flavour, fake):
    session = flavour.session(fake.url)
    assert (session.id, session.handle, fake.asked) == (None, None, [])
    fake.on("POST", "/exec", executed({"stdout": "1"}))
    assert session.run("1").stdout == session.run("1").stdout == "1"
    assert (session.id, fake.count()["POST /sessions"]) == ("s", 1)
    session.close()
    assert fake.last("DELETE").path == "/sessions/s"


def test_an_awaiting_session_that_is_forgotten_says_so(fake):
    async def forget():
        async with ringfence.AsyncClient(fake.url) as client:
            await client.session().open()
            gc.collect()

    with pytest.warns(ResourceWarning, match="never closed"):
        asyncio.run(forget())


def test_concurrent_first_calls_share_one_lease(fake):
    async def both():
        async with ringfence.AsyncClient(fake.url) as client:
            session = client.session()
            await asyncio.gather(session.run("1"), session.run("2"))
            await session.close()

    asyncio.run(both())
    assert fake.count()["POST /sessions"] == 1


def test_first_calls_of_threads_share_one_lease(fake):
    never = threading.Event()

    def lease(asked):
        # Time for a second lease, which must not come.
        never.wait(0.2)
        return Reply(201, {"session_id": "s"})

    fake.on("POST", "/sessions", lease)
    with ThreadPoolExecutor(2) as pool, ringfence.Client(fake.url) as client:
        session = client.session()
        assert all(result.ok for result in pool.map(session.run, ["1", "2"]))
        session.close()
    assert fake.count()["POST /sessions"] == 1
