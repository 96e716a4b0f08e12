"""Calls: approvals and the policy asked again, writes and their doubts, results in call order."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from machine_bench import Bench, writing

from geartrain.machine import (
    ApprovalDecided,
    ApprovalExpired,
    CallAnswered,
    CallSettled,
    CancelRequested,
    GraceElapsed,
    InputReceived,
    ModelReplied,
    PauseRequested,
    PermissionsEvaluated,
    RequestedCall,
    ResultStatus,
    Run,
    RunRecovered,
    RunResumed,
    RunState,
    StepLimits,
    SubAgentEnded,
    SubAgentSpec,
    ToolFinished,
    ToolSpec,
    ToolStarted,
    Verdict,
    WriteInDoubt,
    decode_run,
    encode_run,
)


def restarted(bench: Bench) -> Bench:
    """Have the run picked up by another process."""
    bench.run = decode_run(1, encode_run(bench.run))
    return bench.does(RunRecovered, attempt=bench.run.recoveries + 1)


# -- approvals


def test_approvals_decided_in_reverse_order_with_a_restart_between_reach_their_own_calls() -> None:
    """AP-1: three approvals open in one turn, two with the same tool and arguments."""
    bench = Bench(on_denied="tell").starts().replies("", "write", "write", "put").verdicts("ask", "ask", "ask")
    assert bench.holds == ["approval(t1.c1)", "approval(t1.c2)", "approval(t1.c3)"]

    bench.does(ApprovalDecided, call_id="t1.c3", approved=True)
    restarted(bench)
    bench.does(ApprovalDecided, call_id="t1.c2", approved=False, reason="not twice")
    assert bench.run.state == "SUSPENDED"
    bench.does(ApprovalDecided, call_id="t1.c1", approved=True).verdicts("allow", "allow")
    bench.begins("t1.c1").finishes("t1.c1").begins("t1.c3").finishes("t1.c3")

    assert bench.results == [("t1.c1", "ok"), ("t1.c2", "denied"), ("t1.c3", "ok")]


def test_resuming_with_open_approvals_is_refused_and_names_them() -> None:
    """AP-4: nothing unanswered runs."""
    bench = Bench(on_denied="tell").starts().replies("", "write", "put").verdicts("ask", "ask")
    bench.does(ApprovalDecided, call_id="t1.c1", approved=True)

    assert bench.refuses(RunResumed) == "it waits for approval(t1.c2)"
    assert bench.keys == ["t1.c2.ask"]


def test_a_pause_is_lifted_while_approvals_stay_open() -> None:
    bench = Bench().starts().replies("", "write").verdicts("ask").does(PauseRequested)

    bench.does(RunResumed)

    assert bench.holds == ["approval(t1.c1)"]
    assert bench.run.state == "SUSPENDED"


def test_an_open_approval_keeps_its_key_over_restarts_and_an_answered_one_is_announced_no_more() -> None:
    """AP-7."""
    bench = Bench().starts().replies("", "write", "put").verdicts("ask", "ask")
    bench.does(ApprovalDecided, call_id="t1.c1", approved=True)

    assert restarted(bench).keys == ["t1.c2.ask"]


def test_a_second_decision_is_told_what_was_decided_first() -> None:
    """AP-9."""
    bench = Bench().starts().replies("", "write").verdicts("ask")
    bench.does(ApprovalDecided, call_id="t1.c1", approved=True, by="ops").verdicts("allow")

    reason = bench.refuses(ApprovalDecided, call_id="t1.c1", approved=False, by="desk")

    assert reason == "call 't1.c1' is already decided: approved by ops"


def test_a_decision_about_a_call_that_was_never_asked_is_refused() -> None:
    bench = Bench().starts().replies("", "write")

    assert "is not waiting for a decision" in bench.refuses(ApprovalDecided, call_id="t1.c1", approved=True)
    assert "is not waiting" in bench.refuses(ApprovalExpired, call_id="t9.c9")


def test_free_reads_run_at_once_and_only_the_guarded_write_is_asked() -> None:
    """AP-11: one approval, one merged message in call order, and the reads don't run again."""
    bench = Bench().starts().replies("", "look", "look", "write").verdicts("allow", "allow", "ask")
    assert bench.status == ["running", "running", "asked"]
    bench.finishes("t1.c2").finishes("t1.c1")
    assert bench.run.state == "SUSPENDED"

    bench.does(ApprovalDecided, call_id="t1.c3", approved=True)

    assert bench.keys == ["t1.policy.a3"]
    bench.verdicts("allow").begins("t1.c3").finishes("t1.c3")
    assert [call for call, _ in bench.results] == ["t1.c1", "t1.c2", "t1.c3"]


