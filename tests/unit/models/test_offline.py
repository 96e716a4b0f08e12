from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geartrain.machine import Message, ResultStatus, ToolSpec
from geartrain.models import ModelRequest, OfflineModel
from geartrain.models._offline._researcher import decide
from geartrain.tools import file_tools, tool

Write = Callable[[str, str], None]

CLIENT = '''"""A client that asks a server."""

DEFAULT_TIMEOUT_SECONDS = 5.0


class RequestTimeout(Exception):
    """The server did not answer in time."""


class Client:
    """Asks one server, one request after another."""

    def __init__(self, url, timeout_seconds=DEFAULT_TIMEOUT_SECONDS):
        self.url = url
        self.timeout_seconds = timeout_seconds

    def ask(self, question):
        """Send a question and wait for the answer."""
        if not question:
            raise ValueError("a question is needed")
        answer = self.send(question)
        if answer is None:
            raise RequestTimeout(self.timeout_seconds)
        return answer

    def send(self, question):
        # The socket is opened anew each time, because servers close idle ones.
        return open_socket(self.url).exchange(question)
'''
APP = """from client import Client


def main():
    client = Client("local")
    print(client.ask("How are you?"))
"""


@pytest.fixture
def project(write: Write) -> None:
    write("README.md", "# Asker\n\nAsker is a small library that asks servers questions.\n")
    write("src/client.py", CLIENT)
    write("src/app.py", APP)
    write(
        "src/limits.py",
        'class Limits:\n    """What may be used."""\n\n    attempts: int = 3\n    seconds: float = 2.5\n',
    )
    write("tests/test_client.py", "def test_timeout():\n    assert timeout_seconds == 5.0\n")


@pytest.fixture
def notes(write: Write) -> None:
    write("1911.txt", "THE YEAR 1911\n\nIn August the harvest began. The wheat was thin.\nThe mill stood still.\n")
    write("1912.txt", "THE YEAR 1912\n\nThe crop rotted on the field.\nThe new barn cost two hundred pounds.\n")


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Where are time-outs handled?", ["`src/client.py:6`: `class RequestTimeout(Exception):`"]),
        ("What are the defaults of the time-out?", ["`DEFAULT_TIMEOUT_SECONDS = 5.0` (`src/client.py:3`)"]),
        (
            "Which exceptions can Client raise?",
            ["`Client` raises `ValueError` and `RequestTimeout`", "`src/client.py:20` (in `Client.ask`)"],
        ),
        ("Who calls ask?", ["`ask` is called on 1 line found", "`src/app.py:6` (in `main`)"]),
        ("How is a question sent?", ["`send` is defined in `src/client.py:26`", "~~~\n26:     def send("]),
        ("Why is the socket opened anew?", ["because servers close idle ones"]),
        ("What does this project do?", ["“Asker is a small library that asks servers questions.” (`README.md:3`)"]),
        ("What does client.py do?", ["`src/client.py` has 28 lines", "“A client that asks a server.”"]),
        ("What is a RequestTimeout?", ["“The server did not answer in time.” (`src/client.py:7`)"]),
        (
            "What are the default limits?",
            ["`attempts = 3` (`src/limits.py:4`) and `seconds = 2.5` (`src/limits.py:5`)"],
        ),
        ("Which files are there?", ["- `README.md`", "- `src/`", "- `tests/`"]),
    ],
)
async def test_a_question_about_a_program_is_answered_with_its_lines(
    conversation: Any, question: str, expected: list[str]
) -> None:
    answer = await conversation.ask(question)

    for piece in expected:
        assert piece in answer


@pytest.mark.usefixtures("notes")
@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What do the notes say about the harvest?", ["`1911.txt:3`", "`1912.txt:3`: “The crop rotted on the field.”"]),
        ("How much did the new barn cost?", ["“The new barn cost two hundred pounds.” (`1912.txt:4`)"]),
        ("What are these texts about?", ["`1911.txt:3`", "`1912.txt:3`"]),
    ],
)
async def test_a_question_about_plain_texts_is_answered_with_their_sentences(
    conversation: Any, question: str, expected: list[str]
) -> None:
    answer = await conversation.ask(question)

    for piece in expected:
        assert piece in answer


