"""What makes an answer good, each kind of fault by itself: parts, echoes, tests, values, practices, sentences."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

Write = Callable[[str, str], None]

THREE = "What is this project, how is it tested, and which limits does it set?"
README = """# Asker

Asker asks servers questions.
It needs no network of its own.

Ask it: `asker "What is this project, how is it tested, and which limits does it set?"`

## Working on it

```console
$ make test    # the whole suite
```

MIT licence. Install it with `pip install asker`.
"""
LIMITS = '''"""Every bound."""


class Limits:
    """What one client may use."""

    attempts: int = 3
    answer_bytes: int = 64 * 1024
    names: list[str] = ["a"]
    on_full = None
'''
TESTS = f"""
QUESTION = "{THREE}"


def test_a_client_that_has_reached_every_limit_of_its_attempts_gives_up():
    limits = 1
    assert limits
"""


@pytest.fixture(autouse=True)
def project(write: Write) -> None:
    write("README.md", README)
    write("Makefile", f"QUESTION ?= {THREE}\n\ntest: ## run the whole suite\n\tpython -m pytest\n")
    write("src/asker/limits.py", LIMITS)
    write("src/asker/client.py", "RETRY_LIMIT = 2\n\n\ndef ask(question, deadline_seconds=5.0):\n    return question\n")
    write("tests/unit/test_client.py", TESTS)
    write(".hypothesis/constants/x", "limits = 5\n")
    write("pyproject.toml", '[project]\nname = "asker"\nlicense = "MIT"\nrequires-python = ">=3.11"\n')


async def test_each_part_of_a_question_is_answered_in_its_own_paragraph(conversation: Any) -> None:
    answer = await conversation.ask(THREE)

    first, second, third = answer.split("\n\n")[:3]
    assert "“Asker asks servers questions. It needs no network of its own.” (`README.md:3`)" in first
    assert "`README.md:11`" in second
    assert "The tests are in `tests/`" in second
    assert "`attempts = 3` (`src/asker/limits.py:7`)" in third
    assert re.findall(r"^### (.*)$", answer, re.MULTILINE) == [
        "What is this project?",
        "How is it tested?",
        "Which limits does it set?",
    ]


async def test_a_line_that_only_repeats_the_question_is_not_cited(conversation: Any) -> None:
    answer = await conversation.ask(THREE)

    assert "QUESTION" not in answer
    assert "`README.md:6`" not in answer


async def test_the_name_of_a_test_is_not_taken_for_what_was_asked(conversation: Any) -> None:
    answer = await conversation.ask("Which limits does a client have?")

    assert "gives_up" not in answer
    assert ".hypothesis" not in answer


async def test_settings_are_listed_with_their_values_from_the_file_that_holds_most(conversation: Any) -> None:
    answer = await conversation.ask("What are the limits?")

    assert answer.startswith("`Limits` (`src/asker/limits.py:4`, “What one client may use.”) sets them: ")
    assert "`answer_bytes = 64 * 1024` (`src/asker/limits.py:8`)" in answer
    assert "`RETRY_LIMIT = 2` (`src/asker/client.py:1`)" in answer
    assert "tests/" not in answer


async def test_the_default_of_a_parameter_is_found_by_a_related_word(conversation: Any) -> None:
    assert "`deadline_seconds = 5.0` (`src/asker/client.py:4`)" in await conversation.ask(
        "What is the default time-out?"
    )


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How is it tested?", "“make test    # the whole suite” (`README.md:11`)"),
        ("How do I install it?", "“Install it with `pip install asker`.” (`README.md:14`)"),
        ("What licence does it have?", '`license = "MIT"` (`pyproject.toml:3`)'),
        ("Which dependencies does it need?", '`requires-python = ">=3.11"` (`pyproject.toml:4`)'),
    ],
)
async def test_how_a_project_is_worked_with_is_read_where_strangers_read_it(
    conversation: Any, question: str, expected: str
) -> None:
    assert expected in await conversation.ask(question)


async def test_a_sentence_is_told_whole_though_it_runs_over_lines(conversation: Any, write: Write) -> None:
    write("letters.txt", "A schooner struck the rocks at dawn. Eleven were\nsaved in our boat; the mate was last.\n")

    answer = await conversation.ask("What happened to the schooner, and who was saved in the boat?")

    assert "“A schooner struck the rocks at dawn.” (`letters.txt:1`)" in answer
    assert "“Eleven were saved in our boat; the mate was last.” (`letters.txt:1`)" in answer


async def test_what_stands_between_fences_is_cited_after_what_a_text_says(conversation: Any, write: Write) -> None:
    write("guide.md", "# Guide\n\n```\nbarn barn barn\n```\n\n\n\n\n\n\nThe barn stands by the mill.\n")

    answer = await conversation.ask("What about the barn?")

    assert answer.startswith("“The barn stands by the mill.” (`guide.md:12`)")


async def test_british_and_american_spelling_find_each_other(conversation: Any, write: Write) -> None:
    write("src/asker/paint.py", "def parse_color(text):\n    ...\n")

    answer = await conversation.ask("Where are colours parsed?")

    assert "`src/asker/paint.py:1`" in answer
    assert "No line mentions" not in answer


async def test_what_is_not_there_is_said_with_the_related_words_that_were_searched_for(conversation: Any) -> None:
    answer = await conversation.ask("Where is the mutex?")

    assert "Searched for “mutex”, and for the related words “lock”." in answer


async def test_exceptions_in_general_are_listed_where_they_are_defined(conversation: Any, write: Write) -> None:
    write("src/asker/errors.py", "class Refused(ValueError):\n    ...\n\n\nclass Late(TimeoutError):\n    ...\n")

    answer = await conversation.ask("What is this, and which exceptions does it define?")

    assert "`Refused` (`src/asker/errors.py:1`) and `Late` (`src/asker/errors.py:5`)" in answer
