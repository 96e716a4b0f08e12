"""The answer to one question: a summary of a sentence or two, and the lines that it rests on.

Rule 1: what is cited is in `Seen.lines`, so a tool has shown it.
Rule 2: what was not found is said, with what was looked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import Final

from geartrain.models._evidence import SAYS_ITSELF, Finding, Kind, file_factor, is_prose, kind_of, rank, strength
from geartrain.models._observed import Seen
from geartrain.models._question import Aim, Question
from geartrain.models._quoting import QUOTE_CHARS_MAX, Citation, Section, bare, counted, excerpt, joined, sentence, some
from geartrain.models._scope import body, definition_of, documented, enclosing, indent
from geartrain.models._syntax import is_definition, title_of
from geartrain.models._words import forms

CITATIONS_MAX: Final = 12

# Folders that no author has written.
_HIDDEN: Final = re.compile(r"(?:^|/)(?:\.|__pycache__$)|\.(?:dist|egg)-info$")
_NAMES_MAX: Final = 60
_SNIPPET_LINES: Final = 12
_PER_FILE_MAX: Final = 4
_BEST_FILE_MAX: Final = 6
# What is much weaker than the best line is not shown, but rather something weak than one line alone.
_SCORE_SHARE_MIN: Final = 0.33
_CITATIONS_MIN: Final = 4
_DEFAULTS_MAX: Final = 6
_ATTRIBUTE_LINES_MAX: Final = 40
# What is assigned in a function's body is no default, and some defaults are stated in words.
_STATEMENT: Final = re.compile(r"^\s{8,}[\w.]+ = ")
_IN_WORDS: Final = re.compile(r"\bdefaults to\b|\bthe default\b|\bby default\b", re.IGNORECASE)
_HAS_ATTRIBUTES: Final = re.compile(r"^\s*(?:\w+ )*(?:class|struct|interface|type|record)\b")
_LITERAL_DEFAULT: Final = re.compile(
    r"^\s*#\s*define\s+\w+\s+\S+|"
    r"\b\w+\s*(?::\s*[\w.\[\] |\"']{1,50})?\s*=\s*(?:[-+]?[\d_.]+(?:\s*(?:\*\*?|<<|[-+/])\s*[\d_.]+)*|"
    r"None|True|False|true|false|null|\"[^\"]*\"|'[^']*'|[A-Z][\w.]*\([^()]*\)|[A-Z_]{3,})"
)


def section_for(question: Question, seen: Seen) -> Section:
    """Return what is known about *question*."""
    if question.about_file:
        section = _about_file(question, seen)
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
    citations = _by_file(_cited(question, seen, chosen))
    missing = _missing_sentence(question, seen)
    if all(is_prose(finding.path) for finding in chosen[:3]):
        citations = _by_file([*citations, *_completing(question, seen, chosen)])
        return Section(f"{_prose_summary(question, chosen)} {missing}".rstrip(), citations)
    sentences = [_definition_sentence(question, seen, chosen)]
    if Aim.WHERE in question.aims or not sentences[0]:
        sentences.insert(0, _place_sentence(question, chosen))
    if Aim.DEFAULTS in question.aims:
        sentences.append(_defaults_sentence(question, seen, chosen))
    elif Aim.AMOUNT in question.aims:
        sentences.insert(0, _values_sentence(question, chosen))
    return Section(" ".join(filter(None, [*sentences, missing])), citations, _snippet(question, seen, chosen[0]))


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
                yield _citation(question, seen, finding.path, number)


def _snippet(question: Question, seen: Seen, finding: Finding) -> tuple[Citation, ...]:
    """Return the code around the best finding, where a question wants to understand and not only to find."""
    if not question.aims & {Aim.HOW, Aim.WHY, Aim.WHAT_IS} or Aim.WHERE in question.aims or is_prose(finding.path):
        return ()
    lines = seen.lines[finding.path]
    first = last = finding.line
    if finding.kind is not Kind.DEFINITION:
        while first - 1 in lines and finding.line - first < _SNIPPET_LINES // 2:
            first -= 1
    while last + 1 in lines and last - first < _SNIPPET_LINES - 1:
        last += 1
    if finding.kind is Kind.DEFINITION:
        last = max(
            number for number, text in body(lines, first) if number <= last and (text.strip() or number == first)
        )
    return tuple(Citation(finding.path, number, lines[number][:QUOTE_CHARS_MAX]) for number in range(first, last + 1))


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
    return [_citation(question, seen, finding.path, finding.line) for finding in findings]


def _citation(question: Question, seen: Seen, path: str, line: int, note: str = "") -> Citation:
    lines = seen.lines[path]
    if not note and not is_prose(path):
        inside = enclosing(path, lines, line)
        note = f"in `{inside}`" if inside else ""
    said = documented(lines, line) if is_definition(path, lines[line]) else None
    said_of_it = f"{sentence(said[1])} (line {said[0]})" if said else ""
    return Citation(path, line, excerpt(lines[line], question), note, said_of_it)


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
    more = f", and {counted(len(files) - 3, 'other file')}" if len(files) > 3 else ""
    return f"What has to do with {_subject_of(question)} is mainly in {joined(places)}{more}."


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


def _defaults_sentence(question: Question, seen: Seen, chosen: Sequence[Finding]) -> str:
    """Return the defaults that the shown lines state, as values or in words, in the order of the findings."""
    wanted = [term for term in question.strong if not term.word.startswith("default")]
    words = {piece[:4] for term in wanted for piece in re.findall(r"[a-z]+", term.word.lower())}
    shown: dict[str, str] = {}
    first = chosen[0]
    if _HAS_ATTRIBUTES.match(first.text) and any(strength(t, first.text, forms(first.text)) == 1 for t in wanted):
        shown.update(_attribute_defaults(seen, first))
    for finding in chosen:
        place = f"`{finding.path}:{finding.line}`"
        if _IN_WORDS.search(finding.text):
            shown.setdefault(f"“{excerpt(finding.text, question)}”", place)
        elif not _STATEMENT.match(finding.text) and not SAYS_ITSELF.match(finding.text):
            values = (match.group().strip() for match in _LITERAL_DEFAULT.finditer(finding.text))
            for text in values:
                if any(word in text.lower() for word in words):
                    shown.setdefault(f"`{text}`", place)
    if not shown:
        return "No line that was read states a default as a plain value."
    stated = [f"{text} ({place})" for text, place in list(shown.items())[:_DEFAULTS_MAX]]
    return f"Defaults stated there: {joined(stated)}."


def _attribute_defaults(seen: Seen, finding: Finding) -> Iterable[tuple[str, str]]:
    """Yield the values that a class gives to its attributes, with their places."""
    inside = list(body(seen.lines[finding.path], finding.line))[1:_ATTRIBUTE_LINES_MAX]
    margin = min((indent(text) for _, text in inside if text.strip()), default=0)
    for number, text in inside:
        match = _LITERAL_DEFAULT.match(text.strip())
        if match and indent(text) == margin:
            yield f"`{match.group().strip()}`", f"`{finding.path}:{number}`"


def _values_sentence(question: Question, chosen: Sequence[Finding]) -> str:
    constants = [f for f in chosen[:5] if f.kind is Kind.CONSTANT and re.search(r"\d", f.text)]
    shown = [f"`{excerpt(f.text, question)}` (`{f.path}:{f.line}`)" for f in constants]
    return f"Values stated there: {joined(shown)}." if shown else ""


def _prose_summary(question: Question, chosen: Sequence[Finding]) -> str:
    best = next((finding for finding in chosen if finding.kind is not Kind.HEADING), chosen[0])
    files = list(dict.fromkeys(finding.path for finding in chosen))
    where = joined([f"`{path}`" for path in files[:3]])
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
        found = re.search(r"(?:^\s*|[;{:)]\s*)(?:raise|throw(?:\s+new)?)\s+([A-Za-z_]\w*(?:\.\w+)*)", text)
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
        names = joined([f"`{error}`" for error in raised])
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
    where = joined([f"`{path}`" for path in files[:4]])
    more = f" and {len(files) - 4} more files" if len(files) > 4 else ""
    lines_word = "line" if len(shown) == 1 else "lines"
    summary = f"`{name}` is {what} on {len(shown)} {lines_word} found: in {where}{more}."
    place = definition_of(name, seen, lambda path: file_factor(path, question))
    citations = [_citation(question, seen, *place, "definition")] if place else []
    citations += [_citation(question, seen, path, number) for _, path, number in shown]
    return Section(summary, _by_file(citations[:CITATIONS_MAX]))


def _about_file(question: Question, seen: Seen) -> Section | None:
    """Return what a file says of itself, how long it is, and what it defines."""
    path = next((known for known in seen.read if any(_same_file(known, wanted) for wanted in question.paths)), None)
    lines = seen.lines.get(path, {}) if path else {}
    if path is None or not lines:
        return None
    sentences = []
    length = seen.lengths.get(path)
    if length is not None:
        sentences.append(f"`{path}` has {counted(length, 'line')}.")
    elif path in seen.sizes:
        sentences.append(f"`{path}` has {seen.sizes[path]} bytes.")
    citations = []
    opening = _opening(path, lines)
    if opening is not None:
        citations.append(_citation(question, seen, path, opening))
        sentences.append(f"In its own words: {sentence(bare(lines[opening].strip()))} (`{path}:{opening}`).")
    defined = [n for n, text in sorted(lines.items()) if kind_of(path, text) in {Kind.DEFINITION, Kind.HEADING}]
    margin = [number for number in defined if not lines[number][:1].isspace()] or defined
    citations += [_citation(question, seen, path, number) for number in margin]
    return Section(" ".join(sentences) or f"`{path}` was read.", tuple(citations[:CITATIONS_MAX]))


def _same_file(known: str, wanted: str) -> bool:
    return known == wanted or known.endswith("/" + wanted)


def _overview(question: Question, seen: Seen) -> Section | None:
    citations: list[Citation] = []
    for path in _in_reading_order(seen):
        line = _opening(path, seen.lines[path])
        if line is not None:
            citations.append(_citation(question, seen, path, line))
    if not citations:
        return _files(question, seen)
    first = citations[0]
    summary = f"In its own words: {sentence(bare(first.text))} (`{first.place}`). {_contents(seen)}"
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
        badge = text.startswith(("[!", "![", "<", "#!", "# -*-", "=", "--", "|", "Copyright"))
        if len(words) < (2 if comment and number < 4 else 4) or badge or text.startswith("#"):
            continue
        if is_prose(path) or comment or in_comment:
            return number
    return None


def _contents(seen: Seen) -> str:
    top_folders = sorted(folder for folder in seen.folders if "/" not in folder and not _HIDDEN.search(folder))
    top_files = sorted(path for path in seen.files if "/" not in path)
    pieces = []
    if top_folders:
        pieces.append(f"{counted(len(top_folders), 'folder')} ({some(top_folders)})")
    if top_files:
        pieces.append(f"{counted(len(top_files), 'file')} ({some(top_files)})")
    return f"At the top there are {' and '.join(pieces)}." if pieces else ""


def _files(question: Question, seen: Seen) -> Section | None:
    del question
    folders = [f"- `{folder}/`" for folder in sorted(seen.folders) if not _HIDDEN.search(folder)]
    names = [*folders, *(f"- `{path}`" for path in sorted(seen.files))]
    if not names:
        return None
    more = [f"- and {len(names) - _NAMES_MAX} more"] if len(names) > _NAMES_MAX else []
    return Section("\n".join([_contents(seen), "", *names[:_NAMES_MAX], *more]))


def _nothing(question: Question, seen: Seen) -> Section:
    looked = ", ".join(f"“{term.word}”" for term in question.strong[:6]) or "anything to look for"
    there = _contents(seen) or "No file was seen."
    return Section(f"Nothing was found for this question. Searched for: {looked}. {there}")


_COMPOSERS: Final = MappingProxyType[Aim, Callable[[Question, Seen], Section | None]](
    {
        Aim.OVERVIEW: _overview,
        Aim.FILES: _files,
        Aim.EXCEPTIONS: _exceptions,
        Aim.CALLERS: _callers,
    }
)