@pytest.mark.usefixtures("notes")
async def test_what_is_not_there_is_said_with_what_was_looked_for_and_what_is_there(conversation: Any) -> None:
    answer = await conversation.ask("Is there anything about submarines?")

    assert "Nothing was found" in answer
    assert "“submarines”" in answer
    assert "`1911.txt`" in answer


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("question", ["Where are time-outs handled?", "What does this project do?", "Who calls ask?"])
async def test_a_question_takes_at_most_six_turns_of_at_most_eight_distinct_calls(
    conversation: Any, question: str
) -> None:
    conversation.context["write"] = "report.md"

    await conversation.ask(question)

    assert len(conversation.replies) <= 6
    assert all(len(reply.calls) <= 8 for reply in conversation.replies)
    calls = [(call.tool, call.arguments) for reply in conversation.replies for call in reply.calls]
    assert len(calls) == len(set(calls))


@pytest.mark.usefixtures("project")
async def test_research_makes_no_call_that_fails(conversation: Any) -> None:
    await conversation.ask("Where are time-outs handled, and what are the defaults?")
    await conversation.ask("Which exceptions can Client raise?")

    failed = [m for m in conversation.messages if m.role == "tool" and m.status is not ResultStatus.OK]
    assert failed == []


@pytest.mark.usefixtures("project")
async def test_the_same_request_gives_the_same_reply_from_another_instance(conversation: Any) -> None:
    await conversation.ask("Where are time-outs handled?")
    request = conversation.request()

    first = await OfflineModel().reply(request, lambda _: None)
    second = await OfflineModel().reply(request, lambda _: None)

    assert first == second


@pytest.mark.usefixtures("project")
async def test_usage_is_estimated_and_grows_with_the_context(conversation: Any) -> None:
    await conversation.ask("Where are time-outs handled?")

    inputs = [reply.usage.input_tokens for reply in conversation.replies]
    assert inputs == sorted(inputs)
    assert all(reply.usage.estimated and reply.usage.output_tokens > 0 for reply in conversation.replies)


@pytest.mark.usefixtures("project")
async def test_a_report_is_saved_before_the_answer_when_a_file_is_named(conversation: Any, tmp_path: Path) -> None:
    conversation.context["write"] = "out/report.md"

    answer = await conversation.ask("Where are time-outs handled?")

    saved = (tmp_path / "out/report.md").read_text()
    assert "`src/client.py:6`" in saved
    assert answer == f"{saved}\n\nSaved to `out/report.md`."
    assert conversation.tools_called.count("write_file") == 1


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("status", [ResultStatus.DENIED, ResultStatus.ERROR, ResultStatus.IN_DOUBT])
async def test_a_report_that_could_not_be_saved_is_answered_all_the_same(
    conversation: Any, status: ResultStatus
) -> None:
    conversation.context["write"] = "report.md"
    conversation.messages.append(Message(role="user", text="Where are time-outs handled?"))
    while "write_file" not in conversation.tools_called:
        await conversation.step()
    last = conversation.messages.pop()
    conversation.messages.append(
        Message(
            role="tool", text=f"[{status}] not allowed here", call_id=last.call_id, tool="write_file", status=status
        )
    )

    answer = (await conversation.step()).text

    assert "`src/client.py:6`" in answer
    assert f"Not saved to `report.md`: {status}" in answer
    assert "not allowed here" in answer


@pytest.mark.usefixtures("project")
async def test_without_a_tool_that_writes_the_report_is_only_answered(conversation: Any) -> None:
    conversation.context["write"] = "report.md"
    conversation.tools = file_tools[:3]

    assert "`src/client.py:6`" in await conversation.ask("Where are time-outs handled?")


@pytest.mark.usefixtures("project")
async def test_an_answer_takes_the_shape_that_the_schema_asks_for(conversation: Any) -> None:
    await conversation.ask("Where are time-outs handled?")
    conversation.messages.pop()
    schema = {
        "$defs": {"Places": {"type": "array", "items": {"type": "string"}}},
        "properties": {
            "answer": {"type": "string"},
            "source": {"type": ["string", "null"]},
            "places": {"$ref": "#/$defs/Places"},
            "found": {"type": "boolean"},
            "count": {"type": "integer"},
            "kind": {"enum": ["code", "text"]},
            "more": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        },
    }

    answer = json.loads((await OfflineModel().reply(conversation.request(output_schema=schema), str)).text)

    assert "`src/client.py:6`" in answer["answer"]
    assert answer["source"] == answer["places"][0]
    assert "src/client.py:6" in answer["places"]
    assert answer["count"] == len(answer["places"])
    assert (answer["found"], answer["kind"], answer["more"]) == (True, "code", None)


