"""The answer in words: a summary of a sentence or two, then the lines that it rests on, each with its place.

Rule 1: a citation is a path, a line number and a piece of exactly that line, all three from a tool's result.
Rule 2: what was not found is said, with what was looked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Final

from geartrain.models._evidence import Finding, Kind, file_factor, is_definition, is_prose, kind_of, rank
from geartrain.models._observed import Seen
from geartrain.models._question import Aim, Question
from geartrain.models._scope import body, definition_of, documented, enclosing, title_of

CITATIONS_MAX: Final = 12
QUOTE_CHARS_MAX: Final = 240

_PER_FILE_MAX: Final = 4
_SCORE_SHARE_MIN: Final = 0.33
_LITERAL_DEFAULT: Final = re.compile(
    r"\b\w+\s*(?::\s*[\w.\[\] |\"']{1,50})?\s*=\s*(?:[-+]?[\d_.]+(?:\s*(?:\*\*?|<<)\s*\d+)*|None|True|False|true|false|"
    r"null|\"[^\"]*\"|'[^']*'|[A-Z][\w.]*\([^()]*\)|[A-Z_]{3,})"
)


@dataclass(frozen=True, slots=True)
class Citation:
    """A line to show: `note` says what it stands in, or what it is."""

    path: str
    line: int
    text: str
    note: str = ""

    @property
    def place(self) -> str:
        """Path and line, as an editor takes them."""
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Section:
    """The answer to one question."""

    summary: str
    citations: tuple[Citation, ...] = ()
    found: bool = True


def section_for(question: Question, seen: Seen) -> Section:
    """Return what is known about *question*."""
    for aim, compose in _COMPOSERS.items():
        if aim in question.aims:
            section = compose(question, seen)
            if section is not None:
                return section
    return _general(question, seen) or _nothing(question, seen)


def rendered(section: Section) -> str:
    """Return the section as Markdown."""
    lines = [section.summary]
    for path, group in groupby(section.citations, key=lambda citation: citation.path):
        lines += ["", f"**{path}**", ""]
        for citation in group:
            note = f" ({citation.note})" if citation.note else ""
            lines.append(f"- `{citation.place}`{note}: {quoted(citation.text, is_prose(path))}")
    return "\n".join(lines)


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
    begin = max(text.rfind(". ", 0, middle) + 2 if ". " in text[:middle] else 0, middle - QUOTE_CHARS_MAX // 2)
    end = text.find(". ", middle)
    end = end + 1 if 0 <= end < begin + QUOTE_CHARS_MAX else begin + QUOTE_CHARS_MAX
    return text[begin:end].strip()


def _general(question: Question, seen: Seen) -> Section | None:
    chosen = _chosen(question, rank(question, seen))
    if not chosen:
        return None
    citations = _by_file(_cited(question, seen, chosen))
    if all(is_prose(finding.path) for finding in chosen[:3]):
        return Section(_prose_summary(question, chosen), citations)
    sentences = [_definition_sentence(question, seen, chosen)]
    if Aim.WHERE in question.aims or not sentences[0]:
        sentences.insert(0, _place_sentence(question, chosen))
    if Aim.DEFAULTS in question.aims:
        sentences.append(_defaults_sentence(question, chosen))
    return Section(" ".join(filter(None, sentences)), citations)


def _chosen(question: Question, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings worth showing: good ones, not twice the same, not all from one file."""
    chosen: list[Finding] = []
    said: set[str] = set()
    best = findings[0].score if findings else 0.0
    one_file = len({finding.path for finding in findings[:20]}) == 1
    for finding in findings:
        if len(chosen) >= CITATIONS_MAX or finding.score < best * _SCORE_SHARE_MIN:
            break
        text = " ".join(finding.text.split())
        in_file = sum(other.path == finding.path for other in chosen)
        if not text or text in said or (in_file >= _PER_FILE_MAX and not one_file):
            continue
        if finding.kind is Kind.IMPORT and Aim.WHERE not in question.aims:
            continue
        said.add(text)
        chosen.append(finding)
    return chosen


