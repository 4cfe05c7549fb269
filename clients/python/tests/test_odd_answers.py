"""Both clients against answers that no good backend gives, and some that a good one may."""

from __future__ import annotations

import io
import socket
import threading
from collections import Counter

import pytest
from fake import RESET, Reply, executed

import ringfence
from ringfence import _calls, _limits, _sinks


@pytest.fixture
def session(flavour, fake):
    with flavour.session(fake.url) as leased:
        yield leased


def answer(session, fake, *replies):
    fake.on("POST", "/exec", *replies)
    return session.run("pass")


def test_unknown_fields_and_block_types_are_tolerated(session, fake):
    content = {
        "stdout": "out",
        "new": {},
        "content": [{"file_id": "1", "filename": "a"}, {"odd": 1}, "odd", {"file_id": 2, "filename": "b"}],
    }
    reply = executed(content, later=[1], usage="much", limit_exceeded=5, execution_time_ms=12.0, files_omitted=2)
    reply.body["result_block"]["type"] = "quantum_result"
    result = answer(session, fake, reply)
    assert (result.block_type, result.stdout, result.return_code, result.ok) == ("quantum_result", "out", 0, True)
    assert [file.filename for file in result.files] == ["a"]
    assert (result.execution_time_ms, result.usage, result.limit_exceeded, result.files_omitted) == (12, None, None, 2)
    assert result.raw["later"] == [1]


def test_missing_and_null_fields_have_the_defaults_of_the_contract(session, fake):
    for content in ({}, {"stdout": None, "stderr": None, "return_code": None, "content": None}):
        result = answer(session, fake, Reply(body={"result_block": {"content": content}}))
        assert (result.stdout, result.stderr, result.return_code, result.files) == ("", "", 0, [])
        assert (result.tool_use_id, result.block_type, result.usage, result.background) == ("", "", None, None)


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({"type": "code_execution_tool_result", "content": {}}, "no result_block"),
        ({"result_block": []}, "result_block is no object"),
        ({"result_block": {}}, "no content"),
        ({"result_block": {"content": []}}, "content is no object"),
        ({"result_block": {"content": {"error_code": "unavailable"}}}, "error variant"),
        ({"result_block": {"content": {"stdout": 5}}}, "stdout is no string"),
        ({"result_block": {"content": {"return_code": "0"}}}, "return_code"),
        ({"result_block": {"content": {"return_code": 0.5}}}, "return_code"),
        ({"result_block": {"content": {"return_code": True}}}, "return_code"),
        ({"result_block": {"content": {"content": {}}}}, "content is no list"),
        ([], "no JSON object"),
        (b"<html>", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b'{"n": ' + b"9" * 10_000 + b"}", "no"),
        (b"", "no JSON"),
    ],
)
def test_what_would_read_as_an_empty_success_is_an_error(session, fake, body, part):
    with pytest.raises(ringfence.AnswerError, match=part):
        answer(session, fake, Reply(body=body))


def test_a_lease_needs_an_id(flavour, fake):
    for body in ({}, {"session_id": 5}, {"session_id": ""}):
        fake.on("POST", "/sessions", Reply(201, body))
        with pytest.raises(ringfence.AnswerError, match="session_id"):
            flavour.session(fake.url).open()


def test_an_id_cannot_lead_elsewhere(flavour, fake):
    for session_id, path in [("..", "/sessions/%2E%2E/exec"), ("a/../b?c#d", "/sessions/a%2F..%2Fb%3Fc%23d/exec")]:
        flavour.session(fake.url, session_id=session_id).run("pass")
        assert fake.last().path == path