@pytest.mark.usefixtures("project")
async def test_an_answer_keeps_to_the_tokens_that_it_may_have(conversation: Any) -> None:
    await conversation.ask("Where are time-outs handled?")
    whole = conversation.messages.pop().text

    reply = await OfflineModel().reply(conversation.request(max_output_tokens=60), str)

    assert reply.finish_reason == "length"
    assert len(reply.text) <= 240
    assert whole.startswith(reply.text)


@pytest.mark.parametrize(
    "schema",
    [{}, {"$ref": "#/$defs/x"}, {"type": []}, {"type": "array", "items": 3}, {"properties": 3}, {"anyOf": [{}]}],
)
async def test_no_output_schema_makes_the_model_fail(conversation: Any, schema: dict[str, Any]) -> None:
    conversation.messages.append(Message(role="user", text="Where?"))

    json.loads((await OfflineModel().reply(conversation.request(output_schema=schema, tools=()), str)).text)


@pytest.mark.usefixtures("project")
async def test_a_word_that_stands_nowhere_is_said_to_be_missing(conversation: Any) -> None:
    assert "No line mentions “submarine”." in await conversation.ask("Is there a time-out of the submarine?")


@pytest.mark.usefixtures("project")
async def test_what_is_said_meanwhile_is_answered_too(conversation: Any) -> None:
    answer = await conversation.ask("Where are time-outs handled?", steering={3: "And who calls ask?"})

    assert "## Where are time-outs handled?" in answer
    assert "## And who calls ask?" in answer
    assert "class RequestTimeout" in answer
    assert "`ask` is called on 1 line found" in answer


@pytest.mark.usefixtures("project")
async def test_the_newest_question_of_a_conversation_is_answered(conversation: Any) -> None:
    await conversation.ask("Where are time-outs handled?")

    answer = await conversation.ask("Who calls ask?")

    assert "`ask` is called" in answer
    assert "class RequestTimeout" not in answer


@pytest.mark.usefixtures("project")
async def test_a_question_that_points_back_is_understood_from_the_one_before(conversation: Any) -> None:
    await conversation.ask("What is a RequestTimeout?")

    assert "`src/client.py:23`" in await conversation.ask("And where is it used?")


@pytest.mark.usefixtures("project")
async def test_failed_calls_are_named_and_the_rest_is_answered(conversation: Any) -> None:
    listed = conversation.root

    def answered(name: str, arguments: Any) -> tuple[str, ResultStatus]:
        if name == "search_code":
            return "it took too long", ResultStatus.TIMED_OUT
        return "\n".join(sorted(path.name for path in listed.iterdir())), ResultStatus.OK

    conversation.answered = answered

    answer = await conversation.ask("Where are time-outs handled?")

    assert "Nothing was found" in answer
    assert "Not everything could be looked at" in answer
    assert "timed_out" in answer


async def test_without_a_root_only_one_call_is_made_before_the_failure_is_known(conversation: Any) -> None:
    conversation.answered = lambda name, arguments: ("this run has no root folder", ResultStatus.ERROR)
    conversation.rooted = False

    answer = await conversation.ask("Where are time-outs handled?")

    assert conversation.tools_called == ["list_dir"]
    assert "`list_dir`" in answer
    assert "this run has no root folder" in answer


@pytest.mark.usefixtures("project")
async def test_without_a_root_tools_that_work_all_the_same_are_used(conversation: Any) -> None:
    conversation.rooted = False

    assert "`src/client.py:6`" in await conversation.ask("Where are time-outs handled?")
    assert len(conversation.replies) <= 6


async def test_without_tools_the_answer_says_so() -> None:
    request = ModelRequest(
        run_id="r", agent="a", turn=1, attempt=1, messages=(Message(role="user", text="Where are time-outs?"),)
    )

    reply = await OfflineModel().reply(request, lambda _: None)

    assert reply.calls == ()
    assert reply.text.startswith("No tools were offered")


@pytest.mark.usefixtures("project")
async def test_when_the_tools_are_taken_away_what_was_found_is_answered(conversation: Any) -> None:
    conversation.messages.append(Message(role="user", text="Where are time-outs handled?"))
    await conversation.step()
    conversation.offered = ()

    assert "`src/client.py:6`" in (await conversation.step()).text


async def test_a_conversation_without_a_question_is_answered_in_words(conversation: Any) -> None:
    assert (await conversation.step()).text == "There is no question to answer."


