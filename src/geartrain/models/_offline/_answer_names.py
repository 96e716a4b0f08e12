"""The answers to what a named thing raises, and who calls it."""

from __future__ import annotations

import re
from typing import Final

from geartrain.models._offline._citing import by_file, citation
from geartrain.models._offline._evidence import Kind, kind_of
from geartrain.models._offline._observed import Seen
from geartrain.models._offline._question import Question
from geartrain.models._offline._quoting import Section, joined
from geartrain.models._offline._scope import body, definition_of
from geartrain.models._offline._standing import file_factor
from geartrain.models._offline._syntax import is_definition, title_of

CITATIONS_MAX: Final = 12
EXCEPTION_CLASS: Final = re.compile(r"^\s*(?:export )?class\s+\w+\s*(?:\(|extends ).*(?:Error|Exception|Warning)\b")
_NAMED_MAX: Final = 6
_FACTOR_MIN: Final = 0.3


def exceptions(question: Question, seen: Seen) -> Section | None:
    """Return what the thing that *question* names raises; None if its definition is not known."""
    name = question.subject or (question.names[0] if question.names else "")
    if not name and all(term.soft for term in question.terms):
        return _defined_exceptions(question, seen)
    place = definition_of(name, seen, lambda path: file_factor(path, question)) if name else None
    if place is None:
        return None
    path, start = place
    lines = seen.lines[path]
    inside = list(body(lines, start))
    raised: dict[str, list[int]] = {}
    for number, text in inside:
        found = re.search(r"(?:^\s*|[;{:)]\s*)(?:raise|throw(?:\s+new)?)\s+([A-Za-z_]\w*(?:\.\w+)*)", text)
        if found:
            raised.setdefault(found.group(1), []).append(number)
    span = f"`{path}`, lines {start} to {inside[-1][0]}"
    citations = [citation(question, seen, path, start, "definition")]
    for numbers in raised.values():
        citations += [citation(question, seen, path, number) for number in numbers[:3]]
    for error in raised:
        defined = definition_of(error.rpartition(".")[2], seen, lambda _: 1.0)
        if defined:
            citations.append(citation(question, seen, *defined, "definition of the exception"))
    if not raised:
        summary = f"`{name}` has no `raise` or `throw` of its own in what was read of it ({span})."
    else:
        names = joined([f"`{error}`" for error in raised])
        summary = f"`{name}` raises {names} ({span}). What the functions raise that it calls is not counted."
    return Section(summary, by_file(citations[:CITATIONS_MAX]))


def _defined_exceptions(question: Question, seen: Seen) -> Section | None:
    """Return the exceptions that are defined anywhere, those of the file that defines most first."""
    files: dict[str, list[int]] = {}
    for path, lines in seen.lines.items():
        if file_factor(path, question) >= _FACTOR_MIN:
            files.setdefault(path, []).extend(n for n, text in sorted(lines.items()) if EXCEPTION_CLASS.match(text))
    places = [(path, n) for path, found in sorted(files.items(), key=lambda file: -len(file[1])) for n in found]
    if not places:
        return None
    names = [f"`{title_of(path, seen.lines[path][n])}` (`{path}:{n}`)" for path, n in places[:_NAMED_MAX]]
    more = f", and {len(places) - len(names)} more" if len(places) > len(names) else ""
    summary = f"The exceptions defined here: {joined(names)}{more}."
    return Section(summary, by_file(citation(question, seen, *place) for place in places[:CITATIONS_MAX]))


def callers(question: Question, seen: Seen) -> Section | None:
    """Return where the thing that *question* names is called; None if it was not seen."""
    name = question.subject or (question.names[0] if question.names else "")
    if not name:
        return None
    call, word = re.compile(rf"\b{re.escape(name)}\s*\("), re.compile(rf"\b{re.escape(name)}\b")
    calls: list[tuple[float, str, int]] = []
    uses: list[tuple[float, str, int]] = []
    for path, lines in seen.lines.items():
        factor = -file_factor(path, question)
        for number, text in lines.items():
            defines = is_definition(path, text) and title_of(path, text) == name
            if not word.search(text) or defines:
                continue
            plain = kind_of(path, text) not in {Kind.COMMENT, Kind.PROSE, Kind.HEADING}
            (calls if call.search(text) and plain else uses).append((factor, path, number))
    shown = sorted(calls) or sorted(uses)
    if not shown:
        return None
    files = list(dict.fromkeys(path for _, path, _ in shown))
    what = "called" if calls else "mentioned, but not called with parentheses,"
    where = joined([f"`{path}`" for path in files[:4]])
    more = f" and {len(files) - 4} more files" if len(files) > 4 else ""
    lines_word = "line" if len(shown) == 1 else "lines"
    summary = f"`{name}` is {what} on {len(shown)} {lines_word} found: in {where}{more}."
    place = definition_of(name, seen, lambda path: file_factor(path, question))
    citations = [citation(question, seen, *place, "definition")] if place else []
    citations += [citation(question, seen, path, number) for _, path, number in shown]
    return Section(summary, by_file(citations[:CITATIONS_MAX]))
