"""The answer to where something is handled: the files with most lines that act on it, and the functions there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from geartrain.models._offline._citing import citation
from geartrain.models._offline._echo import repeats
from geartrain.models._offline._evidence import SAYS_ITSELF, Kind, kind_of, strength
from geartrain.models._offline._observed import Seen
from geartrain.models._offline._precise import handled
from geartrain.models._offline._question import Question, Term
from geartrain.models._offline._quoting import Section, counted, joined
from geartrain.models._offline._scope import enclosing
from geartrain.models._offline._standing import file_factor, is_prose, is_test
from geartrain.models._offline._syntax import title_of
from geartrain.models._offline._words import forms

FILES_MAX: Final = 5
_PER_FILE_MAX: Final = 3
_LINES_MIN: Final = 3
_FACTOR_MIN: Final = 0.5
_SHARE_MIN: Final = 0.2
_WINDOW_LINES: Final = 90
_MATCH_MIN: Final = 0.5
_SAYS_ONLY: Final = frozenset({Kind.COMMENT, Kind.PROSE, Kind.HEADING, Kind.IMPORT})
_DECIDES: Final = re.compile(
    r"^\s*(?:except|catch|rescue|raise|throw|case|if|elif|else if)\b|"
    r"\b(?:wait_for|call_later|call_at|setTimeout|await)\b"
)
_TEXT: Final = re.compile(r"\"[^\"]*\"|'[^']*'")
# An argument or a parameter in a line of its own.
_PASSES_ON: Final = re.compile(r"^\s+\w+\s*[:=](?!=).*,$")
_ERRORS: Final = re.compile(r"^\s*(?:except|catch|rescue|raise|throw)\b")
_OTHER_THAN_ERRORS: Final = 0.25
_DOES: Final = re.compile(r"\w\s*\(|[\w\])]\s*=(?!=)|^\s*return\b|\bwith\b")

Acting = list[tuple[int, float]]


def acting(question: Question, seen: Seen) -> list[tuple[str, Acting]]:
    """Return the files with lines that act on what is to be handled, that with most first, each line with its worth."""
    terms = handled(question)
    errors = not forms(question.text).isdisjoint(forms("error exception"))
    found: list[tuple[float, str, Acting]] = []
    for path, lines in seen.lines.items():
        factor = file_factor(path, question)
        if not terms or is_prose(path) or is_test(path) or factor < _FACTOR_MIN:
            continue
        weighed = [
            (number, worth * (_OTHER_THAN_ERRORS if errors and not _ERRORS.match(text) else 1.0))
            for number, text in sorted(lines.items())
            for worth in [_worth(path, text, terms)]
            if worth and not repeats(text, question.echoes)
        ]
        if weighed:
            found.append((-factor * sum(worth for _, worth in weighed), path, weighed))
    best = min((total for total, _, _ in found), default=0.0)
    return [(path, weighed) for total, path, weighed in sorted(found)[:FILES_MAX] if total <= best * _SHARE_MIN]


def windows(question: Question, seen: Seen) -> Iterator[tuple[str, int, int]]:
    """Yield path, first line and number of lines of what is worth reading: where the acting lines stand closest."""
    for path, weighed in acting(question, seen):
        starts = [max(1, number - _WINDOW_LINES // 3) for number, _ in weighed]
        start = max(starts, key=lambda at: sum(worth for n, worth in weighed if at <= n < at + _WINDOW_LINES))
        if any(number not in seen.read.get(path, set()) for number, _ in weighed):
            yield path, start, _WINDOW_LINES


def handled_section(question: Question, seen: Seen) -> Section | None:
    """Return where what *question* asks for is handled; None if hardly a line acts on it."""
    files = acting(question, seen)
    if sum(len(weighed) for _, weighed in files) < _LINES_MIN:
        return None
    places, citations = [], []
    for path, weighed in files:
        shown = _telling(path, seen, weighed)
        inside = dict.fromkeys(name for _, name in shown if name)
        where = f" in {joined([f'`{name}`' for name in inside])}" if inside else ""
        places.append(f"`{path}` ({counted(len(weighed), 'line')}{where})")
        citations += [citation(question, seen, path, number) for number, _ in sorted(shown)]
    what = joined([f"“{term.word}”" for term in handled(question)[:2]])
    return Section(f"The files with most lines that act on {what}: {joined(places)}.", tuple(citations))


def _telling(path: str, seen: Seen, weighed: Acting) -> list[tuple[int, str]]:
    """Return the lines to show with what each stands in: the best first, of another function each if there are more."""
    lines = seen.lines[path]
    best = [(n, enclosing(path, lines, n)) for n, _ in sorted(weighed, key=lambda one: (-one[1], one[0]))]
    first: dict[str, tuple[int, str]] = {}
    for number, name in best:
        first.setdefault(name or str(number), (number, name))
    # Those of which it is known where they stand say more.
    distinct = sorted(first.values(), key=lambda one: not one[1])
    return list(dict.fromkeys([*distinct, *best]))[:_PER_FILE_MAX]


def _worth(path: str, text: str, terms: Sequence[Term]) -> float:
    kind = kind_of(path, text)
    if kind in _SAYS_ONLY or SAYS_ITSELF.match(text):
        return 0.0
    # What a text in the code says is done nowhere; and a constant is about what it is called.
    code = title_of(path, text) if kind in {Kind.DEFINITION, Kind.CONSTANT} else _TEXT.sub('""', text)
    found = forms(code)
    said = max((strength(term, code, found) for term in terms), default=0.0)
    if said < _MATCH_MIN:
        return 0.0
    if _PASSES_ON.match(text):
        return 0.3 * said**2
    acts = kind is Kind.DEFINITION or _DECIDES.search(text)
    return (2.0 if acts else 1.0) * said**2 if acts or _DOES.search(text) else 0.0
