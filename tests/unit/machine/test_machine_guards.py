"""What guardrails do to a run: arguments changed before a call runs, and texts judged before they count."""

from __future__ import annotations

from machine_bench import Bench

from geartrain.machine import (
    ApprovalDecided,
    CallSettled,
    GuardVerdict,
    PauseRequested,
    RunResumed,
    WriteInDoubt,
)

CHANGED = '{"safe":true}'


def test_changed_arguments_are_what_runs_and_what_the_context_shows() -> None:
    bench = Bench().starts().replies("", "look").verdicts("allow", arguments=CHANGED).finishes("t1.c1")

    (asking,) = [message for message in bench.run.messages if message.calls]
    assert asking.calls[0].arguments == CHANGED


def test_a_decision_names_the_guardrail_or_the_rule_that_made_it() -> None:
    guard = GuardVerdict(guard="limits", verdict="ask", reason="many")
    asked = Bench().starts().replies("", "write").verdicts("ask", guard="limits", guards=(guard,), rule="r")
    ruled = Bench().starts().replies("", "write").verdicts("ask", rule="r")

    assert asked.run.permission_decisions[0].by == "guardrail:limits"
    assert ruled.run.permission_decisions[0].by == "policy:r"


def test_whoever_decides_is_shown_reason_and_error() -> None:
    bench = Bench().starts().replies("", "write").verdicts("ask", reason="it writes", error="the guardrail failed")

    assert bench.run.holds[0].reason == "it writes; the guardrail failed"


def test_an_approval_counts_only_for_the_arguments_that_it_was_given_for() -> None:
    """P6."""
    bench = Bench().starts().replies("", "write").verdicts("ask")
    bench.does(ApprovalDecided, call_id="t1.c1", approved=True)

    bench.verdicts("ask", arguments=CHANGED)

    assert (bench.status, bench.holds) == (["asked"], ["approval(t1.c1)"])
    assert bench.call("t1.c1").arguments == CHANGED
    bench.does(ApprovalDecided, call_id="t1.c1", approved=True).verdicts("ask")
    assert bench.status == ["running"]


def test_a_remembered_approval_does_not_cover_changed_arguments() -> None:
    bench = Bench().starts().replies("", "write", "write").verdicts("ask", "ask")
    bench.does(ApprovalDecided, call_id="t1.c1", approved=True, remember="run")
    bench.does(ApprovalDecided, call_id="t1.c2", approved=True)

    bench.verdicts("ask", "ask", arguments=CHANGED)

    assert bench.status == ["asked", "asked"]


def test_a_write_that_may_have_been_done_does_not_run_again_with_other_arguments() -> None:
    """P5: its key stands for what it was first asked to do."""
    bench = Bench().starts().replies("", "put").verdicts("allow").begins("t1.c1")
    bench.does(WriteInDoubt, call_id="t1.c1", attempt=1, reason="lost")
    assert bench.status == ["running"]
    bench.does(PauseRequested).does(RunResumed)

    bench.verdicts("allow", arguments=CHANGED)

    assert (bench.status, bench.holds) == (["in_doubt"], ["in_doubt(t1.c1)"])
    assert bench.call("t1.c1").arguments == "{}"


def test_a_write_known_not_to_be_done_may_run_with_other_arguments() -> None:
    bench = Bench().starts().replies("", "write").verdicts("allow").begins("t1.c1")
    bench.does(WriteInDoubt, call_id="t1.c1", attempt=1, reason="lost")
    bench.does(CallSettled, call_id="t1.c1", done=False, not_done="run")

    bench.verdicts("allow", arguments=CHANGED)

    assert (bench.status, bench.call("t1.c1").arguments) == (["running"], CHANGED)
