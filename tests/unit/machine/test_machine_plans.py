"""What the machine does otherwise for a plan, and how far a plan has come as its events tell it."""

from __future__ import annotations

from typing import Any

import pytest
from machine_bench import Bench
from machine_world import in_many_worlds, walk

from geartrain.errors import InvalidValue
from geartrain.limits import UNLIMITED
from geartrain.machine import (
    AgentSpec,
    ApprovalDecided,
    Artifact,
    Budget,
    CallSettled,
    CallStatus,
    CancelRequested,
    ContextRules,
    HandedOff,
    InputReceived,
    ModelFailed,
    ModelReplied,
    PauseRequested,
    ProgressBook,
    Refusal,
    RequestedCall,
    ResultStatus,
    RunRecovered,
    RunResumed,
    RunStarted,
    RunState,
    Step,
    StepLimits,
    StuckRules,
    SubAgentEnded,
    SubAgentSpec,
    TurnTaken,
    Usage,
    WriteInDoubt,
    spec_digest,
)

FOREVER = Budget(max_turns=UNLIMITED, max_seconds=UNLIMITED, max_tool_failures=UNLIMITED, max_tokens=UNLIMITED)


def planned(**spec: Any) -> Bench:
    return Bench(consult="each_result", plan="p", on_denied="tell", budget=FOREVER, **spec).starts()


def named(bench: Bench, *names: str, tool: str = "look", arguments: str = "{}") -> Bench:
    calls = tuple(RequestedCall(tool=tool, arguments=arguments, provider_id=name) for name in names)
    turn, attempt = bench.run.turn_count + 1, bench.run.model_attempt
    return bench.does(ModelReplied, turn=turn, attempt=attempt, calls=calls, usage=Usage())


def test_a_plan_is_consulted_after_each_result() -> None:
    with pytest.raises(InvalidValue, match="each_result for a plan"):
        AgentSpec(name="a", plan="p")


def test_a_write_of_a_plan_holds_up_nothing_beside_it() -> None:
    bench = planned().replies("", "write", "look", "write").verdicts("allow", "allow", "allow")

    assert bench.status == ["running", "running", "running"]
    assert bench.begins("t1.c1").begins("t1.c3").status == ["started", "running", "started"]


def test_a_write_of_a_plan_that_waits_for_a_person_holds_up_nothing() -> None:
    bench = planned().replies("", "write", "look").verdicts("ask", "allow").finishes("t1.c2").replies("", "write")

    assert bench.verdicts("allow").status == ["asked", "done", "running"]


def test_what_is_approved_goes_on_though_something_else_still_waits() -> None:
    bench = planned().replies("", "write", "write").verdicts("ask", "ask")
    assert bench.run.state == "SUSPENDED"

    bench.does(ApprovalDecided, call_id="t1.c2", approved=True)

    assert (bench.run.state, bench.holds) == ("WAIT_APPROVAL", ["approval(t1.c1)"])
    assert bench.verdicts("allow").status == ["asked", "running"]
    bench.begins("t1.c2").finishes("t1.c2")
    assert bench.run.state == "MODEL_THINKING"
    assert bench.replies("").run.state == "SUSPENDED"


def test_a_plan_hears_of_a_denial_though_something_else_still_waits() -> None:
    bench = planned().replies("", "write", "write").verdicts("ask", "ask")

    bench.does(ApprovalDecided, call_id="t1.c1", approved=False)

    assert bench.run.state == "MODEL_THINKING"


def test_a_doubt_holds_up_only_its_own_step() -> None:
    bench = planned().replies("", "write", "write").verdicts("allow", "ask").begins("t1.c1")
    bench.does(WriteInDoubt, call_id="t1.c1", attempt=1, reason="lost")
    assert bench.holds == ["approval(t1.c2)", "in_doubt(t1.c1)"]

    bench.does(CallSettled, call_id="t1.c1", done=True)

    assert bench.run.state == "MODEL_THINKING"


def test_a_paused_plan_stays_where_it_is_whatever_is_approved() -> None:
    bench = planned().replies("", "write", "write").verdicts("ask", "ask").does(PauseRequested)

    bench.does(ApprovalDecided, call_id="t1.c2", approved=True)

    assert bench.run.state == "SUSPENDED"
    bench.does(RunResumed)
    assert bench.run.state == "WAIT_APPROVAL"


def test_an_agent_without_a_plan_waits_until_everything_is_decided() -> None:
    bench = Bench(consult="each_result").starts().replies("", "write", "write").verdicts("ask", "ask")

    bench.does(ApprovalDecided, call_id="t1.c2", approved=True)

    assert bench.run.state == "SUSPENDED"


