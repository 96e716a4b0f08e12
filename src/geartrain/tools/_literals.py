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
# More conditions say little more, and each costs time.
CONDITIONS_MAX: Final = 4

# Texts of which a match contains one.
Pieces = frozenset[str]


def needed_pieces(items: Iterable[tuple[Any, Any]]) -> tuple[Pieces, ...]:
    """Return conditions that every match of the parsed *items* fulfils: of each, it contains one of the texts."""
    needed: dict[Pieces, None] = {}
    run = ""
    for code, value in [*items, (None, None)]:
        if code is op.LITERAL and value < 128:
            run += chr(value)
            continue
        if run:
            needed[frozenset([run])] = None
        run = ""
        needed.update(dict.fromkeys(_needed_by(code, value)))
    return tuple(sorted(needed, key=_passed_over, reverse=True)[:CONDITIONS_MAX])


def _needed_by(code: Any, value: Any) -> tuple[Pieces, ...]:
    match code:
        case op.SUBPATTERN:
            return needed_pieces(value[3])
        case op.MAX_REPEAT | op.MIN_REPEAT if value[0] > 0:
            return needed_pieces(value[2])
        case op.IN if all(kind is op.LITERAL and one < 128 for kind, one in value):
            return (frozenset(chr(one) for _, one in value),)
        case op.BRANCH:
            branches = [needed_pieces(branch)[:1] for branch in value[1]]
            found = frozenset[str]().union(*(pieces for branch in branches for pieces in branch))
            return (found,) if all(branches) and len(found) <= PIECES_MAX else ()
    return ()


def _passed_over(pieces: Pieces) -> tuple[int, int]:
    """Return what orders conditions by how much they pass over: long texts are rare, and few are rarer than many."""
    return min(map(len, pieces)), -len(pieces)


class Glance:
    """Says quickly of bytes of text that no line of them contains a match; only then is it certain.

    Without conditions it never says so, and with `ascii_only` not of text beyond ASCII.
    """

    __slots__ = ("_ascii_only", "_ignore_case", "_needed")

    def __init__(self, needed: tuple[Pieces, ...], *, ignore_case: bool, ascii_only: bool = False) -> None:
        self._ascii_only = ascii_only
        self._ignore_case = ignore_case
        self._needed = tuple(
            tuple(sorted((piece.lower() if ignore_case else piece).encode() for piece in pieces)) for pieces in needed
        )

    def may_match(self, data: bytes) -> bool:
        """Whether there may be a match in *data*."""
        plain = self._comparable(data)
        return plain is None or all(any(piece in plain for piece in pieces) for pieces in self._needed)

    def lines(self, data: bytes) -> Iterable[int] | None:
        """Return the indexes of the lines of *data* in which there may be a match; None if that may be in any."""
        plain = self._comparable(data)
        if plain is None or not self._needed:
            return None
        if not self.may_match(data):
            return ()
        starts: set[int] = set()
        for piece in self._needed[0]:
            at = plain.find(piece)
            while at >= 0:
                starts.add(plain.rfind(b"\n", 0, at) + 1)
                end = plain.find(b"\n", at)
                at = plain.find(piece, end) if end >= 0 else -1
        return self._indexes(plain, sorted(starts))

    def _indexes(self, plain: bytes, starts: list[int]) -> list[int]:
        """Return which lines begin at *starts*, without those that lack another condition."""
        indexes: list[int] = []
        index = before = 0
        for start in starts:
            index += plain.count(b"\n", before, start)
            before = start
            line = plain[start : end if (end := plain.find(b"\n", start)) >= 0 else len(plain)]
            if all(any(piece in line for piece in pieces) for pieces in self._needed[1:]):
                indexes.append(index)
        return indexes

    def _comparable(self, data: bytes) -> bytes | None:
        """Return *data* as its bytes can be compared with the pieces; None if they cannot."""
        if data.isascii():
            return data.lower() if self._ignore_case else data
        if self._ascii_only or not _is_text(data) or (self._ignore_case and any(odd in data for odd in _ODD)):
            return None
        return data.lower() if self._ignore_case else data


# The letters beyond ASCII that regular expressions take for ASCII letters of another case: İ, ı, ſ, the Kelvin sign.
_ODD: Final = tuple(letter.encode() for letter in "\u0130\u0131\u017f\u212a")


def _is_text(data: bytes) -> bool:
    """Whether *data* is UTF-8; in what is not, decoding puts other text in place of some bytes."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def glance_of_literal(text: str, *, ignore_case: bool) -> Glance:
    """Return what looks for *text* itself."""
    pieces = re.findall(r"[\x01-\x7f]+", text)
    # Folding a text makes "ss" of "ß", which no comparison of single letters does.
    longest = tuple(frozenset([piece]) for piece in sorted(pieces, key=len)[-1:])
    return Glance(longest, ignore_case=ignore_case, ascii_only=ignore_case)
