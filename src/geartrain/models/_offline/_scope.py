"""What stands around a line: the definition it belongs to, its body, and the sentence that documents it.

All of it is judged by indentation, which every language here shares; and only where each line between is known, so
that nothing is said about code that was not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from geartrain.models._offline._observed import Seen
from geartrain.models._offline._syntax import is_definition, title_of

_BODY_LINES_MAX: Final = 600
_DOCUMENTED_WITHIN: Final = 14


def definition_of(name: str, seen: Seen, factor: Callable[[str], float]) -> tuple[str, int] | None:
    """Return where *name* is defined, as far as is known; in the file that counts most by *factor*."""
    places = [
        (-factor(path), path.count("/"), path, number)
        for path, lines in seen.lines.items()
        for number, text in lines.items()
        if name in text and is_definition(path, text) and title_of(path, text) == name
    ]
    if not places:
        return None
    _, _, path, number = min(places)
    return path, number


def indent(text: str) -> int:
    """Return the width of the white space that *text* begins with; a tab counts four."""
    return len(text.expandtabs(4)) - len(text.expandtabs(4).lstrip())


def body(lines: Mapping[int, str], start: int) -> Iterator[tuple[int, str]]:
    """Yield the lines of the definition at *start*, itself first, as far as they are known without a gap."""
    margin = indent(lines[start])
    yield start, lines[start]
    for number in range(start + 1, start + _BODY_LINES_MAX):
        text = lines.get(number)
        if text is None:
            return
        bare = text.strip()
        if bare and indent(text) <= margin and not bare.startswith((")", "{", "]", "}", '"""', "#", "//")):
            return
        yield number, text


def enclosing(path: str, lines: Mapping[int, str], line: int) -> str:
    """Return the name of what the line stands in, outermost first (`Queue.put`); empty if it is not known."""
    names: list[str] = []
    margin = indent(lines[line])
    number = line - 1
    while margin > 0 and number in lines:
        text = lines[number]
        if text.strip() and indent(text) < margin:
            if is_definition(path, text):
                names.append(title_of(path, text))
            margin = indent(text)
        number -= 1
    return ".".join(reversed([name for name in names if name]))


def documented(lines: Mapping[int, str], line: int) -> tuple[int, str] | None:
    """Return the first line of what documents the definition at *line*, without its marks, and where it stands."""
    return _docstring(lines, line) or _comment_above(lines, line)


def _docstring(lines: Mapping[int, str], line: int) -> tuple[int, str] | None:
    for number in range(line + 1, line + 1 + _DOCUMENTED_WITHIN):
        text = lines.get(number)
        if text is None:
            return None
        opening = re.match(r"\s*[rRbBuU]{0,2}(?:\"\"\"|''')(.*)$", text)
        if opening:
            place = number if opening.group(1).strip() else number + 1
            said = opening.group(1).strip() or lines.get(place, "").strip()
            said = said.removesuffix('"""').removesuffix("'''").strip()
            return (place, said) if len(said) > 8 else None
        if number > line + 1 and is_definition("", text):
            return None
    return None


def _comment_above(lines: Mapping[int, str], line: int) -> tuple[int, str] | None:
    first: tuple[int, str] | None = None
    for number in range(line - 1, line - 1 - _DOCUMENTED_WITHIN, -1):
        text = lines.get(number, "").strip()
        if not re.match(r"#(?!\s*(?:if|el|end|def|undef|pragma|include|error))|//|/\*|\*|--|;;", text):
            break
        said = text.lstrip("#/*-; ").removesuffix("*/").strip()
        if len(said) > 8:
            first = (number, said)
    return first
