"""Questions that name one thing exactly, and get exactly that: a class, a default, an amount, a place, a meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from geartrain.models._offline._precise import counted, exact_definition, handling, said_to_be
from geartrain.models._offline._question import analyse
from geartrain.models._offline._standing import is_test

Write = Callable[[str, str], None]

PATTERN_CHARS_MAX = 500
SCREEN = '''"""A screen."""


class Screen:
    """All that is shown.

    width (int): How wide it is.
    """

    def __init__(
        self,
        width: int | None = 80,
        tab_width: int = 8,
    ) -> None:
        self.width = width
'''
SPEC = '''"""What a run is made of."""


class Budget:
    """What a run may use."""

    max_turns: int | str = 20
'''
COMMAND = '''"""The command."""


class Request:
    """What was typed."""

    max_turns: int | None = None
'''
LIMITS = "event_bytes: int = 1024\nevents_per_run: int = 50_000\nrun_seconds: float = 5.0\nevents_per_page: int = 9\n"
ASKING = '''"""Asking."""


class Slow(Exception):
    """It took too long; the time-out was over."""


def ask(timeout_seconds: float) -> str:
    try:
        return wait_for(answer(), timeout_seconds)
    except TimeoutError:
        raise Slow(timeout_seconds) from None


def begin(timeout_seconds: float) -> None:
    call_later(timeout_seconds, give_up)
'''
CONCEPTS = """# Concepts

| Word | Where |
|---|---|
| a checkpoint | the checkpoint store, the checkpoint page, a checkpoint |

**Checkpoint.** The whole run as of one event. Recovery reads it first.
"""


@pytest.fixture
def many(write: Write) -> None:
    """Write more definitions whose names begin alike than a search shows."""
    names = [f"class Screen{number}:\n    pass\n" for number in range(90)]
    for file in range(9):
        write(f"a{file}.py", "\n".join(names[file * 10 : file * 10 + 10]))
    write("screen.py", SCREEN)


@pytest.mark.usefixtures("many")
async def test_an_exact_name_wins_over_all_that_begin_with_it(conversation: Any) -> None:
    answer = await conversation.ask("Where is the Screen class defined?")

    assert answer.startswith("For `Screen`, look first at `screen.py` (`Screen`).")
    assert "- `screen.py:4`: `class Screen:`" in answer


@pytest.mark.usefixtures("many")
async def test_a_default_is_looked_for_inside_the_class_that_was_named_before(conversation: Any) -> None:
    answer = await conversation.ask("Where is the Screen class defined, and what is its default width?")

    assert "The default of `width` is `80` (`screen.py:12`, in `Screen.__init__`)." in answer


async def test_a_default_with_a_value_leads_over_one_that_is_nothing(conversation: Any, write: Write) -> None:
    write("src/cli/acts.py", COMMAND)
    write("src/machine/_spec.py", SPEC)

    answer = await conversation.ask("What is the default of max_turns?")

    assert answer.startswith("The default of `max_turns` is `20` (`src/machine/_spec.py:7`, in `Budget`). Elsewhere: ")
    assert "`max_turns = None` (`src/cli/acts.py:7`)" in answer


async def test_an_amount_is_the_value_of_the_name_that_holds_both_words(conversation: Any, write: Write) -> None:
    write("src/limits.py", LIMITS)
    write("src/events.py", "class RunStarted:\n    pass\n\n\ndef events_of(run):\n    return run.events\n")

    answer = await conversation.ask("How many events may a run have?")

    assert answer.startswith("Values stated there: `events_per_run: int = 50_000` (`src/limits.py:2`). ")


async def test_where_something_is_handled_is_where_lines_act_on_it(conversation: Any, write: Write) -> None:
    write("src/asking.py", ASKING)
    write("src/words.py", '"""Every time-out there is: a time-out of time-outs."""\n\nTIMEOUT = "timeout"\n')
    write("docs/timeouts.md", "# Time-outs\n\nTime-outs are handled with care.\n")

    answer = await conversation.ask("Where are time-outs handled?")

    first = "The files with most lines that act on “time-outs”: `src/asking.py` (4 lines in "
    assert answer.startswith(first)
    assert "`src/asking.py:11` (in `ask`): `except TimeoutError:`" in answer
    assert "words.py" not in answer


@pytest.mark.parametrize("as_written", ["**Checkpoint.** The", "## Checkpoint\n\nThe", "**Checkpoint**: The"])
async def test_what_says_what_a_thing_is_leads_over_a_table_that_mentions_it(
    conversation: Any, write: Write, as_written: str
) -> None:
    write("docs/concepts.md", CONCEPTS.replace("**Checkpoint.** The", as_written))
    write("src/rows.py", 'def checkpoint_row(run):\n    """Return the row of a checkpoint."""\n    return run\n')

    answer = await conversation.ask("What is a checkpoint?")

    assert "whole run as of one event" in answer.split("\n", maxsplit=1)[0].split("docs/concepts.md", maxsplit=1)[0]


async def test_an_earlier_report_is_no_evidence(conversation: Any, write: Write) -> None:
    write("src/asking.py", ASKING)
    question = "How does ask give up?"
    before = await conversation.ask(question)
    write("notes/old.md", before)
    write("report.md", "Giving up: ask gives up by giving up.\n")
    conversation.messages.clear()
    conversation.context["write"] = "report.md"

    answer = await conversation.ask(question)

    assert "`notes/old.md" not in answer
    assert "`report.md:" not in answer
    assert "src/asking.py" in answer


async def test_a_report_that_is_asked_for_is_read(conversation: Any, write: Write) -> None:
    write("old.md", "Found.\n\n- `a.py:1`: `one`\n- `a.py:2`: `two`\n")

    assert "“Found.”" in await conversation.ask("What does old.md say about found?")


@pytest.mark.parametrize(
    "question",
    [
        "Where are time-outs and configuration limits of connections handled?",
        "What is an authentication configuration argument?",
        "How many authentication connection messages may a configuration directory have?",
        "Where is the ApplicationAuthenticationConfiguration class defined?",
    ],
)
def test_precise_patterns_are_short_enough_for_the_tools(question: str) -> None:
    asked = analyse(question)
    for pattern in (exact_definition(asked), counted(asked), *handling(asked), said_to_be(asked)):
        assert len(pattern) <= PATTERN_CHARS_MAX


def test_a_capital_beside_a_word_for_a_kind_is_a_name() -> None:
    assert analyse("Where is the Console class defined?").names == ("Console",)
    assert analyse("Where is Console defined?").names == ("Console",)
    assert analyse("Which class opens files?").names == ()


def test_a_module_called_spec_is_no_test() -> None:
    assert not is_test("src/machine/_spec.py")
    assert is_test("src/machine/run_spec.rb")


async def test_an_amount_is_the_bound_that_is_named_after_what_is_counted(conversation: Any, write: Write) -> None:
    write("src/spec.py", "class Budget:\n    max_turns: int = 20\n")
    write("src/limits.py", "summarise_turns: int = 5\nmessages_per_turn: int = 64\n")

    answer = await conversation.ask("How many turns may a run take?")

    assert answer.startswith("Values stated there: `max_turns: int = 20` (`src/spec.py:2`)")


async def test_a_meaning_that_a_text_gives_leads_over_a_class_of_that_name(conversation: Any, write: Write) -> None:
    write("docs/concepts.md", CONCEPTS)
    write("src/run.py", 'class Checkpoint:\n    """What a checkpoint of a run holds."""\n')

    answer = await conversation.ask("What is a checkpoint?")

    assert answer.startswith("“**Checkpoint.** The whole run as of one event.” (`docs/concepts.md:7`).")
