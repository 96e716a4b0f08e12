from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.models._offline._words import forms, parts, related, search_root, stem


@pytest.mark.parametrize(
    "words",
    [
        "timeout timeouts",
        "handle handles handled handling handler handlers",
        "parse parses parsed parsing parser",
        "retry retries retried",
        "cancel cancelled cancellation",
        "call calls called calling",
        "stop stops stopped stopping",
        "configure configured configuration configurable",
        "class classes",
        "connect connects connected connection connections",
        "harvest harvests harvested harvesting",
    ],
)
def test_inflected_forms_of_one_word_have_one_stem(words: str) -> None:
    assert len({stem(word) for word in words.split()}) == 1


@pytest.mark.parametrize(
    ("one", "other"), [("header", "head"), ("number", "numb"), ("status", "statu"), ("order", "ord"), ("string", "str")]
)
def test_words_that_only_look_inflected_are_left_whole(one: str, other: str) -> None:
    assert stem(one) == one
    assert stem(one) != stem(other)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("timeOut_handler", ["time", "out", "handler"]),
        ("HTTPServer2", ["http", "server", "2"]),
        ("MAX_SIZE", ["max", "size"]),
        ("time-outs, please", ["time", "outs", "please"]),
        ("Größe über Maß", ["größe", "über", "maß"]),
        ("день и ночь", ["день", "и", "ночь"]),
        ("", []),
    ],
)
def test_a_text_is_cut_at_humps_and_at_what_is_no_letter(text: str, expected: list[str]) -> None:
    assert parts(text) == expected


@pytest.mark.parametrize("text", ["timeout", "time-out", "time_out", "timeOut", "TIME_OUT", "time outs", "Timeouts"])
def test_a_compound_is_the_same_however_it_is_written(text: str) -> None:
    assert "timeout" in forms(text)


@pytest.mark.parametrize(
    "word", ["timeouts", "handled", "retries", "calls", "stopped", "classes", "parsing", "a", "is"]
)
def test_a_search_root_begins_the_word(word: str) -> None:
    assert word.startswith(search_root(word))


def test_related_words_answer_for_each_other_and_not_for_themselves() -> None:
    assert "crop" in related("harvest")
    assert "harvest" in related("crops")
    assert "harvest" not in related("harvests")
    assert related("xylophone") == ()


@given(st.text())
def test_any_text_has_forms(text: str) -> None:
    assert all(isinstance(form, str) and form for form in forms(text))


@given(st.from_regex(r"[a-z]{1,20}", fullmatch=True))
def test_a_root_is_never_empty_and_begins_its_word(word: str) -> None:
    root = search_root(word)

    assert root
    assert word.startswith(root)
    assert stem(word)
