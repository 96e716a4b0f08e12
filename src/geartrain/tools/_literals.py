"""Pieces of plain text of which a match must contain one, so that most of what is searched is passed over at a glance.

A pattern is read as the standard library's parser gives it. Only ASCII pieces are used: in ASCII text, upper and lower
case are then the same letters for a comparison of bytes as for a regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from re import _constants as op  # type: ignore[attr-defined]
from typing import Any, Final

PIECES_MAX: Final = 64

Pieces = frozenset[str]


def needed_pieces(items: Iterable[tuple[Any, Any]]) -> Pieces:
    """Return texts of which every match of the parsed *items* contains one; empty if there are no such texts."""
    best: Pieces = frozenset()
    run = ""
    for code, value in [*items, (None, None)]:
        if code is op.LITERAL and value < 128:
            run += chr(value)
            continue
        best = _better(best, frozenset([run] if run else []))
        run = ""
        best = _better(best, _needed_by(code, value))
    return best


def _needed_by(code: Any, value: Any) -> Pieces:
    match code:
        case op.SUBPATTERN:
            return needed_pieces(value[3])
        case op.MAX_REPEAT | op.MIN_REPEAT if value[0] > 0:
            return needed_pieces(value[2])
        case op.IN if all(kind is op.LITERAL and one < 128 for kind, one in value):
            return frozenset(chr(one) for _, one in value)
        case op.BRANCH:
            branches = [needed_pieces(branch) for branch in value[1]]
            found = frozenset[str]().union(*branches)
            return found if all(branches) and len(found) <= PIECES_MAX else frozenset()
    return frozenset()


def _better(one: Pieces, other: Pieces) -> Pieces:
    """Return which of two choices passes over more: the one whose shortest piece is longer, then the one with fewer."""
    return max(one, other, key=lambda pieces: (min(map(len, pieces), default=0), -len(pieces)))


class Glance:
    """Says quickly of bytes of text that no line of them contains a match; only then is it certain.

    Without pieces it never says so, and with `ascii_only` not of text beyond ASCII.
    """

    __slots__ = ("_any", "_ascii_only", "_ignore_case", "_pieces")

    def __init__(self, pieces: Pieces, *, ignore_case: bool, ascii_only: bool = False) -> None:
        self._ascii_only = ascii_only
        self._ignore_case = ignore_case
        self._pieces = tuple(sorted((piece.lower() if ignore_case else piece).encode() for piece in pieces))
        flags = re.IGNORECASE if ignore_case else re.NOFLAG
        self._any = re.compile("|".join(map(re.escape, sorted(pieces))), flags)

    def may_match(self, data: bytes) -> bool:
        """Whether there may be a match in *data*."""
        if not self._pieces:
            return True
        if not data.isascii():
            if self._ascii_only:
                return True
            # Decoding puts text in place of what is no UTF-8, and lower() is not what regular expressions compare by.
            return self._any.search(data.decode("utf-8", "backslashreplace")) is not None
        if self._ignore_case:
            data = data.lower()
        return any(piece in data for piece in self._pieces)


def glance_of_literal(text: str, *, ignore_case: bool) -> Glance:
    """Return what looks for *text* itself."""
    pieces = re.findall(r"[\x01-\x7f]+", text)
    # Folding a text makes "ss" of "ß", which no comparison of single letters does.
    return Glance(frozenset(sorted(pieces, key=len)[-1:]), ignore_case=ignore_case, ascii_only=ignore_case)
