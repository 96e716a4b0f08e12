"""The answer to which limits, settings or defaults there are: names and values, from the file that holds most."""

from __future__ import annotations

from typing import Final

from geartrain.models._offline._observed import Seen
from geartrain.models._offline._question import Question
from geartrain.models._offline._quoting import Citation, Section, counted, excerpt, joined
from geartrain.models._offline._scope import documented, enclosing
from geartrain.models._offline._values import ValueLine, topics, value_files

_FILES_MAX: Final = 3
_BEST_FILE_MAX: Final = 8
_OTHER_FILE_MAX: Final = 2
_STATED_MAX: Final = 5
_VALUES_MIN: Final = 2
# Below that, a value has to do with a related word at most, or with one of several words that are wanted.
_WEIGHT_MIN: Final = 0.3
_WEIGHT_MIN_OF_MANY: Final = 0.9
_WEIGHT_SHARE_MIN: Final = 0.4


def values_section(question: Question, seen: Seen) -> Section | None:
    """Return the values that *question* asks for; None if hardly any were found."""
    files = value_files(question, seen)[:_FILES_MAX]
    if sum(len(values) for _, values in files) < (1 if topics(question) else _VALUES_MIN):
        return None
    best = max(value.weight for _, values in files for value in values)
    if best < (_WEIGHT_MIN_OF_MANY if len(topics(question)) > 1 else _WEIGHT_MIN):
        return None
    files = [(path, [v for v in values if v.weight >= best * _WEIGHT_SHARE_MIN]) for path, values in files]
    files = [(path, values) for path, values in files if values]
    values = files[0][1]
    first = _best(values, _STATED_MAX)
    stated = joined([f"{value.stated} ({value.place})" for value in first])
    more = f", and {counted(len(values) - len(first), 'more')}" if len(values) > len(first) else ""
    more = more.replace("mores", "more")
    sentences = [f"{_holder(seen, _best(values, _BEST_FILE_MAX))}: {stated}{more}."]
    others = [_best(values, 1)[0] for _, values in files[1:]]
    if others:
        sentences.append(f"Elsewhere: {joined([f'{value.stated} ({value.place})' for value in others])}.")
    shown = _best(values, _BEST_FILE_MAX) + [v for _, others in files[1:] for v in _best(others, _OTHER_FILE_MAX)]
    lines: dict[tuple[str, int], Citation] = {}
    for value in shown:
        text = seen.lines[value.path][value.line]
        inside = enclosing(value.path, seen.lines[value.path], value.line)
        note = f"in `{inside}`" if inside else ""
        lines.setdefault((value.path, value.line), Citation(value.path, value.line, excerpt(text, question), note))
    return Section(" ".join(sentences), tuple(lines.values()))


def _best(values: list[ValueLine], count: int) -> list[ValueLine]:
    """Return the *count* values that have most to do with the question, in line order, no name twice."""
    distinct = {value.name: value for value in reversed(values)}.values()
    chosen = sorted(distinct, key=lambda value: (-value.weight, value.line))[:count]
    return sorted(chosen, key=lambda value: value.line)


def _holder(seen: Seen, values: list[ValueLine]) -> str:
    """Return where most of the values are: the class, with what it says of itself, or the file."""
    path = values[0].path
    lines = seen.lines[path]
    holders: dict[str, int] = {}
    for value in values:
        name = enclosing(path, lines, value.line).partition(".")[0]
        holders[name] = holders.get(name, 0) + 1
    name = max(holders, key=lambda name: holders[name])
    if not name or holders[name] * 2 < len(values):
        return f"Most are set in `{path}`"
    place = next((n for n, text in lines.items() if f" {name}" in text and not text[:1].isspace()), None)
    said = documented(lines, place) if place else None
    if place is None or said is None:
        return f"Most are set by `{name}` in `{path}`"
    return f"`{name}` (`{path}:{place}`, “{said[1]}”) sets them"
