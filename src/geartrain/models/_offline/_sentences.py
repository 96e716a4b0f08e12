"""Sentences of plain texts, which run over the ends of lines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from geartrain.models._offline._evidence import strength
from geartrain.models._offline._question import Term
from geartrain.models._offline._words import forms

SENTENCE_CHARS_MAX: Final = 320
_LINES_MAX: Final = 6
_NO_PROSE: Final = re.compile(r"^\s*(?:#{1,6}\s|```|~~~|[-=~*_]{3,}\s*$|\|)|^\s*$")
_ITEM: Final = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+")
_END: Final = re.compile(r"(?<=[.!?])[\"”')]?\s+(?=[\"“'(]?[A-ZÀ-Þ0-9`*])")


def sentence_at(lines: Mapping[int, str], line: int, terms: Sequence[Term]) -> tuple[int, str]:
    """Return the sentence that touches *line* and says most of *terms*, and the line on which it begins."""
    first = line
    while line - first < _LINES_MAX and _runs_on(lines, first - 1) and not _ITEM.match(lines[first]):
        first -= 1
    last = line
    while last - line < _LINES_MAX and _runs_on(lines, last + 1) and not _ITEM.match(lines[last + 1]):
        last += 1
    if lines[line].lstrip().startswith("|"):
        cells = [cell.strip() for cell in lines[line].strip().strip("|").split("|")]
        return line, _short(max(cells, key=lambda cell: _value(cell, terms)))
    if _NO_PROSE.match(lines[line]):
        first = last = line
    # Where in the joined text each line begins.
    text, begins = "", []
    for number in range(first, last + 1):
        begins.append((len(text), number))
        text += ("" if not text else " ") + _ITEM.sub("", lines[number]).strip()
        begins[-1] = (begins[-1][0] + (begins[-1][0] > 0), number)
    own_begin = next(at for at, number in begins if number == line)
    own_end = own_begin + len(_ITEM.sub("", lines[line]).strip())
    best, found = -1.0, (line, lines[line].strip())
    for begin, end in _spans(text):
        if begin < own_end and end > own_begin:
            said = text[begin:end].strip()
            value = _value(said, terms)
            if value > best:
                starts = max(number for at, number in begins if at <= begin)
                best, found = value, (starts, _short(said))
    return found


def _value(text: str, terms: Sequence[Term]) -> float:
    found = forms(text)
    return sum(term.weight * strength(term, text, found) for term in terms)


def _runs_on(lines: Mapping[int, str], number: int) -> bool:
    return number in lines and not _NO_PROSE.match(lines[number])


def _spans(text: str) -> list[tuple[int, int]]:
    ends = [match.end() for match in _END.finditer(text)]
    return list(zip([0, *ends], [*ends, len(text)], strict=True))


def _short(text: str) -> str:
    if len(text) <= SENTENCE_CHARS_MAX:
        return text
    return f"{text[:SENTENCE_CHARS_MAX].rpartition(' ')[0] or text[:SENTENCE_CHARS_MAX]} …"
