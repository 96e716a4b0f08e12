"""The answers about a whole: what a project or a folder is, which files there are, what one file is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from geartrain.models._offline._citing import citation
from geartrain.models._offline._echo import repeats
from geartrain.models._offline._evidence import Kind, kind_of
from geartrain.models._offline._observed import Seen
from geartrain.models._offline._question import Question
from geartrain.models._offline._quoting import Section, bare, counted, joined, sentence, some
from geartrain.models._offline._standing import FRONT_FILES, is_prose

CITATIONS_MAX: Final = 12

# Folders that no author has written.
_HIDDEN: Final = re.compile(r"(?:^|/)(?:\.|__pycache__$)|\.(?:dist|egg)-info$")
_NAMES_MAX: Final = 60
_PARAGRAPH_LINES_MAX: Final = 3
_OTHERS_MAX: Final = 3
_BEGINNINGS_MAX: Final = 4
_SAID_CHARS_MAX: Final = 400
# Where a paragraph of prose ends without an empty line.
_NO_TEXT: Final = re.compile(r"^\s*(?:#{1,6}\s|```|~~~|[=~-]{3,}\s*$|<|\[!|!\[|\.\. )")


def about_file(question: Question, seen: Seen) -> Section | None:
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
        citations.append(citation(question, seen, path, opening))
        sentences.append(f"In its own words: {sentence(bare(lines[opening].strip()))} (`{path}:{opening}`).")
    defined = [n for n, text in sorted(lines.items()) if kind_of(path, text) in {Kind.DEFINITION, Kind.HEADING}]
    margin = [number for number in defined if not lines[number][:1].isspace()] or defined
    citations += [citation(question, seen, path, number) for number in margin]
    return Section(" ".join(sentences) or f"`{path}` was read.", tuple(citations[:CITATIONS_MAX]))


def _same_file(known: str, wanted: str) -> bool:
    return known == wanted or known.endswith("/" + wanted)


def overview(question: Question, seen: Seen) -> Section | None:
    """Return what the files say of themselves that a stranger would read first."""
    paths = _in_reading_order(seen)
    openings = [(path, line) for path in paths for line in [_opening(path, seen.lines[path])] if line is not None]
    if not openings:
        return Section(f"No text or docstring that was read says in words what this is. {contents(seen)}")
    first_path, first = openings[0]
    lines = seen.lines[first_path]
    paragraph = (_paragraph(lines, first) if is_prose(first_path) else []) or [first]
    said = bare(" ".join(lines[number].strip().lstrip("# ") for number in paragraph))
    closed = lines[first].rstrip().endswith(('"""', "'''", '"'))
    quotation = f"“{said}”" if closed else sentence(_shortened(said))
    summary = f"In its own words: {quotation} (`{first_path}:{first}`). {contents(seen)}"
    if is_prose(first_path) and not _is_readme(first_path) and len(openings) > 1:
        begins = [
            f"`{path}` begins {sentence(_first_words(seen, path, line))} (`{path}:{line}`)" for path, line in openings
        ]
        summary = f"{contents(seen)} {joined(begins[:_BEGINNINGS_MAX])}."
    shown = [(first_path, number) for number in paragraph[:_PARAGRAPH_LINES_MAX]]
    if is_prose(first_path):
        following = _paragraph(lines, _next_paragraph(lines, paragraph[-1]))
        shown += [(first_path, number) for number in following[:_PARAGRAPH_LINES_MAX]]
    others = openings[1:]
    if _is_readme(first_path):
        others = [place for place in others if FRONT_FILES.search(place[0])][:_OTHERS_MAX]
    shown += others
    shown = [(path, line) for path, line in shown if not repeats(seen.lines[path][line], question.echoes)]
    return Section(summary.strip(), tuple(citation(question, seen, *place) for place in shown[:CITATIONS_MAX]))