async def test_the_answer_is_emitted(conversation: Any, write: Write) -> None:
    heard: list[str] = []
    conversation.messages.append(Message(role="user", text="hello"))
    conversation.offered = ()

    reply = await OfflineModel().reply(conversation.request(), heard.append)

    assert heard == [reply.text]


@tool(read_only=True)
def word_count(path: str) -> int:
    """Count the words of a text file."""
    return len(path)


@tool(read_only=True)
def weather(city: str, days: int) -> str:
    """Tell the weather of a city for some days."""
    return f"{city}: rain for {days} days\nand then sun"


@tool()
def erase(path: str) -> None:
    """Erase a file."""


async def test_an_unknown_tool_that_only_reads_is_asked_with_the_path_of_the_question(conversation: Any) -> None:
    conversation.tools = [word_count]

    answer = await conversation.ask("How long is README.md?")

    assert [json.loads(call.arguments) for reply in conversation.replies for call in reply.calls] == [
        {"path": "README.md"}
    ]
    assert answer == "`word_count` for `README.md` says: 9"


async def test_of_several_unknown_tools_the_one_that_fits_the_question_is_asked(conversation: Any) -> None:
    conversation.tools = [word_count, weather]

    answer = await conversation.ask("What is the weather in `Alder` for 3 days?")

    assert conversation.tools_called == ["weather"]
    assert "Alder: rain for 3 days" in answer


@pytest.mark.usefixtures("project")
async def test_an_unknown_tool_is_asked_beside_tools_for_files_only_if_it_fits(conversation: Any) -> None:
    conversation.tools = [*file_tools, weather, word_count]

    await conversation.ask("Where are time-outs handled?")

    assert not {"weather", "word_count"} & set(conversation.tools_called)


async def test_an_unknown_tool_that_may_write_is_never_called(conversation: Any) -> None:
    conversation.tools = [erase]

    answer = await conversation.ask("Erase README.md")

    assert conversation.tools_called == []
    assert answer == "None of the tools offered fits this question."


async def test_a_failure_of_an_unknown_tool_is_told(conversation: Any) -> None:
    conversation.tools = [word_count]
    conversation.answered = lambda name, arguments: ("no such file", ResultStatus.ERROR)

    answer = await conversation.ask("How long is README.md?")

    assert "could not answer (error)" in answer
    assert "no such file" in answer


@pytest.mark.usefixtures("notes")
async def test_tools_of_another_make_are_used_by_their_parameters(conversation: Any) -> None:
    def answered(name: str, arguments: Any) -> tuple[str, ResultStatus]:
        assert set(arguments) <= {"query", "file"}
        return ("1911.txt:3: In August the harvest began.", ResultStatus.OK)

    @tool(name="grep", read_only=True)
    def grep(query: str) -> str:
        """Find lines."""
        return query

    conversation.tools = [grep]
    conversation.answered = answered

    assert "`1911.txt:3`" in await conversation.ask("What about the harvest?")


async def test_a_request_to_compact_is_answered_with_a_short_extract(conversation: Any, write: Write) -> None:
    write("a.txt", "\n".join(f"The harvest of field {number} was good." for number in range(500)))
    await conversation.ask("What about the harvest?")

    reply = await OfflineModel().reply(conversation.request(purpose="compact", tools=()), lambda _: None)

    assert reply.calls == ()
    assert len(reply.text) <= 2_000
    assert "Asked: What about the harvest?" in reply.text
    assert "a.txt:1: The harvest of field 0 was good." in reply.text


async def test_what_a_summary_kept_can_be_cited_after_the_results_are_gone(conversation: Any, write: Write) -> None:
    write("a.txt", "The harvest was good.")
    await conversation.ask("What about the harvest?")
    summary = await OfflineModel().reply(conversation.request(purpose="compact", tools=()), lambda _: None)
    conversation.messages = [
        Message(role="user", text=f"[Summary of the conversation so far]\n{summary.text}", turn=3, note=True),
        Message(role="user", text="What about the harvest?"),
    ]
    conversation.offered = ()

    assert "`a.txt:1`" in (await conversation.step()).text


def test_no_schema_of_a_tool_makes_the_model_fail() -> None:
    specs = tuple(
        ToolSpec(name=name, read_only=True, parameters=parameters)
        for name in ("search_code", "other")
        for parameters in ({}, {"properties": []}, {"$ref": "#/x"}, {"required": "path"}, {"properties": {"q": 1}})
    )
    request = ModelRequest(
        run_id="r", agent="a", turn=1, attempt=1, messages=(Message(role="user", text="why?"),), tools=specs
    )

    assert decide(request) == decide(request)
