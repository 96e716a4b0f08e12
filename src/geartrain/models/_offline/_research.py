"""What to look at next: a plan in stages, each a function from what is known to the calls worth making.

Stage 1 searches for the words of the question, stage 2 reads around the best hits, stage 3 follows the names found
there, stage 4 reads what that brought up. A call that was made is not made again; a stage without a new call is
skipped. Few and small results are asked for, because every later turn pays for them again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Final

from geartrain.machine import RequestedCall
from geartrain.models._offline._answer_default import defaults_of
from geartrain.models._offline._answer_handled import windows
from geartrain.models._offline._evidence import CAPITALS, Finding, Kind, rank, strength
from geartrain.models._offline._observed import Seen
from geartrain.models._offline._practice import TABLE, standing
from geartrain.models._offline._precise import DEFINES, counted, declared_value, exact_definition, handling, said_to_be
from geartrain.models._offline._question import Aim, Question, Term, found_as
from geartrain.models._offline._scope import definition_of
from geartrain.models._offline._standing import FRONT_FILES, file_factor, is_prose
from geartrain.models._offline._syntax import title_of
from geartrain.models._offline._toolbox import Role, Toolbox
from geartrain.models._offline._values import topics, value_files
from geartrain.models._offline._words import forms

CALLS_MAX: Final = 8
STAGES: Final = 4

_HITS_FEW: Final = 12
_HITS_SOME: Final = 30
_HITS_MANY: Final = 50
_HITS_ACTING: Final = 80
# What ends in md, rst or txt.
_TEXTS: Final = "*.[mrt][dsx]*"
# Tools take patterns of about 500 characters; ours are put between others.
_PATTERN_CHARS_MAX: Final = 360
_WINDOW_LINES: Final = 36
_BODY_LINES: Final = 320
_HEAD_LINES: Final = 40
_READS_A_STAGE: Final = 5

# How a value begins that a reader can take as it stands.
_LITERAL: Final = r"(?:[-+\d\"'(]|none\b|null\b|true\b|false\b|\w+_\w)"
_CLASS: Final = re.compile(r"^(?:export |public |pub )*(?:class|struct|interface|typedef struct|type)\s+\w")
_SETS: Final = re.compile(r"(?:Config|Settings|Options|Limits|Defaults)\b")
# Below that, a file is a test, a copy or a history.
_FACTOR_MIN: Final = 0.4
_SOURCE_FOLDERS: Final = ("src", "lib", "source", "app", "pkg", "cmd", "internal", "docs", "notes")
# Texts that say nothing of what they lie beside.
_NO_TEXTS: Final = re.compile(
    r"(?:^|/)(?:licen[cs]e|copying|notice|constraints|requirements)[^/]*$|(?:^|/)\.", re.IGNORECASE
)
_CODE_FILES: Final = re.compile(r"\.(?:py|js|jsx|ts|tsx|go|rs|c|h|cc|cpp|hpp|java|rb|kt|swift|cs|php|sh|lua|ex)$")


@dataclass(frozen=True, slots=True)
class Situation:
    """All that the plan for one question depends on."""

    question: Question
    seen: Seen
    box: Toolbox

    def read(self, path: str, start: int, count: int) -> RequestedCall | None:
        """Return a call that reads *count* lines of *path* from *start* on."""
        return self.box.call(Role.READ, path=path, start=max(1, start), count=count)

    def search(self, pattern: str, results: int, **within: str) -> RequestedCall | None:
        """Return a call that searches for *pattern*, whatever the case; None if it cannot be kept *within* that."""
        if any(not self.box.takes(Role.SEARCH, meant) for meant in within):
            return None
        call = self.box.call(Role.SEARCH, pattern=pattern, results=results, ignore_case=True, **within)
        if call is None or "ignore_case" in call.arguments or "case_insensitive" in call.arguments:
            return call
        return self.box.call(Role.SEARCH, pattern=f"(?i){pattern}", results=results, **within)


Planned = Iterator[RequestedCall | None]


def next_calls(
    questions: Iterable[tuple[Question, int]], seen: Seen, box: Toolbox, made: frozenset[tuple[str, str]]
) -> tuple[RequestedCall, ...]:
    """Return the calls to make now; none when there is nothing left to look at.

    Args:
        questions: Each open question and the stage (from 0) that it has reached.
        seen: What is known.
        box: The tools.
        made: Tool and arguments of each call that was made.
    """
    waiting = [
        fresh
        for question, stage in questions
        for fresh in [_first_fresh(Situation(question, seen, box), stage, made)]
        if fresh
    ]
    # In turns, so that of many parts each gets its best calls.
    calls: dict[tuple[str, str], RequestedCall] = {}
    for call in chain.from_iterable(zip_longest(*waiting)):
        if call is not None and len(calls) < CALLS_MAX:
            calls.setdefault((call.tool, call.arguments), call)
    return tuple(calls.values())


def _first_fresh(now: Situation, stage: int, made: frozenset[tuple[str, str]]) -> list[RequestedCall]:
    """Return the new calls of the first stage from *stage* on that has any."""
    for plan in _STAGES[stage:]:
        fresh: dict[tuple[str, str], RequestedCall] = {}
        for call in plan(now):
            if call is not None and (call.tool, call.arguments) not in made:
                fresh[call.tool, call.arguments] = call
            if len(fresh) >= CALLS_MAX:
                break
        if fresh:
            return list(fresh.values())
    return []


def _first_searches(now: Situation) -> Planned:
    question = now.question
    yield now.box.call(Role.LIST, path=".")
    # A path from the question may not exist, and failures are counted: one try, the others once they were seen.
    for path in question.paths[:1]:
        is_file = "." in path.rpartition("/")[2]
        count = _BODY_LINES if question.about_file else _HEAD_LINES
        yield now.read(path, 1, count) if is_file else now.box.call(Role.LIST, path=path.rstrip("/"))
    if question.aims & {Aim.OVERVIEW, Aim.FILES}:
        return
    if question.practice is not None:
        yield from _practice_searches(now, question.practice)
        return
    if question.about_file:
        # The file may be anywhere; what names it leads to its folder.
        yield from (now.search(re.escape(term.root or term.word), _HITS_FEW) for term in question.strong[:2])
        return
    yield from _precise_searches(now)
    for name in question.names[:2]:
        calls = rf"\b{re.escape(name)}\s*\(" if Aim.CALLERS in question.aims else rf"\b{re.escape(name)}\b"
        yield now.search(calls, _HITS_SOME)
    if Aim.SETTINGS in question.aims:
        yield from _value_searches(now)
        yield from _meetings(now, list(topics(question)))
        return
    terms = [term for term in question.strong if term.word not in question.names]
    if Aim.EXCEPTIONS in question.aims and not question.names and all(term.soft for term in question.terms):
        yield now.search(r"^\s*(?:export )?class\s+\w+\s*(?:\(|extends ).*(?:Error|Exception|Warning)\b", _HITS_MANY)
    if question.subject and Aim.CALLERS in question.aims:
        terms = []
    if terms:
        yield now.search(rf"{DEFINES}\w*(?:{_any_of(terms)})", _HITS_SOME)
    if Aim.DEFAULTS in question.aims and question.strong:
        yield now.search(rf"(?:{_any_of(question.strong)})\w*\s*(?::[^=]*)?=\s*{_LITERAL}", _HITS_SOME)
    yield from _meetings(now, terms)
    yield from _files_named(now, terms)
    for term in terms[:4]:
        yield now.search(term.pattern, _HITS_SOME)


def _precise_searches(now: Situation) -> Planned:
    question = now.question
    for pattern, results in (
        (exact_definition(question), _HITS_FEW),
        (declared_value(question), _HITS_SOME),
        (counted(question), _HITS_FEW),
    ):
        if pattern:
            yield now.search(pattern, results)
    if said := said_to_be(question):
        yield now.search(said, _HITS_FEW, glob=_TEXTS)
    yield from (now.search(acts, _HITS_ACTING, glob="src/*") for acts in handling(question))


def _precise_reads(now: Situation) -> Planned:
    """Read around what the precise searches found."""
    if Aim.DEFAULTS in now.question.aims:
        yield from _bodies(now)
        yield from (now.read(one.path, one.line - 20, _WINDOW_LINES) for one in defaults_of(now.question, now.seen)[:2])
    if "src" not in now.seen.folders:
        yield from (now.search(acts, _HITS_ACTING) for acts in handling(now.question))
    yield from (now.read(*window) for window in windows(now.question, now.seen))


def _files_named(now: Situation, terms: list[Term]) -> Planned:
    """Search for the first lines of files that are named after what is asked for."""
    words = [term.root or term.word for term in terms if " " not in term.word and not term.soft]
    for word in words[:1]:
        yield now.search(r"\w", 8, glob=f"*{word[:1].lower()}{word[1:]}*")


def _value_searches(now: Situation) -> Planned:
    """Search for names with values: of what is asked for, or in files that are named after settings."""
    terms = topics(now.question)
    if terms:
        words = _fitting([term.wide_pattern for term in terms][:3])
        yield now.search(rf"{DEFINES}\w*(?:{words})", _HITS_SOME)
        yield now.search(rf"^\s*(?:[\w#]+ )?\w*(?:{words})\w*\s*(?::[^=]*)?[= ]\s*{_LITERAL}", _HITS_MANY)
        yield now.search(rf"(?:{words})\w*(?:: [\w |.]+ = |=){_LITERAL}", _HITS_SOME)
        yield from (
            now.search(rf"[=:]\s*{_LITERAL}", _HITS_SOME, glob=f"*{term.root}*") for term in terms[:1] if term.root
        )
        return
    yield now.search(rf"^_*[A-Z][A-Z0-9_]+\s*(?::[^=]*)?=\s*{_LITERAL}|^#\s*define\s+\w+\s+{_LITERAL}", _HITS_MANY)
    for name in ("config", "setting", "default", "option", "limit"):
        yield now.search(rf"[=:]\s*{_LITERAL}", _HITS_SOME, glob=f"*{name}*")
    yield now.search(rf"{DEFINES}\w*(?:config|settings|options|limits|defaults)\b", _HITS_SOME)


def _practice_searches(now: Situation, aim: Aim) -> Planned:
    """Search the texts that are written for strangers."""
    pattern = f"{TABLE[aim].says}|{TABLE[aim].command}"
    yield now.search(pattern, _HITS_SOME, glob="*README*")
    yield now.search(pattern, _HITS_FEW, glob="*CONTRIBUTING*")
    if not now.box.takes(Role.SEARCH, "glob"):
        yield now.search(pattern, _HITS_SOME)


def _practice_reads(now: Situation, aim: Aim) -> Planned:
    """Search the files at the top that belong to the practice, and list its folders."""
    practice, seen = TABLE[aim], now.seen
    pattern = f"{practice.says}|{practice.command}"
    yield from (now.box.call(Role.LIST, path=f) for f in sorted(seen.folders) if re.search(practice.folders, f))
    for path in sorted(seen.files):
        if "/" not in path and standing(practice, path) and path not in seen.lines:
            yield now.search(pattern, _HITS_FEW, glob=path)
    for folder in sorted(seen.folders):
        if folder in {".ci", ".github", "doc", "docs"}:
            yield now.search(pattern, _HITS_FEW, path=folder)
    if "*.dist-info/METADATA" and any(folder.endswith(".dist-info") for folder in seen.folders):
        yield now.search(pattern, _HITS_FEW, glob="*METADATA")


def _value_reads(now: Situation) -> Planned:
    """Read the classes and the files that hold most of the values."""
    question, seen = now.question, now.seen
    wanted = topics(question)
    classes = [
        (-file_factor(path, question), path, number)
        for path, lines in seen.lines.items()
        for number, text in lines.items()
        if _CLASS.match(text)
        and (any(strength(term, text, forms(text)) == 1.0 for term in wanted) or (not wanted and _SETS.search(text)))
    ]
    for factor, path, number in sorted(classes)[:2]:
        if factor < -_FACTOR_MIN:
            yield now.read(path, number, _WINDOW_LINES * 3)
    for path, values in value_files(question, seen)[:2]:
        unread = [value.line for value in values if value.line not in seen.read.get(path, set())]
        if unread:
            yield now.read(path, max(1, unread[0] - 20), _WINDOW_LINES * 3)


def _meetings(now: Situation, terms: list[Term]) -> Planned:
    """Search for lines in which two of the telling words meet, or words that answer for them, in either order."""
    words = [term.wide_pattern for term in terms if " " not in term.word][:4]
    if len(words) > 1:
        others = ["|".join(words[:index] + words[index + 1 :]) for index in range(len(words))]
        pairs = [f"(?:{word}).*(?:{other})" for word, other in zip(words, others, strict=True)]
        yield now.search(_fitting(pairs), _HITS_MANY)


def _direct_reads(now: Situation) -> Generator[RequestedCall | None, None, bool]:
    """Plan what the kind of question itself calls for, and return whether nothing else is to be read."""
    question, seen = now.question, now.seen
    if question.aims & {Aim.OVERVIEW, Aim.FILES}:
        yield from _overview_reads(now)
        return True
    if question.practice is not None:
        yield from _practice_reads(now, question.practice)
        return True
    yield from _precise_reads(now)
    if Aim.SETTINGS in question.aims:
        yield from _value_reads(now)
        return bool(value_files(question, seen))
    return False


def _first_reads(now: Situation) -> Planned:
    question, seen = now.question, now.seen
    if (yield from _direct_reads(now)):
        return
    yield from _seen_paths(now)
    if question.about_file:
        return
    yield from _bodies(now)
    if seen.count < _HITS_FEW:
        words = dict.fromkeys(word for term in question.strong for word in term.wider)
        if words:
            yield now.search(_fitting(found_as(word) for word in list(words)[:8]), _HITS_SOME)
        yield from _likely_folders(now)
    yield from _windows(now, rank(question, seen))


def _follow_names(now: Situation) -> Planned:
    question, seen = now.question, now.seen
    if (yield from _direct_reads(now)):
        return
    findings = [] if question.about_file else rank(question, seen)
    if Aim.CALLERS not in question.aims:
        for name in _discovered(question, findings):
            yield now.search(rf"\b{re.escape(name)}\b\s*(?::[^=]*)?=|{DEFINES}{re.escape(name)}\b", _HITS_FEW)
            yield now.search(rf"\b{re.escape(name)}\b", _HITS_FEW)
    yield from _bodies(now)
    yield from _windows(now, findings)


def _last_reads(now: Situation) -> Planned:
    question = now.question
    if not question.aims & {Aim.OVERVIEW, Aim.FILES} and not question.about_file and question.practice is None:
        yield from _windows(now, rank(now.question, now.seen)[:12])


_STAGES: Final[tuple[Callable[[Situation], Planned], ...]] = (
    _first_searches,
    _first_reads,
    _follow_names,
    _last_reads,
)


def _any_of(terms: Iterable[Term]) -> str:
    return _fitting([term.pattern for term in terms][:5])


def _fitting(choices: Iterable[str]) -> str:
    """Return a pattern of as many *choices* as tools take."""
    pattern = ""
    for choice in choices:
        longer = f"{pattern}|{choice}" if pattern else choice
        if len(longer) <= _PATTERN_CHARS_MAX:
            pattern = longer
    return pattern


def _seen_paths(now: Situation) -> Planned:
    """Read the files that the question names and that were seen somewhere, under whatever folder."""
    for wanted in now.question.paths:
        for path in now.seen.files:
            if path != wanted and path.endswith("/" + wanted):
                yield now.read(path, 1, _BODY_LINES if now.question.about_file else _HEAD_LINES)
                break


def _bodies(now: Situation) -> Planned:
    """Read the whole of what the question names: what it raises or does stands in its body."""
    if not now.question.aims & {Aim.EXCEPTIONS, Aim.HOW, Aim.WHAT_IS, Aim.WHY, Aim.DEFAULTS}:
        return
    # Read in one piece: a second one might begin after the end of the file, and failures are counted.
    count = _BODY_LINES if Aim.EXCEPTIONS in now.question.aims else _WINDOW_LINES * 2
    # A constructor's values stand behind what documents the class.
    count = _BODY_LINES // 2 if Aim.DEFAULTS in now.question.aims else count
    for name in now.question.names[:2]:
        place = definition_of(name, now.seen, lambda path: file_factor(path, now.question))
        if place:
            path, line = place
            yield now.read(path, line, count)


def _windows(now: Situation, findings: list[Finding]) -> Planned:
    """Read around the best findings that were not read yet; at most two windows a file."""
    planned: dict[str, list[range]] = {}
    total = 0
    best = findings[0].score if findings else 0.0
    for finding in findings[:40]:
        if finding.score < best * 0.3 or total >= _READS_A_STAGE:
            return
        windows = planned.setdefault(finding.path, [])
        known = now.seen.read.get(finding.path, set())
        if finding.line in known or any(finding.line in window for window in windows) or len(windows) >= 2:
            continue
        before = 3 if finding.kind is Kind.DEFINITION else 10
        before = 6 if is_prose(finding.path) else before
        start = max(1, finding.line - before)
        count = _WINDOW_LINES // 2 if is_prose(finding.path) else _WINDOW_LINES
        windows.append(range(start, start + count))
        total += 1
        yield now.read(finding.path, start, count)


def _discovered(question: Question, findings: list[Finding]) -> list[str]:
    """Return names that were found in the best lines, have to do with the question, and were not asked for."""
    names: dict[str, None] = {}
    for finding in findings[:12]:
        if is_prose(finding.path):
            continue
        own = title_of(finding.path, finding.text)
        candidates = [own] if own else []
        candidates += CAPITALS.findall(finding.text)
        for name in candidates:
            said = any(strength(term, name, forms(name)) > 0.5 for term in question.strong)
            if len(name) > 3 and name not in question.names and said:
                names.setdefault(name)
    # What is written in capitals has a value somewhere; the rest may only be near.
    return sorted(names, key=lambda name: not name.isupper())[:3]


def _likely_folders(now: Situation) -> Planned:
    wanted = frozenset(form for term in now.question.strong for form in term.forms)
    for folder in now.seen.folders:
        if not wanted.isdisjoint(forms(folder)):
            yield now.box.call(Role.LIST, path=folder)


def _overview_reads(now: Situation) -> Planned:
    """Read what tells a stranger what this is: the read-me, the front modules, or the beginning of each text."""
    seen = now.seen
    front = sorted((path for path in seen.files if FRONT_FILES.search(path)), key=_front_order)
    for path in front[:4]:
        yield now.read(path, 1, _HEAD_LINES)
    listed = [folder for folder in seen.folders if folder.rpartition("/")[2] in _SOURCE_FOLDERS]
    for folder in (listed or list(seen.folders)[:3])[:3]:
        yield now.box.call(Role.LIST, path=folder)
    others = [path for path in seen.files if path not in front and not _NO_TEXTS.search(path)]
    texts = [path for path in others if is_prose(path) and "." in path]
    code = [path for path in others if _CODE_FILES.search(path) and file_factor(path, now.question) == 1.0]
    for path in (*texts, *code)[: max(0, 6 - len(front))]:
        yield now.read(path, 1, _HEAD_LINES // 4)


def _front_order(path: str) -> tuple[int, int, str]:
    name = path.rpartition("/")[2].lower()
    return (0 if name.startswith("readme") else 1, path.count("/"), path)