def _first_words(seen: Seen, path: str, line: int) -> str:
    said = " ".join(seen.lines[path][number].strip() for number in _paragraph(seen.lines[path], line))
    end = re.search(r"[.!?](?= |$)", said)
    return _shortened(said[: end.end()] if end else said)


def _shortened(text: str) -> str:
    """Return the sentences of *text* that fit a summary, at least one."""
    if len(text) <= _SAID_CHARS_MAX:
        return text
    end = text.rfind(". ", 0, _SAID_CHARS_MAX)
    return text[: end + 1] if end > 0 else text[:_SAID_CHARS_MAX].rpartition(" ")[0]


def _paragraph(lines: Mapping[int, str], start: int) -> list[int]:
    """Return the numbers of the lines of the paragraph that begins at *start*."""
    numbers: list[int] = []
    while lines.get(start, "").strip() and not _NO_TEXT.match(lines[start]):
        numbers.append(start)
        start += 1
    return numbers


def _next_paragraph(lines: Mapping[int, str], after: int) -> int:
    """Return where the next paragraph begins, if no heading comes first; else a line without text."""
    start = after + 1
    while start in lines and not lines[start].strip():
        start += 1
    return start


def _is_readme(path: str) -> bool:
    return path.lower().rpartition("/")[2].startswith("readme")


def _in_reading_order(seen: Seen) -> list[str]:
    """Return what was read for an overview: texts and front files, or else whatever was read; read-mes first."""
    read = [path for path in seen.lines if path in seen.read]
    front = [path for path in read if is_prose(path) or FRONT_FILES.search(path)]
    return sorted(front or read, key=lambda path: (not _is_readme(path), path.count("/") if front else 0))


def _opening(path: str, lines: dict[int, str]) -> int | None:
    """Return the line in which a file says what it is: the first real sentence of a text, docstring or comment."""
    if path.endswith(".json"):
        return next((n for n, text in sorted(lines.items()) if re.match(r"\s*\"description\"\s*:", text)), None)
    in_comment = False
    for number in range(1, max(lines, default=0) + 1):
        text = lines.get(number, "").strip()
        comment = text.startswith(('"""', "'''", 'r"""', "//", "/*", "*", "description"))
        if '"""' in text or "/*" in text:
            in_comment = not in_comment or text.count('"""') == 2
        words = re.findall(r"[A-Za-z]{2,}", text)
        title = text.isupper() and is_prose(path)
        if number < 4 and len(words) > 3 and re.match(r"#\s", text) and is_prose(path):
            return number
        badge = title or text.startswith(("[!", "![", "<", "#!", "# -*-", "=", "--", "|", "Copyright"))
        if len(words) < (2 if comment and number < 4 else 4) or badge or text.startswith("#"):
            continue
        if is_prose(path) or comment or in_comment:
            return number
    return None


def contents(seen: Seen) -> str:
    top_folders = sorted(folder for folder in seen.folders if "/" not in folder and not _HIDDEN.search(folder))
    top_files = sorted(path for path in seen.files if "/" not in path and not path.startswith("."))
    pieces = []
    if top_folders:
        pieces.append(f"{counted(len(top_folders), 'folder')} ({some(top_folders)})")
    if top_files:
        pieces.append(f"{counted(len(top_files), 'file')} ({some(top_files)})")
    return f"The top folder has {' and '.join(pieces)}." if pieces else ""


def files(question: Question, seen: Seen) -> Section | None:
    del question
    folders = [f"- `{folder}/`" for folder in sorted(seen.folders) if not _HIDDEN.search(folder)]
    names = [*folders, *(f"- `{path}`" for path in sorted(seen.files) if not _HIDDEN.search(path.rpartition("/")[0]))]
    if not names:
        return None
    more = [f"- and {len(names) - _NAMES_MAX} more"] if len(names) > _NAMES_MAX else []
    return Section("\n".join([contents(seen), "", *names[:_NAMES_MAX], *more]))
