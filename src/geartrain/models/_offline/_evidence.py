"""Which of the known lines answer a question: ranking, by rules that can be read here.

A line is worth what the terms near it say (a rare term says more than a common one, several that meet say more than
one), times what kind of line it is, times what kind of file it stands in.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from geartrain.models._offline._echo import repeats
from geartrain.models._offline._fences import fenced
from geartrain.models._offline._observed import Seen
from geartrain.models._offline._precise import said_to_be
from geartrain.models._offline._question import Aim, Question, Term
from geartrain.models._offline._standing import about_tests, file_factor, is_prose, is_test
from geartrain.models._offline._syntax import is_definition, title_of
from geartrain.models._offline._words import forms, parts, stem

# A name of more words is a sentence, as tests have them: it says what is so, and defines nothing that was asked for.
NAME_WORDS_MAX: Final = 6
_FENCED_FACTOR: Final = 0.3
# A row of a table is no sentence.
_TABLE_FACTOR: Final = 0.6

# A text that says what the subject is, says more than any line that mentions it.
_DEFINING_FACTOR: Final = 7.0

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
        Kind.DEFINITION: 1.0,
        Kind.HEADING: 1.2,
        Kind.CONSTANT: 1.2,
        Kind.RAISE: 1.2,
        Kind.ASSIGNMENT: 0.95,
        Kind.COMMENT: 1.1,
        Kind.IMPORT: 0.25,
        Kind.PROSE: 1.1,
        Kind.PLAIN: 1.0,
    }
)

# What each aim prefers, as a factor on the kind of line.
_PREFERRED: Final[Mapping[Aim, Mapping[Kind, float]]] = MappingProxyType(
    {
        Aim.DEFAULTS: {Kind.CONSTANT: 1.5},
        Aim.AMOUNT: {Kind.CONSTANT: 1.5},
        Aim.EXCEPTIONS: {Kind.RAISE: 2.0},
        Aim.WHERE: {Kind.DEFINITION: 1.5, Kind.ASSIGNMENT: 0.8},
        Aim.HOW: {Kind.DEFINITION: 1.3, Kind.COMMENT: 1.3, Kind.PROSE: 1.3, Kind.ASSIGNMENT: 0.75, Kind.PLAIN: 0.8},
        Aim.WHAT_IS: {Kind.DEFINITION: 1.3, Kind.HEADING: 1.2, Kind.COMMENT: 1.1},
        Aim.WHY: {Kind.COMMENT: 1.6, Kind.PROSE: 1.3},
    }
)

_CONSTANT: Final = re.compile(
    r"^\s*(?:(?:export|public|private|static|final|const|constexpr|let|var|val|pub|[\w:<>]+)\s+){0,4}"
    r"_*[A-Z][A-Z0-9_]{2,}\s*(?::[^=]{1,60})?=(?!=)"
)
_ASSIGNMENT: Final = re.compile(r"[\w\])]\s*(?::\s*[^=,()]{1,50})?\s*:?=(?![=>])|^\s*[\w-]+:\s+\S")
_RAISE: Final = re.compile(r"(?:^|[\s;{(])(?:raise|throw|panic!?|reject)\b")
_COMMENT: Final = re.compile(
    r"^\s*(?:#(?!\s*(?:if|el|end|def|undef|pragma|include|error))|//|/\*|\*|--|;|<!--|%|[rRbBuU]?\"\"\"|''')"
)
_IMPORT: Final = re.compile(r"^\s*(?:from\s+\S+\s+import\b|import\b|#\s*include\b|using\s|use\s|.*\brequire\(|@import)")
_HEADING: Final = re.compile(
    r"^(?:#{1,6}\s+\S|={1,5}\s+\S|(?:chapter|part|book|section)\s+[\divxlc]+\b)", re.IGNORECASE
)
_EXPORTS: Final = re.compile(r"^\s*__all__\b|^\s*(?:[\"'][\w.]+[\"'],?\s*)+\]?\)?$")
_SENTENCE: Final = re.compile(r"^\s*[*\-`\"]*\w[\w`'’\"*/-]*[,;:]?(?: [`\"(*]*\w[\w`'’\"*/().-]*[,;:.]?){4,}\s*$")
# Another name for the same thing.
_ALIAS: Final = re.compile(r"^\s*(?:self\.)?\w+ = [a-z_][\w.]*$")
_FIGURE: Final = re.compile(
    r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|sixty|hundred|thousand)\b"
)
AMOUNT: Final = re.compile(r"^\s*([\w.]+)\s*(?::[^=]*)?=(?!=).*\d")
# What in a name only says that it is a bound: max_turns is an amount of turns.
_BOUND: Final = re.compile(r"(?:^|(?<=_))(?:max|limit)_|_(?:max|limit)$", re.IGNORECASE)
# An assignment in a function's body.
_STATEMENT: Final = re.compile(r"^(?: {8}|\t\t)\s*[\w.]+ = ")
# An attribute or a key of its own name, at the margin or in a class; what begins empty says nothing.
_ATTRIBUTE: Final = re.compile(
    r"^(?: {0,4}|\t)[\w\"'-]+\s*(?::\s*[^\s=]|=\s*(?!\[\]|\{\}|\(\)|None$|set\(\)|\"\"|'')[^=\s])"
)
# A member of an enumeration whose value is its name: TIMEOUT = "timeout".
SAYS_ITSELF: Final = re.compile(r"^\s*(\w+)\s*=\s*[\"'](?i:\1)[\"'],?\s*(?:#.*)?$")
CAPITALS: Final = re.compile(r"\b_*[A-Z][A-Z0-9_]{3,}\b")
# A default is a value in a signature, of an attribute at the margin of a class, or one that a call falls back on.
_STATES_DEFAULT: Final = re.compile(
    r"^\s*(?:async )?(?:def|fn|func|function)\b.*\w\s*(?::[^=,]+)?=|^\s+\*{0,2}\w+(?::[^=]+ = |=)[^=].*,?\s*(?:#.*)?$|"
    r"^ {0,4}\w+\s*(?::[^=]{1,60})?=\s*[^=\s]|\bsetdefault\(|\bgetenv\(|\.get\([^()]+, |\bdefault\s*[=:(]|\bDEFAULT|"
    r"\b[Dd]efaults to\b|\(the default\b|\(default\b|\bdefault (?:is|are)\b"
)

# The first that is found counts.
_KINDS: Final = (
    (Kind.IMPORT, _IMPORT),
    (Kind.COMMENT, _COMMENT),
    (Kind.CONSTANT, _CONSTANT),
    (Kind.RAISE, _RAISE),
    (Kind.ASSIGNMENT, _ASSIGNMENT),
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


def kind_of(path: str, text: str) -> Kind:
    """Return what the line *text* of *path* looks like."""
    if is_prose(path):
        heading = _HEADING.match(text) or (len(text) < 60 and text.isupper() and len(text.split()) > 1)
        return Kind.HEADING if heading else Kind.PROSE
    if is_definition(path, text) and not _IMPORT.match(text):
        return Kind.DEFINITION
    if _EXPORTS.match(text):
        return Kind.IMPORT
    kind = next((kind for kind, pattern in _KINDS if pattern.search(text)), Kind.PLAIN)
    # Within a docstring no mark shows that a line is one.
    return Kind.COMMENT if kind is Kind.PLAIN and _SENTENCE.match(text) else kind


def strength(term: Term, text: str, found: frozenset[str]) -> float:
    """Return how well *text* with the forms *found* matches *term*.

    1 for the term itself, 0.6 if it is inside a word (`MAXHEADERS`), 0.5 for a related word, else 0.
    """
    if term.exact:
        return _strength_of_name(term.word, text)
    if not term.forms.isdisjoint(found):
        return 1.0
    if len(term.root) > 4 and term.root in text.lower():
        return 0.6
    return 0.0 if found.isdisjoint(term.related) else 0.5


def _strength_of_name(name: str, text: str) -> float:
    place = text.find(name)
    while place >= 0:
        before, after = text[place - 1 : place], text[place + len(name) : place + len(name) + 1]
        if not (before.isalnum() or before == "_" or after.isalnum() or after == "_"):
            return 1.0
        place = text.find(name, place + 1)
    return 0.3 if name.lower() in text.lower() else 0.0


def rank(question: Question, seen: Seen) -> list[Finding]:
    """Return the lines that say something about *question*, the best first; ties by path and line."""
    terms = question.terms
    if not terms:
        return []
    matched: dict[tuple[str, int], dict[str, float]] = {}
    for path, lines in seen.lines.items():
        for number, text in lines.items():
            found = forms(text)
            here = {term.word: strength(term, text, found) for term in terms}
            matched[path, number] = {word: value for word, value in here.items() if value}
    weights = _weights(terms, matched.values())
    findings: list[Finding] = []
    for path, lines in seen.lines.items():
        factor = file_factor(path, question) * _path_factor(path, terms, weights)
        findings.extend(_ranked_lines(question, path, lines, matched, weights, factor))
    return _with_what_they_name(sorted(findings, key=_order))


def _order(finding: Finding) -> tuple[float, str, int]:
    return (-finding.score, finding.path, finding.line)


def _with_what_they_name(findings: list[Finding]) -> list[Finding]:
    """Return the findings with a higher score for constants that the best of them name: they hold the values."""
    named: Counter[str] = Counter()
    for finding in findings[:15]:
        named.update(set(CAPITALS.findall(finding.text)))
    raised = [
        replace(finding, score=finding.score * 1.7)
        if finding.kind is Kind.CONSTANT and named[title_of(finding.path, finding.text)] > (index < 15)
        else finding
        for index, finding in enumerate(findings)
    ]
    return sorted(raised, key=_order)


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
    said = sum(weights[term.word] for term in terms if strength(term, path, found) == 1.0)
    total = sum(weights.values()) or 1.0
    own = forms(path.rpartition("/")[2].partition(".")[0])
    about = bool(own) and own <= frozenset(form for term in terms if not term.soft for form in term.forms)
    return 1.0 + 0.6 * min(1.0, said / total) + 0.4 * about - 0.02 * min(10, path.count("/"))


def _ranked_lines(
    question: Question,
    path: str,
    lines: Mapping[int, str],
    matched: Mapping[tuple[str, int], Mapping[str, float]],
    weights: Mapping[str, float],
    factor: float,
) -> Iterable[Finding]:
    soft = {term.word for term in question.terms if term.soft}
    examples = fenced(lines) if is_prose(path) else frozenset[int]()
    wanted = frozenset(form for term in question.strong for form in term.forms)
    for number, text in lines.items():
        here = matched[path, number]
        if not here.keys() - soft and not (here and soft == weights.keys()):
            continue
        kind = kind_of(path, text)
        if kind is not Kind.HEADING and repeats(text, question.echoes):
            continue
        met = _met(path, number, matched)
        # Where a compound is met, its words say nothing more.
        inside = {word for term in met if " " in term for word in term.split()}
        said = sum(weights[word] * value for word, value in met.items() if word not in inside)
        coverage = (0.5 * len(met) + 0.6 * len(here)) / len(weights)
        if kind is Kind.DEFINITION and is_test(path) and not about_tests(question):
            kind = Kind.PLAIN
        score = said * (0.35 + coverage) * WEIGHTS[kind] * _preference(question, kind, text) * factor
        score *= _line_factor(question, path, text, kind, wanted)
        score *= _DEFINING_FACTOR if defines(question, path, text) else 1.0
        score *= _FENCED_FACTOR if number in examples else 1.0
        yield Finding(path, number, text, kind, score, frozenset(met))


def defines(question: Question, path: str, text: str) -> bool:
    """Say whether a line of a text says what the subject of *question* is."""
    says = said_to_be(question) if is_prose(path) else ""
    return bool(says and re.search(says, text, re.IGNORECASE))


def _met(path: str, number: int, matched: Mapping[tuple[str, int], Mapping[str, float]]) -> dict[str, float]:
    """Return how well each term is matched on a line or, for less the farther away, near it."""
    met = dict(matched[path, number])
    for distance in range(1, REACH_LINES + 1):
        for near in (number - distance, number + distance):
            for word, value in matched.get((path, near), {}).items():
                met[word] = max(met.get(word, 0.0), value * (0.6 - 0.1 * distance))
    return met


def _line_factor(question: Question, path: str, text: str, kind: Kind, wanted: frozenset[str]) -> float:
    """Return what a line counts for what it names, gives a value, or is."""
    factor = 1.0
    if kind in {Kind.DEFINITION, Kind.CONSTANT}:
        factor *= _named(question, path, text)
    elif _ATTRIBUTE.match(text):
        factor *= 1.0 + 0.8 * _share(text.partition(":")[0].partition("=")[0], wanted)
    if Aim.AMOUNT in question.aims and (amount := AMOUNT.match(text)):
        factor *= 1.0 + 3.0 * _share(_BOUND.sub("", amount.group(1)), wanted)
    if SAYS_ITSELF.match(text) or _ALIAS.match(text):
        factor *= 0.4
    if kind is Kind.PROSE and text.lstrip().startswith("|"):
        factor *= _TABLE_FACTOR
    return factor


def _share(name: str, wanted: frozenset[str]) -> float:
    """Return how much of the parts of *name* is wanted; a compound of two of them counts for both."""
    words = parts(name)
    return min(1.0, sum(1 + (form not in map(stem, words)) for form in forms(name) & wanted) / max(1, len(words)))


def _named(question: Question, path: str, text: str) -> float:
    """Return how much a definition counts: more, the more of its name is what was asked for."""
    name = title_of(path, text)
    words = parts(name)
    if not words or len(words) > NAME_WORDS_MAX:
        return 1.0
    found = forms(name)
    single = [term for term in question.strong if " " not in term.word]
    said = sum(len(parts(term.word)) * strength(term, name, found) for term in single)
    factor = 1.0 + 1.2 * min(1.0, said / len(words))
    if name.startswith("_"):
        factor *= 0.85
    troubles = bool(forms("error exception warning") & found)
    return factor * 0.5 if troubles and not _asks_for_errors(question) else factor


def _asks_for_errors(question: Question) -> bool:
    return Aim.EXCEPTIONS in question.aims or bool(forms(question.text) & forms("error exception fail raise invalid"))


def _preference(question: Question, kind: Kind, text: str) -> float:
    factor = 0.7 if kind is Kind.RAISE and not _asks_for_errors(question) else 1.0
    for aim in question.aims:
        factor *= _PREFERRED.get(aim, {}).get(kind, 1.0)
    if Aim.DEFAULTS in question.aims:
        statement = Aim.AMOUNT not in question.aims and _STATEMENT.match(text)
        factor *= 1.6 if _STATES_DEFAULT.search(text) else 0.6 if statement else 1.0
    if Aim.WHY in question.aims and re.search(r"\b(?:because|since|so that|reason|otherwise|therefore)\b", text):
        factor *= 1.5
    if Aim.AMOUNT in question.aims:
        factor *= 1.4 if _FIGURE.search(text) else 0.7
    if len(text.strip()) < 4:
        factor *= 0.2
    return factor
