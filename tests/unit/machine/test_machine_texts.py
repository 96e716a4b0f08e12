"""Guard calls: what is said to a run, and the answer it would finish with, judged before they count."""

from __future__ import annotations

from typing import Any

import pytest
from machine_bench import Bench
from machine_world import World, in_many_worlds, walk

from geartrain.errors import InvalidValue
from geartrain.ids import digest
from geartrain.machine import (
    ENDED,
    AgentSpec,
    ApprovalDecided,
    ApprovalExpired,
    Budget,
    BudgetRaised,
    Call,
    CallAnswered,
    CallSettled,
    CallStatus,
    CancelRequested,
    ContextPrepared,
    ContextRules,
    DeadlinePassed,
    Event,
    InputReceived,
    Message,
    PauseRequested,
    PermissionsEvaluated,
    RequestedCall,
    RunQuarantined,
    RunRecovered,
    RunResumed,
    RunState,
    Step,
    SubAgentEnded,
    TimerFired,
    ToolFinished,
    ToolStarted,
    TurnTaken,
    WriteInDoubt,
    alarms,
    guard_arguments,
    guard_text,
    outstanding,
    stuck,
    wake_at,
)

BOTH: Any = ("input", "answer")
SAFER = guard_arguments("safer")


def guarded(*roles: str, **spec: Any) -> Bench:
    return Bench(guarded=roles or BOTH, **spec).starts()


def answering(**spec: Any) -> Bench:
    """Return a run whose answer is being judged."""
    return guarded("answer", **spec).replies("the answer")


def said(bench: Bench) -> list[str]:
    """What the model has heard of people."""
    return [message.text for message in bench.run.messages if message.role == "user" and not message.note]


# -- inputs


def test_the_input_of_a_run_is_judged_before_the_model_is_asked() -> None:
    bench = guarded("input")

    assert bench.path == ("CREATED", "PREPARE_CONTEXT", "WAIT_APPROVAL")
    assert bench.keys == ["t0.policy.a2"]
    assert said(bench) == []
    bench.verdicts("allow")
    assert (bench.path, said(bench), bench.run.calls) == (("MODEL_THINKING",), ["go"], ())
    assert (bench.run.tool_calls, bench.run.tool_failures) == (0, 0)


def test_what_providers_and_history_gave_stands_before_a_judged_input() -> None:
    history = (Message(role="user", text="before"), Message(role="assistant", text="then"))
    bench = Bench(guarded=("input",), providers=("memory",)).starts(history=history)
    bench.does(ContextPrepared, messages=(Message(role="user", text="fact", note=True),)).verdicts("allow")

    assert [message.text for message in bench.run.messages] == ["Be good.", "before", "then", "fact", "go"]


def test_a_changed_input_is_heard_as_changed_and_kept_as_it_was_given() -> None:
    bench = guarded("input").verdicts("allow", arguments=SAFER)

    assert (said(bench), bench.run.user_input) == (["safer"], "go")


@pytest.mark.parametrize("on_denied", ["fail", "tell"])
def test_without_its_own_input_a_run_ends(on_denied: str) -> None:
    bench = guarded("input", on_denied=on_denied).does(InputReceived, text="late").verdicts("deny", reason="rude")

    assert (bench.run.state, bench.code) == ("FAILED", "input_denied")
    assert str(bench.run.error.kind) == "permission"  # type: ignore[union-attr]
    assert "rude" in bench.run.error.message  # type: ignore[union-attr]
    assert said(bench) == []


def test_a_later_input_that_is_denied_is_not_heard() -> None:
    bench = guarded("input", on_denied="tell").verdicts("allow").does(InputReceived, text="secret")
    bench.does(InputReceived, text="fine").replies("first answer").verdicts("deny", "allow", reason="no")

    assert said(bench) == ["go", "fine"]
    assert bench.run.state == "MODEL_THINKING"
    (note,) = [message.text for message in bench.run.messages if message.note]
    assert note == "[Something was said and not let through] no"


def test_a_later_input_that_is_denied_ends_a_run_that_fails_on_denials() -> None:
    bench = guarded("input").verdicts("allow").does(InputReceived, text="secret").replies("first").verdicts("deny")

    assert (bench.code, said(bench), bench.run.calls) == ("input_denied", ["go"], ())
    assert bench.run.messages[-1].text == "first"


