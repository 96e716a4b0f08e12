from __future__ import annotations

from typing import Any

import pytest

from geartrain.cli._outcome import Way, advice, command_line, exit_code, next_steps, reasons, summary, tree_steps
from geartrain.machine import REASONS, RunState, Usage
from geartrain.runtime import OpenCall, RunSnapshot, RunTree


def snapshot(**fields: Any) -> RunSnapshot:
    plain: dict[str, Any] = {
        "id": "r-1",
        "state": "SUSPENDED",
        "agent": "a",
        "seq": 9,
        "input": "why?",
        "answer": None,
        "error": None,
        "holds": (),
        "waiting": (),
        "turn_count": 1,
        "usage": Usage(input_tokens=1_000, output_tokens=20),
        "tool_calls": 2,
        "tool_failures": 0,
        "active_seconds": 1.234,
        "created_at": 0.0,
        "updated_at": 0.0,
        "ended": False,
    }
    return RunSnapshot(**{**plain, **fields})


def open_call(waits_for: str, call_id: str = "t1.c1", **fields: Any) -> OpenCall:
    return OpenCall(
        run_id="r-1", call_id=call_id, tool="note", arguments="{}", arguments_digest="d", waits_for=waits_for, **fields
    )


@pytest.mark.parametrize(
    ("state", "code"),
    [("FINISHED", 0), ("FAILED", 1), ("SUSPENDED", 3), ("CANCELLED", 4), ("EXECUTE_TOOL", 1)],
)
def test_the_exit_code_tells_the_state(state: str, code: int) -> None:
    assert exit_code(snapshot(state=state)) == code


def test_every_state_has_an_exit_code() -> None:
    assert {exit_code(snapshot(state=state)) for state in RunState} == {0, 1, 3, 4}


def test_the_summary_has_turns_calls_tokens_and_time() -> None:
    assert summary(snapshot(tool_failures=1)) == (
        "r-1  SUSPENDED  1 turn, 2 calls, 1 failed call, 1,020 tokens (1,000 in, 20 out), 1.23 s"
    )


def test_a_command_to_copy_has_the_options_that_it_needs() -> None:
    way = Way(("--store", "/a b/x.db"), "cd '/a b' && ")

    assert command_line("approve", "r-1", Way()) == "geartrain approve r-1"
    assert command_line("deny", "r-1", way, "t1.c1") == "cd '/a b' && geartrain deny r-1 t1.c1 --store '/a b/x.db'"


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        (
            {"waiting": (open_call("approval"),), "holds": ("approval(t1.c1)",)},
            ["t1.c1 note waits for approval: geartrain approve r-1", "  or: geartrain deny r-1"],
        ),
        (
            {"waiting": (open_call("approval", reason="File this?"),), "holds": ("approval(t1.c1)",)},
            ["t1.c1 note waits for approval: geartrain approve r-1", "  or: geartrain deny r-1", "  asked: File this?"],
        ),
        (
            {"waiting": (open_call("in_doubt", reason="killed"),), "holds": ("in_doubt(t1.c1)",)},
            [
                "t1.c1 note may have been done (killed); settle it with one of these:",
                "  it was done: geartrain settle r-1 --done",
                "  it was not, run it: geartrain settle r-1 --run",
                "  it was not, go on without it: geartrain settle r-1 --skip",
            ],
        ),
        (
            {"waiting": (open_call("input"),), "holds": ("input(t1.c1)",)},
            ["t1.c1 note waits for input: geartrain send r-1 TEXT"],
        ),
        ({"holds": ("paused",)}, ["paused: geartrain resume r-1"]),
        ({"holds": ("quarantined",)}, ["quarantined: geartrain resume r-1", "  or end it: geartrain cancel r-1"]),
        ({"holds": ("budget",)}, ["out of budget: geartrain resume r-1 --max-turns N"]),
        *(
            (
                {"holds": ("budget",), "out_of_budget": {"code": code, "kind": "budget", "message": "m"}},
                [f"out of budget: geartrain resume r-1 {option}"],
            )
            for code, option in (
                ("max_turns_exceeded", "--max-turns N"),
                ("timeout", "--max-seconds S"),
                ("too_many_tool_failures", "--max-tool-failures N"),
                ("token_budget_exceeded", "--max-tokens N"),
                ("cost_budget_exceeded", "--max-cost C"),
                ("tool_call_budget_exceeded", "--max-tool-calls N"),
            )
        ),
        ({"holds": ("input",)}, ["waits for input: geartrain send r-1 TEXT"]),
        ({"state": "FINISHED"}, []),
        (
            {"state": "EXECUTE_TOOL", "at_rest": True},
            ["waits for an event of its tree, or for its time to be over: geartrain work --stay"],
        ),
    ],
)
def test_each_hold_comes_with_the_command_that_answers_it(fields: dict[str, Any], lines: list[str]) -> None:
    assert next_steps(snapshot(**fields), Way()) == lines


