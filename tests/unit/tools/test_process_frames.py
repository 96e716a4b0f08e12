"""What goes between a runtime and its workers: frames, and where a tool is found."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.machine import ResultStatus
from geartrain.tools import Outcome, Tool, ToolDefinitionError, tool
from geartrain.tools._process_frames import (
    LENGTH,
    TRACE_BYTES,
    Answered,
    FrameBroken,
    Frames,
    Prepared,
    ResultWanted,
    Returned,
    Target,
    Traced,
    Verified,
    frame,
    trace_payload,
)
from geartrain.tools._process_target import target_of

MESSAGES = [
    Prepared(),
    Prepared("no such module"),
    Traced(1, "seen", {"a": [1, None, "x"]}),
    Returned(1),
    ResultWanted(1, "t1.c1"),
    Answered(1, Outcome(ResultStatus.OK, "text", 4, b"\x00\xff"), may_retry=False, reusable=True),
    Verified(2, "not_done", "", reusable=False),
]


@given(st.lists(st.integers(1, 40), min_size=1))
def test_messages_arrive_whole_however_the_socket_cuts_them(sizes: list[int]) -> None:
    data = b"".join(map(frame, MESSAGES))
    frames = Frames(10_000)
    arrived: list[Any] = []

    while data:
        size = sizes[len(data) % len(sizes)]
        arrived += frames.feed(data[:size])
        data = data[size:]

    assert arrived == MESSAGES


def test_a_message_larger_than_allowed_is_refused_before_it_is_there() -> None:
    with pytest.raises(FrameBroken, match="a message of 1,001 bytes; at most 1,000 are read"):
        list(Frames(1_000).feed(LENGTH.pack(1_001)))


@pytest.mark.parametrize("body", [b"", b"abc", b"\xc1", b"\x81\xa4type\xa6called"], ids=repr)
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(FrameBroken, match="that cannot be read"):
        list(Frames(1_000).feed(LENGTH.pack(len(body)) + body))


def test_what_came_before_nonsense_is_still_heard() -> None:
    frames = Frames(1_000).feed(frame(Returned(3)) + LENGTH.pack(1) + b"\xc1")

    assert next(frames) == Returned(3)
    with pytest.raises(FrameBroken):
        next(frames)


def test_a_trace_record_has_a_plain_form_of_bounded_size() -> None:
    assert trace_payload({"n": 1, "odd": object}) == {"n": 1, "odd": "<class 'object'>"}
    assert "left_out" in trace_payload({"text": "x" * TRACE_BYTES})


def shown(value: Any) -> str:
    return str(value)


@tool(isolation="process")
def in_place() -> None:
    """Be a tool of this module."""


def plain() -> None:
    """Be a plain function of this module."""


class Holder:
    @tool(isolation="process")
    def held() -> None:  # type: ignore[misc]
        """Be a tool of a class."""


made_elsewhere = tool(isolation="process", present=shown)(plain)
with_hidden_hook = tool(isolation="process", present=lambda value: value)(plain)
again = tool(isolation="process")(in_place.function)


@tool(isolation="process")
def replaced() -> None:
    """Be forgotten."""


first = replaced
replaced = made_elsewhere  # type: ignore[assignment]
HERE = __name__


@pytest.mark.parametrize(
    ("made", "target"),
    [
        (in_place, Target("in_place", f"{HERE}:in_place", is_tool=True)),
        (Holder.held, Target("held", f"{HERE}:Holder.held", is_tool=True)),
        (again, Target("in_place", f"{HERE}:in_place", is_tool=False)),
        (made_elsewhere, Target("plain", f"{HERE}:plain", is_tool=False, present=f"{HERE}:shown")),
    ],
)
def test_a_tool_is_found_by_its_module_and_name(made: Tool, target: Target) -> None:
    assert target_of(made) == target


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (with_hidden_hook, "its present cannot be found by a worker process"),
        (first, "replaced is something else by now"),
    ],
)
def test_a_tool_that_no_worker_could_find_is_refused(made: Tool, reason: str) -> None:
    with pytest.raises(ToolDefinitionError, match=reason):
        target_of(made)
