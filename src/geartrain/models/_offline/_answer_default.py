"""The answer to what the default of a named thing is: where it is declared with a value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from geartrain.models._offline._citing import by_file, citation
from geartrain.models._offline._observed import Seen
from geartrain.models._offline._question import Aim, Question
from geartrain.models._offline._quoting import Section, joined
from geartrain.models._offline._scope import body, definition_of, enclosing
from geartrain.models._offline._standing import file_factor, is_prose
from geartrain.models._offline._values import CENTRAL, named_values
from geartrain.models._offline._words import forms, parts, stem

_FACTOR_MIN: Final = 0.3
_ELSEWHERE_MAX: Final = 3
_NOTHING: Final = frozenset({"None", "null", "nil", '""', "''"})
_DECLARED: Final = re.compile(r"^\s*(?:self\.)?([A-Za-z_]\w*)\s*:\s*[^=()]+?\s*=\s*([^=\s].*?),?\s*(?:#.*)?$")


@dataclass(frozen=True, slots=True)
class Default:
    """A line that gives `name` its `value` where nothing else is said; `inside` is what it stands in."""

    path: str
    line: int
    name: str
    value: str
    inside: str

    @property
    def place(self) -> str:
        """Path and line, as code."""
        return f"`{self.path}:{self.line}`"


def defaults_of(question: Question, seen: Seen) -> list[Default]:
    """Return where what *question* names gets its default, the place that decides first."""
    if Aim.DEFAULTS not in question.aims or not question.names:
        return []
    return _of_members(question, seen) or _of_names(question, seen)


def default_section(question: Question, seen: Seen) -> Section | None:
    """Return the default of what *question* names; None if none is known."""
    found = defaults_of(question, seen)
    if not found:
        return None
    first, others = found[0], [one for one in found[1:] if one.value != found[0].value]
    inside = f", in `{first.inside}`" if first.inside else ""
    text = f"The default of `{first.name}` is `{first.value}` ({first.place}{inside})."
    if others:
        shown = [f"`{one.name} = {one.value}` ({one.place})" for one in others[:_ELSEWHERE_MAX]]
        text += f" Elsewhere: {joined(shown)}."
    owners = [definition_of(name, seen, lambda path: file_factor(path, question)) for name in question.names]
    shown_lines = [*filter(None, owners), *((one.path, one.line) for one in found[: _ELSEWHERE_MAX + 1])]
    return Section(text, by_file(citation(question, seen, *place) for place in dict.fromkeys(shown_lines)))


def _of_names(question: Question, seen: Seen) -> list[Default]:
    """Return the defaults of values that are named in the question as they are written."""
    found = [
        (_order(question, one), one)
        for path, lines in seen.lines.items()
        if not is_prose(path) and file_factor(path, question) >= _FACTOR_MIN
        for number in lines
        for one in _declared(path, lines, number)
        if one.name in question.names
    ]
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def _order(question: Question, one: Default) -> tuple[bool, bool, float, int, str, int]:
    # Where it is said in the settings themselves, what a command or a function repeats comes second.
    central = not forms(f"{one.inside} {one.path.rpartition('/')[2]}").isdisjoint(CENTRAL)
    return (
        one.value in _NOTHING,
        not central,
        -file_factor(one.path, question),
        one.inside.count("."),
        one.path,
        one.line,
    )


def _of_members(question: Question, seen: Seen) -> list[Default]:
    """Return the defaults of a part of what is named: of an attribute, or a parameter of its constructor."""
    wanted = {
        stem(word)
        for term in question.terms
        if not term.soft and not term.exact and term.word not in {name.lower() for name in question.names}
        for word in parts(term.word)
    } - {stem("default")}
    exact: list[Default] = []
    partly: list[Default] = []
    for name in question.names if wanted else ():
        place = definition_of(name, seen, lambda path: file_factor(path, question))
        if place is None:
            continue
        path, start = place
        for number, _ in body(seen.lines[path], start):
            for one in _declared(path, seen.lines[path], number):
                own = {stem(word) for word in parts(one.name)}
                if own == wanted:
                    exact.append(one)
                elif own >= wanted:
                    partly.append(one)
    return exact[:1] + partly if exact else partly


def _declared(path: str, lines: Mapping[int, str], number: int) -> Iterator[Default]:
    text = lines[number]
    if "=" not in text:
        return
    found = [(name, value) for name, value, _ in named_values(path, text)]
    whole = _DECLARED.match(text)
    if not found and whole and not whole.group(2).endswith(("(", "[", "{")):
        found = [(whole.group(1), whole.group(2))]
    for name, value in found:
        yield Default(path, number, name, value, enclosing(path, lines, number))
