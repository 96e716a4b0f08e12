"""Citations of lines that are known, with what they stand in and what documents them."""

from __future__ import annotations

from collections.abc import Iterable

from geartrain.models._offline._observed import Seen
from geartrain.models._offline._question import Question
from geartrain.models._offline._quoting import Citation, excerpt, sentence
from geartrain.models._offline._scope import documented, enclosing
from geartrain.models._offline._standing import is_prose
from geartrain.models._offline._syntax import is_definition


def citation(question: Question, seen: Seen, path: str, line: int, note: str = "") -> Citation:
    """Return a citation of *line* of *path*; *note* says what it is, else it is said what it stands in."""
    lines = seen.lines[path]
    if not note and not is_prose(path):
        inside = enclosing(path, lines, line)
        note = f"in `{inside}`" if inside else ""
    said = documented(lines, line) if is_definition(path, lines[line]) else None
    said_of_it = f"{sentence(said[1])} (line {said[0]})" if said else ""
    return Citation(path, line, excerpt(lines[line], question), note, said_of_it)


def by_file(citations: Iterable[Citation]) -> tuple[Citation, ...]:
    """Return the citations with those of one file together, files in order of their best, lines in order."""
    files: dict[str, list[Citation]] = {}
    for one in citations:
        files.setdefault(one.path, []).append(one)
    return tuple(one for group in files.values() for one in sorted(group, key=lambda one: one.line))
