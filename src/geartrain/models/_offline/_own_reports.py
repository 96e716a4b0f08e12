"""Reports of this researcher that lie among the files: they repeat what other files say, and are no evidence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from geartrain.models._offline._observed import Seen
from geartrain.models._offline._question import Question
from geartrain.models._offline._standing import is_prose

_CITING: Final = re.compile(r"^\s*- `[^`\n]+:\d{1,7}`(?: \([^()]*(?:\([^()]*\))?[^()]*\))?: [`“]")
_CITING_MIN: Final = 2
_SHARE_MIN: Final = 0.3


def forget_reports(seen: Seen, questions: list[Question], target: object) -> None:
    """Take what earlier reports say out of *seen*, unless one is asked for; *target* is where a report is saved."""
    asked = tuple(path for question in questions for path in question.paths)
    own = target.removeprefix("./") if isinstance(target, str) else ""
    for path in [path for path, lines in seen.lines.items() if path == own or _is_report(path, lines)]:
        if not any(path == wanted or path.endswith("/" + wanted) for wanted in asked):
            del seen.lines[path]


def _is_report(path: str, lines: Mapping[int, str]) -> bool:
    if not is_prose(path):
        return False
    said = [text for text in lines.values() if text.strip()]
    citing = sum(_CITING.match(text) is not None for text in said)
    return citing >= _CITING_MIN and citing >= _SHARE_MIN * len(said)
