"""Which of the known lines answer a question: ranking, by rules that can be read here.

A line is worth what the terms near it say (a rare term says more than a common one, several that meet say more than
one), times what kind of line it is, times what kind of file it stands in.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from geartrain.models._observed import Seen
from geartrain.models._question import Aim, Question, Term
from geartrain.models._words import forms, word_set

# How far apart two terms may stand and still meet, and what the distance costs.
REACH_LINES: Final = 5


class Kind(StrEnum):
    """What a line looks like."""

    DEFINITION = "definition"
    HEADING = "heading"
    CONSTANT = "constant"
    RAISE = "raise"
    ASSIGNMENT = "assignment"
    COMMENT = "comment"
    IMPORT = "import"
    PROSE = "prose"
    PLAIN = "plain"


WEIGHTS: Final[Mapping[Kind, float]] = MappingProxyType(
    {
        Kind.DEFINITION: 2.0,
        Kind.HEADING: 1.5,
        Kind.CONSTANT: 1.7,
        Kind.RAISE: 1.2,
        Kind.ASSIGNMENT: 1.25,
        Kind.COMMENT: 1.1,
        Kind.IMPORT: 0.25,
        Kind.PROSE: 1.1,
        Kind.PLAIN: 1.0,
    }
)

# What each aim prefers, as a factor on the kind of line.
_PREFERRED: Final[Mapping[Aim, Mapping[Kind, float]]] = MappingProxyType(
    {
        Aim.DEFAULTS: {Kind.CONSTANT: 1.5, Kind.ASSIGNMENT: 1.5},
        Aim.EXCEPTIONS: {Kind.RAISE: 2.0},
        Aim.WHERE: {Kind.DEFINITION: 1.3},
        Aim.HOW: {Kind.DEFINITION: 1.3, Kind.COMMENT: 1.1},
        Aim.WHAT_IS: {Kind.DEFINITION: 1.3, Kind.HEADING: 1.2, Kind.COMMENT: 1.1},
        Aim.WHY: {Kind.COMMENT: 1.6, Kind.PROSE: 1.3},
    }
)

DEFINITION: Final = re.compile(
    r"^\s*(?:(?:export|public|private|protected|internal|static|abstract|final|async|pub(?:\(\w+\))?|default|"
    r"inline|extern|unsafe|override|virtual|sealed|data|open)\s+)*"
    r"(?:def|class|func|function\*?|fn|struct|enum|interface|trait|impl|protocol|union|typedef|record|object|module|"
    r"macro_rules!|#\s*define|type|sub|defmodule|defp|defun|namespace)\s+[\w(\[*]"
)
# A C or Java function: at the margin or in a class, a type, a name, a parenthesis, and no semicolon.
_C_FUNCTION: Final = re.compile(r"^(?:\w[\w:<>,*&\[\] ]*[ *&])(\w+)\s*\([^;=]*\)?\s*(?:\{.*|const.*|throws .*)?$")
_C_ENDINGS: Final = word_set("c cc cpp cxx cs h hpp hh java m mm dart swift kt scala")
_CONSTANT: Final = re.compile(
    r"^\s*(?:(?:export|public|private|static|final|const|constexpr|let|var|val|pub|[\w:<>]+)\s+){0,4}"
    r"_*[A-Z][A-Z0-9_]{2,}\s*(?::[^=]{1,60})?=(?!=)"
)
_ASSIGNMENT: Final = re.compile(r"[\w\])]\s*(?::\s*[^=,()]{1,50})?\s*:?=(?![=>])|^\s*[\w-]+:\s+\S")
_RAISE: Final = re.compile(r"(?:^|[\s;{(])(?:raise|throw|panic!?|reject)\b")
_COMMENT: Final = re.compile(r"^\s*(?:#|//|/\*|\*|--|;|<!--|%|[rRbBuU]?\"\"\"|''')")
_IMPORT: Final = re.compile(r"^\s*(?:from\s+\S+\s+import\b|import\b|#\s*include\b|using\s|use\s|.*\brequire\(|@import)")
_HEADING: Final = re.compile(
    r"^(?:#{1,6}\s+\S|={1,5}\s+\S|(?:chapter|part|book|section)\s+[\divxlc]+\b)", re.IGNORECASE
)
_PROSE_ENDINGS: Final = word_set("md rst txt text adoc org tex")
_LITERAL: Final = re.compile(r"=\s*(?:[-+]?\d|None\b|True\b|False\b|true\b|false\b|null\b|[\"']|\(|\[|\{)|:\s+[-+]?\d")

# The first that is found counts.
_KINDS: Final = (
    (Kind.IMPORT, _IMPORT),
    (Kind.COMMENT, _COMMENT),
    (Kind.CONSTANT, _CONSTANT),
    (Kind.RAISE, _RAISE),
    (Kind.ASSIGNMENT, _ASSIGNMENT),
)

# Files that rather repeat than say it.
_FILE_FACTORS: Final = (
    (
        re.compile(
            r"(?:^|/)(?:tests?|testing|spec|__tests__|fixtures?|testdata)/|(?:^|/)(?:test_[^/]*|[^/]*_test|[^/]*\.test|[^/]*\.spec|conftest)\.\w+$"
        ),
        0.35,
    ),
    (re.compile(r"(?:^|/)(?:_?vendor(?:ed)?|node_modules|third_party|dist|build|extern(?:al)?)/|\.min\.\w+$"), 0.25),
    (
        re.compile(
            r"(?:^|/)(?:change(?:log|s)?|history|news|release[-_ ]?notes)\b[^/]*$|(?:^|/)(?:changes|news)/",
            re.IGNORECASE,
        ),
        0.4,
    ),
    (re.compile(r"\.(?:lock|map|svg|po|pot|csv|json|xml)$"), 0.4),
    (re.compile(r"(?:^|/)(?:examples?|samples?|demos?|benchmarks?)/"), 0.6),
    (re.compile(r"\.pyi$"), 0.6),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A line that says something about the question. `terms` are those that meet in or near it."""

    path: str
    line: int
    text: str
    kind: Kind
    score: float
    terms: frozenset[str]


