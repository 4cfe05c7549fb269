"""Both clients against the real server."""

from __future__ import annotations

import hashlib
import io
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ringfence

PICTURE = """
import struct, zlib
def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
header = struct.pack('>IIBBBBB', 2, 2, 8, 2, 0, 0, 0)
rows = zlib.compress((b'\\0' + b'\\xff\\0\\0' * 2) * 2)
picture = b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', header) + chunk(b'IDAT', rows) + chunk(b'IEND', b'')
open('red.png', 'wb').write(picture)
open('notes.txt', 'w').write('red')
print('drawn')
"""


def test_state_lives_from_call_to_call(session):
    assert session.run("x = 41").ok
    result = session.run("print(x + 1)")
    assert (result.stdout, result.stderr, result.return_code, result.ok) == ("42\n", "", 0, True)
    assert result.raise_for_status().tool_use_id
    assert result.block_type == "code_execution_tool_result"
    assert result.execution_time_ms >= 0
    assert result.usage.stdout_bytes == 3
    assert (result.limit_exceeded, result.interpreter_restarted, result.background) == (None, False, None)
    assert result.raw["result_block"]["content"]["stdout"] == "42\n"


def test_a_handle_says_what_is_in_force(flavour, server_url):
    with flavour.session(server_url, idle_timeout_seconds=100.5, max_lifetime_seconds=2000) as session:
        handle = session.handle
        assert handle.session_id == session.id
        assert (handle.idle_timeout_seconds, handle.max_lifetime_seconds) == (101, 2000)
        assert handle.image
        assert handle.tier
        assert handle.limits["output_bytes_max"] > 0
        assert session.describe().created_at == handle.created_at


def test_a_failed_program_is_a_result_until_it_is_raised(session):
    result = session.run("import sys; print('so far'); sys.stderr.write('lost\\n'); sys.exit(3)")
    assert (result.return_code, result.ok, result.stdout) == (3, False, "so far\n")
    with pytest.raises(ringfence.ProgramError, match="status 3") as raised:
        result.raise_for_status()
    assert (raised.value.return_code, raised.value.stderr) == (3, "lost\n")
    with pytest.raises(ringfence.ProgramError, match="ZeroDivisionError"):
        session.run("1 / 0").raise_for_status()


def test_echo(session):
    assert session.run("6 * 7", echo=True).stdout == "42\n"
    assert session.run("6 * 7", echo=False).stdout == ""


def test_a_timeout_is_named(session):
    result = session.run("while True: pass", timeout=1)
    assert (result.return_code, result.limit_exceeded, result.timeout_seconds) == (124, "wall_clock", 1)
    with pytest.raises(ringfence.ProgramError, match="wall_clock"):
        result.raise_for_status()


def test_a_lost_interpreter_is_named(session):
    session.run("x = 1")
    assert session.run("import os; os.kill(os.getpid(), 9)").return_code == 137
    result = session.run("print('x' in globals())")
    assert result.stdout == "False\n"


def test_a_call_is_interrupted_and_variables_are_kept(session, server_url):
    session.run("x = 1")
    assert session.interrupt() is False

    def interrupt():
        with ringfence.Client(server_url) as other:
            attached = other.attach(session.id)
            while not attached.interrupt():
                pass

    with ThreadPoolExecutor(1) as pool:
        interrupting = pool.submit(interrupt)
        result = session.run("import time; time.sleep(600)", timeout=600)
        interrupting.result()
    assert (result.return_code, result.limit_exceeded, result.interpreter_restarted) == (130, None, False)
    assert result.stderr.endswith("ringfence: interrupted by the caller; variables are kept\n")
    assert session.run("print(x)").stdout == "1\n"


def test_a_server_without_a_token_lists_no_sessions(flavour, server_url):
    with pytest.raises(ringfence.BackendError) as refused:
        flavour.client(server_url).sessions()
    assert refused.value.status == 403


def test_output_between_calls_is_apart(session):
    session.run(
        "import threading\nnext_call = threading.Event()\n"
        "def late():\n    print('late', flush=True)\n    open('done', 'w').close()\n"
        "threading.Timer(0.2, late).start()"
    )
    result = session.bash("while [ ! -e done ]; do sleep 0.02; done; echo shell")
    following = session.run("print('next')")
    assert (result.stdout, following.stdout) == ("shell\n", "next\n")
    assert "late\n" in {
        result.background and result.background.stdout,
        following.background and following.background.stdout,
    }


def test_the_shell_and_the_editor(session):
    assert session.bash("echo out; echo err >&2; exit 7").return_code == 7
    assert session.create("note.md", "one\nthree\n").ok
    assert session.insert("note.md", 1, "two\n").ok
    assert session.str_replace("note.md", "three", "THREE").ok
    assert session.view("note.md").stdout == "one\ntwo\nTHREE\n"
    assert "THREE" not in session.view("note.md", (1, 2)).stdout
    assert session.undo("note.md").ok
    assert session.view("note.md").stdout == "one\ntwo\nthree\n"
    refused = session.str_replace("note.md", "absent", "x")
    assert (refused.ok, refused.return_code) == (False, 1)
    assert refused.stderr.startswith("note.md")


