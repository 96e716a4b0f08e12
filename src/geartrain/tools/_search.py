"""Walking through a folder and searching its files, bounded in files, bytes, entries and time.

The order is that of sorted names, files before folders, so the same tree gives the same answer each time. If there
are more matches than may be shown, each file shows some before one shows many.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from geartrain.tools._clean import cleaned
from geartrain.tools._confine import NAMES_MAX, opened_folder, opened_in
from geartrain.tools._errors import FileFailed
from geartrain.tools._literals import Glance, glance_of_literal
from geartrain.tools._pattern import Pattern

SKIPPED_FOLDERS: Final = frozenset(
    {".git", ".hg", ".svn", "node_modules", ".venv", "venv", "__pycache__", ".geartrain"}
    | {".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".tox", ".nox"}
)
ENTRIES_MAX: Final = 100_000
FILES_MAX: Final = 20_000
FILE_BYTES_MAX: Final = 2 * 1024 * 1024
BYTES_MAX: Final = 128 * 1024 * 1024
SECONDS_MAX: Final = 10.0
LINE_CHARACTERS_MAX: Final = 2_000
SHOWN_CHARACTERS_MAX: Final = 300
# So many matches are kept to choose from.
KEPT_MATCHES_MAX: Final = 20_000
PROBE_BYTES: Final = 8 * 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder; `kind` is "folder", "file", "link" or "other", `size` that of a file in bytes."""

    name: str
    kind: str
    size: int = 0


def entries_of(folder: int) -> tuple[list[Entry], bool]:
    """Return what is in an open folder, sorted by name, and whether there is more than was looked at."""
    entries: list[Entry] = []
    with os.scandir(folder) as found:
        for entry in found:
            if len(entries) == ENTRIES_MAX:
                return sorted(entries, key=_by_name), True
            entries.append(_entry(entry))
    return sorted(entries, key=_by_name), False


def _by_name(entry: Entry) -> str:
    return entry.name


def _entry(found: os.DirEntry[str]) -> Entry:
    try:
        if found.is_symlink():
            return Entry(found.name, "link")
        if found.is_dir(follow_symlinks=False):
            return Entry(found.name, "folder")
        if found.is_file(follow_symlinks=False):
            return Entry(found.name, "file", found.stat(follow_symlinks=False).st_size)
    except OSError:  # it is gone by now
        pass
    return Entry(found.name, "other")


def shown_name(name: str) -> str:
    """Return a name or path as one line of clean text."""
    return cleaned(name).replace("\n", "\\n").replace("\t", "\\t")