def _cited(question: Question, seen: Seen, findings: Iterable[Finding]) -> list[Citation]:
    return [_citation(question, seen, finding.path, finding.line) for finding in findings]


def _citation(question: Question, seen: Seen, path: str, line: int, note: str = "") -> Citation:
    lines = seen.lines[path]
    if not note and not is_prose(path):
        inside = enclosing(path, lines, line)
        note = f"in `{inside}`" if inside else ""
    return Citation(path, line, excerpt(lines[line], question), note)


def _by_file(citations: Iterable[Citation]) -> tuple[Citation, ...]:
    """Return the citations with those of one file together, files in order of their best, lines in order."""
    files: dict[str, list[Citation]] = {}
    for citation in citations:
        files.setdefault(citation.path, []).append(citation)
    return tuple(one for group in files.values() for one in sorted(group, key=lambda citation: citation.line))


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
    for finding in chosen:
        names = files.setdefault(finding.path, [])
        name = title_of(finding.path, finding.text)
        if name and name not in names:
            names.append(name)
    places = []
    for path, names in list(files.items())[:3]:
        inside = ", ".join(f"`{name}`" for name in names[:3])
        places.append(f"`{path}` ({inside})" if inside else f"`{path}`")
    more = f", and {len(files) - 3} other files" if len(files) > 3 else ""
    return f"What has to do with {_subject_of(question)} is mainly in {_joined(places)}{more}."


def _definition_sentence(question: Question, seen: Seen, chosen: Sequence[Finding]) -> str:
    """Return what the best-documented definition among the best findings says about itself."""
    candidates = [(finding.path, finding.line) for finding in chosen[:5] if finding.kind is Kind.DEFINITION]
    for name in question.names:
        place = definition_of(name, seen, lambda path: file_factor(path, question))
        if place:
            candidates.insert(0, place)
    for path, line in candidates:
        lines = seen.lines[path]
        name = title_of(path, lines[line])
        document = documented(lines, line)
        if name and document:
            return f"`{name}` (`{path}:{line}`) is documented as “{document[1]}” (`{path}:{document[0]}`)."
    return ""


def _defaults_sentence(question: Question, chosen: Sequence[Finding]) -> str:
    stated: dict[str, str] = {}
    wanted = [term for term in question.strong if term.word not in {"default", "defaults"}]
    words = {piece[:4] for term in wanted for piece in re.findall(r"[a-z]+", term.word.lower())}
    for finding in chosen:
        for match in _LITERAL_DEFAULT.finditer(finding.text):
            text = match.group().strip()
            if any(word in text.lower() for word in words):
                stated.setdefault(text, f"{finding.path}:{finding.line}")
    if not stated:
        return "No line that was read states a default as a plain value."
    shown = [f"`{text}` (`{place}`)" for text, place in list(stated.items())[:5]]
    return f"Defaults stated there: {_joined(shown)}."


def _prose_summary(question: Question, chosen: Sequence[Finding]) -> str:
    best = chosen[0]
    files = list(dict.fromkeys(finding.path for finding in chosen))
    where = _joined([f"`{path}`" for path in files[:3]])
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    lead = f"About {_subject_of(question)}, most is said in {where}{more}."
    return f"{lead} The closest line: “{excerpt(best.text, question)}” (`{best.path}:{best.line}`)."


def _exceptions(question: Question, seen: Seen) -> Section | None:
    name = question.subject or (question.names[0] if question.names else "")
    place = definition_of(name, seen, lambda path: file_factor(path, question)) if name else None
    if place is None:
        return None
    path, start = place
    lines = seen.lines[path]
    inside = list(body(lines, start))
    raised: dict[str, list[int]] = {}
    for number, text in inside:
        found = re.search(r"(?:^|[\s;{(])(?:raise|throw(?:\s+new)?)\s+([A-Za-z_][\w.]*)", text)
        if found:
            raised.setdefault(found.group(1), []).append(number)
    span = f"`{path}`, lines {start} to {inside[-1][0]}"
    citations = [_citation(question, seen, path, start, "definition")]
    for numbers in raised.values():
        citations += [_citation(question, seen, path, number) for number in numbers[:3]]
    for error in raised:
        defined = definition_of(error.rpartition(".")[2], seen, lambda _: 1.0)
        if defined:
            citations.append(_citation(question, seen, *defined, "definition of the exception"))
    if not raised:
        summary = f"`{name}` has no `raise` or `throw` of its own in what was read of it ({span})."
    else:
        names = _joined([f"`{error}`" for error in raised])
        summary = f"`{name}` raises {names} ({span}). What the functions raise that it calls is not counted."
    return Section(summary, _by_file(citations[:CITATIONS_MAX]))