def test_what_is_said_while_an_input_is_judged_is_judged_after_it() -> None:
    bench = guarded("input").does(InputReceived, text="and this").verdicts("allow")

    assert (bench.run.state, bench.path, said(bench)) == ("WAIT_APPROVAL", (), ["go"])
    assert [call.id for call in bench.run.calls] == ["t1.i2"]
    assert bench.verdicts("allow").run.state == "MODEL_THINKING"
    assert said(bench) == ["go", "and this"]


def test_inputs_judged_together_are_heard_in_their_order_once_all_are() -> None:
    bench = guarded("input").verdicts("allow")
    bench.does(InputReceived, text="one").does(InputReceived, text="two").replies("", "look").verdicts("allow")
    bench.finishes("t1.c1").verdicts("ask", "allow")

    assert (bench.run.state, bench.holds) == ("SUSPENDED", ["approval(t2.i2)"])
    assert bench.status == ["asked", "allowed"]
    bench.does(ApprovalDecided, call_id="t2.i2", approved=True).verdicts("ask", "allow")
    assert said(bench) == ["go", "one", "two"]


def test_the_answer_to_a_question_of_the_agent_is_judged_as_well() -> None:
    bench = guarded("input", limits=Bench().spec.limits).verdicts("allow").replies("", "ask")
    bench.does(InputReceived, text="my answer", by="ops")

    assert bench.results == [("t1.c1", "ok")]
    assert [call.id for call in bench.run.calls] == ["t2.i2"]
    bench.verdicts("allow", arguments=SAFER)
    assert said(bench) == ["go", "safer"]


def test_an_input_too_large_after_a_change_ends_the_run() -> None:
    bench = guarded("input", context=ContextRules(bytes=500))

    bench.verdicts("allow", arguments=guard_arguments("x" * 1_000))

    assert bench.code == "context_too_long"


# -- answers


def test_an_answer_finishes_the_run_once_it_is_judged() -> None:
    bench = answering()

    assert bench.path == ("DECIDE_ACTION", "WAIT_APPROVAL")
    assert (bench.run.final_answer, bench.keys) == (None, ["t1.policy.a2"])
    bench.verdicts("allow")
    assert (bench.run.state, bench.run.final_answer) == ("FINISHED", "the answer")
    assert bench.run.messages[-1].text == "the answer"


def test_a_changed_answer_is_the_answer() -> None:
    assert answering().verdicts("allow", arguments=SAFER).run.final_answer == "safer"


def test_a_denied_answer_ends_the_run_without_one() -> None:
    bench = answering().verdicts("deny", reason="a secret in it")

    assert (bench.code, bench.run.final_answer) == ("output_denied", None)
    assert all(message.text != "the answer" for message in bench.run.messages)


def test_a_denied_answer_is_told_to_the_model_and_counts_as_an_anomaly() -> None:
    bench = answering(on_denied="tell").verdicts("deny", reason="a secret in it")

    assert (bench.path, bench.run.anomalies) == (("COMPACT_OR_SAVE", "MODEL_THINKING"), 1)
    assert "the answer was not let through: a secret in it" in bench.run.messages[-1].text
    assert bench.replies("better").verdicts("allow").run.final_answer == "better"


def test_an_agent_that_only_gives_denied_answers_ends() -> None:
    bench = answering(on_denied="tell").verdicts("deny").replies("again").verdicts("deny").replies("again")

    assert bench.verdicts("deny").code == "output_denied"


def test_what_is_said_while_an_answer_is_judged_makes_it_a_part_of_the_conversation() -> None:
    bench = answering().does(InputReceived, text="and?").verdicts("allow")

    assert (bench.run.state, bench.run.final_answer) == ("MODEL_THINKING", None)
    assert [message.text for message in bench.run.messages[-2:]] == ["the answer", "and?"]


def test_a_persons_turn_is_judged_like_the_models() -> None:
    bench = guarded("answer").does(TurnTaken, text="mine", by="ops")

    assert (bench.run.state, bench.status) == ("WAIT_APPROVAL", ["proposed"])


@pytest.mark.parametrize("on_budget", ["fail", "wrap_up", "suspend"])
def test_no_budget_ends_a_run_whose_answer_is_being_judged(on_budget: str) -> None:
    """An answer always finishes, also one that crosses a limit, or whose judgement takes long."""
    budget = Budget(max_tokens=50, max_seconds=100.0, max_turns=1)
    bench = (
        answering(budget=budget, on_budget=on_budget) if on_budget != "wrap_up" else guarded("answer", budget=budget)
    )
    if on_budget == "wrap_up":
        bench.replies("the answer", tokens=900)
    assert wake_at(bench.run, bench.spec) is None
    bench.does(InputReceived, text="late", time=bench.now + 5_000)

    assert (bench.run.state, bench.holds) == ("WAIT_APPROVAL", [])
    assert bench.verdicts("allow").run.final_answer == "the answer"