def test_an_approval_is_taken_while_other_calls_still_run() -> None:
    bench = Bench().starts().replies("", "look", "write").verdicts("allow", "ask")

    bench.does(ApprovalDecided, call_id="t1.c2", approved=True)

    assert bench.run.state == "EXECUTE_TOOL"
    assert bench.keys == ["t1.policy.a2", "t1.c1.a1"]


def test_an_effect_that_finished_before_a_pause_does_not_run_again_after_it() -> None:
    """AP-12: resumed three times with restarts."""
    bench = Bench().starts().replies("", "write", "put").verdicts("allow", "ask").begins("t1.c1").finishes("t1.c1")

    for _ in range(3):
        restarted(bench).does(PauseRequested)
        restarted(bench).does(RunResumed)

    assert bench.status == ["done", "asked"]
    assert bench.keys == ["t1.c2.ask"]


@pytest.mark.parametrize("how", ["approved", "rejected", "edited", "expired", "answered"])
def test_every_end_of_an_approval_wakes_the_run(how: str) -> None:
    """AP-14: also after a restart."""
    bench = Bench(on_denied="tell").starts().replies("", "write").verdicts("ask")
    restarted(bench)
    match how:
        case "approved":
            bench.does(ApprovalDecided, call_id="t1.c1", approved=True)
        case "rejected":
            bench.does(ApprovalDecided, call_id="t1.c1", approved=False, reason="no")
        case "edited":
            bench.does(ApprovalDecided, call_id="t1.c1", approved=True, arguments='{"n":2}')
        case "expired":
            bench.does(ApprovalExpired, call_id="t1.c1", time=bench.call("t1.c1").expires_at)
        case _:
            bench.does(CallAnswered, call_id="t1.c1", text="I did it", by="ops")

    assert bench.run.state in ("WAIT_APPROVAL", "MODEL_THINKING")
    assert bench.holds == []


@pytest.mark.parametrize(("on_denied", "code"), [("fail", "approval_expired"), ("tell", "")])
def test_an_approval_expires_at_its_time_and_not_before(on_denied: str, code: str) -> None:
    bench = Bench(on_denied=on_denied).starts().replies("", "write").verdicts("ask")
    expires = bench.call("t1.c1").expires_at or 0.0

    assert "has not expired" in bench.refuses(ApprovalExpired, call_id="t1.c1", time=expires - 1)
    bench.does(ApprovalExpired, call_id="t1.c1", time=expires)

    assert bench.code == code


@pytest.mark.parametrize(("verdict", "status"), [("allow", "running"), ("ask", "running"), ("deny", "done")])
def test_an_approved_call_is_checked_against_the_policy_in_force(verdict: str, status: str) -> None:
    """P6: Deny wins, Ask is satisfied by the approval."""
    bench = Bench(on_denied="tell").starts().replies("", "write", "look").verdicts("ask", "allow")
    bench.does(ApprovalDecided, call_id="t1.c1", approved=True)

    bench.verdicts(verdict, "allow")

    assert bench.status[0] == status
    newest = [d.decision for d in bench.run.permission_decisions if d.call_id == "t1.c1"]
    assert newest == ["ask", "approved", "deny" if verdict == "deny" else "allow"]