def test_a_base_url_may_have_a_prefix(flavour, fake):
    flavour.session(f"{fake.url}/prefix/", session_id="s").run("pass")
    assert fake.last().path == "/prefix/sessions/s/exec"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, ringfence.BackendError),
        (400, ringfence.BadRequest),
        (401, ringfence.Unauthorized),
        (403, ringfence.PathRefused),
        (404, ringfence.SessionGone),
        (413, ringfence.TooLarge),
        (418, ringfence.BackendError),
        (422, ringfence.BadRequest),
        (500, ringfence.BackendError),
        (503, ringfence.CapacityError),
    ],
)
def test_every_refusal_has_its_type(session, fake, status, kind):
    with pytest.raises(ringfence.RingfenceError) as raised:
        answer(session, fake, Reply(status, {"detail": "because"}, {"Location": "/elsewhere"}))
    error = raised.value
    assert type(error) is kind
    assert (error.status, error.detail, error.operation) == (status, "because", "Execute")
    assert fake.count()["POST /sessions/s/exec"] == 1


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"detail": [{"msg": "no"}]}, '[{"msg": "no"}]'),
        ({"error": "no"}, '{"error": "no"}'),
        (b"\x1b[31mred\xff\n", "[31mred\ufffd"),
        (b"[" * 70_000, "[" * _limits.DETAIL_CHARS_MAX),
        (b"", "the backend gave no reason"),
    ],
)
def test_any_refusal_has_words(session, fake, body, detail):
    with pytest.raises(ringfence.BackendError) as raised:
        answer(session, fake, Reply(500, body))
    assert raised.value.detail == detail


@pytest.mark.parametrize(
    ("hint", "seconds"), [("7", 7), ("999999", 999_999), ("1000000", None), ("1.5", None), ("-1", None), ("²", None)]
)
def test_only_short_digits_are_a_delay(session, fake, hint, seconds):
    with pytest.raises(ringfence.CapacityError) as raised:
        answer(session, fake, Reply(503, {"detail": "full"}, {"Retry-After": hint}))
    assert raised.value.retry_after == seconds


def test_a_lease_waits_for_room_only_when_asked(flavour, fake):
    full = Reply(503, {"detail": "full"}, {"Retry-After": "0"})
    room = Reply(201, {"session_id": "s"})
    fake.on("POST", "/sessions", full, full, room)
    with flavour.session(fake.url, wait_for_capacity=30) as session:
        assert session.id == "s"
    assert fake.count()["POST /sessions"] == 3
    fake.on("POST", "/sessions", full, room)
    with pytest.raises(ringfence.CapacityError), flavour.session(fake.url):
        pass
    assert fake.count()["POST /sessions"] == 4
    fake.on("POST", "/sessions", Reply(503, {}, {"Retry-After": "60"}))
    with pytest.raises(ringfence.CapacityError):
        flavour.session(fake.url, wait_for_capacity=30).open()
    assert fake.count()["POST /sessions"] == 5, "a delay beyond the wait is not begun"


def test_an_execute_is_sent_once_and_a_read_again(session, fake):
    for reply in (RESET, Reply(body=b"{", length=50, cut=True)):
        fake.asked.clear()
        with pytest.raises(ringfence.TransportError) as raised:
            answer(session, fake, reply, executed())
        assert raised.value.maybe_done
        assert fake.count() == Counter({"POST /sessions/s/exec": 1})
        fake.on("GET", "/files/list", reply, reply, Reply(body={"files": []}))
        assert session.files() == []
        assert fake.count()["GET /sessions/s/files/list"] == 3
    fake.on("GET", "/files/list", RESET)
    with pytest.raises(ringfence.TransportError):
        session.files()
    assert fake.count()["GET /sessions/s/files/list"] == 3 + _limits.ATTEMPTS_MAX


def test_a_refused_connection_is_tried_again(flavour, fake):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ringfence.ConnectFailed) as raised:
            flavour.session(url, session_id="s").run("pass")
        assert not raised.value.maybe_done
        # Nobody listens at the first attempt; somebody does at the last.
        listening = threading.Timer(_limits.RETRY_PAUSE_SECONDS / 2, taken.listen)
        listening.start()

        def serve():
            listening.join()
            connection, _ = taken.accept()
            connection.recv(65536)
            connection.sendall(b'HTTP/1.1 201 OK\r\nContent-Length: 19\r\n\r\n{"session_id": "s"}')
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        assert flavour.session(url).open().id == "s"
        thread.join()


def test_an_answer_that_does_not_come_in_time(session, fake):
    heard = threading.Event()

    def late(asked):
        heard.wait(30)
        return executed()

    fake.on("POST", "/exec", late)
    with pytest.raises(ringfence.AnswerTimeout) as raised:
        session.execute("code_execution", {"code": "pass"}, patience=0.05)
    heard.set()
    assert raised.value.maybe_done