def test_files_go_there_and_back(session, tmp_path):
    content = bytes(range(256)) * 12_000
    local = tmp_path / "data.bin"
    local.write_bytes(content)
    stored = session.upload(local)
    assert (stored.path, stored.size_bytes) == ("data.bin", len(content))
    assert session.upload(str(local), 'sub/Größe %41 "q".bin').path == 'sub/Größe %41 "q".bin'
    assert session.upload(b"bytes", "b.txt").size_bytes == 5
    with local.open("rb") as file:
        assert session.upload(file, "c.bin").size_bytes == len(content)
    digest = hashlib.sha256(content).hexdigest()
    assert session.bash("sha256sum < sub/*.bin").stdout.startswith(digest)
    assert session.download('sub/Größe %41 "q".bin') == content
    assert session.download("data.bin", tmp_path / "copy.bin") == tmp_path / "copy.bin"
    assert (tmp_path / "copy.bin").read_bytes() == content
    (tmp_path / "folder").mkdir()
    assert session.download("data.bin", str(tmp_path / "folder")) == tmp_path / "folder" / "data.bin"
    stream = io.BytesIO()
    assert session.download("b.txt", stream) == 5
    assert stream.getvalue() == b"bytes"
    assert [file.path for file in session.files()] == ["b.txt", "c.bin", "data.bin"]
    assert len(session.files(recursive=True)) == 4
    [entry] = session.files("sub")
    assert (entry.size_bytes, entry.modified_at > 0) == (len(content), True)
    session.delete("b.txt")
    with pytest.raises(ringfence.NotFound) as raised:
        session.download("b.txt")
    assert raised.value.status == 404
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.bin", "data.bin", "folder"]


def test_an_empty_file_goes_there_and_back(session):
    assert session.upload(b"", "empty").size_bytes == 0
    assert session.download("empty") == b""


def test_refusals_are_typed(session):
    for path, kind, status in [("../up", ringfence.PathRefused, 403), ("a\0b", ringfence.BadRequest, 400)]:
        with pytest.raises(kind) as raised:
            session.download(path)
        assert raised.value.status in {status, 422}
        assert raised.value.detail
    with pytest.raises(ringfence.BadRequest):
        session.execute("no_such_tool", {})


def test_a_released_session_is_gone(flavour, server_url):
    with flavour.client(server_url) as client:
        session = client.session().open()
        other = client.attach(session.id)
        assert other.run("print('shared')").stdout == "shared\n"
        session.close()
        session.close()
        for use in (lambda: other.run("1"), other.files, other.describe, lambda: other.upload(b"", "x")):
            with pytest.raises(ringfence.SessionGone):
                use()
        with pytest.raises(ringfence.SessionGone, match="closed in this program"):
            session.run("1")
        other.close()


def test_a_kept_session_outlives_its_owner(flavour, server_url):
    with flavour.session(server_url) as session:
        session.run("x = 5")
        kept = session.keep()
    with flavour.session(server_url, session_id=kept) as again:
        assert again.run("print(x)").stdout == "5\n"
    with flavour.session(server_url, session_id=kept) as again:
        again.destroy()
    with pytest.raises(ringfence.SessionGone), flavour.session(server_url, session_id=kept) as again:
        again.run("1")


def test_produced_files_are_fetched(session, tmp_path, monkeypatch):
    result = session.run(PICTURE)
    assert [file.filename for file in result.files] == ["red.png", "notes.txt"]
    picture, notes = result.files
    assert picture.file_id != notes.file_id
    assert notes.read() == b"red"
    monkeypatch.chdir(tmp_path)
    assert picture.save().read_bytes() == picture.read()
    assert notes.save("mine.txt") == Path("mine.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt", "red.png"]
    assert list(result.figures()) == ["red.png"]
    shown = result._repr_mimebundle_()
    assert shown["text/plain"] == "drawn\nfiles: red.png, notes.txt"
    assert "<pre>drawn\n</pre>" in shown["text/html"]
    assert 'src="data:image/png;base64,iVBORw0KGgo' in shown["text/html"]
    assert "files: notes.txt" in shown["text/html"]
    assert shown["image/png"].startswith("iVBORw0KGgo")


def test_figures_are_fetched_when_they_are_shown(server_url):
    with ringfence.Session(server_url) as session:
        shown, later = session.run(PICTURE), session.run(PICTURE)
        assert "image/png" in shown._repr_mimebundle_()
    assert "image/png" in shown._repr_mimebundle_()
    after = later._repr_mimebundle_()
    assert "image/png" not in after
    assert "files: red.png, notes.txt" in after["text/html"]


def session_count(url):
    with ringfence.Client(url) as client:
        return client.health()["session_count"]


def test_a_forgotten_session_is_released(server_url, run_python):
    before = session_count(server_url)
    code = """
import threading, ringfence
client = ringfence.Client()
dropped = ringfence.Session()
dropped.run("1")
count = client.health()["session_count"]
del dropped
[thread.join(10) for thread in threading.enumerate() if thread is not threading.main_thread()]
assert client.health()["session_count"] == count - 1
client.close()
held = ringfence.Session()
held.run("1")
print(held.id)
"""
    done = run_python(code, RINGFENCE_URL=server_url)
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(ringfence.SessionGone), ringfence.Session(server_url, session_id=done.stdout.strip()) as session:
        session.run("1")
    assert session_count(server_url) == before


def test_threads_share_one_lease(server_url):
    with ringfence.Session(server_url) as session, ThreadPoolExecutor(4) as pool:
        session.run("seen = []")
        assert all(pool.map(lambda number: session.run(f"seen.append({number})").ok, range(8)))
        assert session.run("print(sorted(seen))").stdout == f"{list(range(8))}\n"


def test_large_files_do_not_stay_in_memory(server_url, tmp_path):
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        file.truncate(64 << 20)
    with ringfence.Session(server_url) as session:
        session.upload(b"warm", "warm")
        session.download("warm", tmp_path / "warm")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        session.upload(large)
        assert session.download("large.bin", tmp_path / "back.bin").stat().st_size == 64 << 20
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 24 << 10, "far less than the file"
