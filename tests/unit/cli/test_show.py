from __future__ import annotations

from typing import Any

import pytest

from geartrain.cli._outcome import Way
from geartrain.cli._show import _message_lines, crash_lines, kept_by, note, report_line
from geartrain.machine import Difference
from geartrain.persistence.sqlite import StoreOwner
from geartrain.runtime import ReplayReport, RunSummary
from geartrain.trace import TraceRecord


def row(**fields: Any) -> RunSummary:
    plain: dict[str, Any] = {
        "id": "r-1",
        "state": "SUSPENDED",
        "agent": "a",
        "holds": (),
        "turn_count": 1,
        "input_tokens": 0,
        "output_tokens": 0,
        "tool_calls": 0,
        "tool_failures": 0,
        "error": None,
        "created_at": 0.0,
        "updated_at": 0.0,
        "seq": 1,
    }
    return RunSummary(**{**plain, **fields})


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, ""),
        ({"holds": ("approval(t1.c1)", "paused")}, "approval(t1.c1), paused"),
        ({"holds": ("approval(t1.c1)",), "root": "r-1"}, "approval(t1.c1)"),
        ({"holds": ("approval(t1.c1)",), "root": "r-0"}, "approval(t1.c1), below r-0"),
        ({"error": "timeout"}, "timeout"),
        ({"holds": ("paused",), "set_apart": "row 3 is damaged"}, "set apart: row 3 is damaged"),
    ],
)
def test_a_listing_notes_what_is_special_about_a_run(fields: dict[str, Any], shown: str) -> None:
    assert note(row(**fields)) == shown


@pytest.mark.parametrize(
    ("owner", "shown"),
    [
        (None, "interrupted, its process is gone: geartrain resume r-1 --app a:b"),
        (StoreOwner(42), "being moved by pid 42"),
        (StoreOwner(None), "being moved by another process"),
    ],
)
def test_a_run_in_the_middle_is_noted_with_who_moves_it_or_how_to_go_on(owner: StoreOwner | None, shown: str) -> None:
    assert note(row(state="EXECUTE_TOOL", seq=5), owner, Way(("--app", "a:b"))) == shown


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"state": "MODEL_THINKING", "seq": 1}, "not begun, its process is gone"),
        ({"state": "MODEL_THINKING", "seq": 2}, "interrupted, its process is gone"),
        ({"state": "EXECUTE_TOOL", "seq": 9, "ending": "cancelled_by_user"}, "ending (cancelled_by_user), its process"),
    ],
)
def test_never_begun_interrupted_and_cancelled_in_flight_are_told_apart(fields: dict[str, Any], shown: str) -> None:
    """CR-9."""
    assert note(row(**fields)).startswith(shown)


def test_whether_a_run_that_delegates_gets_on_is_left_to_its_tree() -> None:
    way, delegating = Way(("--store", "x.db", "--app", "a:b")), row(delegates=True, seq=5, holds=("sub_agents",))

    assert note(delegating, None, way) == "sub_agents, see geartrain show r-1 --tree --store x.db"
    assert note(delegating, StoreOwner(42), way) == "sub_agents"


def test_the_event_that_was_set_aside_and_where_it_failed_are_shown() -> None:
    payload = {"reason": "bug", "aside_body": '{"text":"poison\x1b"}', "traceback": '  File "x.py"\nKeyError'}
    record = TraceRecord(run_id="r-1", event="run_quarantined", ts=0.0, payload=payload)

    assert crash_lines(record) == ['set aside: {"text":"poison\\x1b"}', '  File "x.py"', "KeyError"]
    assert crash_lines(TraceRecord(run_id="r-1", event="run_started", ts=0.0)) == []


def test_a_replay_without_a_difference_says_how_much_it_compared() -> None:
    report = ReplayReport(run_id="r-1", events=1_200, state="FINISHED")

    assert report_line(report) == "r-1: no difference in 1,200 events, FINISHED"


def test_a_difference_is_shown_with_both_ways_and_its_reason() -> None:
    difference = Difference(4, "ToolFinished", ("OBSERVE", "\x1b[2J"), (), "no such call")

    line = report_line(ReplayReport(run_id="r-1", events=3, state="EXECUTE_TOOL", difference=difference))

    assert line == (
        "r-1: first difference at event 4 (ToolFinished): recorded OBSERVE > \\x1b[2J, found nothing (no such call)"
    )


def test_a_message_that_the_model_saw_is_shown_with_its_size_and_how_it_was_shortened() -> None:
    shrunk = {"role": "tool", "tool": "look", "call_id": "t1.c1", "text": "[ok]", "size": 1_200, "shortened": "shrunk"}
    noted = {"role": "user", "text": "a\nb", "size": 19, "shortened": "", "provider": "memory", "pinned": True}
    asked = {"role": "assistant", "text": "", "calls": [{"id": "t1.c1", "tool": "look", "arguments": "{}"}]}

    assert _message_lines(shrunk) == ["[tool look t1.c1] 1,200 bytes, shrunk", "[ok]"]
    assert _message_lines(noted) == ["[user] 19 bytes, told by memory, pinned", "a", "b"]
    assert _message_lines(asked) == ["[assistant]", "", "call t1.c1 look {}"]


def test_commands_that_would_be_refused_are_told_with_who_has_the_store() -> None:
    commands = ["t1.c1 note waits for approval: geartrain approve r-1"]

    assert kept_by(StoreOwner(42), commands) == ["as long as pid 42 has the store, only through it"]
    assert kept_by(StoreOwner(42), []) == []
    assert kept_by(None, commands) == []
