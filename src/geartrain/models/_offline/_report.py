"""The answer to one question: a summary of a sentence or two, and the lines that it rests on.

Rule 1: what is cited is in `Seen.lines`, so a tool has shown it.
Rule 2: what was not found is said, with what was looked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from geartrain.models._offline._answer_default import default_section
from geartrain.models._offline._answer_handled import handled_section
from geartrain.models._offline._answer_names import callers, exceptions
from geartrain.models._offline._answer_practice import practice_section
from geartrain.models._offline._answer_values import values_section
from geartrain.models._offline._answer_whole import about_file, contents, files, overview
from geartrain.models._offline._citing import by_file, citation
from geartrain.models._offline._evidence import AMOUNT, Finding, Kind, defines, rank, strength
from geartrain.models._offline._observed import Seen
from geartrain.models._offline._question import Aim, Question
from geartrain.models._offline._quoting import (
    QUOTE_CHARS_MAX,
    Citation,
    Section,
    bare,
    counted,
    excerpt,
    joined,
    sentence,
)
from geartrain.models._offline._scope import body, definition_of, documented
from geartrain.models._offline._sentences import sentence_at
from geartrain.models._offline._standing import file_factor, is_prose
from geartrain.models._offline._syntax import title_of
from geartrain.models._offline._words import forms

CITATIONS_MAX: Final = 10

# Folders that no author has written.
_HIDDEN: Final = re.compile(r"(?:^|/)(?:\.|__pycache__$)|\.(?:dist|egg)-info$")
_NAMES_MAX: Final = 60
_SNIPPET_LINES: Final = 12
_PER_FILE_MAX: Final = 4
_BEST_FILE_MAX: Final = 6
# What is much weaker than the best line is not shown, but rather something weak than one line alone.
_SCORE_SHARE_MIN: Final = 0.4
_CITATIONS_MIN: Final = 4
_FACTS_MAX: Final = 3
_FACTS_LOOKED_AT: Final = 6


def section_for(question: Question, seen: Seen) -> Section:
    """Return what is known about *question*."""
    if question.about_file:
        section = about_file(question, seen)
        if section is not None:
            return section
    section = practice_section(question, seen) or default_section(question, seen) or handled_section(question, seen)
    if section is None and Aim.SETTINGS in question.aims:
        section = values_section(question, seen)
    if section is not None:
        return section
    for aim, compose in _COMPOSERS.items():
        if aim in question.aims:
            section = compose(question, seen)
            if section is not None:
                return section
    return _general(question, seen) or _nothing(question, seen)


def _general(question: Question, seen: Seen) -> Section | None:
    chosen = _chosen(question, rank(question, seen))
    if not chosen:
        return None
    citations = by_file(_cited(question, seen, chosen))
    missing = _missing_sentence(question, seen)
    if all(is_prose(finding.path) for finding in chosen[:3]):
        citations = by_file([*citations, *_completing(question, seen, chosen)])
        return Section(f"{_prose_summary(question, seen, chosen)} {missing}".rstrip(), citations)
    sentences = [_told_sentence(question, seen, chosen[0]) or _definition_sentence(question, seen, chosen)]
    if Aim.WHERE in question.aims or not sentences[0]:
        sentences.insert(0, _place_sentence(question, chosen))
    if not any(sentences[-1:]):
        sentences.append(_said_sentence(chosen))
    if question.aims & {Aim.AMOUNT, Aim.DEFAULTS}:
        sentences.insert(0, _values_sentence(question, chosen))
    return Section(" ".join(filter(None, [*sentences, missing])), citations, _snippet(question, seen, chosen))


def _missing_sentence(question: Question, seen: Seen) -> str:
    """Return which words of the question stand in no line: each was searched for, so they are nowhere."""
    if seen.failed:
        return ""
    words = [term for term in question.strong[:4] if " " not in term.word and not term.soft]
    texts = [text for lines in seen.lines.values() for text in lines.values()]
    missing = [t for t in words if not any(strength(t, text, forms(text)) > 0.5 for text in texts)]
    return f"No line mentions {joined([f'“{term.word}”' for term in missing])}." if missing else ""


def _completing(question: Question, seen: Seen, chosen: Sequence[Finding]) -> Iterable[Citation]:
    """Yield the lines before and after the best lines of prose, where a sentence runs over the end of a line."""
    shown = {(finding.path, finding.line) for finding in chosen}
    for finding in chosen[:4]:
        lines, text = seen.lines[finding.path], finding.text.strip()
        wanted = []
        if text[:1].islower():
            wanted.append(finding.line - 1)
        if text and text[-1] not in '.!?:|”"' and finding.kind is Kind.PROSE:
            wanted.append(finding.line + 1)
        for number in wanted:
            if lines.get(number, "").strip() and (finding.path, number) not in shown:
                shown.add((finding.path, number))
                yield citation(question, seen, finding.path, number)


def _snippet(question: Question, seen: Seen, chosen: Sequence[Finding]) -> tuple[Citation, ...]:
    """Return the code of the best finding, where a question wants to understand and not only to find."""
    if not question.aims & {Aim.HOW, Aim.WHY, Aim.WHAT_IS} or Aim.WHERE in question.aims:
        return ()
    shown = next((f for f in chosen[:_FACTS_LOOKED_AT] if f.kind is Kind.DEFINITION and not is_prose(f.path)), None)
    if shown is None:
        return ()
    lines, first = seen.lines[shown.path], shown.line
    within = [n for n, text in body(lines, first) if n < first + _SNIPPET_LINES and (text.strip() or n == first)]
    if len(within) < 2:
        return ()
    return tuple(Citation(shown.path, n, lines[n][:QUOTE_CHARS_MAX]) for n in range(first, max(within) + 1))


def _chosen(question: Question, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings worth showing: good ones, not twice the same, not all from one file."""
    chosen: list[Finding] = []
    said: set[str] = set()
    best = findings[0].score if findings else 0.0
    one_file = len({finding.path for finding in findings[:20]}) == 1
    for finding in findings:
        enough = _SCORE_SHARE_MIN if len(chosen) >= _CITATIONS_MIN else _SCORE_SHARE_MIN / 2
        if len(chosen) >= CITATIONS_MAX or finding.score < best * enough:
            break
        text = " ".join(finding.text.split())
        in_file = sum(other.path == finding.path for other in chosen)
        room = _BEST_FILE_MAX if finding.path == findings[0].path else _PER_FILE_MAX
        if not text or text in said or (in_file >= room and not one_file):
            continue
        if finding.kind is Kind.IMPORT and Aim.WHERE not in question.aims:
            continue
        said.add(text)
        chosen.append(finding)
    return chosen