def test_what_was_allowed_before_a_pause_is_asked_about_again_after_it() -> None:
    """P6: when the run goes on, the policy in force at that moment is asked again."""
    bench = Bench(on_denied="tell").starts().replies("", "put", "write").verdicts("allow", "allow").does(PauseRequested)
    assert bench.run.state == "SUSPENDED"

    bench.does(RunResumed)

    assert bench.status == ["proposed", "proposed"]
    bench.verdicts("deny", "allow")
    assert bench.status == ["done", "running"]
    assert bench.run.tool_calls == 2


def test_verdicts_from_before_a_pause_are_refused_after_it() -> None:
    bench = Bench().starts().replies("", "write").does(PauseRequested).does(RunResumed)

    reason = bench.refuses(PermissionsEvaluated, verdicts=(Verdict(call_id="t1.c1", verdict="allow"),), evaluation=1)

    assert reason == "evaluation 1 is not awaited"


def test_verdicts_that_no_call_waits_for_are_refused() -> None:
    bench = Bench().starts().replies("", "look").verdicts("allow")

    assert "no call waits" in bench.refuses(PermissionsEvaluated, verdicts=(Verdict(call_id="t1.c1", verdict="deny"),))


@pytest.mark.parametrize("first", ["deny", "allow"])
def test_two_denials_in_one_evaluation_end_the_run_once(first: Any) -> None:
    bench = Bench().starts().replies("", "write", "put", "look").verdicts(first, "deny", "deny")

    assert bench.run.state == "FAILED"
    assert bench.path == ("FAILED",)
    assert bench.code == "tool_denied"


def test_edited_arguments_are_bound_to_their_own_digest() -> None:
    bench = Bench().starts().replies("", 'write:{"n":1}').verdicts("ask")
    seen = bench.call("t1.c1").arguments_digest

    assert "other arguments" in bench.refuses(
        ApprovalDecided, call_id="t1.c1", approved=True, arguments_digest="something else"
    )
    assert "cannot be used" in bench.refuses(ApprovalDecided, call_id="t1.c1", approved=True, arguments="{")
    bench.does(ApprovalDecided, call_id="t1.c1", approved=True, arguments='{"n":2}', arguments_digest=seen)

    assert bench.call("t1.c1").arguments == '{"n":2}'
    assert bench.run.permission_decisions[-1].arguments_digest == bench.call("t1.c1").arguments_digest != seen


def test_a_remembered_approval_stands_for_the_same_tool_and_arguments_only() -> None:
    bench = Bench().starts().replies("", 'put:{"n":1}').verdicts("ask")
    bench.does(ApprovalDecided, call_id="t1.c1", approved=True, remember="run", by="ops").verdicts("allow")
    bench.begins("t1.c1").finishes("t1.c1")

    bench.replies("", 'put:{"n":1}', 'put:{"n":2}').verdicts("ask", "ask")

    assert bench.status == ["running", "asked"]
    assert (bench.run.permission_decisions[-2].decision, bench.run.permission_decisions[-2].by) == ("allow", "ops")


def test_a_tool_that_is_no_longer_read_only_becomes_a_barrier() -> None:
    bench = Bench().starts().replies("", "look", "look").verdicts("allow", "allow", withdrawn=("read_only",))

    assert bench.status == ["running", "allowed"]
    assert "not journalled as started" in bench.refuses(
        ToolFinished, call_id="t1.c1", attempt=1, status=ResultStatus.OK, text=""
    )


def test_arguments_that_the_tool_cannot_take_are_an_error_and_nobody_is_asked() -> None:
    bench = Bench().starts().replies("", "write").verdicts("invalid", reason="n is missing")

    assert bench.results == [("t1.c1", "error")]
    assert bench.run.tool_failures == 1
    assert bench.run.messages[-1].text == "[error] n is missing"