def test_one_of_several_calls_is_named_in_its_command() -> None:
    two = (open_call("approval"), open_call("approval", "t1.c2"))

    lines = next_steps(snapshot(waiting=two, holds=("approval(t1.c1)", "approval(t1.c2)")), Way())

    assert lines[2] == "t1.c2 note waits for approval: geartrain approve r-1 t1.c2"


def test_of_a_tree_all_that_its_runs_wait_for_is_told_but_a_pause_from_above_only_there() -> None:
    over = {"code": "timeout", "kind": "budget", "message": "m"}
    children = (
        RunTree(id="r-2", agent="a", state="SUSPENDED", holds=("paused", "budget"), out_of_budget=over),
        RunTree(id="r-3", agent="a", state="MODEL_THINKING", awaits_reply=True, turn_count=2),
        RunTree(id="r-4", agent="a", state="FAILED", holds=("paused",), ended=True),
        RunTree(id="r-5", agent="a", state="EXECUTE_TOOL", at_rest=True),
    )
    tree = RunTree(id="r-1", agent="a", state="SUSPENDED", holds=("paused", "sub_agents"), children=children)

    assert tree_steps(tree, Way()) == [
        "paused: geartrain resume r-1",
        "out of budget: geartrain resume r-2 --max-seconds S",
        "waits for turn 3: geartrain reply r-3 TEXT",
        "  or with calls: geartrain reply r-3 --call 'TOOL JSON'",
        "waits for an event of its tree, or for its time to be over: geartrain work --stay",
    ]


def test_of_many_that_wait_the_first_are_told_and_how_to_list_the_others() -> None:
    children = tuple(RunTree(id=f"r-{n}", agent="a", state="SUSPENDED", holds=("stuck",)) for n in range(2, 1_002))
    tree = RunTree(id="r-1", agent="a", state="EXECUTE_TOOL", children=children)

    lines = tree_steps(tree, Way(("--store", "x.db", "--app", "a:b")))

    assert len(lines) == 11
    assert lines[10] == "… 990 more wait for somebody: geartrain list --waiting --root r-1 --store x.db"


def test_why_a_run_failed_names_code_kind_and_message() -> None:
    error = {"code": "timeout", "kind": "budget", "message": "300 s\x1b"}

    assert reasons(snapshot(error=error)) == ["timeout (budget): 300 s\\x1b"]
    assert reasons(snapshot(set_apart="row 3 is damaged")) == ["set apart: row 3 is damaged"]
    over = {"code": "tool_call_budget_exceeded", "kind": "budget", "message": "2 of 2 tool calls used"}
    assert reasons(snapshot(out_of_budget=over)) == ["out of budget: tool_call_budget_exceeded: 2 of 2 tool calls used"]


@pytest.mark.parametrize("code", REASONS)
def test_a_run_that_did_not_finish_comes_with_what_to_do_about_it(code: str) -> None:
    error = {"code": str(code), "kind": "budget", "message": "m"}

    assert advice(snapshot(error=error)) == [f"what to do: {REASONS[code].what_to_do}"]


def test_of_a_run_that_finished_or_has_a_code_of_another_version_there_is_nothing_to_say() -> None:
    assert advice(snapshot()) == []
    assert advice(snapshot(error={"code": "newer", "kind": "budget", "message": "m"})) == []