def test_a_lost_turn_of_a_plan_costs_nothing() -> None:
    bench = planned().does(RunRecovered, attempt=1)
    assert (bench.run.model_attempt, bench.run.token_count) == (2, Usage())

    assert bench.does(TurnTaken, text="", calls=(RequestedCall(tool="look"),)).run.token_count == Usage()


def test_a_plan_ends_its_run_with_a_code_of_its_own() -> None:
    bench = planned()

    bench.does(ModelFailed, turn=1, attempt=1, code="plan_failed", message="step 'a' (error): no")

    assert (bench.run.state, bench.code, bench.run.error.kind) == ("FAILED", "plan_failed", "model")


def test_a_plan_that_asks_for_the_same_again_and_again_gets_on() -> None:
    bench = planned(stuck=StuckRules(repeats=2, on_no_progress="fail"))
    for turn in range(1, 6):
        bench.replies("", "look").verdicts("allow").finishes(f"t{turn}.c1")
    assert bench.run.state == "MODEL_THINKING"


def test_a_cancelled_run_waits_for_its_sub_agents_though_it_was_suspended() -> None:
    limits = StepLimits(sub_agents_at_once=5)
    bench = planned(sub_agents=(SubAgentSpec(name="helper"),), limits=limits).replies("", 'helper:{"input":"x"}')
    bench.verdicts("allow").does(PauseRequested)
    assert (bench.run.state, bench.status) == ("SUSPENDED", ["running"])

    bench.does(CancelRequested)

    assert bench.path == ("EXECUTE_TOOL",)
    end = {"call_id": "t1.c1", "run_id": "r-9", "state": RunState.CANCELLED}
    assert bench.does(SubAgentEnded, **end).run.state == "CANCELLED"


# -- progress


class Recorded(Bench):
    """A bench that keeps a book."""

    def __init__(self, **spec: Any) -> None:
        super().__init__(**{"consult": "each_result", "plan": "p", "on_denied": "tell", "budget": FOREVER, **spec})
        self.book = ProgressBook("r-1")

    def offer(self, kind: type[Any], /, **fields: Any) -> Step | Refusal:
        event = kind(id=f"e{self.run.seq + 1}", time=fields.pop("time", self.now + 1.0), **fields)
        seq = self.run.seq
        result = super().offer(kind, time=event.time, **fields)
        if self.run.seq > seq:
            assert self.book.take(event, self.specs) is None
            assert self.book.run == self.run
        return result

    def steps(self) -> dict[str, tuple[str | None, str]]:
        return {n: (s.status and str(s.status), s.text) for n, s in self.book.progress.steps.items()}


def test_a_step_goes_by_the_name_that_it_was_asked_for_with() -> None:
    bench = Recorded().starts(context={"root": "/data"}, labels={"team": "ops"})
    named(bench, "first", "second", arguments='{"a":1}').verdicts("allow", "allow").finishes("t1.c2", "found")

    progress = bench.book.progress
    assert bench.steps() == {"first": (None, ""), "second": ("ok", "found")}
    assert (progress.input, progress.context, progress.labels) == ("go", {"root": "/data"}, {"team": "ops"})
    first = progress["first"]
    assert (first.run, first.arguments, first.call_id, first.done, first.ok) == (
        "look", '{"a":1}', "t1.c1", False, False,
    )  # fmt: skip
    assert progress.under_way == (first,)
    assert progress.get("third") is None
    with pytest.raises(KeyError, match="no step 'third' is to be seen"):
        progress["third"]
    assert progress.width == 1_000


def test_a_call_without_a_name_goes_by_its_id() -> None:
    bench = Recorded().starts().replies("", "look")
    assert bench.steps() == {"t1.c1": (None, "")}


def test_a_name_used_again_by_a_person_does_not_hide_the_step() -> None:
    bench = named(Recorded().starts(), "a").verdicts("allow").finishes("t1.c1")

    bench.does(TurnTaken, calls=(RequestedCall(tool="look", provider_id="a"),))

    assert list(bench.steps()) == ["a", "t2.c1"]


