"""Whatever is asked and answered: the offline model replies, the same each time, and cites only what it saw."""

from __future__ import annotations

import json
import re

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geartrain.machine import Message, ResultStatus, ToolCall
from geartrain.models import ModelReply, ModelRequest
from geartrain.models._offline._researcher import decide
from geartrain.tools import file_tools

SPECS = tuple(tool.spec() for tool in file_tools)
TURNS_MAX = 10

WORDS = st.sampled_from(
    ["timeout", "default", "Queue", "raise", "who", "calls", "harvest", "is", "the", "how", "where", "`x_y`", "a.py"]
)
QUESTIONS = st.lists(WORDS, min_size=1, max_size=8).map(" ".join) | st.text(max_size=60)
LINES = st.sampled_from(
    [
        "def timeout(seconds=5):",
        "class Queue(Exception):",
        '    """Ends the harvest. And goes on',
        "    raise QueueFull",
        "x_y(1)",
        "DEFAULT_TIMEOUT = 3  # `ticks` and “marks”",
        "the harvest was late: 12: x",
        "",
        "# HARVEST",
        "é" * 500 + " harvest " + "ü" * 500,
    ]
) | st.text(max_size=80)
RESULTS = st.one_of(
    st.lists(st.tuples(st.sampled_from(["a.py", "b/c.txt", "d e.md"]), st.integers(1, 60), LINES), max_size=12).map(
        lambda hits: "\n".join(f"{path}:{number}: {line}" for path, number, line in hits)
    ),
    st.lists(LINES, max_size=12).map(lambda lines: "\n".join(f"{n}: {line}" for n, line in enumerate(lines, 1))),
    st.just("src/\na.py (12 bytes)\nnotes.txt (3 bytes)\nREADME.md (900 bytes)"),
    st.text(max_size=200),
)
STATUSES = st.sampled_from([ResultStatus.OK] * 8 + list(ResultStatus))
ANSWERS = st.lists(st.tuples(RESULTS, STATUSES, st.sampled_from(["", "", "", "digest"])), min_size=1, max_size=12)


def request(messages: list[Message], turn: int, **context: object) -> ModelRequest:
    return ModelRequest(
        run_id="r", agent="a", turn=turn, attempt=1, messages=tuple(messages), tools=SPECS, context=dict(context)
    )


def played(
    question: str, answers: list[tuple[str, ResultStatus, str]], **context: object
) -> tuple[list[Message], list[ModelReply]]:
    """Return messages and replies of a run whose calls are answered by *answers* in turn, again and again."""
    messages = [Message(role="user", text=question)]
    replies: list[ModelReply] = []
    given_answers = 0
    for turn in range(1, TURNS_MAX):
        reply = decide(request(messages, turn, **context))
        replies.append(reply)
        if not reply.calls:
            break
        calls = tuple(
            ToolCall(id=f"t{turn}.c{n}", tool=call.tool, arguments=call.arguments)
            for n, call in enumerate(reply.calls, 1)
        )
        messages.append(Message(role="assistant", text=reply.text, calls=calls, turn=turn))
        for call in calls:
            text, status, artifact = answers[given_answers % len(answers)]
            given_answers += 1
            messages.append(
                Message(role="tool", text=text, call_id=call.id, tool=call.tool, status=status, artifact=artifact)
            )
    return messages, replies


def shown_lines(messages: list[Message]) -> dict[str, list[str]]:
    """Return for each `path:line` all texts in which a result may have shown it."""
    shown: dict[str, list[str]] = {}
    paths = {
        call.id: json.loads(call.arguments).get("path", "")
        for message in messages
        for call in message.calls
        if call.tool == "read_file"
    }
    for message in messages:
        if message.role != "tool" or message.status is not ResultStatus.OK:
            continue
        for position, line in enumerate(message.text.split("\n")):
            hit = re.match(r"(?:\./)?(.+?:\d+): ?(.*)$", line)
            if hit:
                shown.setdefault(hit[1], []).append(hit[2])
            if message.call_id in paths:
                numbered = re.match(r" *(\d+):(.*)$", line)
                path = paths[message.call_id]
                if numbered:
                    shown.setdefault(f"{path}:{numbered[1]}", []).append(numbered[2])
                shown.setdefault(f"{path}:{position + 1}", []).append(line)
                start = json.loads(next(c.arguments for m in messages for c in m.calls if c.id == message.call_id))
                shown.setdefault(f"{path}:{position + start.get('start_line', 1)}", []).append(line)
    return shown


CITED = re.compile(r"^- `([^`]+:\d+)`(?: \([^)]*`?\))?: (?:“(.*?)”|`` (.*?) ``|`(.*?)`)(?: — .*)?$", re.MULTILINE)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(QUESTIONS, ANSWERS)
def test_every_run_ends_with_an_answer_within_six_turns(
    question: str, answers: list[tuple[str, ResultStatus, str]]
) -> None:
    _, replies = played(question, answers, root="/x", write="report.md")

    assert replies[-1].text
    assert not replies[-1].calls
    assert len(replies) <= 6
    assert all(len(reply.calls) <= 8 for reply in replies)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(QUESTIONS, ANSWERS)
def test_the_same_request_always_gives_the_same_reply(
    question: str, answers: list[tuple[str, ResultStatus, str]]
) -> None:
    messages, _ = played(question, answers, root="/x")

    assert decide(request(messages, 3, root="/x")) == decide(request(list(messages), 3, root="/x"))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(QUESTIONS, ANSWERS)
def test_what_is_cited_has_been_shown_by_a_tool_at_that_place(
    question: str, answers: list[tuple[str, ResultStatus, str]]
) -> None:
    messages, replies = played(question, answers, root="/x")
    shown = shown_lines(messages)

    for match in CITED.finditer(replies[-1].text):
        place, quoted = match[1], next((text for text in match.groups()[1:] if text is not None), "")
        assert any(quoted in text for text in shown.get(place, [])), match[0]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), RESULTS, STATUSES), max_size=10))
def test_messages_in_any_order_are_answered_and_summarised(history: list[tuple[str, str, ResultStatus]]) -> None:
    messages = [
        Message(role=role, text=text, call_id="t1.c1", tool="read_file", status=status)  # type: ignore[arg-type]
        for role, text, status in history
    ]

    reply = decide(request(messages, 1))
    summary = decide(msgspec.structs.replace(request(messages, 1), purpose="compact"))

    assert reply.text or reply.calls
    assert len(summary.text) <= 2_000
