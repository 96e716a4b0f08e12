from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.models._question import QUESTION_CHARS_MAX, TERMS_MAX, Aim, analyse


@pytest.mark.parametrize(
    ("text", "aims"),
    [
        (
            "Where are time-outs handled, and what are the defaults?",
            {Aim.WHERE, Aim.DEFAULTS, Aim.SETTINGS, Aim.WHAT_IS},
        ),
        ("How does the parser read headers?", {Aim.HOW}),
        ("Which exceptions can Queue raise?", {Aim.EXCEPTIONS}),
        ("What errors does `connect` throw?", {Aim.EXCEPTIONS}),
        ("Who calls feed_data?", {Aim.CALLERS}),
        ("Where is `getaddrinfo` used?", {Aim.CALLERS, Aim.WHERE}),
        ("What does this project do?", {Aim.OVERVIEW, Aim.WHAT_IS}),
        ("Summarise the folder.", {Aim.OVERVIEW}),
        ("What are these texts about?", {Aim.OVERVIEW, Aim.WHAT_IS}),
        ("Which files are there?", {Aim.FILES, Aim.WHERE}),
        ("How many loads were brought in?", {Aim.AMOUNT}),
        ("What is the maximum number of headers?", {Aim.AMOUNT, Aim.WHAT_IS}),
        ("Why did the mill stop?", {Aim.WHY}),
        ("What is a Segment?", {Aim.WHAT_IS}),
        ("What do the notes say about the harvest?", set()),
        ("", set()),
    ],
)
def test_a_question_shows_what_kind_of_answer_is_wanted(text: str, aims: set[Aim]) -> None:
    assert analyse(text).aims == aims


def test_a_question_about_something_in_a_project_is_no_question_about_the_project() -> None:
    assert Aim.OVERVIEW not in analyse("What does this project do about retries?").aims


@pytest.mark.parametrize(
    ("text", "names", "subject"),
    [
        ("Who calls feed_data?", ("feed_data",), "feed_data"),
        ("who uses open_connection()?", ("open_connection",), "open_connection"),
        ("Which exceptions can Queue raise?", ("Queue",), "Queue"),
        ("Explain json.JSONEncoder.iterencode", ("iterencode", "JSONEncoder"), ""),
        ("What is `x9`?", ("x9",), ""),
        ("What is DEFAULT_LIMIT?", ("DEFAULT_LIMIT",), ""),
        ("Where does it call the hooks?", (), ""),
        ("What is the default buffer size?", (), ""),
    ],
)
def test_identifiers_are_taken_as_they_are_written(text: str, names: tuple[str, ...], subject: str) -> None:
    question = analyse(text)

    assert question.names == names
    assert question.subject == subject


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("How long is README.md?", ("README.md",)),
        ("What does src/app/main.go do?", ("src/app/main.go",)),
        ("What is in docs/?", ("docs/",)),
        ("What does queue.get return?", ()),
        ("Look at ../../etc/passwd.txt", ()),
        ("It is done. Next.", ()),
    ],
)
def test_paths_are_told_from_names_and_stay_below_the_root(text: str, paths: tuple[str, ...]) -> None:
    assert analyse(text).paths == paths


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Where are time-outs handled?", "SSL_TIMEOUT = 60"),
        ("Where are time-outs handled?", "the time out is long"),
        ("Where are timeouts handled?", "def onTimeOut():"),
        ("How are headers parsed?", "class HeaderParser:"),
        ("How is the event loop closed?", "loop = new_event_loop()"),
        ("Where are retries made?", "retry_policy = None"),
        ("What about the harvest?", "We HARVESTED nothing."),
        ("Who calls feed_data?", "reader.feed_data(data)"),
    ],
)
def test_the_patterns_of_a_question_find_its_words_however_they_are_written(text: str, line: str) -> None:
    assert any(re.search(term.pattern, line, re.IGNORECASE) for term in analyse(text).strong)


def test_the_name_of_the_whole_is_not_searched_for() -> None:
    words = {term.word for term in analyse("How does the email package parse headers?").strong}

    assert words == {"parse headers", "parse", "headers"}


def test_a_question_without_words_of_its_own_takes_those_of_the_question_before() -> None:
    earlier = analyse("What is a Segment?")

    assert analyse("And where is it used?").following(earlier).terms == earlier.terms
    assert analyse("Where is the Console?").following(earlier).terms == analyse("Where is the Console?").terms


def test_a_question_about_a_file_as_such_is_known_by_its_words() -> None:
    assert analyse("How long is scanner.py?").about_file
    assert not analyse("How does scanner.py find numbers?").about_file
    assert not analyse("What is a scanner?").about_file


@given(st.text(max_size=400))
def test_any_text_is_a_question(text: str) -> None:
    question = analyse(text)

    assert question == analyse(text)
    assert len(question.terms) <= TERMS_MAX
    for term in question.terms:
        re.compile(term.pattern)
        re.compile(term.wide_pattern)


def test_of_a_very_long_question_only_the_beginning_is_read() -> None:
    assert len(analyse("x" * 1_000_000).text) == QUESTION_CHARS_MAX
