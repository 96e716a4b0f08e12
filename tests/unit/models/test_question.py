from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.models._offline._echo import echoes_of, repeats
from geartrain.models._offline._parts import PARTS_MAX, taken_apart
from geartrain.models._offline._question import QUESTION_CHARS_MAX, TERMS_MAX, Aim, analyse


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


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "What is this project, how is it tested, and which limits does it set?",
            ("What is this project", "how is it tested", "which limits does it set?"),
        ),
        (
            "Where are time-outs handled, and what are the defaults?",
            ("Where are time-outs handled", "what are the defaults?"),
        ),
        ("Who wrote it? And when did the mill stop?", ("Who wrote it", "when did the mill stop?")),
        ("How and why does it wait?", ("How and why does it wait?",)),
        ("Explain how and why it waits.", ("Explain how and why it waits.",)),
        ("Who calls `run and what`?", ("Who calls `run and what`?",)),
        ("the harvest and what it cost", ("the harvest and what it cost",)),
        ("", ("",)),
    ],
)
def test_a_compound_question_is_taken_apart_where_it_asks_anew(text: str, parts: tuple[str, ...]) -> None:
    assert taken_apart(text) == parts


@given(st.text(max_size=200))
def test_any_text_has_at_least_one_part_and_not_too_many(text: str) -> None:
    assert 1 <= len(taken_apart(text)) <= PARTS_MAX


@pytest.mark.parametrize(
    ("text", "practice"),
    [
        ("How is it tested?", Aim.TESTS),
        ("How do I run the tests?", Aim.TESTS),
        ("How do I install it?", Aim.INSTALL),
        ("How do I get started?", Aim.RUN),
        ("What licence does it have?", Aim.LICENCE),
        ("Which dependencies does it need?", Aim.NEEDS),
        ("How is the queue tested?", None),
        ("How are dependencies resolved?", None),
        ("What is a mailbox?", None),
    ],
)
def test_a_question_about_the_work_with_a_project_is_told_from_one_about_something_in_it(
    text: str, practice: Aim | None
) -> None:
    assert analyse(text).practice is practice


def test_a_part_that_points_back_takes_the_subject_of_the_part_before() -> None:
    part = analyse("how is it rendered?").following(analyse("What is a Segment?"))

    assert {term.word for term in part.terms} == {"rendered", "segment"}


def test_a_part_after_one_about_tests_takes_no_word_of_it() -> None:
    part = analyse("which limits does it set?").following(analyse("how is it tested?"))

    assert "tested" not in {term.word for term in part.terms}


@pytest.mark.parametrize(
    "line", ["connect_deadline = 3", "wait_for(task)", "it timed out", "the time limit", "expires"]
)
def test_words_that_answer_for_a_time_out_are_searched_too(line: str) -> None:
    assert any(re.search(term.wide_pattern, line, re.IGNORECASE) for term in analyse("Where are time-outs?").strong)


@pytest.mark.parametrize(
    ("line", "echoes"),
    [
        ('QUESTION = "What is this project, how is it tested, and which limits does it set?"', True),
        ('    await ask("How is it tested?")', True),
        ("how it is tested is written in the guide", False),
        ("this project sets many limits", False),
    ],
)
def test_a_line_that_only_repeats_the_question_is_known_as_its_echo(line: str, echoes: bool) -> None:
    text = "What is this project, how is it tested, and which limits does it set?"

    assert repeats(line, echoes_of([text, *taken_apart(text)])) is echoes
