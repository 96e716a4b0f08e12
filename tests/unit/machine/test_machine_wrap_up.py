"""Wrapping up: what becomes of the open calls when a budget is used up in the middle of them."""

from __future__ import annotations

from typing import Any

import pytest
from machine_bench import Bench

from geartrain.errors import FormatUnknown
from geartrain.limits import UNLIMITED
from geartrain.machine import (
    RULES_VERSION,
    ApprovalDecided,
    Budget,
    BudgetRaised,
    SubAgentEnded,
    SubAgentSpec,
    TimerFired,
    ToolFinished,
    TurnsReached,
    Usage,
    WriteInDoubt,
    decode_spec,
)

OPEN = Budget(max_turns=UNLIMITED, max_seconds=UNLIMITED, max_tool_failures=UNLIMITED, max_tokens=UNLIMITED)
NO_TIME = Budget(max_turns=UNLIMITED, max_seconds=1.0, max_tool_failures=UNLIMITED, max_tokens=UNLIMITED)
NO_TOKENS = Budget(max_turns=UNLIMITED, max_seconds=UNLIMITED, max_tool_failures=UNLIMITED, max_tokens=1)


def wrapping(*calls: str, verdicts: Any = None, **spec: Any) -> Bench:
    helpers = (SubAgentSpec(name="helper"),)
    bench = Bench(budget=OPEN, on_budget="wrap_up", sub_agents=helpers, **spec).starts().replies("", *calls)
    return bench.verdicts(*(verdicts or ["allow"] * len(calls)))


@pytest.mark.parametrize(("budget", "read"), [(NO_TIME, "done"), (NO_TOKENS, "running")])
def test_reads_are_cut_off_if_time_is_used_up_and_finish_if_something_else_is(budget: Budget, read: str) -> None:
    bench = wrapping("look", "helper", "write").does(BudgetRaised, budget=budget)

    assert bench.status == [read, "running", "done"]
    assert bench.call("t1.c3").result.status == "refused"  # type: ignore[union-attr]


def test_a_run_whose_calls_are_all_cut_off_takes_its_last_turn_at_once() -> None:
    bench = wrapping("look", "write").does(BudgetRaised, budget=NO_TIME)

    assert bench.results == [("t1.c1", "cancelled"), ("t1.c2", "refused")]
    assert (bench.run.state, bench.run.wrap_up_turn) == ("MODEL_THINKING", 2)
    assert "timeout" in bench.run.messages[-1].text
    assert bench.replies("so far").run.state == "FINISHED"


def test_the_result_of_a_read_that_was_cut_off_comes_too_late() -> None:
    bench = wrapping("look", "helper").does(BudgetRaised, budget=NO_TIME)

    assert "already has its result" in bench.refuses(ToolFinished, call_id="t1.c1", attempt=1, status="ok", text="late")


def test_a_write_under_way_and_its_verification_are_awaited() -> None:
    bench = wrapping("post").begins("t1.c1").does(BudgetRaised, budget=NO_TIME)
    assert bench.status == ["started"]

    bench.does(WriteInDoubt, call_id="t1.c1", attempt=1, reason="killed")
    assert bench.status == ["verifying"]

    bench.does(ToolFinished, call_id="t1.c1", attempt=1, status="ok", text="", verdict="done")
    assert bench.run.wrap_up_turn == 2


def test_a_sub_agent_is_awaited() -> None:
    bench = wrapping("helper").does(BudgetRaised, budget=NO_TIME)
    assert bench.status == ["running"]

    bench.does(SubAgentEnded, call_id="t1.c1", run_id="r-2", state="FINISHED", usage=Usage())
    assert bench.run.wrap_up_turn == 2


def test_a_write_that_is_to_run_again_under_its_key_is_not_refused() -> None:
    bench = wrapping("put", "helper").begins("t1.c1")
    bench.does(TimerFired, kind="dwell", time=bench.now + 1_000)
    assert bench.call("t1.c1").doubted

    bench.does(BudgetRaised, budget=NO_TIME)

    assert bench.call("t1.c1").result is None


def test_a_call_that_is_approved_once_the_budget_is_used_up_is_refused() -> None:
    bench = wrapping("write", verdicts=["ask"]).does(BudgetRaised, budget=NO_TOKENS)
    assert bench.holds == ["approval(t1.c1)"]

    bench.does(ApprovalDecided, call_id="t1.c1", approved=True)

    assert bench.verdicts("allow").results == [("t1.c1", "refused")]
    assert "token_budget_exceeded" in bench.run.messages[-1].text


@pytest.mark.parametrize("status", ["asked", "proposed"])
def test_a_text_that_is_being_judged_is_no_call_and_is_not_refused(status: str) -> None:
    bench = Bench(budget=OPEN, on_budget="wrap_up", guarded=("input",)).starts()
    if status == "asked":
        bench.verdicts("ask")

    bench.does(BudgetRaised, budget=NO_TIME, time=bench.now + 9.0)

    assert bench.status == [status]


def test_under_the_rules_of_old_journals_what_is_open_goes_on() -> None:
    bench = wrapping("look", "write", rules_version=1).does(BudgetRaised, budget=NO_TIME)

    assert bench.status == ["running", "allowed"]
    bench.finishes("t1.c1")
    assert bench.status == ["done", "running"]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (1, "a condition of the agent's stop_when holds in COMPACT_OR_SAVE"),
        (2, "a condition of the agent's stop_when holds; in"),
    ],
)
def test_a_condition_of_the_agents_own_is_named_as_the_rules_have_it(rules: int, message: str) -> None:
    bench = Bench(stop_when=TurnsReached(1), budget=OPEN, rules_version=rules).starts().replies("", "look")
    bench.verdicts("allow").finishes("t1.c1")

    assert bench.run.error.message.startswith(message)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (1, "the last turn, given to wrap up, brought no answer"),
        (2, "the last turn, given to wrap up, brought no answer; in "),
    ],
)
def test_a_last_turn_without_an_answer_says_what_was_used_as_the_rules_have_it(rules: int, message: str) -> None:
    limited = Budget(max_turns=2, max_seconds=UNLIMITED)
    bench = Bench(budget=limited, on_budget="wrap_up", rules_version=rules).starts().replies("", "nothing").replies("")

    found = bench.run.error.message  # type: ignore[union-attr]
    assert (found == message) if rules == 1 else found.startswith(message)


def test_more_calls_at_work_than_are_named_are_counted() -> None:
    bench = Bench(budget=Budget(max_seconds=50.0)).starts().replies("", *["look"] * 5).verdicts(*["allow"] * 5)

    bench.does(TimerFired, kind="active_seconds", time=bench.now + 60.0)

    message = bench.run.ending.error.message  # type: ignore[union-attr]
    assert "t1.c3 of 'look' at work for 60.0 s, 2 more at work; used: 1 turn" in message
    assert "t1.c4" not in message


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"name": 3}', b'{"name": "a", "plan": "p"}', b"\xff"])
def test_what_is_no_spec_is_refused_as_a_format_that_is_not_known(data: bytes) -> None:
    with pytest.raises(FormatUnknown, match="agent spec"):
        decode_spec(data)


def test_a_spec_of_rules_that_are_newer_than_these_is_refused() -> None:
    """P13: what it would do is not known here."""
    with pytest.raises(FormatUnknown, match=f"rules version {RULES_VERSION + 1}"):
        decode_spec(f'{{"name": "a", "rules_version": {RULES_VERSION + 1}}}'.encode())