def is_prose(path: str) -> bool:
    """Say whether *path* names a plain text."""
    ending = path.rpartition(".")[2].lower() if "." in path.rpartition("/")[2] else ""
    return ending in _PROSE_ENDINGS or (not ending and not path.rpartition("/")[2].lower().endswith("makefile"))


def kind_of(path: str, text: str) -> Kind:
    """Return what the line *text* of *path* looks like."""
    if is_prose(path):
        heading = _HEADING.match(text) or (len(text) < 60 and text.isupper() and len(text.split()) > 1)
        return Kind.HEADING if heading else Kind.PROSE
    if is_definition(path, text) and not _IMPORT.match(text):
        return Kind.DEFINITION
    return next((kind for kind, pattern in _KINDS if pattern.search(text)), Kind.PLAIN)


def is_definition(path: str, text: str) -> bool:
    """Say whether *text* begins the definition of something."""
    if DEFINITION.match(text):
        return True
    return path.rpartition(".")[2].lower() in _C_ENDINGS and _C_FUNCTION.match(text) is not None


def file_factor(path: str, question: Question) -> float:
    """Return how much what stands in *path* counts."""
    wanted = question.text.lower()
    factor = 1.0
    for pattern, weight in _FILE_FACTORS:
        found = pattern.search(path)
        if found and not any(word in wanted for word in re.findall(r"[a-z]{4,}", found.group().lower())):
            factor = min(factor, weight)
    return factor


def strength(term: Term, found: frozenset[str]) -> float:
    """Return how well a text with the forms *found* matches *term*: 1 itself, a half by a related word, or 0."""
    if not term.forms.isdisjoint(found) if len(term.forms) < 5 else term.forms <= found:
        return 1.0
    return 0.0 if term.related.isdisjoint(found) else 0.5


def rank(question: Question, seen: Seen) -> list[Finding]:
    """Return the lines that say something about *question*, the best first; ties by path and line."""
    terms = question.terms
    if not terms:
        return []
    matched: dict[tuple[str, int], dict[str, float]] = {}
    for path, lines in seen.lines.items():
        for number, text in lines.items():
            found = forms(text)
            here = {term.word: strength(term, found) for term in terms}
            matched[path, number] = {word: value for word, value in here.items() if value}
    weights = _weights(terms, matched.values())
    findings: list[Finding] = []
    for path, lines in seen.lines.items():
        factor = file_factor(path, question) * _path_factor(path, terms, weights)
        findings.extend(_ranked_lines(question, path, lines, matched, weights, factor))
    findings.sort(key=lambda finding: (-finding.score, finding.path, finding.line))
    return findings


def _weights(terms: Sequence[Term], matches: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return how much each term says: its own weight times how rare it is among the known lines."""
    counts: Counter[str] = Counter()
    total = 1
    for match in matches:
        total += 1
        counts.update(word for word, value in match.items() if value == 1.0)
    return {term.word: term.weight * math.log(1 + total / (1 + counts[term.word])) for term in terms}


def _path_factor(path: str, terms: Sequence[Term], weights: Mapping[str, float]) -> float:
    found = forms(path)
    said = sum(weights[term.word] for term in terms if strength(term, found) == 1.0)
    total = sum(weights.values()) or 1.0
    return 1.0 + 0.6 * min(1.0, said / total) - 0.02 * min(10, path.count("/"))


def _ranked_lines(
    question: Question,
    path: str,
    lines: Mapping[int, str],
    matched: Mapping[tuple[str, int], Mapping[str, float]],
    weights: Mapping[str, float],
    factor: float,
) -> Iterable[Finding]:
    soft = {term.word for term in question.terms if term.soft}
    for number, text in lines.items():
        here = matched[path, number]
        if not here.keys() - soft and not (here and soft == weights.keys()):
            continue
        met = dict(here)
        for distance in range(1, REACH_LINES + 1):
            for near in (number - distance, number + distance):
                for word, value in matched.get((path, near), {}).items():
                    met[word] = max(met.get(word, 0.0), value * (0.75 - 0.1 * distance))
        said = sum(weights[word] * value for word, value in met.items())
        coverage = len(met) / len(weights)
        kind = kind_of(path, text)
        score = said * (0.5 + coverage) * WEIGHTS[kind] * _preference(question, kind, text) * factor
        yield Finding(path, number, text, kind, score, frozenset(met))


def _preference(question: Question, kind: Kind, text: str) -> float:
    factor = 1.0
    for aim in question.aims:
        factor *= _PREFERRED.get(aim, {}).get(kind, 1.0)
    if Aim.DEFAULTS in question.aims and _LITERAL.search(text):
        factor *= 1.5
    if Aim.AMOUNT in question.aims and re.search(r"\d", text):
        factor *= 1.4
    if len(text.strip()) < 4:
        factor *= 0.2
    return factor
