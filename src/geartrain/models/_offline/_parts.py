"""A question of several parts, taken apart: "What is X, how is it tested, and which limits does it set?" is three.

A new part begins with a word that asks. What stands in quotation marks or back-ticks is never cut.
"""

from __future__ import annotations

import re
from typing import Final

PARTS_MAX: Final = 4
# A pasted text is one question, however many question marks it has.
_CUT_CHARS_MAX: Final = 600

_ASKS: Final = r"(?:what|how|where|which|who|whose|whom|why|when)(?:'s)?\b"
_ASKS_IF: Final = (
    r"(?:is|are|does|do|can|did|was|were|has|have)\s+(?:it|there|they|the|this|these|that|i|you|we|a|an)\b"
)
_TELLS: Final = r"(?:explain|describe|list|show|tell|summari[sz]e|find|name)\b"
_BEGIN: Final = rf"(?:{_ASKS}|{_ASKS_IF}|{_TELLS})"
_CUT: Final = re.compile(
    rf"[?!.;]+\s+(?:(?:and|but|also|then)\s+)?(?={_BEGIN})|\s*[,;]?\s+(?:and|but|or|then)\s+(?:also\s+)?(?={_BEGIN})|"
    rf"\s*[,;]\s+(?={_ASKS})",
    re.IGNORECASE,
)
_WHOLE: Final = re.compile(r"`[^`]*`|\"[^\"]*\"|“[^”]*”")
# Too little to be a question of its own: "Explain how and why it waits", "in which file and where".
_STUMP: Final = re.compile(
    rf"(?:(?:{_TELLS}|{_ASKS}|me|please|in|at|for|to|exactly|and|or|the|file|line)\W*)*", re.IGNORECASE
)


def taken_apart(text: str) -> tuple[str, ...]:
    """Return the parts of a question in order, each a question; a simple question is its only part."""
    if len(text) > _CUT_CHARS_MAX or not re.match(
        rf"\W*(?:so|and|please|ok|hi|hello)?\W*{_BEGIN}", text, re.IGNORECASE
    ):
        return (text,)
    kept = [match.span() for match in _WHOLE.finditer(text)]
    parts: list[str] = []
    begin = 0
    for cut in _CUT.finditer(text):
        within = any(first <= cut.start() < last for first, last in kept)
        left = text[begin : cut.start()]
        if within or _STUMP.fullmatch(left.strip()) or len(parts) == PARTS_MAX - 1:
            continue
        parts.append(left.strip())
        begin = cut.end()
    parts.append(text[begin:].strip())
    return tuple(part for part in parts if part) if len(parts) > 1 else (text,)


def as_heading(part: str) -> str:
    """Return a part as it would stand by itself: with a capital letter and a question mark."""
    part = part.strip().rstrip("?!.,; ")
    return f"{part[:1].upper()}{part[1:]}?"
