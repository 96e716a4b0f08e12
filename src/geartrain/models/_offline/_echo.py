"""Lines that repeat a question instead of answering it: a test's input, the default of a setting, an example.

They hold all the words of the question, so nothing would rank higher, and they say nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final

_RUN_WORDS_MIN: Final = 4
_RUN_SHARE: Final = 0.7
_WORD: Final = re.compile(r"\w+")


def echoes_of(questions: Iterable[str]) -> tuple[str, ...]:
    """Return the runs of words that a line has in common with one of *questions* if it only repeats it."""
    runs: dict[str, None] = {}
    for question in questions:
        words = _WORD.findall(question.lower())
        length = max(_RUN_WORDS_MIN, math.ceil(_RUN_SHARE * len(words)))
        if len(words) >= length:
            runs.update(dict.fromkeys(_joined(words[at : at + length]) for at in range(len(words) - length + 1)))
        elif len(words) == _RUN_WORDS_MIN - 1:
            runs[_joined(words)] = None
    return tuple(runs)


def repeats(text: str, echoes: tuple[str, ...]) -> bool:
    """Say whether the line *text* repeats one of the questions that *echoes* were made of."""
    if not echoes:
        return False
    line = _joined(_WORD.findall(text.lower()))
    return any(run in line and (run.count(" ") > _RUN_WORDS_MIN or "?" in text) for run in echoes)


def _joined(words: list[str]) -> str:
    return f" {' '.join(words)} "
