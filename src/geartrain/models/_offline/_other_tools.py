"""Tools that fit no role of a file reader: asked when the question seems to be theirs.

Which one follows from the words that the question shares with a tool's name and description; its one argument is a
path or a quoted word of the question.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from geartrain.machine import RequestedCall, ToolSpec
from geartrain.models._offline._observed import Made
from geartrain.models._offline._question import Question
from geartrain.models._offline._toolbox import Toolbox, properties_of, required_of
from geartrain.models._offline._words import forms, parts, related, stem, word_set

_RESULT_CHARS_MAX: Final = 2_000


def calls_of_others(
    questions: Iterable[Question], box: Toolbox, made: frozenset[tuple[str, str]]
) -> tuple[RequestedCall, ...]:
    """Return at most one call a question, of the tool that fits it best and was not asked this yet."""
    calls: dict[tuple[str, str], RequestedCall] = {}
    for question in questions:
        tool = _best(question, box)
        arguments = None if tool is None else _arguments(question, tool)
        if tool is None or arguments is None:
            continue
        call = RequestedCall(tool=tool.name, arguments=json.dumps(arguments, ensure_ascii=False))
        if (call.tool, call.arguments) not in made:
            calls[call.tool, call.arguments] = call
    return tuple(calls.values())


def said_by_others(question: Question, made: Sequence[Made], box: Toolbox) -> str:
    """Return what the tool that fits *question* has said; empty if none was asked."""
    tool = _best(question, box)
    arguments = None if tool is None else _arguments(question, tool)
    for one in made:
        if tool is None or one.call.tool != tool.name or dict(one.arguments) != arguments or one.result is None:
            continue
        values = ", ".join(f"`{value}`" for value in one.arguments.values())
        called = f"`{tool.name}`" + (f" for {values}" if values else "")
        text = one.result.text.strip()[:_RESULT_CHARS_MAX]
        if not one.ok:
            return f"{called} could not answer ({one.result.status}): {text or 'no reason was given'}"
        if not text:
            return f"{called} gave an empty result."
        return f"{called} says: {text}" if "\n" not in text else f"{called} says:\n\n{text}"
    return ""


def _best(question: Question, box: Toolbox) -> ToolSpec | None:
    words = parts(question.text)
    wanted = frozenset(stem(word) for word in words)
    wider = frozenset(stem(other) for word in words for other in related(word))
    scored = []
    for index, tool in enumerate(box.others):
        named, described = forms(tool.name), forms(tool.description)
        score = 3 * len(named & wanted) + 2 * len(named & wider) + len(described & wanted - _COMMON)
        scored.append((-score, index, tool))
    if not scored:
        return None
    score, _, tool = min(scored, key=lambda item: item[:2])
    # Beside tools that read files a stranger must fit well; alone it is the only one that can help.
    return tool if -score >= (2 if box.reads_files else 0) else None


def _arguments(question: Question, tool: ToolSpec) -> dict[str, Any] | None:
    """Return arguments for *tool* from the question; None if it wants something that is not there."""
    properties = properties_of(tool)
    wanted = required_of(tool) or tuple(properties)[:1]
    arguments: dict[str, Any] = {}
    strings, numbers = _strings(question), [int(n) for n in re.findall(r"\b\d{1,9}\b", question.text)]
    for name in wanted:
        kind = properties.get(name, {}).get("type", "string") if isinstance(properties.get(name), dict) else "string"
        pool: list[Any] = numbers if kind in {"integer", "number"} else strings
        if kind not in {"string", "integer", "number"} or not pool:
            return None
        arguments[name] = pool.pop(0)
    return arguments


def _strings(question: Question) -> list[Any]:
    marked = [next(filter(None, found)) for found in re.findall(r"`([^`]+)`|\"([^\"]+)\"|“([^”]+)”", question.text)]
    words = [term.word for term in question.strong]
    return list(dict.fromkeys([*question.paths, *marked, *question.names, *words]))


_COMMON: Final = frozenset(
    stem(word) for word in word_set("a the of is in to and or file text how what for from with it")
)