# -- replies that cannot be used


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("look:{", "not JSON"),
        ("look:null", "must be a JSON object"),
        ("look:[]", "must be a JSON object"),
        ('look:"x"', "must be a JSON object"),
        ("look:" + "[" * 100_000, "not JSON"),
        ("Look", "there is no tool 'Look'"),
        ("", "there is no tool ''"),
        ("x" * 5_000, "there is no tool"),
    ],
)
def test_a_call_that_cannot_be_made_is_an_error_that_the_model_sees(call: str, problem: str) -> None:
    """IN-1: size-capped, counted, and the run lives."""
    bench = Bench().starts().replies("", call)

    assert bench.run.state == "MODEL_THINKING"
    assert problem in bench.run.messages[-1].text
    assert len(bench.run.messages[-1].text) < 2_000
    assert bench.run.tool_failures == 1


def test_arguments_that_were_too_large_to_keep_are_an_error() -> None:
    """IN-1."""
    calls = (RequestedCall(tool="look", arguments="", oversized=5_000_000),)
    bench = Bench().starts().does(ModelReplied, turn=1, attempt=1, calls=calls)

    assert "too large (5000000 bytes)" in bench.run.messages[-1].text


def test_empty_arguments_are_an_empty_object() -> None:
    assert Bench().starts().replies("", "look:").status == ["proposed"]


def test_calls_beyond_the_limit_of_a_reply_are_refused_and_are_no_failures() -> None:
    bench = Bench(limits=StepLimits(calls_per_reply=2)).starts().replies("", *["look"] * 4)

    assert bench.status == ["proposed", "proposed", "done", "done"]
    assert bench.run.tool_failures == 0


def test_calls_beyond_what_may_be_open_at_a_time_are_refused() -> None:
    bench = Bench(limits=StepLimits(open_calls=2), consult="each_result").starts().replies("", "look", "look")
    bench.verdicts("allow", "allow").finishes("t1.c1").replies("", "look")

    assert bench.status == ["done", "running", "done"]


# -- results


@pytest.mark.parametrize("order", list(permutations(range(1, 5))))
def test_results_enter_in_call_order_whatever_order_they_came_in(order: tuple[int, ...]) -> None:
    """JR-1, P4: the merged messages are identical."""
    bench = Bench().starts().replies("let me see", *["look"] * 4).verdicts(*["allow"] * 4)
    for position in order[:-1]:
        bench.finishes(f"t1.c{position}", f"result {position}")
        if position == 2:
            restarted(bench)
    bench.finishes(f"t1.c{order[-1]}", f"result {order[-1]}")

    assert [m.text for m in bench.run.messages[2:]] == ["let me see", "result 1", "result 2", "result 3", "result 4"]


@pytest.mark.parametrize("failing", [1, 3, 5])
def test_one_failing_read_leaves_its_siblings_results_alone(failing: int) -> None:
    """PT-1: five results in call order, four real and one error; nothing runs again."""
    bench = Bench().starts().replies("", *["look"] * 5).verdicts(*["allow"] * 5)
    for position in (3, 1, 5, 2, 4):
        status = ResultStatus.ERROR if position == failing else ResultStatus.OK
        bench.finishes(f"t1.c{position}", status=status)

    assert [status for _, status in bench.results] == ["error" if n == failing else "ok" for n in range(1, 6)]
    assert bench.keys == ["t2.model.a1"]


def test_an_empty_result_says_that_it_is_empty() -> None:
    bench = Bench().starts().replies("", "look").verdicts("allow").finishes("t1.c1", "")

    assert bench.run.messages[-1].text == "(no output)"


def test_a_result_longer_than_the_context_takes_is_trimmed_and_its_size_kept() -> None:
    bench = Bench().starts().replies("", "look").does(CallAnswered, call_id="t1.c1", text="x" * 100_000)

    assert len(bench.run.messages[-1].text) == bench.spec.context.result_bytes
    assert "shortened" in bench.run.messages[-1].text