def _cited(question: Question, seen: Seen, findings: Iterable[Finding]) -> list[Citation]:
    return [citation(question, seen, finding.path, finding.line) for finding in findings]


def _subject_of(question: Question) -> str:
    if question.names:
        return " and ".join(f"`{name}`" for name in question.names[:2])
    words: list[str] = []
    for term in question.strong:
        if not any(piece in " ".join(words).split() for piece in term.word.split()):
            words.append(term.word)
    return ", ".join(f"“{word}”" for word in words[:4]) or "the question"


def _place_sentence(question: Question, chosen: Sequence[Finding]) -> str:
    files: dict[str, list[str]] = {}
    exact = [finding for finding in chosen if title_of(finding.path, finding.text) in question.names]
    for finding in exact or chosen:
        names = files.setdefault(finding.path, [])
        name = title_of(finding.path, finding.text)
        if name and name not in names:
            names.append(name)
    places = []
    for path, names in list(files.items())[:3]:
        inside = ", ".join(f"`{name}`" for name in names[:3])
        places.append(f"`{path}` ({inside})" if inside else f"`{path}`")
    more = f", and {counted(len(files) - 3, 'other file')}" if len(files) > 3 else ""
    return f"For {_subject_of(question)}, look first at {joined(places)}{more}."


def _definition_sentence(question: Question, seen: Seen, chosen: Sequence[Finding]) -> str:
    """Return what the best-documented definition among the best findings says about itself."""
    candidates: list[tuple[str, int]] = [
        (finding.path, finding.line) for finding in chosen[:5] if finding.kind is Kind.DEFINITION
    ]
    for name in question.names:
        known = definition_of(name, seen, lambda path: file_factor(path, question))
        if known:
            candidates.insert(0, known)
    best, said = -1.0, ""
    for path, line in candidates:
        lines = seen.lines[path]
        name, document = title_of(path, lines[line]), documented(lines, line)
        text = f"{name} {document[1]}" if document else name
        value = sum(strength(term, text, forms(text)) for term in question.strong) + 0.25 * bool(document)
        if value > best:
            best, said = value, f"`{name}` is defined in `{path}:{line}`."
            if document:
                said = f"`{name}` (`{path}:{line}`) is documented as {sentence(document[1])} (`{path}:{document[0]}`)."
    return said


