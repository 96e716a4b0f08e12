"""Asking the person at the terminal whether a call may run."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from stat import S_ISREG
from typing import Final

from geartrain.cli._screen import Screen
from geartrain.cli._text import counted, one_line, safe
from geartrain.cli._typed import typed_line
from geartrain.runtime import OpenCall

_PREVIEW_LINES: Final = 12
_PREVIEW_WIDTH: Final = 120
_QUESTION: Final = "Allow this call? [y]es, [N]o, [v]iew all of it, [l]ater: "


class Answer(StrEnum):
    """What the person said."""

    YES = "yes"
    NO = "no"
    VIEW = "view"
    LATER = "later"


def answer_of(line: str | None) -> Answer | None:
    """Return what a typed line means: nothing typed is no, the end of the input is later, nonsense is None."""
    if line is None:
        return Answer.LATER
    word = line.strip().lower()
    return Answer.NO if not word else next((a for a in Answer if word in (a.value, a.value[0])), None)


def described(call: OpenCall, *, whole: bool = False, root: str | None = None) -> list[str]:
    """Return what the person should see before deciding: the tool, why it is asked about, and its arguments.

    With *root*, the folder of the run's files, also that a file which is there would be replaced.
    """
    what = safe(call.tool) if call.role == "tool" else f"the run's {call.role}"
    whose = f" of {one_line(call.agent)}, {call.run_id}" if call.path else ""
    lines = [f"approval needed: {what} ({call.call_id}{whose})"]
    if call.reason:
        lines.append(f"  {one_line(call.reason, 200)}")
    try:
        values = json.loads(call.arguments)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        return [*lines, *_block("arguments", call.arguments, whole=whole)]
    for name, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines += _block(one_line(str(name)), text, whole=whole)
    if call.tool == "write_file" and root is not None:
        lines += _replaced(root, values.get("path"))
    return lines


def _replaced(root: str, path: object) -> list[str]:
    try:
        found = os.stat(os.path.join(root, str(path)))
    except (OSError, ValueError):
        return []
    return [f"  replaces the file that is there ({counted(found.st_size, 'byte')})"] if S_ISREG(found.st_mode) else []


def _block(name: str, text: str, *, whole: bool) -> list[str]:
    rows = safe(text).split("\n")
    if len(rows) == 1 and len(rows[0]) <= _PREVIEW_WIDTH:
        return [f"  {name}: {rows[0]}"]
    head = f"  {name}: {counted(len(text.encode('utf-8', 'replace')), 'byte')}, {counted(len(rows), 'line')}"
    if whole:
        return [head, *(f"    | {row}" for row in rows)]
    shown = [f"    | {row if len(row) <= _PREVIEW_WIDTH else row[: _PREVIEW_WIDTH - 1] + '…'}" for row in rows]
    more = [f"    … {counted(len(rows) - _PREVIEW_LINES, 'more line')}"] if len(rows) > _PREVIEW_LINES else []
    return [head, *shown[:_PREVIEW_LINES], *more]


class Approver:
    """The person at this terminal."""

    __slots__ = ("_screen",)

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    async def ask(self, call: OpenCall, root: str | None = None) -> Answer:
        """Ask until there is an answer; the end of the input is "later". If cancelled, nothing was decided."""
        for line in described(call, root=root):
            self._screen.say(line, "bold" if line[0] != " " else "")
        while True:
            said = answer_of(await typed_line(_QUESTION, afresh=True))
            if said is Answer.VIEW:
                for line in described(call, whole=True):
                    self._screen.say(line)
            elif said is not None:
                return said
