"""Patterns from a stranger, searched in linear time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.tools import PatternRefused
from geartrain.tools._pattern import CACHED_STATES_MAX, Pattern

ATOMS = [
    "a",
    "B",
    "é",
    "_",
    " ",
    ".",
    r"\d",
    r"\D",
    r"\w",
    r"\W",
    r"\s",
    r"\S",
    "[ab]",
    "[^a]",
    r"[a-c\d]",
    r"[^\w]",
    "^",
    "$",
    r"\A",
    r"\Z",
    r"\b",
    r"\B",
    "(?:)",
]
REPEATS = ["*", "+", "?", "{2}", "{0}", "{1,3}", "{2,}", "*?", "+?", "??", "{1,2}?"]

patterns = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})")
        | inner.map(lambda one: f"(?P<name>{one})")
        | st.tuples(inner, st.sampled_from(REPEATS)).map(lambda pair: f"(?:{pair[0]}){pair[1]}")
    ),
    max_leaves=8,
)
# An empty line is left out: whether \B matches there is a question that Python answers differently since 3.14.
lines = st.text(st.sampled_from("abcAB_ 1é²\t-"), min_size=1, max_size=10)


@given(patterns, lines, st.booleans())
def test_a_pattern_is_found_exactly_where_the_standard_library_finds_it(
    pattern: str, line: str, ignore_case: bool
) -> None:
    try:
        expected = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except re.error:  # such as a group name used twice
        return

    assert Pattern(pattern, ignore_case=ignore_case).found_in(line) == bool(expected.search(line))


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("[", "is no regular expression: unterminated"),
        ("a{2,1}", "is no regular expression"),
        ("*", "is no regular expression: nothing to repeat"),
        (r"(a)\1", "uses groupref"),
        ("(?P<a>b)(?P=a)", "uses groupref"),
        ("(?=a)", "uses assert"),
        ("(?<!a)b", "uses assert not"),
        ("(?>a)", "uses atomic group"),
        ("a++", "uses possessive repeat"),
        ("(a)(?(1)b|c)", "uses groupref exists"),
        ("(?i:a)b", "uses flags for a part of it"),
        (r"(?a)\w", "has flags that change what a word is"),
        ("(a{50}){50}", "is too large"),
        ("a{1,100000}", "is too large"),
        ("a" * 501, "has more than 500 characters"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_its_reason(pattern: str, reason: str) -> None:
    with pytest.raises(PatternRefused, match=reason):
        Pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("(a+)+b", "a" * 20_000),
        ("(a|a)*b", "a" * 20_000),
        ("(a|aa)+$", "a" * 20_000 + "b"),
        ("(.*)*x", "a" * 20_000),
        (".*.*.*.*.*=.*", "a" * 20_000),
        ("a?" * 100 + "a" * 100, "a" * 99),
        (r"^(\w+\s?)*$", "word " * 4_000 + "!"),
    ],
)
def test_a_pattern_that_makes_backtracking_explode_takes_linear_time(pattern: str, line: str) -> None:
    began = time.process_time()

    assert not Pattern(pattern).found_in(line)

    assert time.process_time() - began < 2.0


def test_groups_may_be_nested_as_deep_as_a_pattern_is_long() -> None:
    assert Pattern("(" * 90 + "a" + ")" * 90).found_in("a")


def test_a_pattern_with_very_many_states_keeps_a_bounded_number_of_them() -> None:
    pattern = Pattern("a[ab]{40}x")
    line = "".join("ab"[int(bit)] for number in range(600) for bit in f"{number:b}")

    assert not pattern.found_in(line)
    assert pattern.found_in(line + "a" + "b" * 40 + "x")
    assert len(pattern._cached) <= CACHED_STATES_MAX
