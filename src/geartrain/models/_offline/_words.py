"""Words, made comparable: `time-outs`, `TIMEOUT`, `timeOut` and `time_out` are one.

A text is cut into parts at everything that is no letter and at the humps of camel case; each part is reduced to a
stem; and neighbours are also joined, so that a compound is found however it is written. Stems are compared with
stems only: that they are no words ("clas") does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Final

# Latin letters have humps; letters of other scripts are taken as they stand together.
_UPPER: Final = "A-ZÀ-ÖØ-Þ"
_LOWER: Final = "a-zß-öø-ÿĀ-ɏ"
_PART: Final = re.compile(
    rf"[{_UPPER}]+(?![{_LOWER}])|[{_UPPER}]?[{_LOWER}]+|[^\W\d_{_UPPER}{_LOWER}]+|\d+",
)


def word_set(text: str) -> frozenset[str]:
    """Return the words of *text*, which white space parts: for tables that are read more easily as a text."""
    return frozenset(text.split())


# Longest first; the second figure is how many letters must be left.
_SUFFIXES: Final = (
    ("ization", 4),
    ("isation", 4),
    ("ations", 4),
    ("ation", 4),
    ("ments", 4),
    ("ment", 4),
    ("ings", 3),
    ("ions", 4),
    ("able", 4),
    ("ible", 4),
    ("ing", 3),
    ("ion", 4),
    ("ers", 4),
    ("ors", 4),
    ("ed", 3),
    ("er", 4),
    ("or", 4),
    ("ly", 4),
    ("al", 5),
)

# British spellings, which programs rarely have.
_OUR: Final = re.compile(r"^(col|behavi|fav|flav|hon|neighb|lab|rum|harb)our")
_ISE: Final = re.compile(r"(?<=al|er|or|el|on|ut|gn)is(?=e|ing|ation)|(?<=tim|nim|xim|mar|gan)is(?=e|ing|ation)")
_CENTRE: Final = MappingProxyType(
    {"centre": "center", "centres": "centers", "licence": "license", "licences": "licenses"}
)

# Words that only look inflected; cutting them would make them another word ("header" is no "head").
_WHOLE: Final = word_set(
    "after buffer chapter corner counter error exception ever father filter header king layer letter mother never "
    "number order other over paper parameter pointer register river server sister string summer thing under user "
    "water weather winter brother morning evening nothing something anything during spring"
)

# Verbs whose forms do not show their stem.
_IRREGULAR: Final = MappingProxyType(
    dict(
        pair.split(":")
        for pair in word_set(
            "sent:send written:write wrote:write built:build kept:keep held:hold thrown:throw threw:throw caught:catch "
            "chosen:choose chose:choose begun:begin began:begin broken:break broke:break hidden:hide bound:bind "
            "lost:lose paid:pay sold:sell bought:buy ran:run drawn:draw grown:grow grew:grow spent:spend stood:stand "
            "woken:wake woke:wake taught:teach thought:think told:tell left:leave led:lead fed:feed children:child"
        )
    )
)

# Groups of words that answer for each other, for questions about programs and about plain texts.
_SYNONYMS: Final = (
    "default configured setting initial preset",
    "exception error failure raise throw",
    "start begin launch run spawn boot",
    "stop close shutdown terminate exit end finish",
    "remove delete drop discard unlink",
    "create make build construct new",
    "fetch retrieve download load get",
    "store save persist write",
    "config configuration setting option preference",
    "auth authentication login credential password token",
    "limit maximum max cap bound",
    "minimum min least",
    "wait sleep pause delay",
    "retry backoff attempt",
    "timeout deadline expire wait_for timed_out time_limit",
    "encode serialize dump encoder",
    "decode deserialize decoder loads",
    "directory folder dir",
    "function method procedure",
    "log logging logger",
    "lock mutex",
    "colour color",
    "length size count number long many",
    "width size columns height dimension",
    "connection connect socket",
    "argument parameter arg param option",
    "message mail",
    "callback handler hook",
    "cache memo lru",
    "convert transform translate",
    "compare equal",
    "check validate verify",
    "escape quote",
    "harvest crop reap yield",
    "price cost pay paid",
    "child children boy girl",
    "buy bought purchase",
    "house home",
    "ship boat vessel",
    "weather rain storm wind",
    "die died death dead",
    "meeting met gathering",
    "money coin payment",
    "big large great",
    "old ancient aged",
)


def parts(text: str) -> list[str]:
    """Return the parts of *text* in lower case, in order."""
    return [part.lower() for part in _PART.findall(text)]


def american(word: str) -> str:
    """Return the lower-case *word* as programs spell it: "color" for "colour", "serialize" for "serialise"."""
    if word in _CENTRE:
        return _CENTRE[word]
    return _ISE.sub("iz", _OUR.sub(r"\1or", word))


@lru_cache(maxsize=8_192)
def stem(word: str) -> str:
    """Return the stem of the lower-case *word*; inflected forms of one word have the same."""
    word = american(word)
    word = _undoubled(_without_suffix(_singular(_IRREGULAR.get(word, word))))
    if len(word) > 3 and word.endswith("e"):
        word = word[:-1]
    return word[:-1] + "i" if len(word) > 2 and word.endswith("y") else word


def search_root(word: str) -> str:
    """Return the beginning that the regular forms of the lower-case *word* share, for searching: "send" for "sent"."""
    word = _IRREGULAR.get(word, word)
    single = _singular(word)
    root = _without_suffix(single)
    if root != single:
        root = _undoubled(root)
    if len(root) > 4 and root[-1] in "ey":
        root = root[:-1]
    return root if word.startswith(root) else word


@lru_cache(maxsize=8_192)
def forms(text: str) -> frozenset[str]:
    """Return the stems in *text*, and its neighbouring parts joined."""
    words = parts(text)
    stems = [stem(word) for word in words]
    # "timeouts" is one part, "time outs" are two: the left one joins as it stands and as its stem.
    as_written = (left + right for left, right in zip(words, stems[1:], strict=False))
    reduced = (left + right for left, right in pairwise(stems))
    return frozenset(stems).union(as_written, reduced)


def related(word: str) -> tuple[str, ...]:
    """Return the words that answer for *word*, the closest first, without itself."""
    own = stem(word)
    return tuple(other for other in _RELATED.get(own, ()) if stem(other) != own)


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _without_suffix(word: str) -> str:
    if word in _WHOLE:
        return word
    for suffix, left in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= left:
            return word[: -len(suffix)]
    return word


def _undoubled(word: str) -> str:
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiou":
        return word[:-1]
    return word


def _table(groups: Iterable[str]) -> dict[str, tuple[str, ...]]:
    table: dict[str, list[str]] = {}
    for group in groups:
        words = group.split()
        for word in words:
            table.setdefault(stem(word), []).extend(words)
    return {key: tuple(dict.fromkeys(words)) for key, words in table.items()}


_RELATED: Final = _table(_SYNONYMS)