@dataclass(slots=True)
class Search:
    """One search: what is looked for, what was found, and what was left out and why.

    `matches` says of one line whether it is wanted. `output_bytes` is the room for matches that is left.
    `glance` says of bytes that no line of them is wanted. `now` is a clock of seconds that only goes forward.
    """

    root: str
    matches: Callable[[str], bool]
    glob: str
    max_matches: int
    output_bytes: int
    glance: Glance | None = None
    now: Callable[[], float] = time.monotonic
    found: list[str] = field(default_factory=list)
    files: int = 0
    bytes_read: int = 0
    skipped_binary: int = 0
    skipped_large: int = 0
    skipped_failed: int = 0
    lines_cut: int = 0
    stopped: str = ""
    _until: float = 0.0
    _kept: dict[str, list[str]] = field(default_factory=dict)
    _count: int = 0

    def run(self, path: str) -> None:
        """Search the folder *path* below the root, and the folders in it.

        Raises:
            PathRefused: The path may not be used.
            FileFailed: It is no folder, or may not be opened.
        """
        self._until = self.now() + SECONDS_MAX
        waiting = [path]
        while waiting and not self.stopped:
            below = waiting.pop()
            try:
                folders = self._folder(below)
            except FileFailed:
                if below == path:
                    raise
                self.skipped_failed += 1
                continue
            waiting.extend(reversed(folders))
        self._choose()

    def _choose(self) -> None:
        """Take from what was kept as much as may be shown: the first match of every file, then the second."""
        turns = sorted(
            (position, index) for index, kept in enumerate(self._kept.values()) for position in range(len(kept))
        )
        if len(turns) > self.max_matches:
            firsts = len(self._kept)
            # With more files than room, files from everywhere, and not the first of the alphabet.
            step = max(1, -(-firsts // self.max_matches))
            turns = [turn for offset in range(step) for turn in turns[offset:firsts:step]] + turns[firsts:]
        files = list(self._kept.values())
        chosen: list[tuple[int, int]] = []
        for position, index in turns:
            self.output_bytes -= len(files[index][position].encode()) + 1
            if len(chosen) == self.max_matches or self.output_bytes < 0:
                self.stopped = f"there are more than these {len(chosen):,} matches"
                break
            chosen.append((index, position))
        self.found.extend(files[index][position] for index, position in sorted(chosen))

    def _folder(self, path: str) -> list[str]:
        with opened_folder(self.root, path) as folder:
            entries, more = entries_of(folder)
            if more:
                self.stopped = f"a folder has more than {ENTRIES_MAX:,} entries"
            for entry in entries:
                below = entry.name if path in {"", "."} else f"{path}/{entry.name}"
                if entry.kind == "file" and self._wanted(entry.name, below):
                    self._file(folder, entry, below)
                if self.stopped:
                    return []
        folders = [entry.name for entry in entries if entry.kind == "folder" and entry.name not in SKIPPED_FOLDERS]
        if path.count("/") + 2 > NAMES_MAX:
            self.skipped_failed += len(folders)
            return []
        return [name if path in {"", "."} else f"{path}/{name}" for name in folders]

    def _wanted(self, name: str, path: str) -> bool:
        return fnmatchcase(name, self.glob) or fnmatchcase(path, self.glob)

    def _file(self, folder: int, entry: Entry, path: str) -> None:
        if entry.size > FILE_BYTES_MAX:
            self.skipped_large += 1
            return
        self.files += 1
        try:
            with opened_in(folder, entry.name, path) as descriptor:
                data = _read(descriptor, FILE_BYTES_MAX)
        except (FileFailed, OSError):
            self.skipped_failed += 1
            return
        self.bytes_read += len(data)
        if b"\0" in data[:PROBE_BYTES]:
            self.skipped_binary += 1
        else:
            self._lines(data, path)
        if self.files >= FILES_MAX:
            self.stopped = self.stopped or f"{FILES_MAX:,} files were searched"
        elif self.bytes_read >= BYTES_MAX:
            self.stopped = self.stopped or f"{BYTES_MAX:,} bytes were searched"

    def _lines(self, data: bytes, path: str) -> None:
        lines = data.split(b"\n")
        if lines and not lines[-1]:
            lines.pop()
        indexes = self.glance.lines(data) if self.glance else None
        # Only for the note about long lines.
        long = [line for line in lines if len(line) > LINE_CHARACTERS_MAX]
        self.lines_cut += sum(len(_text(line)) > LINE_CHARACTERS_MAX for line in long)
        name = shown_name(path)
        for index in range(len(lines)) if indexes is None else indexes:
            text = _text(lines[index])
            if self.matches(text[:LINE_CHARACTERS_MAX]):
                self._keep(text, f"{name}:{index + 1}", path)
            if self.stopped or self._late():
                return
        self._late()

    def _late(self) -> bool:
        if self.now() > self._until:
            self.stopped = f"{SECONDS_MAX:g} seconds are over"
        return bool(self.stopped)

    def _keep(self, line: str, place: str, path: str) -> None:
        shown = cleaned(line[:SHOWN_CHARACTERS_MAX]) + "…" * (len(line) > SHOWN_CHARACTERS_MAX)
        self._kept.setdefault(path, []).append(f"{place}: {shown}")
        self._count += 1
        if self._count > KEPT_MATCHES_MAX:
            self.stopped = f"there are more than {KEPT_MATCHES_MAX:,} matches"

    def text(self) -> str:
        """Return the matches, one a line, and what a reader must know about what was left out."""
        notes = [self.stopped and f"stopped: {self.stopped}; narrow the search"]
        counted = {
            "binary file(s)": self.skipped_binary,
            f"file(s) of more than {FILE_BYTES_MAX:,} bytes": self.skipped_large,
            "file(s) or folder(s) that could not be opened": self.skipped_failed,
        }
        notes += [f"skipped: {count:,} {what}" for what, count in counted.items() if count]
        if self.lines_cut:
            notes.append(f"of {self.lines_cut:,} long line(s) only {LINE_CHARACTERS_MAX:,} characters were searched")
        head = self.found or [f"no match in {self.files:,} file(s)"]
        return "\n".join([*head, *(f"[{note}]" for note in notes if note)])


def _read(descriptor: int, size: int) -> bytes:
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        return file.read(size)


def _text(line: bytes) -> str:
    return line.removesuffix(b"\r").decode("utf-8", "backslashreplace")


def matcher(pattern: str, *, literal: bool, ignore_case: bool) -> tuple[Callable[[str], bool], Glance]:
    """Return what says of a line whether *pattern* is in it, and what says quickly of bytes that it is in none.

    Raises:
        PatternRefused: It is no regular expression that can be searched in linear time.
    """
    if not literal:
        compiled = Pattern(pattern, ignore_case=ignore_case)
        return compiled.found_in, compiled.glance
    glance = glance_of_literal(pattern, ignore_case=ignore_case)
    if ignore_case:
        folded = pattern.casefold()
        return lambda line: folded in line.casefold(), glance
    return lambda line: pattern in line, glance