def test_a_denied_last_answer_leaves_no_turn_for_another() -> None:
    bench = answering(budget=Budget(max_turns=1), on_denied="tell").verdicts("deny")

    assert bench.code == "max_turns_exceeded"


def test_a_denied_answer_of_the_wrap_up_turn_ends_the_run_for_its_budget() -> None:
    bench = answering(budget=Budget(max_turns=1), on_denied="tell", on_budget="wrap_up").verdicts("deny")

    assert bench.code == "max_turns_exceeded"


# -- asking a person


@pytest.mark.parametrize("role", BOTH)
def test_a_person_lets_a_text_through_or_edits_it(role: str) -> None:
    for edited, text in ((None, None), (SAFER, "safer")):
        bench = guarded("input") if role == "input" else answering()
        call = bench.run.calls[0]
        bench.verdicts("ask", reason="look")
        assert (bench.run.state, bench.holds, bench.keys) == (
            "SUSPENDED", [f"approval({call.id})"], [f"{call.id}.ask"],
        )  # fmt: skip
        bench.does(ApprovalDecided, call_id=call.id, approved=True, by="ops", arguments=edited)
        assert bench.run.state == "WAIT_APPROVAL"
        bench.verdicts("ask")
        heard = said(bench)[-1] if role == "input" else bench.run.final_answer
        assert heard == (text or guard_text(call.arguments))


def test_the_guardrail_in_force_has_the_last_word_on_an_approved_text() -> None:
    bench = answering().verdicts("ask").does(ApprovalDecided, call_id="t1.answer", approved=True).verdicts("deny")

    assert bench.code == "output_denied"


def test_a_text_changed_after_it_was_approved_is_asked_about_again() -> None:
    bench = answering().verdicts("ask").does(ApprovalDecided, call_id="t1.answer", approved=True)

    bench.verdicts("ask", arguments=SAFER)

    assert bench.holds == ["approval(t1.answer)"]


@pytest.mark.parametrize("edited", ["{}", "[]", "{", '{"text":5}', '{"text":" "}', '{"text":"a","more":1}', "\ud800"])
def test_an_edit_that_is_no_text_is_refused(edited: str) -> None:
    bench = answering().verdicts("ask")

    reason = bench.refuses(ApprovalDecided, call_id="t1.answer", approved=True, arguments=edited)

    assert '{"text": "…"}' in reason


@pytest.mark.parametrize("role", BOTH)
@pytest.mark.parametrize("kind", ["denied", "expired"])
def test_a_person_denies_or_nobody_decides(kind: str, role: str) -> None:
    bench = guarded("input") if role == "input" else answering()
    call = bench.run.calls[0]
    bench.verdicts("ask")
    if kind == "denied":
        bench.does(ApprovalDecided, call_id=call.id, approved=False, reason="no", by="ops")
    else:
        time = wake_at(bench.run, bench.spec)
        assert time is not None
        assert [type(event) for event in alarms(bench.run, bench.spec, time)] == [ApprovalExpired]
        bench.does(ApprovalExpired, call_id=call.id, time=time)

    assert bench.code == ("approval_denied" if kind == "denied" else "approval_expired")


def test_an_answer_that_a_person_denies_is_told_where_denials_are_told() -> None:
    bench = answering(on_denied="tell").verdicts("ask")
    bench.does(ApprovalDecided, call_id="t1.answer", approved=False, reason="too long", by="ops")

    assert bench.path == ("COMPACT_OR_SAVE", "MODEL_THINKING")
    assert "too long" in bench.run.messages[-1].text


def test_a_remembered_text_passes_without_asking_again() -> None:
    bench = answering(on_denied="tell").does(InputReceived, text="and?").verdicts("ask")
    bench.does(ApprovalDecided, call_id="t1.answer", approved=True, remember="run").verdicts("ask")

    assert bench.replies("the answer").verdicts("ask").run.final_answer == "the answer"