def test_patience_is_the_budget_and_its_headroom():
    for timeout, budget in [(5, 5), (0.2, 1), (59.5, 60)]:
        call = _calls.execute("s", ("t", {}), ringfence.Result, lambda *_: None, timeout)
        assert call.body["json"]["timeout_seconds"] == budget
        assert call.options()["timeout"].read == budget + 10
    for wrong in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="seconds"):
            _calls.execute("s", ("t", {}), ringfence.Result, lambda *_: None, wrong)


def test_an_answer_that_trickles_is_given_up():
    attempts = _calls.Attempts(_calls.health(), now=100.0)
    attempts.in_time(100.0 + _limits.PATIENCE_SECONDS)
    with pytest.raises(ringfence.AnswerTimeout):
        attempts.in_time(100.1 + _limits.PATIENCE_SECONDS)
    _calls.Attempts(_calls.download("s", "p", None), now=0.0).in_time(1e9)


def test_a_download_replaces_regular_files_alone(session, fake, tmp_path):
    fake.on("GET", "/files", Reply(body=b"new"))
    (tmp_path / "kept").write_bytes(b"old")
    (tmp_path / "link").symlink_to("kept")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("link", "dangling"):
        with pytest.raises(FileExistsError):
            session.download("f", tmp_path / name)
    assert (tmp_path / "kept").read_bytes() == b"old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["dangling", "kept", "link"]


def test_a_cut_off_download_leaves_what_was_there(session, fake, tmp_path):
    local = tmp_path / "kept.bin"
    local.write_bytes(b"as it was")
    cut = Reply(body=b"not all of it", length=1000, cut=True)
    fake.on("GET", "/files", cut)
    for attempt in (lambda: session.download("kept.bin", local), lambda: session.download("kept.bin")):
        with pytest.raises(ringfence.TransportError, match="GetFile: the connection broke"):
            attempt()
    assert local.read_bytes() == b"as it was"
    assert [path.name for path in tmp_path.iterdir()] == ["kept.bin"]
    fake.on("GET", "/files", cut, Reply(body=b"all of it"))
    session.download("kept.bin", local)
    assert local.read_bytes() == b"all of it"
    fake.asked.clear()
    fake.on("GET", "/files", cut, Reply(body=b"all of it"))
    stream = io.BytesIO()
    with pytest.raises(ringfence.TransportError):
        session.download("kept.bin", stream)
    assert fake.count()["GET /sessions/s/files"] == 1, "what was written to a stream stays written"


def test_a_hostile_name_stays_in_its_folder(session, fake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["../../etc/cron.d/x", "/etc/y", "..\\..\\z"]
    entries = [{"file_id": "1", "filename": name} for name in [*names, "..", "a/..", "/", "c:evil", "n\0ul"]]
    fake.on("GET", "/files", Reply(body=b"content"))
    files = answer(session, fake, executed({"content": entries})).files
    assert [file.save().name for file in files[:3]] == ["x", "y", "z"]
    for file in files[3:]:
        with pytest.raises(ValueError, match="no name for a local file"):
            file.save()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "y", "z"]


def test_a_notebook_shows_no_markup_of_the_session(session, fake):
    entries = [
        {"file_id": str(number), "filename": name} for number, name in enumerate(['"><b>.png', "no.png", "big.gif"])
    ]
    content = {"stdout": "<script>1</script>", "stderr": "<b>", "return_code": 1, "content": entries}
    result = answer(session, fake, executed(content, limit_exceeded="<i>", interpreter_restarted=True, files_omitted=3))
    png = b"\x89PNG\r\n\x1a\n..."
    contents = [png, b"<svg onload=x>", b"GIF89a"]
    fake.on("GET", "/files", *[Reply(body=content) for content in contents])
    assert list(result.figures()) == ['"><b>.png', "no.png", "big.gif"]
    shown = result._repr_mimebundle_()
    for markup in ("<script", "<b>", "<i>", "<svg", '""'):
        assert markup not in shown["text/html"]
    assert shown["text/html"].count("<img ") == 2
    assert "files: no.png, 3 more" in shown["text/html"]
    assert "image/png" not in shown, "two pictures are in the page alone"
    assert shown["text/plain"].endswith(
        "ended with status 1; limit exceeded: <i>; the interpreter was restarted: variables are gone"
    )
    long = answer(session, fake, executed({"stdout": "x" * (_limits.SHOWN_CHARS_MAX + 5)}))._repr_mimebundle_()
    assert long["text/plain"].startswith("[5 characters before are not shown]\nx")


