"""What is passed over at a glance contains no match."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.tools._literals import glance_of_literal
from geartrain.tools._pattern import Pattern

PIECES = ["a", "B", "é", "k", "\u212a", "ſ", r"\w", ".", "[ab]", "[^a]", "^", r"\b", r"\\", "x"]
patterns = st.recursive(
    st.sampled_from(PIECES),
    lambda inner: (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})")
        | st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}"])).map(lambda pair: f"(?:{pair[0]}){pair[1]}")
    ),
    max_leaves=8,
)
data = st.text(st.sampled_from("abABékKſ\u212aßs1x\\ "), min_size=1, max_size=10).map(str.encode) | st.binary(
    min_size=1, max_size=10
)


@given(patterns, data, st.booleans())
def test_no_text_with_a_match_is_passed_over(pattern: str, line: bytes, ignore_case: bool) -> None:
    text = line.decode("utf-8", "backslashreplace")

    if Pattern(pattern, ignore_case=ignore_case).found_in(text):
        assert Pattern(pattern, ignore_case=ignore_case).glance.may_match(line)


@given(patterns, st.lists(data, min_size=1, max_size=4), st.booleans())
def test_no_line_with_a_match_is_passed_over(pattern: str, lines: list[bytes], ignore_case: bool) -> None:
    compiled = Pattern(pattern, ignore_case=ignore_case)
    split = b"\n".join(lines).split(b"\n")
    matching = {n for n, line in enumerate(split) if compiled.found_in(line.decode("utf-8", "backslashreplace"))}

    shown = compiled.glance.lines(b"\n".join(split))

    assert shown is None or matching <= set(shown)


@given(st.text(st.sampled_from("aBékKſ\u212aßs "), min_size=1, max_size=4), data, st.booleans())
def test_no_text_with_a_literal_in_it_is_passed_over(literal: str, line: bytes, ignore_case: bool) -> None:
    text = line.decode("utf-8", "backslashreplace")
    found = literal.casefold() in text.casefold() if ignore_case else literal in text

    if found:
        assert glance_of_literal(literal, ignore_case=ignore_case).may_match(line)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("timeout|deadline", b"def start():"),
        (r"(?:def|class)\s+\w*limit", b"class Queue:"),
        (r"\btest|_test", b"attest nothing"[2:5]),
        ("(?:abc)+d?", b"ab ab ab"),
    ],
)
def test_a_text_without_the_pieces_of_a_pattern_is_passed_over(pattern: str, line: bytes) -> None:
    assert not re.search(pattern, line.decode())
    assert not Pattern(pattern).glance.may_match(line)


@pytest.mark.parametrize("pattern", [r"\w+", "a*", "x|", ".", "é"])
def test_a_pattern_that_needs_no_plain_text_passes_over_nothing(pattern: str) -> None:
    assert Pattern(pattern).glance.may_match(b"anything")
