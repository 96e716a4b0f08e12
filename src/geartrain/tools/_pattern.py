"""Regular expressions from a stranger, searched in linear time.

The standard library's `re` backtracks: `(a+)+b` on thirty letters takes minutes, and while it runs no other thread
does, the event loop's neither. So a pattern is only parsed by `re`, and then run as an automaton that reads each
character once (Thompson 1968; the states made as they are needed, as in RE2). It answers one question, whether a line
contains a match, so greedy and lazy are the same. What needs memory of the text,
backreferences and look-around, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

# The parser is private; what is not known here is refused, and the tests compare every construct with `re` itself.
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

from geartrain.tools._errors import PatternRefused
from geartrain.tools._literals import Glance, needed_pieces

PATTERN_CHARACTERS_MAX: Final = 500
NODES_MAX: Final = 2_000
CACHED_STATES_MAX: Final = 2_000
CACHED_STEPS_MAX: Final = 100_000

Matches = Callable[[str], bool]
_END: Final = ""


class _Node:
    """One place in the pattern. With `matches` it reads a character, with `anchor` it asks where it is."""

    __slots__ = ("anchor", "matches", "next")

    def __init__(self) -> None:
        self.matches: Matches | None = None
        self.anchor: Any = None
        self.next: list[_Node] = []


class _State:
    """What may be going on after some characters: the places reached, and whether a word character came last."""

    __slots__ = ("after_word", "at_start", "nodes", "steps")

    def __init__(self, nodes: frozenset[_Node], *, at_start: bool, after_word: bool) -> None:
        self.nodes = nodes
        self.at_start = at_start
        self.after_word = after_word
        self.steps: dict[str, _State | None] = {}


class Pattern:
    """A pattern that says of a line whether it contains a match, in time linear in the line.

    Raises:
        PatternRefused: It is no regular expression, is too large, or needs more than linear time.
    """

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        if len(pattern) > PATTERN_CHARACTERS_MAX:
            raise PatternRefused(pattern[:80] + "…", f"has more than {PATTERN_CHARACTERS_MAX} characters")
        flags = re.IGNORECASE if ignore_case else re.NOFLAG
        try:
            parsed = parser.parse(pattern, flags)
        except (re.error, OverflowError, RecursionError) as error:
            raise PatternRefused(pattern, f"is no regular expression: {error}") from None
        if parsed.state.flags & (re.ASCII | re.LOCALE):
            raise PatternRefused(pattern, "has flags that change what a word is")
        self.glance: Final = Glance(needed_pieces(parsed), ignore_case=bool(parsed.state.flags & re.IGNORECASE))
        build = _Build(pattern, parsed.state.flags)
        self._end = build.node()
        self._start = build.sequence(parsed, self._end)
        self._cached: dict[tuple[frozenset[_Node], bool, bool], _State] = {}
        self._steps = 0
        self._first = self._state(frozenset([self._start]), at_start=True, after_word=False)

    def found_in(self, line: str) -> bool:
        """Whether *line*, which has no newline in it, contains a match."""
        state = self._first
        for character in line:
            try:
                after = state.steps[character]
            except KeyError:
                after = self._stepped(state, character)
            if after is None:
                return True
            state = after
        ended = state.steps[_END] if _END in state.steps else self._stepped(state, _END)
        return ended is None

    def _stepped(self, state: _State, character: str) -> _State | None:
        """Return the state after *character*, or None if there is a match before it."""
        is_word = character != _END and _is_word(character)
        places = self._closure(state, is_word=is_word, at_end=character == _END)
        after: _State | None = None
        if self._end not in places:
            reached = {node for place in places if place.matches and place.matches(character) for node in place.next}
            reached.add(self._start)  # a match may begin anywhere
            after = self._state(frozenset(reached), at_start=False, after_word=is_word)
        state.steps[character] = after
        self._steps += 1
        return after

    def _closure(self, state: _State, *, is_word: bool, at_end: bool) -> set[_Node]:
        """Return every place that can be reached from the state without reading a character."""
        holds = {
            op.AT_BEGINNING: state.at_start,
            op.AT_BEGINNING_STRING: state.at_start,
            op.AT_END: at_end,
            op.AT_END_STRING: at_end,
            op.AT_BOUNDARY: state.after_word != is_word,
            # Also in an empty line, where Python's own answer changed in 3.14.
            op.AT_NON_BOUNDARY: state.after_word == is_word,
        }
        reached: set[_Node] = set()
        waiting = list(state.nodes)
        while waiting:
            node = waiting.pop()
            if node in reached or (node.anchor is not None and not holds[node.anchor]):
                continue
            reached.add(node)
            if node.matches is None:
                waiting.extend(node.next)
        return reached

    def _state(self, nodes: frozenset[_Node], *, at_start: bool, after_word: bool) -> _State:
        key = (nodes, at_start, after_word)
        if len(self._cached) >= CACHED_STATES_MAX or self._steps >= CACHED_STEPS_MAX:
            for state in self._cached.values():
                state.steps.clear()
            self._cached.clear()
            self._steps = 0
        if key not in self._cached:
            self._cached[key] = _State(nodes, at_start=at_start, after_word=after_word)
        return self._cached[key]


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


class _Build:
    """Turns what the parser gives into nodes, from the end to the start."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._pattern = pattern
        self._flags = flags
        self._count = 0

    def node(self) -> _Node:
        self._count += 1
        if self._count > NODES_MAX:
            raise PatternRefused(self._pattern, "is too large; a counted repeat counts as often as it says")
        return _Node()

    def sequence(self, items: Iterable[tuple[Any, Any]], end: _Node) -> _Node:
        """Return where *items*, followed by *end*, begin."""
        for code, value in reversed(list(items)):
            end = self._item(code, value, end)
        return end

    def _item(self, code: Any, value: Any, end: _Node) -> _Node:
        match code:
            case op.MAX_REPEAT | op.MIN_REPEAT:
                least, most, items = value
                return self._repeat(least, most, items, end)
            case op.SUBPATTERN:
                _, added, removed, items = value
                if added or removed:
                    raise self._refused("flags for a part of it")
                return self.sequence(items, end)
            case op.BRANCH:
                start = self.node()
                start.next = [self.sequence(branch, end) for branch in value[1]]
                return start
            case op.AT:
                start = self.node()
                start.anchor = value
                start.next = [end]
                return start
            case op.LITERAL | op.NOT_LITERAL | op.ANY | op.IN:
                start = self.node()
                start.matches = self._matcher(code, value)
                start.next = [end]
                return start
        raise self._refused(str(code).lower().replace("_", " "))

    def _repeat(self, least: int, most: Any, items: Any, end: _Node) -> _Node:
        if most is op.MAXREPEAT:
            again = self.node()
            again.next = [self.sequence(items, again), end]
            start = again
        else:
            start = end
            for _ in range(int(most) - least):
                option = self.node()
                option.next = [self.sequence(items, start), end]
                start = option
        for _ in range(least):
            start = self.sequence(items, start)
        return start

    def _matcher(self, code: Any, value: Any) -> Matches:
        # One character is matched by `re` itself, so that every class means exactly what it means there.
        pattern = re.compile(_source(code, value), self._flags & re.IGNORECASE | re.DOTALL)
        return lambda character: character != _END and pattern.match(character) is not None

    def _refused(self, what: str) -> PatternRefused:
        return PatternRefused(self._pattern, f"uses {what}, which a search in linear time cannot do")


_CATEGORIES: Final = {
    op.CATEGORY_DIGIT: r"\d",
    op.CATEGORY_NOT_DIGIT: r"\D",
    op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_WORD: r"\w",
    op.CATEGORY_NOT_WORD: r"\W",
}


def _source(code: Any, value: Any) -> str:
    match code:
        case op.ANY:
            return "."
        case op.LITERAL:
            return f"[{_quoted(value)}]"
        case op.NOT_LITERAL:
            return f"[^{_quoted(value)}]"
    negated = value[0][0] is op.NEGATE
    return f"[{'^' * negated}{''.join(_member(*item) for item in value[negated:])}]"


def _member(code: Any, value: Any) -> str:
    match code:
        case op.RANGE:
            return f"{_quoted(value[0])}-{_quoted(value[1])}"
        case op.CATEGORY:
            return _CATEGORIES[value]
    return _quoted(value)


def _quoted(codepoint: int) -> str:
    return f"\\U{codepoint:08x}"