def test_a_figure_that_cannot_be_had_does_not_hide_the_others(fake):
    entries = [{"file_id": name, "filename": name} for name in ("huge.png", "gone.png", "good.png")]
    fake.on("POST", "/exec", executed({"content": entries}))
    png = b"\x89PNG\r\n\x1a\n"
    huge = Reply(body=png + b"." * _limits.FIGURE_BYTES_MAX)
    fake.on("GET", "/files", huge, Reply(404), Reply(body=png), huge)
    with ringfence.Session(fake.url) as session:
        result = session.run("pass")
        assert "files: huge.png, gone.png" in result._repr_mimebundle_()["text/html"]
        with pytest.raises(ringfence.AnswerError, match="larger than"):
            result.figures()


def test_answers_are_bounded():
    memory = _sinks.Memory("GetFile", 10, ": save it")
    assert memory.add(b"x" * 10)
    with pytest.raises(ringfence.AnswerError, match="larger than 10 bytes: save it"):
        memory.add(b"x")
    refusal = _sinks.Refusal("Execute", 500, None, ringfence.NotFound)
    assert not refusal.add(b"x" * 100_000)


def test_odd_listings_and_uploads(session, fake):
    fake.on("GET", "/files/list", Reply(body={"files": [{"path": "a", "size_bytes": 1}], "truncated": True}))
    listing = session.files()
    assert (listing[0].path, listing[0].mime_type, listing[0].modified_at, listing.truncated) == ("a", None, None, True)
    for body in ({}, {"files": {}}, {"files": ["a"]}, {"files": [{"path": "a"}]}):
        fake.on("GET", "/files/list", Reply(body=body))
        with pytest.raises(ringfence.AnswerError):
            session.files("sub", recursive=True)
    assert fake.last("GET").path == "/sessions/s/files/list?path=sub&recursive=true"
    fake.on("POST", "/files", Reply(201, {"path": "a"}))
    with pytest.raises(ringfence.AnswerError):
        session.upload(b"x", "a")
    with pytest.raises(ValueError, match="needs a name"):
        session.upload(b"x")
    with pytest.raises(FileNotFoundError):
        session.upload("no such file")
    with pytest.raises(TypeError, match="StringIO"):
        session.upload(io.StringIO("text"), "a")


def test_the_error_of_the_block_is_the_one_that_is_seen(flavour, fake):
    fake.on("DELETE", "/sessions/s", Reply(500, {"detail": "no"}))
    with pytest.raises(KeyError), flavour.session(fake.url):
        raise KeyError
    with pytest.raises(ringfence.BackendError, match="DestroySession"), flavour.session(fake.url):
        pass
    fake.on("DELETE", "/sessions/s", Reply(404))
    with flavour.session(fake.url):
        pass


def test_sessions_are_listed(flavour, fake):
    client = flavour.client(fake.url)
    fake.on("GET", "/sessions", Reply(body={"sessions": [{"session_id": "a", "tier": 5}], "more": 1}))
    assert [(handle.session_id, handle.tier) for handle in client.sessions()] == [("a", None)]
    for odd in ({}, {"sessions": 5}, {"sessions": ["a"]}, {"sessions": [{}]}):
        fake.on("GET", "/sessions", Reply(body=odd))
        with pytest.raises(ringfence.AnswerError):
            client.sessions()


def test_an_interrupt_says_what_it_met(session, fake):
    fake.on("POST", "/interrupt", Reply(body={"interrupted": True}))
    assert session.interrupt() is True
    fake.on("POST", "/interrupt", Reply(body={"interrupted": "yes"}))
    with pytest.raises(ringfence.AnswerError, match="interrupted"):
        session.interrupt()
    fake.on("POST", "/interrupt", Reply(404))
    with pytest.raises(ringfence.SessionGone):
        session.interrupt()
