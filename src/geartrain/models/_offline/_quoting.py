"""How an answer is written: citations, quotations, and lists in a sentence, as Markdown.

A citation is a path, a line number and a piece of exactly that line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from geartrain.models._offline._question import Question
from geartrain.models._offline._standing import is_prose

QUOTE_CHARS_MAX: Final = 240


@dataclass(frozen=True, slots=True)
class Citation:
    """A line to show: `note` says what it stands in, or what it is."""

    path: str
    line: int
    text: str
    note: str = ""
    documented: str = ""

    @property
    def place(self) -> str:
        """Path and line, as an editor takes them."""
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Section:
    """The answer to one question."""

    summary: str
    citations: tuple[Citation, ...] = ()
    snippet: tuple[Citation, ...] = ()


def rendered(sections: Sequence[Section], titles: Sequence[str]) -> str:
    """Return the sections as Markdown: first what each says, then what it rests on, under its title."""
    lines = ["\n\n".join(section.summary for section in sections if section.summary)]
    for section, title in zip(sections, titles, strict=True):
        if len(sections) > 1 and (section.citations or section.snippet):
            lines += ["", f"### {title}"]
        lines += _findings(section)
    return "\n".join(lines)


def _findings(section: Section) -> list[str]:
    lines: list[str] = []
    for path, group in groupby(section.citations, key=lambda citation: citation.path):
        lines += ["", f"**{path}**", ""]
        for citation in group:
            note = f" ({citation.note})" if citation.note else ""
            documented_as = f" — {citation.documented}" if citation.documented else ""
            lines.append(f"- `{citation.place}`{note}: {quoted(citation.text, is_prose(path))}{documented_as}")
    if section.snippet:
        first, last = section.snippet[0], section.snippet[-1]
        numbered = (f"{one.line}: {one.text}".rstrip() for one in section.snippet)
        lines += ["", f"From `{first.path}`, lines {first.line} to {last.line}:", "", "~~~", *numbered, "~~~"]
    return lines


def quoted(text: str, prose: bool = False) -> str:
    """Return *text* marked as a quotation: as code, or in quotation marks if it is prose."""
    if prose:
        return f"“{text}”"
    ticks = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def excerpt(text: str, question: Question) -> str:
    """Return the piece of a line to quote: all of it, or of a long one what is around the question's words."""
    text = text.strip()
    if len(text) <= QUOTE_CHARS_MAX:
        return text
    lower = text.lower()
    roots = [word[: max(4, len(word) - 2)] for term in question.strong for word in term.word.lower().split()]
    found = [place for place in (lower.find(root) for root in roots) if place >= 0]
    middle = min(found, default=0)
    begin = max(text.rfind(". ", 0, middle) + 2 if ". " in text[:middle] else 0, middle - QUOTE_CHARS_MAX // 2, 0)
    if begin and not text[begin - 1].isspace():
        begin = text.find(" ", begin, middle) + 1 or begin
    end = text.find(". ", middle)
    end = end + 1 if 0 <= end < begin + QUOTE_CHARS_MAX else begin + QUOTE_CHARS_MAX
    if end < len(text) and not text[end].isspace():
        end = max(text.rfind(" ", middle, end), middle + 1)
    return text[begin:end].strip()


def sentence(text: str) -> str:
    """Return *text* in quotation marks, with an ellipsis behind them if it goes on in the next line."""
    return f"“{text}”" if text.endswith((".", "!", "?", ":")) else f"“{text}” …"


def bare(text: str) -> str:
    """Return a line of a comment, docstring or setting without the marks around what it says."""
    marks = r"^[rRbBuU]?(?:\"\"\"|\'\'\')|^(?://+|/?\*+)\s*|^description\s*=\s*|(?:\"\"\"|\'\'\')$"
    return re.sub(marks, "", text).strip('"')


def counted(count: int, noun: str) -> str:
    """Return *count* with its noun, in the plural where that is right."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def some(names: Sequence[str]) -> str:
    """Return the first of *names* as code, and an ellipsis if there are more."""
    shown = ", ".join(f"`{name}`" for name in names[:8])
    return f"{shown}, …" if len(names) > 8 else shown


def joined(items: Sequence[str]) -> str:
    """Return *items* as an enumeration in a sentence."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