def test_a_result_given_twice_is_refused_as_known() -> None:
    bench = Bench().starts().replies("", "look", "look").verdicts("allow", "allow").finishes("t1.c1")

    result = bench.offer(ToolFinished, call_id="t1.c1", attempt=1, status=ResultStatus.OK, text="again")

    assert result.duplicate  # type: ignore[union-attr]
    assert "not open" in bench.refuses(ToolFinished, call_id="t0.c1", attempt=1, status=ResultStatus.OK, text="")
    assert "is not awaited" in bench.refuses(ToolFinished, call_id="t1.c2", attempt=7, status=ResultStatus.OK, text="")


def test_a_sub_agents_end_is_the_only_result_of_its_call() -> None:
    bench = Bench(sub_agents=(SubAgentSpec(name="helper"),)).starts().replies("", "helper", "look")
    bench.verdicts("allow", "allow")

    assert "sub-agent" in bench.refuses(ToolFinished, call_id="t1.c1", attempt=1, status=ResultStatus.OK, text="")
    assert "no sub-agent's" in bench.refuses(SubAgentEnded, call_id="t1.c2", run_id="r-2", state="FINISHED")


@pytest.mark.parametrize(("state", "status"), [("FINISHED", "ok"), ("FAILED", "error"), ("CANCELLED", "cancelled")])
def test_a_sub_agents_end_is_an_observation(state: Any, status: str) -> None:
    bench = Bench(sub_agents=(SubAgentSpec(name="helper"),)).starts().replies("", "helper").verdicts("allow")

    bench.does(SubAgentEnded, call_id="t1.c1", run_id="r-2", state=RunState(state), text="x")

    assert bench.results == [("t1.c1", status)]


# -- writes


def test_a_write_runs_alone_and_reads_before_it_together() -> None:
    bench = Bench().starts().replies("", "look", "look", "write", "look").verdicts(*["allow"] * 4)
    assert bench.status == ["running", "running", "allowed", "allowed"]
    bench.finishes("t1.c1").finishes("t1.c2")
    assert bench.status == ["done", "done", "running", "allowed"]
    bench.begins("t1.c3").finishes("t1.c3")
    assert bench.status == ["done", "done", "done", "running"]


def test_a_result_of_a_write_that_was_not_journalled_as_started_is_refused() -> None:
    bench = Bench().starts().replies("", "write").verdicts("allow")

    assert "not journalled" in bench.refuses(ToolFinished, call_id="t1.c1", attempt=1, status=ResultStatus.OK, text="")
    assert bench.finishes("t1.c1", "no such tool", ResultStatus.ERROR).results == [("t1.c1", "error")]


@pytest.mark.parametrize(("tool", "attempt"), [("look", 1), ("write", 2)])
def test_only_the_awaited_attempt_of_a_write_may_start(tool: str, attempt: int) -> None:
    bench = Bench().starts().replies("", tool).verdicts("allow")

    assert "is not awaited as a write" in bench.refuses(ToolStarted, call_id="t1.c1", attempt=attempt)


def test_a_write_that_started_does_not_start_again() -> None:
    assert writing().refuses(ToolStarted, call_id="t1.c1", attempt=1) == "call 't1.c1' is started"


LOSSES: dict[str, Any] = {
    "in doubt": lambda bench: bench.does(WriteInDoubt, call_id="t1.c1", attempt=1, reason="worker lost"),
    "timed out": lambda bench: bench.finishes("t1.c1", "too slow", ResultStatus.TIMED_OUT),
    "cancelled": lambda bench: bench.finishes("t1.c1", "cut off", ResultStatus.CANCELLED),
    "crashed": restarted,
}


