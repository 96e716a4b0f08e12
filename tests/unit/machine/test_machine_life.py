"""The life of a run: pause, cancel, recovery and quarantine in each state; handoffs; a person's turn; holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from machine_bench import TOOLS, Bench, writing

from geartrain.machine import (
    EXTERNAL,
    ActorRestarted,
    AgentSpec,
    ApprovalDecided,
    Budget,
    BudgetRaised,
    CallSettled,
    CancelRequested,
    CompactionFailed,
    ContextCompacted,
    ContextFailed,
    ContextPrepared,
    ContextRules,
    DeadlinePassed,
    GraceElapsed,
    HandedOff,
    HandoffFailed,
    InputReceived,
    Message,
    ModelFailed,
    ModelReplied,
    PauseRequested,
    RequestedCall,
    ResultStatus,
    Run,
    RunQuarantined,
    RunRecovered,
    RunResumed,
    RunStarted,
    RunState,
    StepLimits,
    SubAgentEnded,
    SubAgentSpec,
    ToolFinished,
    ToolStarted,
    TurnTaken,
    Usage,
    WriteInDoubt,
    spec_digest,
)

HELPER = (SubAgentSpec(name="helper"),)


def preparing() -> Bench:
    return Bench(providers=("memory",)).starts()


def thinking(**spec: Any) -> Bench:
    return Bench(**spec).starts()


def deciding() -> Bench:
    return Bench().starts().replies("", "look", "write")


def reading() -> Bench:
    return Bench().starts().replies("", "look", "look").verdicts("allow", "allow")


def delegating() -> Bench:
    return Bench(sub_agents=HELPER).starts().replies("", "helper").verdicts("allow")


def asking() -> Bench:
    return Bench(on_denied="tell").starts().replies("", "write").verdicts("ask")


def compacting() -> Bench:
    rules = ContextRules(summarise=True, summarise_turns=1)
    bench = Bench(context=rules).starts()
    for turn in (1, 2, 3):
        bench.replies("x" * 500, "look").verdicts("allow").finishes(f"t{turn}.c1", "y" * 500)
        if bench.run.state == "COMPACT_OR_SAVE":
            return bench
    raise AssertionError(bench.run)


def consulting() -> Bench:
    """Return a run whose model is consulted while a sub-agent and a read are at work."""
    bench = Bench(sub_agents=HELPER, consult="each_result").starts().replies("", "helper", "look", "look")
    bench.verdicts("allow", "allow", "allow").finishes("t1.c2")
    assert bench.run.state == "MODEL_THINKING"
    return bench


EVERYWHERE: dict[str, Callable[[], Bench]] = {
    "PREPARE_CONTEXT": preparing,
    "MODEL_THINKING": thinking,
    "MODEL_THINKING with calls": consulting,
    "WAIT_APPROVAL": deciding,
    "EXECUTE_TOOL reading": reading,
    "EXECUTE_TOOL writing": writing,
    "EXECUTE_TOOL delegating": delegating,
    "SUSPENDED": asking,
    "COMPACT_OR_SAVE": compacting,
}


def recover(bench: Bench) -> Bench:
    return bench.does(RunRecovered, attempt=bench.run.recoveries + 1)


# -- pause


@pytest.mark.parametrize(
    ("where", "state"),
    [
        ("PREPARE_CONTEXT", "PREPARE_CONTEXT"),
        ("MODEL_THINKING", "MODEL_THINKING"),
        ("MODEL_THINKING with calls", "MODEL_THINKING"),
        ("WAIT_APPROVAL", "SUSPENDED"),
        ("EXECUTE_TOOL reading", "EXECUTE_TOOL"),
        ("EXECUTE_TOOL writing", "EXECUTE_TOOL"),
        ("EXECUTE_TOOL delegating", "EXECUTE_TOOL"),
        ("SUSPENDED", "SUSPENDED"),
        ("COMPACT_OR_SAVE", "COMPACT_OR_SAVE"),
    ],
)
def test_a_pause_lets_what_runs_finish_and_starts_nothing_new(where: str, state: str) -> None:
    bench = EVERYWHERE[where]()
    before = set(bench.keys)

    bench.does(PauseRequested, reason="lunch")

    assert bench.run.state == state
    assert set(bench.keys) <= before
    assert "paused" in bench.refuses(PauseRequested)


@pytest.mark.parametrize("where", EVERYWHERE)
def test_a_run_that_is_paused_and_resumed_comes_to_its_answer(where: str) -> None:
    bench = EVERYWHERE[where]().does(PauseRequested)

    bench.does(RunResumed)

    assert "paused" not in bench.holds
    assert finished(bench).run.state == "FINISHED"


def finished(bench: Bench) -> Bench:
    """Do whatever is outstanding until the run ends."""
    for _ in range(40):
        run = bench.run
        if run.state == "FINISHED":
            return bench
        for hold in run.holds:
            if hold.kind == "approval":
                bench.does(ApprovalDecided, call_id=hold.call_id, approved=True)
            elif hold.kind == "in_doubt":
                bench.does(CallSettled, call_id=hold.call_id, done=True)
        match str(bench.run.state):
            case "PREPARE_CONTEXT":
                bench.does(ContextPrepared)
            case "MODEL_THINKING":
                bench.replies("the answer")
            case "COMPACT_OR_SAVE":
                bench.does(CompactionFailed, message="no")
            case "WAIT_APPROVAL":
                waiting = [c for c in bench.run.calls if c.status in ("proposed", "approved")]
                bench.verdicts(*["allow"] * len(waiting))
            case "EXECUTE_TOOL":
                _finish_one(bench)
    raise AssertionError(bench.run)


def _finish_one(bench: Bench) -> None:
    call = next(c for c in bench.run.calls if c.status in ("running", "started", "verifying"))
    if call.sub_agent:
        bench.does(SubAgentEnded, call_id=call.id, run_id="r-2", state=RunState.FINISHED)
    elif call.status == "running" and call.barrier:
        bench.begins(call.id)
    else:
        bench.finishes(call.id)


def test_a_write_that_was_to_start_waits_when_the_run_is_paused() -> None:
    bench = Bench().starts().replies("", "write").verdicts("allow").does(PauseRequested)

    assert bench.status == ["allowed"]
    assert bench.refuses(ToolStarted, call_id="t1.c1", attempt=1) == "call 't1.c1' is allowed"


def test_resuming_a_run_that_is_not_paused_is_refused() -> None:
    assert thinking().refuses(RunResumed) == "it is not paused"


# -- cancel, deadline, grace


@pytest.mark.parametrize("where", EVERYWHERE)
def test_a_cancelled_run_ends_at_once_or_within_its_grace(where: str) -> None:
    """P9: takes effect within a bounded grace whatever a tool does, and leaves one recorded cause."""
    bench = EVERYWHERE[where]().does(CancelRequested, reason="enough", by="ops")

    if bench.run.state != "CANCELLED":
        assert bench.run.state == "EXECUTE_TOOL"
        assert "grace is not over" in bench.refuses(GraceElapsed)
        bench.does(GraceElapsed, time=bench.run.ending.grace_until)  # type: ignore[union-attr]

    assert bench.run.state == "CANCELLED"
    assert (bench.code, bench.run.ending.by) == ("cancelled_by_user", "ops")  # type: ignore[union-attr]
    assert bench.run.calls == ()
    assert bench.run.holds == ()


def test_results_that_come_within_grace_are_kept() -> None:
    """CN-7: finished siblings are kept, and the reason says which limit and where."""
    bench = Bench().starts(deadline=1_060.0).replies("", "look", "look").verdicts("allow", "allow")
    bench.finishes("t1.c1").does(DeadlinePassed, time=1_060.0).finishes("t1.c2", status=ResultStatus.CANCELLED)

    assert bench.results == [("t1.c1", "ok"), ("t1.c2", "cancelled")]
    assert bench.code == "deadline_exceeded"
    assert "in EXECUTE_TOOL" in bench.run.error.message  # type: ignore[union-attr]


def test_a_deadline_is_refused_before_its_time_or_without_one() -> None:
    assert thinking().refuses(DeadlinePassed) == "it has no deadline"
    bench = Bench().starts(deadline=9_999.0)
    assert bench.refuses(DeadlinePassed) == "its deadline has not passed"
    assert bench.refuses(GraceElapsed) == "it is not ending"


@pytest.mark.parametrize("second", [CancelRequested, DeadlinePassed])
def test_the_first_cause_of_an_end_wins(second: Any) -> None:
    bench = Bench().starts(deadline=1_004.5).replies("", "look").verdicts("allow").does(CancelRequested)

    result = bench.offer(second)

    assert result.duplicate  # type: ignore[union-attr]
    assert bench.run.ending.error.code == "cancelled_by_user"  # type: ignore[union-attr]


def test_an_answer_given_while_others_are_at_work_waits_for_them_and_nothing_starts() -> None:
    """An ending run rests in EXECUTE_TOOL, never in DECIDE_ACTION, which takes no event."""
    bench = consulting().replies("the answer")
    assert bench.run.state == "EXECUTE_TOOL"

    bench.does(SubAgentEnded, call_id="t1.c1", run_id="r-2", state=RunState.CANCELLED).finishes("t1.c3")

    assert bench.run.state == "FINISHED"
    assert bench.run.messages[-1].text == "the answer"
    assert bench.results == [("t1.c1", "cancelled"), ("t1.c2", "ok"), ("t1.c3", "ok")]


def test_a_write_in_doubt_within_the_grace_is_recorded_as_that() -> None:
    bench = writing("put").does(CancelRequested).does(WriteInDoubt, call_id="t1.c1", attempt=1, reason="killed")

    assert bench.results == [("t1.c1", "in_doubt")]


def test_a_verify_within_the_grace_that_finds_nothing_done_says_so() -> None:
    bench = writing("post").does(WriteInDoubt, call_id="t1.c1", attempt=1, reason="lost").does(CancelRequested)
    assert bench.keys == ["t1.c1.verify.a1"]

    assert bench.finishes("t1.c1", verdict="not_done").results == [("t1.c1", "not_started")]


# -- recovery


@pytest.mark.parametrize(
    ("where", "state", "keys"),
    [
        ("PREPARE_CONTEXT", "PREPARE_CONTEXT", ["t0.context.a2"]),
        ("MODEL_THINKING", "MODEL_THINKING", ["t1.model.a2"]),
        ("MODEL_THINKING with calls", "MODEL_THINKING", ["t2.model.a2", "t1.c1", "t1.c3.a2"]),
        ("WAIT_APPROVAL", "WAIT_APPROVAL", ["t1.policy.a2"]),
        ("EXECUTE_TOOL reading", "EXECUTE_TOOL", ["t1.c1.a2", "t1.c2.a2"]),
        ("EXECUTE_TOOL writing", "SUSPENDED", []),
        ("EXECUTE_TOOL delegating", "EXECUTE_TOOL", ["t1.c1"]),
        ("SUSPENDED", "SUSPENDED", ["t1.c1.ask"]),
        ("COMPACT_OR_SAVE", "COMPACT_OR_SAVE", ["t3.compact.a2"]),
    ],
)
def test_a_recovered_run_wants_again_what_was_lost(where: str, state: str, keys: list[str]) -> None:
    bench = EVERYWHERE[where]()
    active, tokens = bench.run.active_seconds, bench.run.token_count.total_tokens

    bench.does(RunRecovered, attempt=1, time=bench.now + 86_400)

    assert (bench.run.state, bench.keys) == (state, keys)
    assert bench.run.active_seconds == active
    lost_a_model_call = state in ("MODEL_THINKING", "COMPACT_OR_SAVE")
    assert (bench.run.token_count.total_tokens > tokens) is lost_a_model_call
    assert (bench.run.state == "SUSPENDED") or bench.run.entered_at >= bench.now


@pytest.mark.parametrize("where", EVERYWHERE)
def test_a_recovered_run_comes_to_its_answer(where: str) -> None:
    assert finished(recover(recover(EVERYWHERE[where]()))).run.state == "FINISHED"


@pytest.mark.parametrize("where", [name for name in EVERYWHERE if "delegating" not in name])
def test_a_paused_run_that_is_recovered_starts_nothing_and_is_suspended(where: str) -> None:
    bench = recover(EVERYWHERE[where]().does(PauseRequested))

    at_work = "with calls" in where  # the sub-agent goes on elsewhere
    assert bench.run.state == ("EXECUTE_TOOL" if at_work else "SUSPENDED")
    assert [key for key in bench.keys if not key.endswith(".ask")] == (["t1.c1"] if at_work else [])
    assert finished(bench.does(RunResumed)).run.state == "FINISHED"


def test_a_suspended_run_that_is_recovered_stays_suspended_though_one_of_its_calls_is_decided() -> None:
    bench = Bench(on_denied="tell").starts().replies("", "write", "put").verdicts("ask", "ask")
    bench.does(ApprovalDecided, call_id="t1.c1", approved=True)

    assert recover(bench).run.state == "SUSPENDED"


def test_a_recovery_that_was_counted_already_is_refused() -> None:
    bench = recover(thinking())

    assert bench.offer(RunRecovered, attempt=1).duplicate  # type: ignore[union-attr]
    assert not bench.offer(RunRecovered, attempt=5).duplicate  # type: ignore[union-attr]


def test_a_write_that_had_not_started_is_checked_again_after_a_recovery() -> None:
    bench = recover(Bench().starts().replies("", "write").verdicts("allow"))

    assert bench.status == ["proposed"]


def test_what_goes_on_elsewhere_is_not_lost() -> None:
    bench = Bench(sub_agents=HELPER).starts().replies("", "helper", "fetch", "look").verdicts("allow", "allow", "allow")

    assert recover(bench).keys == ["t1.c1", "t1.c2.a1", "t1.c3.a2"]
    assert recover(writing("ship")).keys == ["t1.c1.a1"]


def test_an_external_model_is_still_thinking_after_a_recovery_and_costs_nothing() -> None:
    bench = recover(thinking(model=EXTERNAL))

    assert bench.keys == ["t1.model.a1"]
    assert bench.run.token_count.total_tokens == 0
    assert recover(bench.does(PauseRequested)).run.state == "SUSPENDED"


def test_a_recovery_that_uses_up_the_tokens_ends_the_run_or_holds_it() -> None:
    few = Budget(max_tokens=5)
    assert recover(thinking(budget=few)).code == "token_budget_exceeded"
    held = recover(thinking(budget=few, on_budget="suspend"))
    assert (held.run.state, held.holds) == ("SUSPENDED", ["budget"])
    wrapping = recover(thinking(budget=few, on_budget="wrap_up"))
    assert wrapping.run.wrap_up_turn == 1


def test_a_recovery_while_ending_ends_the_run_with_what_is_true_of_each_call() -> None:
    bench = recover(reading().does(CancelRequested))
    assert bench.results == [("t1.c1", "cancelled"), ("t1.c2", "cancelled")]
    assert recover(writing().does(CancelRequested)).results == [("t1.c1", "in_doubt")]
    verifying = writing("post").does(WriteInDoubt, call_id="t1.c1", attempt=1, reason="lost").does(CancelRequested)
    assert recover(verifying).keys == ["t1.c1.verify.a2"]
    assert recover(delegating().does(CancelRequested)).run.state == "EXECUTE_TOOL"


def test_a_restarted_actor_loses_nothing_and_its_back_off_counts_no_time() -> None:
    bench = reading()
    keys, active = bench.keys, bench.run.active_seconds

    bench.does(ActorRestarted, reason="bug", restarts=1, resume_at=bench.now + 10)

    assert (bench.keys, bench.run.active_seconds) == (keys, active)
    assert (bench.run.restarts, bench.run.resume_at) == (1, bench.now + 9)


# -- quarantine


@pytest.mark.parametrize("where", EVERYWHERE)
def test_a_quarantined_run_is_set_apart_until_a_person_resumes_it(where: str) -> None:
    bench = EVERYWHERE[where]().does(RunQuarantined, reason="poison", code="agent_gone")

    at_work = "with calls" in where or "delegating" in where
    assert bench.run.state == ("EXECUTE_TOOL" if at_work else "SUSPENDED")
    assert "quarantined" in bench.holds
    assert "already" in bench.refuses(RunQuarantined, reason="again")
    assert finished(bench.does(RunResumed)).run.state == "FINISHED"


def test_a_run_that_is_ending_and_cannot_be_handled_ends() -> None:
    bench = reading().does(CancelRequested).does(RunQuarantined, reason="poison")

    assert bench.run.state == "CANCELLED"


# -- the context


def test_a_context_that_cannot_be_had_ends_the_run() -> None:
    assert preparing().does(ContextFailed, provider="memory", message="is down").code == "context_failed"


def test_what_providers_give_stands_before_the_input_and_after_the_history() -> None:
    history = (Message(role="user", text="before"), Message(role="assistant", text="then"))
    bench = Bench(providers=("memory",)).starts(history=history)
    bench.does(ContextPrepared, messages=(Message(role="user", text="fact", note=True),))

    assert [m.text for m in bench.run.messages] == ["Be good.", "before", "then", "fact", "go"]
    assert [m.text for m in Bench().starts(history=history).run.messages] == ["Be good.", "before", "then", "go"]


@pytest.mark.parametrize("halves", [True, False])
def test_a_context_too_long_for_the_model_is_halved_once(halves: bool) -> None:
    rules = ContextRules(messages=200)
    bench = Bench(context=rules).starts()
    for turn in range(1, 6 if halves else 1):
        bench.replies("", "look").verdicts("allow").finishes(f"t{turn}.c1", "x" * 300)
    before = len(bench.run.messages)
    too_long = {"turn": bench.run.turn_count + 1, "code": "context_too_long", "message": "too many tokens"}

    bench.does(ModelFailed, attempt=1, **too_long)

    if not halves:
        assert bench.code == "context_too_long"
        return
    assert len(bench.run.messages) < before
    assert bench.path == ("COMPACT_OR_SAVE", "MODEL_THINKING")
    bench.does(PauseRequested).does(ModelFailed, attempt=2, usage=Usage(input_tokens=5), **too_long)
    assert bench.code == "context_too_long"


def test_a_model_that_fails_ends_the_run() -> None:
    bench = thinking().does(ModelFailed, turn=1, attempt=1, code="model_failed", message="down")

    assert (bench.code, bench.run.error.kind) == ("model_failed", "model")  # type: ignore[union-attr]


@pytest.mark.parametrize(("turn", "attempt", "duplicate"), [(2, 1, False), (1, 2, False), (0, 1, True)])
def test_a_reply_that_is_not_awaited_is_refused(turn: int, attempt: int, duplicate: bool) -> None:
    result = thinking().offer(ModelReplied, turn=turn, attempt=attempt, text="hi")

    assert result.duplicate is duplicate  # type: ignore[union-attr]


def test_replies_that_cannot_be_used_are_told_and_counted_and_end_the_run_at_the_limit() -> None:
    bench = thinking(limits=StepLimits(anomalies=3)).replies("").replies("hm", anomaly="cut off")
    assert [m.role for m in bench.run.messages] == ["system", "user", "user", "assistant", "user"]
    assert "cut off" in bench.run.messages[-1].text

    bench.replies("", anomaly="no JSON", anomaly_code="invalid_output")

    assert bench.code == "invalid_output"
    assert "3 replies" in bench.run.error.message  # type: ignore[union-attr]


@pytest.mark.parametrize("event", [ContextCompacted, CompactionFailed])
def test_input_that_comes_while_the_context_is_summarised_is_heard_afterwards(event: Any) -> None:
    """AC-7."""
    bench = compacting().does(InputReceived, text="and this?")
    assert bench.run.queued_input == ("and this?",)
    fields = {"summary": "short", "replaced": 99, "usage": None} if event is ContextCompacted else {"message": "no"}

    bench.does(event, **fields)

    assert bench.run.messages[-1].text == "and this?"
    assert bench.run.queued_input == ()


def test_a_summary_that_nobody_awaits_is_refused() -> None:
    quiet = compacting()
    quiet.run = msgspec.structs.replace(quiet.run, compacting=0)

    assert quiet.refuses(ContextCompacted, summary="s", replaced=1) == "no summary is awaited"
    assert quiet.refuses(CompactionFailed, message="m") == "no summary is awaited"


def test_inputs_are_bounded_in_number_and_in_bytes() -> None:
    bench = thinking(limits=StepLimits(queued_inputs=2), context=ContextRules(bytes=1_000))
    assert "does not fit in the context of 1000 bytes" in bench.refuses(InputReceived, text="x" * 980)
    bench.does(InputReceived, text="x" * 600)
    assert "600 bytes wait already" in bench.refuses(InputReceived, text="x" * 500)
    bench.does(InputReceived, text="short")
    assert "2 inputs" in bench.refuses(InputReceived, text="s")


# -- handoffs


def handing(other: AgentSpec | None = None, *calls: str) -> tuple[Bench, AgentSpec]:
    other = other or AgentSpec(name="other", instructions="Be brief.", tools=TOOLS)
    bench = Bench(handoffs=("other", "third"))
    bench.specs[spec_digest(other)] = other
    bench.starts().replies("over to you", *calls, "hand_off_to_other")
    return bench, other


def test_a_handoff_goes_on_under_the_other_spec_with_the_conversation_kept() -> None:
    bench, other = handing()
    assert (bench.run.state, bench.keys) == ("PREPARE_CONTEXT", ["t1.handoff.a1"])

    bench.does(HandedOff, agent="other", spec=spec_digest(other))

    assert (bench.run.agent, bench.run.spec, bench.run.state) == ("other", spec_digest(other), "MODEL_THINKING")
    assert bench.run.messages[0].text == "Be brief."
    assert [m.role for m in bench.run.messages] == ["system", "user", "assistant", "tool"]


def test_calls_beside_a_handoff_come_first() -> None:
    bench, _ = handing(None, "look")

    assert bench.verdicts("allow").finishes("t1.c1").run.state == "PREPARE_CONTEXT"


def test_the_search_for_an_agent_and_its_context_are_two_effects_with_two_keys() -> None:
    bench, other = handing(AgentSpec(name="other", providers=("memory",)))
    assert "waits for the agent" in bench.refuses(ContextPrepared)

    bench.does(HandedOff, agent="other", spec=spec_digest(other))

    assert bench.keys == ["t1.context.a1"]
    assert bench.does(ContextPrepared).run.state == "MODEL_THINKING"


def test_a_handoff_of_a_paused_run_waits_with_the_context() -> None:
    bench, other = handing(AgentSpec(name="other", providers=("memory",)))

    bench.does(PauseRequested).does(HandedOff, agent="other", spec=spec_digest(other))

    assert (bench.run.state, bench.keys) == ("SUSPENDED", [])
    assert bench.does(RunResumed).keys == ["t1.context.a1"]


def test_a_paused_run_hands_off_when_it_goes_on() -> None:
    bench, _ = handing(None, "look")
    bench.verdicts("allow").does(PauseRequested).finishes("t1.c1")
    assert bench.run.state == "SUSPENDED"

    assert bench.does(RunResumed).keys == ["t1.handoff.a1"]


def test_a_handoff_that_fails_is_told_to_the_model() -> None:
    bench, _ = handing()

    bench.does(HandoffFailed, agent="other", message="is not registered here")

    assert bench.run.state == "MODEL_THINKING"
    assert "is not registered here" in bench.run.messages[-1].text
    assert preparing().refuses(HandoffFailed, agent="other", message="m") == "no handoff was asked for"


def test_a_handoff_that_nobody_asked_for_is_refused() -> None:
    bench, other = handing()

    assert bench.refuses(HandedOff, agent="third", spec=spec_digest(other)) == "no handoff to 'third' was asked for"


def test_only_one_handoff_at_a_time_is_made_and_none_that_is_beyond_the_limit_of_a_reply() -> None:
    bench = Bench(handoffs=("other",)).starts().replies("", "hand_off_to_other", "hand_off_to_other")
    assert bench.results == [("t1.c1", "ok"), ("t1.c2", "refused")]
    bench = Bench(handoffs=("other",), limits=StepLimits(calls_per_reply=1)).starts()
    bench.replies("", "look", "hand_off_to_other")
    assert bench.run.handing_off is None


# -- a person's turn


def test_a_person_may_write_the_models_turn() -> None:
    bench = thinking().does(TurnTaken, text="I say", calls=(RequestedCall(tool="look"),), by="ops")
    assert (bench.run.turn_count, bench.status) == (1, ["proposed"])
    assert bench.run.token_count.total_tokens > 0  # the model call that was given up
    assert thinking(model=EXTERNAL).does(TurnTaken, text="done").run.token_count.total_tokens == 0


def test_a_person_may_write_the_models_turn_while_the_run_is_held() -> None:
    bench = reading().does(PauseRequested).finishes("t1.c1").finishes("t1.c2")

    assert bench.does(TurnTaken, text="so it is").run.state == "FINISHED"


def test_a_person_may_not_write_a_turn_that_has_not_come() -> None:
    assert "has not come: the run goes on in EXECUTE_TOOL" in asking().refuses(TurnTaken, text="hi")


# -- budget holds


def test_a_budget_hold_lets_calls_in_progress_finish() -> None:
    bench = Bench(budget=Budget(max_seconds=5.0), on_budget="suspend").starts().replies("", "look", "look", "write")
    bench.verdicts("allow", "allow", "allow").finishes("t1.c1", time=bench.now + 10)
    assert (bench.run.state, bench.holds) == ("EXECUTE_TOOL", ["budget"])

    bench.finishes("t1.c2")

    assert (bench.run.state, bench.status[2]) == ("SUSPENDED", "allowed")
    assert bench.does(BudgetRaised, budget=Budget()).status[2] == "proposed"


def test_a_budget_raised_by_too_little_holds_again() -> None:
    bench = Bench(budget=Budget(max_turns=1), on_budget="suspend").starts().replies("", "look")
    bench.verdicts("allow").finishes("t1.c1")

    bench.does(BudgetRaised, budget=Budget(max_turns=1))

    assert (bench.run.state, bench.holds) == ("SUSPENDED", ["budget"])


# -- consulted after each result


def test_a_model_that_is_consulted_after_each_result_may_add_calls_or_nothing() -> None:
    bench = consulting().replies("", "look")
    assert [c.id for c in bench.run.calls] == ["t1.c1", "t1.c2", "t1.c3", "t2.c1"]
    bench.verdicts("allow").finishes("t1.c3").replies("")
    assert bench.run.state == "EXECUTE_TOOL"
    bench.finishes("t2.c1").replies("", anomaly="broken")
    assert bench.run.state == "EXECUTE_TOOL"


def test_a_model_is_consulted_though_another_call_waits_for_approval() -> None:
    bench = Bench(consult="each_result").starts().replies("", "look", "write").verdicts("allow", "ask")

    bench.finishes("t1.c1")

    assert bench.run.state == "MODEL_THINKING"
    assert bench.replies("").run.state == "SUSPENDED"


def test_calls_allowed_while_the_model_is_consulted_start_at_once() -> None:
    bench = Bench(consult="each_result").starts().replies("", "look", "write").verdicts("allow", "ask")
    bench.finishes("t1.c1").does(ApprovalDecided, call_id="t1.c2", approved=True).verdicts("allow")

    assert (bench.run.state, bench.status) == ("MODEL_THINKING", ["done", "running"])


def test_the_last_consultation_is_with_all_results() -> None:
    bench = Bench(consult="each_result").starts().replies("", "look", "look").verdicts("allow", "allow")
    bench.finishes("t1.c1").finishes("t1.c2").replies("")

    assert bench.path == ("DECIDE_ACTION", "OBSERVE", "COMPACT_OR_SAVE", "MODEL_THINKING")


def test_a_consulted_model_that_wraps_up_does_so_once_everything_is_there() -> None:
    bench = Bench(consult="each_result", on_budget="wrap_up", budget=Budget(max_turns=2)).starts()
    bench.replies("", "look", "look").verdicts("allow", "allow").finishes("t1.c1")
    assert bench.run.state == "EXECUTE_TOOL"

    assert bench.finishes("t1.c2").run.wrap_up_turn == 2


@pytest.mark.parametrize("on_budget", ["fail", "suspend"])
def test_a_consulted_model_out_of_turns_is_not_asked(on_budget: str) -> None:
    bench = Bench(consult="each_result", on_budget=on_budget, budget=Budget(max_turns=1)).starts()
    bench.replies("", "look", "look").verdicts("allow", "allow").finishes("t1.c1")

    assert bench.run.state == "EXECUTE_TOOL"
    assert (bench.run.ending is not None) is (on_budget == "fail")


def test_a_held_run_is_not_consulted() -> None:
    bench = Bench(consult="each_result").starts().replies("", "look", "look", "look").verdicts(*["allow"] * 3)

    bench.does(PauseRequested).finishes("t1.c1")

    assert bench.run.state == "EXECUTE_TOOL"


def test_a_start_carries_what_the_caller_said_into_the_run() -> None:
    bench = Bench()
    run = bench.starts(principal="ops", permissions=("read",), labels={"team": "a"}, root="r-0", depth=2).run

    assert (run.principal, run.permissions, run.labels, run.root, run.depth) == (
        "ops",
        ("read",),
        {"team": "a"},
        "r-0",
        2,
    )
    assert Bench().starts().run.root == "r-1"
    assert bench.refuses(RunStarted, agent="a", spec=run.spec, input="x", budget=Budget()) == "that is not awaited"


def test_a_refused_event_changes_nothing() -> None:
    bench = thinking()
    before = bench.run

    bench.refuses(ToolFinished, call_id="t1.c1", attempt=1, status=ResultStatus.OK, text="")

    assert bench.run is before
    assert isinstance(before, Run)
