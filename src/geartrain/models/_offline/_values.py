"""Names with values that a reader can take as they stand: limits, settings, defaults, and which file holds most.

What counts is a constant or an attribute with a literal value, and a parameter with a default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from geartrain.models._offline._echo import repeats
from geartrain.models._offline._evidence import SAYS_ITSELF, strength
from geartrain.models._offline._observed import Seen
from geartrain.models._offline._question import Question, Term
from geartrain.models._offline._scope import enclosing
from geartrain.models._offline._standing import file_factor, is_prose
from geartrain.models._offline._words import forms, stem, word_set

_NUMBER: Final = r"[-+]?(?:0[xX][\da-fA-F_]+|[\d_]*\.?\d[\d_]*(?:[eE][-+]?\d+)?)[uUlLfF]*"
_LITERAL: Final = (
    rf"(?:{_NUMBER}(?:\s*(?:\*\*?|<<|[-+/])\s*{_NUMBER})*|None|True|False|true|false|null|math\.inf|"
    r"\"[^\"]*\"|'[^']*'|`[^`]*`|(?:datetime\.)?timedelta\([^()]*\)|[A-Z][A-Z\d_]{3,}|\((?:[\d., ]|\"[^\"]*\")+\))"
)
_END: Final = r"(?:,\s*[\"'].*)?\s*[,;]?\s*(?:(?:#|//|/\*).*)?$"
_ATTRIBUTE: Final = re.compile(
    r"^(?: {0,4}|\t)(?:(?:export|public|private|static|final|const|constexpr|let|var|val|readonly|int|long)\s+)*"
    rf"(_*[A-Za-z][\w.-]*)\s*(?::\s*(?:[^=,\[]|\[[^\]]*\])+?)?\s*:?=\s*({_LITERAL}){_END}"
)
_DEFINE: Final = re.compile(rf"^\s*#\s*define\s+([A-Za-z_]\w*)\s+\(?({_LITERAL})\)?{_END}")
_KEY: Final = re.compile(rf"^\s{{0,8}}[\"']?([A-Za-z][\w. -]*?)[\"']?\s*:\s*({_LITERAL}|[\w.-]+){_END}")
_FIELD: Final = re.compile(
    rf"^(?: {{0,4}}|\t)(\w+)\s*:\s*[^=]{{1,60}}=\s*(?:\w+\.)?(?:field|Field)\((?:default=)?({_LITERAL})[,)]"
)
_PARAMETER: Final = re.compile(rf"\b([a-z_]\w*)\s*(?::\s*[^=,()]{{1,60}}?)?\s*=\s*({_LITERAL})(?=\s*[,)]|{_END})")
_SIGNATURE: Final = re.compile(r"^\s*(?:async )?def \w+\(|^ {4,8}\w+\s*(?::[^=()]+)?=[^=()]+,\s*(?:#.*)?$")
_KEYED: Final = re.compile(r"\.(?:ya?ml|json|toml)$")
# Names that hold a value and set nothing.
_NO_SETTING: Final = re.compile(r"^(?:__\w+__|_?log(?:ger)?|version|_T\w*|T)$")

# What tests, copies and histories set, they set for themselves.
_FACTOR_MIN: Final = 0.3

# Words for values in general: they say that values are wanted, and not of what.
GENERAL: Final = frozenset(
    stem(word)
    for word in word_set(
        "setting option default constant parameter configuration config value flag configured variable"
    )
)
# In a name these stand for a limit.
_BOUNDS: Final = frozenset(stem(word) for word in word_set("max maximum min minimum capacity bound ceiling"))
_LIMITS: Final = frozenset(stem(word) for word in word_set("limit bound threshold maximum"))
# In the name of a file or a class these say that values are set there.
CENTRAL: Final = frozenset(
    stem(word)
    for word in word_set("config configuration setting default option constant limit const preferences budget")
)


@dataclass(frozen=True, slots=True)
class ValueLine:
    """A line that gives *name* its *value*; `weight` says how much it has to do with the question."""

    path: str
    line: int
    name: str
    value: str
    weight: float

    @property
    def stated(self) -> str:
        """Name and value, as code."""
        return f"`{self.name} = {self.value}`"

    @property
    def place(self) -> str:
        """Path and line, as code."""
        return f"`{self.path}:{self.line}`"


def topics(question: Question) -> tuple[Term, ...]:
    """Return the terms that say of what the values are wanted; none if values in general are."""
    return tuple(term for term in question.terms if not term.soft and " " not in term.word and not term.forms & GENERAL)


def value_files(question: Question, seen: Seen) -> list[tuple[str, list[ValueLine]]]:
    """Return the files with values that the question asks for, the one that holds most first; values in line order."""
    wanted = topics(question)
    found: list[tuple[float, str, list[ValueLine]]] = []
    for path, lines in seen.lines.items():
        if is_prose(path) or file_factor(path, question) < _FACTOR_MIN:
            continue
        values = list(_values_of(question, wanted, path, lines))
        if values:
            weight = sum(sorted((value.weight for value in values), reverse=True)[:20])
            found.append((-weight * _file_weight(question, wanted, path), path, values))
    best = min((weight for weight, _, _ in found), default=0.0)
    return [(path, values) for weight, path, values in sorted(found, key=lambda one: one[:2]) if weight <= best * 0.08]


def _file_weight(question: Question, wanted: Sequence[Term], path: str) -> float:
    own = forms(path.rpartition("/")[2].partition(".")[0])
    named = any(not term.forms.isdisjoint(own) for term in wanted) or (not wanted and not own.isdisjoint(CENTRAL))
    return file_factor(path, question) * (2.5 if named else 1.0) * (1 - 0.04 * min(8, path.count("/")))


def _values_of(question: Question, wanted: Sequence[Term], path: str, lines: Mapping[int, str]) -> Iterator[ValueLine]:
    own = forms(path.rpartition("/")[2].partition(".")[0])
    for number, text in sorted(lines.items()):
        if "=" not in text and ":" not in text and "define" not in text:
            continue
        if SAYS_ITSELF.match(text) or repeats(text, question.echoes):
            continue
        inside = forms(enclosing(path, lines, number)) if text[:1].isspace() else frozenset[str]()
        for name, value, share in named_values(path, text):
            weight = share * _about(wanted, name, inside, own) * _telling(value)
            if weight > 0 and not _NO_SETTING.match(name):
                yield ValueLine(path, number, name, value, weight)


def named_values(path: str, text: str) -> Iterator[tuple[str, str, float]]:
    """Yield each name with its value on a line, and how much such a value counts."""
    if _SIGNATURE.match(text):
        yield from ((match.group(1), match.group(2), 0.6) for match in _PARAMETER.finditer(text))
        return
    match = _ATTRIBUTE.match(text) or _DEFINE.match(text) or _FIELD.match(text)
    if match is None and _KEYED.search(path):
        match = _KEY.match(text)
    if match:
        yield match.group(1), match.group(2), 1.0


def _telling(value: str) -> float:
    """Return how much a value says: a number most, nothing at all least."""
    if value in {"None", "null", "-1", '""', "''"}:
        return 0.25
    return 1.0 if re.match(r"[-+\d.]", value) else 0.6


def _about(wanted: Sequence[Term], name: str, inside: frozenset[str], own: frozenset[str]) -> float:
    """Return how much a value of *name*, in a definition and a file with these forms, has to do with what is wanted."""
    if not wanted:
        return 1.0 if name.strip("_").isupper() or (inside | own) & CENTRAL or "default" in name.lower() else 0.2
    found = forms(name)
    said_of: list[float] = []
    for term in wanted:
        said = strength(term, name, found)
        if term.forms & _LIMITS and (found & _BOUNDS or re.match(r"_*(?:max|min)", name, re.IGNORECASE)):
            said = max(said, 0.8)
        around = 0.8 if term.forms & inside else 0.5 if term.forms & own else 0.0
        said_of.append(max(said, around))
    # Of two words that are wanted, one alone says little.
    return max(said_of) * (0.3 + 0.7 * sum(value > 0 for value in said_of) / len(said_of)) + 0.2 * sum(said_of)