def _callers(question: Question, seen: Seen) -> Section | None:
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
    where = _joined([f"`{path}`" for path in files[:4]])
    more = f" and {len(files) - 4} more files" if len(files) > 4 else ""
    lines_word = "line" if len(shown) == 1 else "lines"
    summary = f"`{name}` is {what} on {len(shown)} {lines_word} found: in {where}{more}."
    place = definition_of(name, seen, lambda path: file_factor(path, question))
    citations = [_citation(question, seen, *place, "definition")] if place else []
    citations += [_citation(question, seen, path, number) for _, path, number in shown]
    return Section(summary, _by_file(citations[:CITATIONS_MAX]))


def _overview(question: Question, seen: Seen) -> Section | None:
    citations: list[Citation] = []
    for path in _in_reading_order(seen):
        line = _opening(path, seen.lines[path])
        if line is not None:
            citations.append(_citation(question, seen, path, line))
    if not citations:
        return _files(question, seen)
    first = citations[0]
    summary = f"In its own words: “{first.text}” (`{first.place}`). {_contents(seen)}"
    return Section(summary, tuple(citations[:CITATIONS_MAX]))


def _in_reading_order(seen: Seen) -> list[str]:
    read = [path for path in seen.lines if path in seen.read]
    return sorted(read, key=lambda path: (not path.lower().rpartition("/")[2].startswith("readme"), path.count("/")))


def _opening(path: str, lines: dict[int, str]) -> int | None:
    """Return the line in which a file says what it is: the first real sentence of a text, docstring or comment."""
    in_comment = False
    for number in range(1, max(lines, default=0) + 1):
        text = lines.get(number, "").strip()
        comment = text.startswith(('"""', "'''", 'r"""', "//", "/*", "*", "description"))
        if '"""' in text or "/*" in text:
            in_comment = not in_comment or text.count('"""') == 2
        words = re.findall(r"[A-Za-z]{2,}", text)
        badge = text.startswith(("[!", "![", "<", "#!", "# -*-", "=", "---", "Copyright"))
        if len(words) < 4 or badge or text.startswith("#"):
            continue
        if is_prose(path) or comment or in_comment:
            return number
    return None


def _contents(seen: Seen) -> str:
    top_folders = sorted(folder for folder in seen.folders if "/" not in folder)
    top_files = sorted(path for path in seen.files if "/" not in path)
    pieces = []
    if top_folders:
        pieces.append(f"{_counted(len(top_folders), 'folder')} ({_some(top_folders)})")
    if top_files:
        pieces.append(f"{_counted(len(top_files), 'file')} ({_some(top_files)})")
    return f"At the top there are {' and '.join(pieces)}." if pieces else ""


def _files(question: Question, seen: Seen) -> Section | None:
    del question
    contents = _contents(seen)
    return Section(contents) if contents else None


def _nothing(question: Question, seen: Seen) -> Section:
    looked = ", ".join(f"“{term.word}”" for term in question.strong[:6]) or "anything to look for"
    there = _contents(seen) or "No file was seen."
    return Section(f"Nothing was found for this question. Searched for: {looked}. {there}", found=False)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:8])
    return f"{shown}, …" if len(names) > 8 else shown


def _joined(items: Sequence[str]) -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


_COMPOSERS: Final = MappingProxyType[Aim, Callable[[Question, Seen], Section | None]](
    {
        Aim.OVERVIEW: _overview,
        Aim.FILES: _files,
        Aim.EXCEPTIONS: _exceptions,
        Aim.CALLERS: _callers,
    }
)