def test_what_is_remembered_of_a_text_says_nothing_of_a_tool() -> None:
    tools = (*Bench().spec.tools,)
    bench = answering(tools=tools).does(InputReceived, text="and?").verdicts("ask")
    bench.does(ApprovalDecided, call_id="t1.answer", approved=True, remember="run").verdicts("ask")
    bench.replies("", f"write:{guard_arguments('the answer')}").verdicts("ask")

    assert bench.holds == ["approval(t2.c1)"]


def test_an_invalid_verdict_about_a_text_asks() -> None:
    assert answering().verdicts("invalid", reason="odd").holds == ["approval(t1.answer)"]


# -- what a guard call is not


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (CallAnswered, {"text": "mine"}),
        (CallSettled, {"done": True}),
        (ToolStarted, {"attempt": 1}),
        (ToolFinished, {"attempt": 1, "status": "ok", "text": ""}),
        (WriteInDoubt, {"attempt": 1, "reason": ""}),
        (SubAgentEnded, {"run_id": "r-2", "state": RunState.FINISHED}),
    ],
)
@pytest.mark.parametrize("asked", [False, True])
def test_a_text_is_judged_and_nothing_else(kind: Any, fields: dict[str, Any], asked: bool) -> None:
    bench = answering()
    if asked:
        bench.verdicts("ask")

    assert bench.refuses(kind, call_id="t1.answer", **fields)
    assert bench.refuses(TurnTaken, text="mine")


def test_judging_texts_uses_no_tool_calls() -> None:
    bench = guarded(budget=Budget(max_tool_calls=1)).verdicts("allow").replies("", "look").verdicts("allow")
    bench.finishes("t1.c1")

    assert (bench.code, bench.run.tool_calls) == ("tool_call_budget_exceeded", 1)


def test_texts_cannot_be_guarded_where_the_model_is_consulted_after_each_result() -> None:
    with pytest.raises(InvalidValue, match="guarded"):
        AgentSpec(name="a", guarded=("answer",), consult="each_result")


@pytest.mark.parametrize("arguments", ["", "[]", "{}", '{"text":null}', "[" * 100_000])
def test_what_holds_no_text_is_an_empty_one(arguments: str) -> None:
    assert guard_text(arguments) == ""


# -- while one is open


@pytest.mark.parametrize("role", BOTH)
def test_a_pause_has_the_text_judged_again_when_the_run_goes_on(role: str) -> None:
    bench = guarded("input") if role == "input" else answering()
    number = bench.run.evaluations + 1
    bench.does(PauseRequested)
    assert (bench.run.state, bench.keys) == ("SUSPENDED", [])
    bench.verdicts("allow")
    assert (bench.run.state, bench.status) == ("SUSPENDED", ["allowed"])

    bench.does(RunResumed)

    assert (bench.run.state, bench.status) == ("WAIT_APPROVAL", ["proposed"])
    assert bench.run.evaluations + 1 > number
    assert bench.verdicts("deny").code == ("input_denied" if role == "input" else "output_denied")


def test_a_quarantined_run_goes_on_with_what_is_to_be_judged() -> None:
    bench = answering().does(RunQuarantined, reason="odd").does(RunResumed)

    assert bench.keys == ["t1.policy.a3"]
    assert bench.verdicts("allow").run.final_answer == "the answer"


def test_another_process_asks_again() -> None:
    bench = answering().does(RunRecovered, attempt=1)

    assert bench.keys == ["t1.policy.a3"]
    assert bench.verdicts("allow").run.final_answer == "the answer"


def test_an_approved_text_is_asked_about_once_over_a_recovery() -> None:
    bench = answering().verdicts("ask").does(RunRecovered, attempt=1)
    assert bench.holds == ["approval(t1.answer)"]
    bench.does(ApprovalDecided, call_id="t1.answer", approved=True).does(RunRecovered, attempt=2)

    assert bench.verdicts("ask").run.final_answer == "the answer"


@pytest.mark.parametrize("role", BOTH)
@pytest.mark.parametrize("cause", [CancelRequested, DeadlinePassed])
def test_a_run_that_ends_meanwhile_keeps_no_text_that_was_not_let_through(cause: Any, role: str) -> None:
    spec = Bench(guarded=BOTH)
    bench = spec.starts(deadline=2_000.0)
    if role == "answer":
        bench.verdicts("allow").replies("the answer")

    bench.does(cause, time=2_000.0)

    assert bench.run.state in ENDED
    assert (bench.run.calls, bench.run.final_answer) == ((), None)
    assert said(bench) == ([] if role == "input" else ["go"])
    assert all(message.role != "tool" for message in bench.run.messages)


