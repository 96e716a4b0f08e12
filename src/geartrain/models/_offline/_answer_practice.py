"""The answer to how a project is worked with: commands and sentences from the texts that are written for strangers."""

from __future__ import annotations

import re
from typing import Final

from geartrain.models._offline._echo import repeats
from geartrain.models._offline._observed import Seen
from geartrain.models._offline._practice import TABLE, Practice, standing
from geartrain.models._offline._question import Question
from geartrain.models._offline._quoting import Citation, Section, excerpt, joined, some
from geartrain.models._offline._standing import is_prose

_SHOWN_MAX: Final = 6
_PER_FILE_MAX: Final = 3
_FACTS_MAX: Final = 2
_SHARE_MIN: Final = 0.45
_HEADING: Final = re.compile(r"^\s*#{1,6}\s|^[=~-]{3,}$")
_MARKS: Final = re.compile(r"^\s*(?:[-*|>]\s*|\$ |\d+\.\s)+|\s*\|\s*$")


def practice_section(question: Question, seen: Seen) -> Section | None:
    """Return what is said about the practice that *question* asks for; None if it asks for none."""
    aim = question.practice
    if aim is None:
        return None
    practice = TABLE[aim]
    chosen = _chosen(practice, question, seen)
    folders = [f for f in sorted(seen.folders, key=lambda f: (f.count("/"), f)) if re.search(practice.folders, f)]
    sentences = []
    facts = _facts(chosen)
    if facts:
        told = joined([f"{_told(practice, path, text)} (`{path}:{line}`)" for path, line, text in facts])
        sentences.append(f"{practice.lead}: {told}.")
    elif not folders:
        sentences.append(f"{practice.nothing}: neither a read-me, a guide for contributors nor a build file.")
    if folders:
        inside = [
            path.rpartition("/")[2] for path in (*seen.folders, *seen.files) if path.rpartition("/")[0] == folders[0]
        ]
        inside = [name for name in dict.fromkeys(inside) if not name.startswith((".", "_"))]
        parts = f", in which there are {some(inside)}" if inside else ""
        sentences.append(f"The tests are in `{folders[0]}/`{parts}.")
    citations = tuple(Citation(path, line, excerpt(text, question)) for path, line, text in _in_order(chosen))
    return Section(" ".join(sentences), citations)


def _chosen(practice: Practice, question: Question, seen: Seen) -> list[tuple[str, int, str]]:
    scored: list[tuple[float, str, int, str]] = []
    for path, lines in seen.lines.items():
        place = standing(practice, path)
        for number, text in lines.items() if place else ():
            value = practice.value_of(text)
            if value and not _HEADING.match(text) and not repeats(text, question.echoes) and len(text.split()) > 1:
                scored.append((-value * place, path, number, text))
    chosen: list[tuple[str, int, str]] = []
    best = min(scored, default=(0.0, "", 0, ""))[0]
    for score, path, number, text in sorted(scored):
        if score > best * _SHARE_MIN or len(chosen) == _SHOWN_MAX:
            break
        if sum(other == path for other, _, _ in chosen) < _PER_FILE_MAX and text.strip() not in {t for *_, t in chosen}:
            chosen.append((path, number, text))
    return chosen


def _facts(chosen: list[tuple[str, int, str]]) -> list[tuple[str, int, str]]:
    """Return the best lines of different files."""
    facts: dict[str, tuple[str, int, str]] = {}
    for one in chosen:
        facts.setdefault(one[0], one)
    return list(facts.values())[:_FACTS_MAX]


def _in_order(chosen: list[tuple[str, int, str]]) -> list[tuple[str, int, str]]:
    files = list(dict.fromkeys(path for path, _, _ in chosen))
    return sorted(chosen, key=lambda one: (files.index(one[0]), one[1]))


def _told(practice: Practice, path: str, text: str) -> str:
    """Return the sentence of a line that says most."""
    pieces = re.split(r"(?<=[.;])\s+(?=[A-Z`])", _MARKS.sub("", text).replace(" | ", ": ").strip())
    bare = max(pieces, key=practice.value_of)
    return f"“{bare}”" if is_prose(path) or "`" in bare else f"`{bare}`"
