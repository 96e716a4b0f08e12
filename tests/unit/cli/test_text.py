from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.cli._text import counted, one_line, safe, safe_json, shown_arguments


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("a\rb", "a\\x0db"),
        ("a\x08\x7f", "a\\x08\\x7f"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("\ud800", "\\ud800"),
        ("two\r\nlines\tand tab", "two\nlines\tand tab"),
        ("grün · 日本", "grün · 日本"),
    ],
)
def test_what_a_terminal_could_obey_is_shown_instead(hostile: str, shown: str) -> None:
    assert safe(hostile) == shown


@given(st.text())
def test_no_text_keeps_a_control_character(text: str) -> None:
    allowed = {"\n", "\t"}

    assert all(
        letter in allowed or (letter.isprintable() or letter.isspace()) for letter in safe(text) if ord(letter) < 0xA0
    )


@given(st.recursive(st.text() | st.integers(), lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner)))
def test_safe_json_means_the_same(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)

    assert json.loads(safe_json(text)) == value


@given(st.text(), st.integers(8, 60))
def test_one_line_is_one_line_and_fits(text: str, width: int) -> None:
    line = one_line(text, width)

    assert len(line) <= width
    assert len(line.splitlines()) <= 1


def test_a_line_that_was_cut_says_so() -> None:
    assert one_line("x" * 20, 10) == "x" * 9 + "…"
    assert one_line(" " * 1_000 + "x", 10).endswith("…")


def test_arguments_are_shown_by_name_and_shortened_each() -> None:
    shown = shown_arguments(json.dumps({"path": "a.md", "content": "y" * 500}), 60)

    assert shown.startswith('path="a.md", content="yyy')
    assert len(shown) <= 60


@pytest.mark.parametrize("arguments", ["not json", "[1, 2]", '"text"', ""])
def test_arguments_that_are_no_object_are_shown_as_they_are(arguments: str) -> None:
    assert shown_arguments(arguments) == arguments


def test_numbers_go_with_their_nouns() -> None:
    assert [counted(1, "turn"), counted(2, "turn"), counted(1_000, "call")] == ["1 turn", "2 turns", "1,000 calls"]
