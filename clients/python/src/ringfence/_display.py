"""What a notebook shows of a result. Everything that comes from a session is escaped."""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING, Any

from ._limits import FIGURES_MAX, SHOWN_CHARS_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._answers import F, Outcome

_MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
}
_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif")
_NOTICE = 'style="color: #a33"'


def figures(outcome: Outcome[F]) -> list[F]:
    """The files of a result that are pictures by their name, as many as are shown."""
    return [file for file in outcome.files if file.filename.lower().endswith(_SUFFIXES)][:FIGURES_MAX]


def _media_type(content: bytes) -> str:
    """What the picture is by its first bytes; empty where it is none that is shown."""
    return next((kind for magic, kind in _MAGIC.items() if content.startswith(magic)), "")


def _tail(text: str) -> str:
    left_out = len(text) - SHOWN_CHARS_MAX
    return text if left_out <= 0 else f"[{left_out} characters before are not shown]\n{text[left_out:]}"


def _notices(outcome: Outcome[Any]) -> list[str]:
    notices = []
    if not outcome.ok:
        notices.append(f"ended with status {outcome.return_code}")
    if outcome.limit_exceeded:
        notices.append(f"limit exceeded: {outcome.limit_exceeded}")
    if outcome.interpreter_restarted:
        notices.append("the interpreter was restarted: variables are gone")
    return notices


def _files(outcome: Outcome[Any], shown: Mapping[str, str]) -> str:
    names = [file.filename for file in outcome.files if file.filename not in shown]
    more = [f"{outcome.files_omitted} more"] if outcome.files_omitted else []
    return ", ".join(names + more)


def bundle(outcome: Outcome[Any], contents: Mapping[str, bytes]) -> dict[str, str]:
    """The representations of a result, with the pictures whose contents are given by their filename."""
    kinds = {name: kind for name, content in contents.items() if (kind := _media_type(content))}
    pictures = {name: base64.b64encode(contents[name]).decode("ascii") for name in kinds}
    streams = [("", _tail(outcome.stdout)), (f" {_NOTICE}", _tail(outcome.stderr))]
    html = [f"<pre{style}>{escape(text)}</pre>" for style, text in streams if text]
    html += [
        f'<img alt="{escape(name)}" title="{escape(name)}" src="data:{kinds[name]};base64,{picture}">'
        for name, picture in pictures.items()
    ]
    plain = [text.rstrip("\n") for _, text in streams if text]
    if files := _files(outcome, kinds):
        html.append(f"<div>files: {escape(files)}</div>")
    if every_file := _files(outcome, {}):
        plain.append(f"files: {every_file}")
    if notices := "; ".join(_notices(outcome)):
        html.append(f"<div {_NOTICE}>{escape(notices)}</div>")
        plain.append(notices)
    shown = {"text/plain": "\n".join(plain), "text/html": "\n".join(html)}
    if len(pictures) == 1:
        [(name, picture)] = pictures.items()
        shown[kinds[name]] = picture
    return shown