def test_a_step_has_the_whole_text_though_the_context_shows_a_part() -> None:
    bench = named(Recorded(context=ContextRules(result_bytes=60, messages=3, bytes=2_000)).starts(), "a", "b").verdicts(
        "allow", "allow"
    )
    bench.finishes("t1.c1", "x" * 500, size=9_000, artifact=Artifact(digest="d", size=9_000))
    bench.replies("").finishes("t1.c2", "y" * 500)

    a, b = bench.book.progress["a"], bench.book.progress["b"]
    assert (a.text, a.size, a.artifact) == ("x" * 500, 9_000, Artifact(digest="d", size=9_000))
    assert (b.text, b.size) == ("y" * 500, 500)
    assert max(len(message.text) for message in bench.run.messages) < 100
    bench.book.fill("a", "x" * 9_000)
    assert (len(bench.book.progress["a"].text), bench.book.progress["a"].artifact) == (9_000, None)


def test_what_a_person_answers_is_whole_too() -> None:
    bench = Recorded(context=ContextRules(result_bytes=60)).starts()
    named(bench, "ask", tool="ask").does(InputReceived, text="x" * 500)
    assert bench.steps() == {"ask": ("ok", "x" * 500)}
    assert bench.book.progress.said == ()


def test_a_book_counts_all_that_it_keeps_its_run_as_well() -> None:
    bench = named(Recorded().starts(input="x" * 10_000), "a").verdicts("allow")
    before = bench.book.size
    assert before > 10_000
    bench.finishes("t1.c1", "y" * 5_000)
    assert bench.book.size >= before + 2 * 5_000


def test_what_ends_a_step_without_a_tool_is_told_too() -> None:
    bench = named(Recorded().starts(), "denied", "other").verdicts("deny", "allow", reason="not yours")
    assert bench.steps()["denied"] == ("denied", "not yours")
    bench.replies("").finishes("t1.c2")

    named(bench, "alone").verdicts("deny", reason="neither")
    assert bench.steps()["alone"] == ("denied", "neither")
    named(bench, "unknown", tool="nothing")
    assert bench.steps()["unknown"][0] == "error"
    assert bench.book.progress["unknown"].shown.startswith("[error] there is no tool 'nothing'")
    assert bench.book.progress["other"].shown == "done"
    named(bench, "empty").verdicts("allow").finishes("t5.c1", "")
    assert bench.steps()["empty"] == ("ok", "")


def test_a_sub_agent_is_a_step_with_its_run() -> None:
    bench = named(Recorded(sub_agents=(SubAgentSpec(name="helper"),)).starts(), "a", tool="helper").verdicts("allow")

    bench.does(SubAgentEnded, call_id="t1.c1", run_id="r-9", state=RunState.FINISHED, text="all of it")

    step = bench.book.progress["a"]
    assert (step.status, step.text, step.child) == (ResultStatus.OK, "all of it", "r-9")


def test_what_is_said_to_a_plan_is_in_its_progress() -> None:
    bench = named(Recorded().starts(), "a").does(InputReceived, text="hurry")
    assert bench.book.progress.said == ("hurry",)


def test_a_plan_that_takes_a_run_over_begins_its_steps_anew() -> None:
    team = AgentSpec(name="team", plan="p", consult="each_result")
    bench = Recorded(plan="", handoffs=("team",))
    bench.specs[spec_digest(team)] = team
    bench.starts().replies("", "look").verdicts("allow").finishes("t1.c1").replies("", "hand_off_to_team")

    bench.does(HandedOff, agent="team", spec=spec_digest(team))

    assert bench.steps() == {}


def test_an_event_that_cannot_follow_is_refused() -> None:
    book, bench = ProgressBook("r-1"), Bench()
    refusal = book.take(InputReceived(id="e", time=1.0, text="x"), bench.specs)
    assert isinstance(refusal, Refusal)
    start = RunStarted(id="e", time=1.0, agent="agent", spec=spec_digest(bench.spec), input="go", budget=Budget())
    assert book.take(start, bench.specs) is None


@in_many_worlds
def test_every_call_is_a_step_with_its_one_result(seed: int) -> None:
    book: ProgressBook | None = None
    results: dict[str, ResultStatus] = {}
    for world, moved in walk(seed):
        if not isinstance(moved.result, Step):
            continue
        book = book or ProgressBook(moved.before.id)
        assert book.take(moved.event, world.specs) is None
        if isinstance(moved.event, HandedOff):
            results.clear()
        for call in moved.after.calls:
            if call.role == "tool" and call.status is CallStatus.DONE:
                assert call.result is not None
                results.setdefault(call.id, call.result.status)
        steps = {step.call_id: step for step in book.progress.steps.values()}
        assert all(call.id in steps for call in moved.after.calls if call.role == "tool")
        for call_id, status in results.items():
            assert steps[call_id].status is status