@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize(("tool", "after"), [("write", "in_doubt"), ("put", "again"), ("post", "verifying")])
def test_a_started_write_whose_result_was_not_seen_is_in_doubt(how: str, tool: str, after: str) -> None:
    """P5: the same key if idempotent, else `verify`, else a person; only an exception of the tool is a failure."""
    bench = LOSSES[how](writing(tool))
    if tool == "put" and how == "crashed":
        bench.verdicts("allow")

    assert bench.status == [{"again": "running"}.get(after, after)]
    assert bench.keys == {"in_doubt": [], "again": ["t1.c1.a2"], "verifying": ["t1.c1.verify.a1"]}[after]
    assert bench.run.tool_failures == 0


def test_an_exception_of_the_tool_itself_is_a_failure() -> None:
    assert writing().finishes("t1.c1", "disk full", ResultStatus.ERROR).results == [("t1.c1", "error")]


def test_a_write_is_tried_only_so_often_under_its_key() -> None:
    bench = writing("put", limits=StepLimits(write_attempts=2))
    bench.does(WriteInDoubt, call_id="t1.c1", attempt=1, reason="lost").begins("t1.c1")

    bench.does(WriteInDoubt, call_id="t1.c1", attempt=2, reason="lost again")

    assert bench.holds == ["in_doubt(t1.c1)"]


@pytest.mark.parametrize(("verdict", "status"), [("done", "ok"), ("not_done", ""), ("", "in_doubt")])
def test_verify_says_done_or_not_done_or_leaves_the_doubt(verdict: Any, status: str) -> None:
    bench = writing("post").does(WriteInDoubt, call_id="t1.c1", attempt=1, reason="lost")

    bench.finishes("t1.c1", "as verified", verdict=verdict)

    match verdict:
        case "done":
            assert bench.results == [("t1.c1", "ok")]
        case "not_done":
            assert bench.keys == ["t1.c1.a2"]
        case _:
            assert bench.holds == ["in_doubt(t1.c1)"]


def test_a_write_that_verify_finds_not_done_is_tried_only_so_often() -> None:
    bench = writing("post", limits=StepLimits(write_attempts=2))
    for attempt in (1, 2):
        bench.does(WriteInDoubt, call_id="t1.c1", attempt=attempt, reason="too slow")
        bench.finishes("t1.c1", verdict="not_done")
        if attempt == 1:
            bench.begins("t1.c1")

    assert bench.results == [("t1.c1", "error")]
    assert "not done in 2 attempts" in bench.run.messages[-1].text


def test_a_doubt_about_another_attempt_is_refused() -> None:
    assert "attempt 4" in writing().refuses(WriteInDoubt, call_id="t1.c1", attempt=4, reason="lost")


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"done": True}, "ok"),
        ({"done": True, "text": "seen it"}, "ok"),
        ({"done": False, "not_done": "skip"}, "not_started"),
        ({"done": False, "not_done": "run"}, None),
    ],
)
def test_a_person_settles_a_doubt(answer: dict[str, Any], result: str | None) -> None:
    bench = writing().does(WriteInDoubt, call_id="t1.c1", attempt=1, reason="lost")

    assert bench.refuses(CallSettled, call_id="t1.c1", done=False) == "say done, or not_done with run or skip"
    bench.does(CallSettled, call_id="t1.c1", by="ops", **answer)

    if result is not None:
        assert bench.results == [("t1.c1", result)]
        return
    assert bench.run.permission_decisions[-1].by == "ops"
    assert bench.verdicts("ask").keys == ["t1.c1.a2"]


def lost_and_held() -> Bench:
    """Return a run whose idempotent write may be done, and waits for the policy before it runs again."""
    return restarted(writing("put", on_denied="tell"))


@pytest.mark.parametrize("verdict", ["deny", "invalid"])
def test_a_write_that_may_be_done_is_never_called_denied_or_failed(verdict: str) -> None:
    bench = lost_and_held().verdicts(verdict)

    assert bench.holds == ["in_doubt(t1.c1)"]


def test_a_write_that_may_be_done_is_not_run_again_once_its_tool_is_no_longer_idempotent() -> None:
    bench = lost_and_held().verdicts("allow", withdrawn=("idempotent",))

    assert bench.holds == ["in_doubt(t1.c1)"]