def test_a_budget_that_ends_while_an_input_is_judged_holds_the_run_and_has_it_judged_again() -> None:
    bench = Bench(guarded=("input",), on_budget="suspend", budget=Budget(max_seconds=10.0)).starts()

    bench.does(TimerFired, kind="active_seconds", time=bench.now + 20.0)

    assert (bench.run.state, bench.holds) == ("SUSPENDED", ["budget"])
    bench.does(BudgetRaised, budget=Budget(max_seconds=1_000.0))
    assert bench.verdicts("allow").run.state == "MODEL_THINKING"


def test_guardrails_that_do_not_answer_are_asked_again() -> None:
    bench = answering()
    assert stuck(bench.run, bench.now + 9_999.0, bench.spec) is not None

    bench.does(TimerFired, kind="dwell", time=bench.now + 9_999.0)

    assert bench.keys == ["t1.policy.a3"]


def test_verdicts_about_calls_that_are_no_more_are_not_about_a_text() -> None:
    bench = Bench(guarded=("input",)).starts().verdicts("allow").replies("", "look").does(InputReceived, text="more")
    (before,) = bench.keys
    bench.does(CallAnswered, call_id="t1.c1", text="mine")

    assert bench.run.calls[0].role == "input"
    assert before not in bench.keys


def test_ids_of_inputs_are_never_used_twice() -> None:
    bench = guarded("input", on_denied="tell").verdicts("allow")
    ids = []
    for _ in range(3):
        bench.does(InputReceived, text="x").replies("ok")
        ids += [call.id for call in bench.run.calls]
        bench.verdicts("deny")

    assert ids == ["t2.i2", "t3.i3", "t4.i4"]


# -- in many worlds


def _passed(world: World, call: Call, event: Event) -> bool:
    """Whether *call* was let through as it was judged last, perhaps changed in the very step of *event*."""
    verdict, _ = world.ledger.verdicts.get(call.id, ("", 0))
    judged = call.arguments_digest
    for change in event.verdicts if isinstance(event, PermissionsEvaluated) else ():
        if change.call_id == call.id and change.arguments is not None:
            judged = digest(change.arguments.encode())
    approved = world.ledger.approvals.get(call.id) == judged
    remembered = (call.tool, judged) in world.ledger.remembered
    return verdict == "allow" or (verdict == "ask" and (approved or remembered))


@in_many_worlds
def test_no_run_hears_or_finishes_with_what_was_not_let_through(seed: int) -> None:
    for world, moved in walk(seed):
        before, after = moved.before, moved.after
        if not isinstance(moved.result, Step):
            continue
        spec = world.specs.get(after.spec)
        if before.guarding and not after.guarding and after.ending is None:
            assert all(_passed(world, call, moved.event) or _denied(world, call) for call in before.calls)
        if after.state is RunState.FINISHED and spec is not None and "answer" in spec.guarded:
            assert before.answering


def _denied(world: World, call: Call) -> bool:
    verdict, _ = world.ledger.verdicts.get(call.id, ("", 0))
    return verdict == "deny" or call.status in (CallStatus.ASKED, CallStatus.DONE)


@in_many_worlds
def test_a_text_that_is_judged_is_alone_and_wants_nothing_but_judgement(seed: int) -> None:
    for _, moved in walk(seed):
        run = moved.after
        if run.guarding:
            assert {call.role for call in run.calls} == ({"answer"} if run.answering else {"input"})
            assert run.state in (RunState.WAIT_APPROVAL, RunState.SUSPENDED)
            kinds = {type(command).__name__ for command in outstanding(run)}
            assert kinds <= {"EvaluatePermissions", "AnnounceApproval"}


def test_a_handoff_keeps_what_was_said_until_the_other_agent_judges_it() -> None:
    world = World(1, spec=AgentSpec(name="agent", handoffs=("other",), guarded=("input",)))
    world.start()
    world.offer(world.plain_answer(outstanding(world.run)[0]))
    world.offer(InputReceived(id="i", time=world.now, text="more"))
    event: Any = world.plain_answer(outstanding(world.run)[0])
    world.offer(type(event)(**{**_fields(event), "text": "", "calls": (RequestedCall(tool="hand_off_to_other"),)}))
    world.offer(world.plain_answer(outstanding(world.run)[0]))

    assert world.run.agent == "other"
    assert [call.role for call in world.run.calls] == ["input"]


def _fields(event: Any) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}