def _told_sentence(question: Question, seen: Seen, best: Finding) -> str:
    """Return the sentence of a text that says what the subject is, if that is the best that was found."""
    if not is_prose(best.path) or not defines(question, best.path, best.text):
        return ""
    lines, line = seen.lines[best.path], best.line
    if best.kind is Kind.HEADING:
        line = next((n for n in range(line + 1, line + 4) if lines.get(n, "").strip()), line)
    at, text = sentence_at(lines, line, question.strong)
    return f"“{text}” (`{best.path}:{at}`)."


def _said_sentence(chosen: Sequence[Finding]) -> str:
    """Return what a comment or docstring among the best lines says."""
    for finding in chosen[:_FACTS_LOOKED_AT]:
        if finding.kind in {Kind.COMMENT, Kind.PROSE}:
            text = bare(finding.text.strip()).lstrip("#*/ ").strip()
            return f"A comment there says {sentence(text)} (`{finding.path}:{finding.line}`)." if text else ""
    return ""


def _values_sentence(question: Question, chosen: Sequence[Finding]) -> str:
    wanted = {form for term in question.strong if " " not in term.word for form in term.forms}
    # "events" and "run" together name what is counted; one of them alone, something else.
    named = {f: len(forms(title_of(f.path, f.text) or f.text.partition("=")[0]) & wanted) for f in chosen[:5]}
    best = max(named.values(), default=0) if Aim.AMOUNT in question.aims else 0
    constants = [f for f in chosen[:5] if AMOUNT.match(f.text) and not f.text.rstrip().endswith((",", "("))]
    constants = [f for f in constants if named[f] >= best] or constants
    shown = [f"`{excerpt(f.text, question)}` (`{f.path}:{f.line}`)" for f in constants]
    return f"Values stated there: {joined(shown)}." if shown else ""


def _prose_summary(question: Question, seen: Seen, chosen: Sequence[Finding]) -> str:
    """Return the sentences that say most, in the order of the texts, and where else something is said."""
    told: dict[str, Finding] = {}
    for finding in chosen[:_FACTS_LOOKED_AT]:
        if finding.kind is Kind.HEADING:
            continue
        line, text = sentence_at(seen.lines[finding.path], finding.line, question.strong)
        if len(told) < _FACTS_MAX and all(text not in other and other not in text for other in told):
            told[text] = replace(finding, line=line)
    if not told:
        return _place_sentence(question, chosen)
    facts = " ".join(f"“{text}” (`{at.path}:{at.line}`)" for text, at in told.items())
    others = [path for path in dict.fromkeys(f.path for f in chosen) if path not in {at.path for at in told.values()}]
    more = f" More in {joined([f'`{path}`' for path in others[:3]])}." if others else ""
    return f"{facts}{'' if facts.endswith('.') else '.'}{more}"


def _nothing(question: Question, seen: Seen) -> Section:
    looked = joined([f"“{term.word}”" for term in question.strong[:6]]) or "anything to look for"
    wider = list(dict.fromkeys(word for term in question.strong[:6] for word in term.wider))[:4]
    also = f", and for the related words {joined([f'“{word}”' for word in wider])}" if wider else ""
    there = contents(seen) or "No file was seen."
    return Section(f"Nothing was found for this question. Searched for {looked}{also}. {there}")


_COMPOSERS: Final = MappingProxyType[Aim, Callable[[Question, Seen], Section | None]](
    {
        Aim.OVERVIEW: overview,
        Aim.FILES: files,
        Aim.EXCEPTIONS: exceptions,
        Aim.CALLERS: callers,
    }
)
