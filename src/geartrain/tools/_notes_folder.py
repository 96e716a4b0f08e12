"""A folder of notes as memory: what lies in it, a run of the agent begins with.

Rule 1: only what lies below the folder is read. No link is followed, wherever it leads.
Rule 2: the same folder gives the same text: names are sorted, a folder's own notes come before those of folders in it.
Rule 3: what is left out is said, and why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from geartrain.errors import InvalidValue
from geartrain.tools._clean import cleaned
from geartrain.tools._confine import explained, opened_folder, opened_in
from geartrain.tools._errors import FileFailed
from geartrain.tools._note import Note
from geartrain.tools._search import SKIPPED_FOLDERS, entries_of, shown_name

NOTES_MAX: Final = 500
DEPTH_MAX: Final = 8


def notes_folder(
    path: str | os.PathLike[str], *, name: str = "notes", pinned: bool = False, bytes_max: int = 32 * 1024
) -> Callable[[Any], Note | None]:
    """Return a context provider that gives the notes (`*.md`) of the folder at *path*, and of the folders in it.

    They are read anew for each run, each under its name. A folder without notes gives nothing; one that is not there,
    or may not be read, fails the run: it must not go on without what it was to know. Links are not followed.

    Args:
        path: The folder; a relative path is one of the current folder, now.
        name: What the provider is called, in the run's record; two providers of one agent have different names.
        pinned: Whether the notes stay in the context however long the run is.
        bytes_max: The most that all notes together may have; what is left out is named.

    Raises:
        InvalidValue: *bytes_max* is less than 1.
    """
    if bytes_max < 1:
        raise InvalidValue("bytes_max", "at least 1", bytes_max)
    root = os.path.abspath(path)

    def notes(_view: Any) -> Note | None:
        text = _notes_in(root, bytes_max)
        return Note(text, pinned=pinned) if text else None

    notes.__name__ = name
    return notes


def _notes_in(root: str, room: int) -> str:
    parts: list[str] = []
    left_out = 0
    for number, (name, read) in enumerate(_found(root), start=1):
        part = f"## {shown_name(name)}\n{read(room)}" if number <= NOTES_MAX else ""
        if not part or len(part) > room:
            left_out += 1
            continue
        room -= len(part) + 2
        parts.append(part)
    if left_out:
        parts.append(f"[notes left out, as they are too much: {left_out:,}]")
    return "\n\n".join(parts)


def _found(root: str) -> Iterator[tuple[str, Callable[[int], str]]]:
    """Yield each note's name, and what reads it, one that is larger than a given room cut off beyond that."""
    waiting = ["."]
    while waiting:
        below = waiting.pop()
        with opened_folder(root, below) as folder:
            with explained(below):
                entries, _ = entries_of(folder)
            start = "" if below == "." else f"{below}/"
            for entry in entries:
                if entry.kind == "file" and entry.name.endswith(".md"):
                    yield f"{start}{entry.name}", partial(_text, folder, entry.name)
            folders = [f"{start}{e.name}" for e in entries if e.kind == "folder" and e.name not in SKIPPED_FOLDERS]
        if below.count("/") + 1 < DEPTH_MAX:
            waiting.extend(reversed(folders))


def _text(folder: int, name: str, room: int) -> str:
    try:
        with opened_in(folder, name, name) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as file:
            return cleaned(file.read(room + 1).decode("utf-8", "backslashreplace")).strip()
    except FileFailed as error:  # one note that cannot be read must not hide the others
        return f"[cannot be read: {error}]"