def test_a_write_that_may_be_done_stays_in_doubt_when_its_next_attempt_cannot_start() -> None:
    bench = lost_and_held().verdicts("allow").finishes("t1.c1", "no such tool", ResultStatus.ERROR)

    assert bench.holds == ["in_doubt(t1.c1)"]


def test_a_write_that_may_be_done_is_in_doubt_when_a_person_denies_it_and_the_run_ends() -> None:
    bench = restarted(writing("put")).verdicts("ask").does(ApprovalDecided, call_id="t1.c1", approved=False)

    assert bench.code == "approval_denied"
    assert bench.results == [("t1.c1", "in_doubt")]


# -- answers by people


@pytest.mark.parametrize("status", ["proposed", "asked", "allowed", "running", "in_doubt"])
def test_a_person_may_answer_a_call_in_the_tools_place(status: str) -> None:
    bench = Bench().starts().replies("", "look", "write")
    match status:
        case "asked":
            bench.verdicts("allow", "ask")
        case "allowed" | "running":
            bench.verdicts("allow", "allow")
        case "in_doubt":
            bench.verdicts("allow", "allow").finishes("t1.c1").begins("t1.c2")
            bench.does(WriteInDoubt, call_id="t1.c2", attempt=1, reason="lost")
    call_id = "t1.c1" if status == "running" else "t1.c2"
    assert bench.call(call_id).status == status

    bench.does(CallAnswered, call_id=call_id, text="mine", by="ops")

    assert (call_id, "ok") in bench.results or bench.call(call_id).result.by == "ops"  # type: ignore[union-attr]
    assert bench.holds == []


def test_a_person_may_not_answer_a_write_whose_outcome_is_awaited() -> None:
    bench = writing()

    assert "its outcome is awaited" in bench.refuses(CallAnswered, call_id="t1.c1", text="done")
    assert "is not open" in bench.refuses(CallAnswered, call_id="t7.c1", text="done")
    bench = Bench().starts().replies("", "look", "look").does(CallAnswered, call_id="t1.c1", text="done")
    assert "already has its result" in bench.refuses(CallAnswered, call_id="t1.c1", text="done")


def test_an_external_write_is_answered_from_outside_also_once_it_is_journalled_as_started() -> None:
    assert writing("ship").does(CallAnswered, call_id="t1.c1", text="sent").results == [("t1.c1", "ok")]


def test_an_agents_question_suspends_the_run_until_somebody_answers() -> None:
    bench = Bench().starts().replies("", "ask", "look").verdicts("allow").finishes("t1.c2")
    assert bench.holds == ["input(t1.c1)"]
    assert bench.run.state == "SUSPENDED"

    bench.does(InputReceived, text="blue", by="ops")

    assert bench.run.messages[-2].text == "blue"
    assert bench.results == [("t1.c1", "ok"), ("t1.c2", "ok")]


def test_every_open_call_of_a_cancelled_run_has_the_result_that_is_true_of_it() -> None:
    tools = (ToolSpec(name="look", read_only=True), ToolSpec(name="put", idempotent=True))
    bench = Bench(tools=tools).starts().replies("", "look", "put", "look").verdicts("allow", "allow", "allow")
    bench.does(CancelRequested)
    bench.does(GraceElapsed, time=bench.now + 60)

    assert bench.results == [("t1.c1", "cancelled"), ("t1.c2", "not_started"), ("t1.c3", "not_started")]
    started = writing("put").does(CancelRequested)
    assert started.keys == ["t1.c1.a1"]
    assert started.does(GraceElapsed, time=started.now + 60).results == [("t1.c1", "in_doubt")]
    waiting = restarted(writing("put")).does(CancelRequested)
    assert waiting.results == [("t1.c1", "in_doubt")]


def test_a_run_that_was_never_moved_has_no_call() -> None:
    assert Run(id="r-1").call("t1.c1") is None
