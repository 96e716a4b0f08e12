"""The promises of the design, kept in many random worlds. A failing seed is a world that breaks one."""

from __future__ import annotations

from itertools import pairwise

from machine_world import Moved, World, in_many_worlds, walk

from geartrain.limits import UNLIMITED
from geartrain.machine import (
    EDGES,
    ENDED,
    EXTERNAL,
    IN_PROGRESS,
    RUN_VERSION,
    ActorRestarted,
    ApprovalDecided,
    ApprovalExpired,
    BudgetRaised,
    Call,
    CallAnswered,
    CallSettled,
    CallStatus,
    Difference,
    HoldKind,
    InputReceived,
    Message,
    ModelReplied,
    Refusal,
    ResultStatus,
    Run,
    RunCall,
    RunRecovered,
    RunResumed,
    RunState,
    Step,
    TimerFired,
    ToolStarted,
    alarms,
    decode_event,
    decode_run,
    encode_event,
    encode_run,
    fold,
    outstanding,
    possible,
    step,
    stuck,
    waits_outside,
    wake_at,
)
from geartrain.machine._states import STOPPING
from geartrain.machine._step import _INACTIVE
from geartrain.machine._table import WHILE_ENDING

LIFTED_BY = {
    HoldKind.APPROVAL: (ApprovalDecided, ApprovalExpired, CallAnswered),
    HoldKind.IN_DOUBT: (CallSettled, CallAnswered),
    HoldKind.INPUT: (InputReceived, CallAnswered, TimerFired),
    HoldKind.PAUSED: (RunResumed,),
    HoldKind.QUARANTINED: (RunResumed,),
    HoldKind.BUDGET: (BudgetRaised,),
}

# Worlds that take the rarest edges, so that the search is short. When the worlds change it is only longer.
RARE = (1350, 1307, 1253, 686, 451, 416, 312, 176, 148, 142, 118, 106, 95)


# What only one world in tens of thousands does is done by hand, in the test of that name.
BY_HAND = {
    (RunState.MODEL_THINKING, RunState.OBSERVE): "test_a_model_and_a_call_lost_at_once_when_that_uses_the_budget_up",
    (
        RunState.SUSPENDED,
        RunState.EXECUTE_TOOL,
    ): "test_a_cancelled_run_waits_for_its_sub_agents_though_it_was_suspended",
}


def _effects(run: Run) -> set[str]:
    return {command.key for command in outstanding(run) if not type(command).__name__.startswith("Announce")}


def _stopped(run: Run) -> bool:
    return any(hold.kind in STOPPING for hold in run.holds)


@in_many_worlds
def test_the_same_run_and_event_give_the_same_step(seed: int) -> None:
    for world, moved in walk(seed):
        assert step(moved.before, moved.event, world.specs) == moved.result


@in_many_worlds
def test_a_run_read_back_from_its_stored_form_goes_on_the_same(seed: int) -> None:
    for world, moved in walk(seed):
        stored = decode_run(RUN_VERSION, encode_run(moved.before))
        event = decode_event(type(moved.event).__name__, 1, encode_event(moved.event))

        assert stored == moved.before
        assert event == moved.event
        assert step(stored, event, world.specs) == moved.result


@in_many_worlds
def test_a_journal_folds_to_the_run_and_the_path_that_it_was_written_from(seed: int) -> None:
    world = [world for world, _ in walk(seed)][-1]

    assert fold(Run(id=world.run.id), world.journal, world.specs) == world.run


def test_a_fold_ends_at_the_first_event_that_cannot_be_or_leads_another_way() -> None:
    world = [world for world, _ in walk(7)][-1]
    (start, path), (second, _), *_ = world.journal
    fresh = Run(id=world.run.id)

    refused = fold(fresh, [(start, path), (start, path)], world.specs)
    elsewhere = fold(fresh, [(start, None), (second, ("FINISHED",))], world.specs)

    assert isinstance(refused, Difference)
    assert (refused.seq, refused.event, refused.found) == (2, "RunStarted", ())
    assert isinstance(elsewhere, Difference)
    assert (elsewhere.seq, elsewhere.recorded) == (2, ("FINISHED",))


@in_many_worlds
def test_a_run_ends_once_and_takes_nothing_afterwards(seed: int) -> None:
    ends = 0
    world = World(seed)
    for world, moved in walk(seed):  # noqa: B007 - the last one is wanted
        if isinstance(moved.result, Step):
            assert moved.before.state not in ENDED
            ends += sum(state in ENDED for state in moved.result.path)
    assert ends == 1
    for event, _ in world.journal:
        refusal = step(world.run, event, world.specs)
        assert isinstance(refusal, Refusal)
        assert f"ended at event {world.run.seq}" in refusal.reason


@in_many_worlds
def test_a_refusal_names_state_and_event_and_what_is_possible(seed: int) -> None:
    for _, moved in walk(seed):
        if isinstance(moved.result, Refusal):
            assert moved.after is moved.before
            assert moved.result.state is moved.before.state
            assert moved.result.event == type(moved.event).__name__
            assert moved.result.reason
            assert moved.result.possible == possible(moved.before.state, ending=moved.before.ending is not None)


@in_many_worlds
def test_every_call_gets_one_result_and_results_enter_the_context_in_call_order(seed: int) -> None:
    """P4, JR-1, PT-1: whatever the order in which results come in."""
    results: dict[str, tuple[ResultStatus, str]] = {}
    for _, moved in walk(seed):
        if moved.before.guarding or moved.after.guarding:
            continue  # texts that are judged are merged as what was said
        for call in moved.after.calls:
            if call.result is not None:
                seen = (call.result.status, call.id)
                assert results.setdefault(call.id, seen) == seen
        merged = moved.before.calls and not moved.after.calls
        # With its answer a run keeps the window once more, and may drop the results before it.
        ids = [call.id for call in moved.before.calls]
        if merged and any(message.calls and message.calls[0].id == ids[0] for message in moved.after.messages):
            _check_merged(ids, moved.after.messages, results)


def _check_merged(ids: list[str], messages: tuple[Message, ...], results: dict[str, tuple[ResultStatus, str]]) -> None:
    at = max(i for i, message in enumerate(messages) if message.calls)
    asked = [call.id for call in messages[at].calls]
    answered = messages[at + 1 : at + 1 + len(asked)]
    assert asked[: len(ids)] == ids
    assert [message.call_id for message in answered] == asked
    for message in answered:
        assert results.setdefault(message.call_id, (message.status, message.call_id))[0] is message.status


@in_many_worlds
def test_budgets_are_not_exceeded(seed: int) -> None:
    """P8, BU-2: model and tool calls never pass their limit; failures, tokens, cost and time end or hold the run."""
    replies = 0
    for world, moved in walk(seed):
        run, budget = moved.after, moved.after.budget
        replies += isinstance(moved.event, ModelReplied) and isinstance(moved.result, Step)
        assert budget.max_turns is UNLIMITED or replies <= budget.max_turns  # type: ignore[operator]
        if budget.max_tool_calls is not UNLIMITED:
            let_through = sum(call.counted for call in run.calls)
            assert let_through <= budget.max_tool_calls  # type: ignore[operator]
        if run.state in ENDED or run.ending is not None or world.spec.on_budget == "wrap_up":
            continue
        if run.answering or (world.spec.on_budget == "suspend" and run.held_by(HoldKind.BUDGET)):
            continue
        for used, limit in (
            (run.tool_failures, budget.max_tool_failures),
            (run.token_count.total_tokens, budget.max_tokens),
            (run.token_count.cost, budget.max_cost),
            (run.active_seconds, budget.max_seconds),
        ):
            assert limit is UNLIMITED or used < limit  # type: ignore[operator]


@in_many_worlds
def test_a_run_that_wraps_up_has_one_more_turn_and_no_tools_in_it(seed: int) -> None:
    for _, moved in walk(seed):
        run = moved.after
        if run.wrapping_up and run.wrap_up_turn and run.state is RunState.MODEL_THINKING:
            assert run.turn_count < run.wrap_up_turn
        for command in outstanding(run):
            if type(command).__name__ == "CallModel":
                assert command.tools == (run.wrap_up_turn != command.turn)  # type: ignore[union-attr]


@in_many_worlds
def test_a_started_write_never_starts_again_blindly(seed: int) -> None:
    """P5, AP-12: again only with the same key, after `verify` or a person said that it was not done."""
    for world, moved in walk(seed):
        if not (isinstance(moved.event, ToolStarted) and isinstance(moved.result, Step)):
            continue
        call = moved.before.call(moved.event.call_id)
        assert call is not None
        starts = world.ledger.starts
        starts[call.id] = starts.get(call.id, 0) + 1
        if not call.idempotent:
            assert starts[call.id] <= 1 + world.ledger.permits.get(call.id, 0)
            assert not world.ledger.done.get(call.id)


@in_many_worlds
def test_nothing_starts_that_the_policy_in_force_has_not_let_through(seed: int) -> None:
    """P6, AP-4: the newest verdict allows it, or asks and a person approved these very arguments.

    The verdict on a write is from after the run last went on.
    """
    for world, moved in walk(seed):
        for call in moved.after.calls:
            before = moved.before.call(call.id)
            was = before.status if before is not None else None
            if call.status is CallStatus.STARTED and was is not CallStatus.STARTED:
                assert world.ledger.verdicts[call.id][1] == world.ledger.epoch
            if call.status in IN_PROGRESS and was not in IN_PROGRESS:
                _check_let_through(world, call)


def _check_let_through(world: World, call: Call) -> None:
    verdict, _ = world.ledger.verdicts[call.id]
    approved = world.ledger.approvals.get(call.id) == call.arguments_digest
    remembered = (call.tool, call.arguments_digest) in world.ledger.remembered
    assert verdict == "allow" or (verdict == "ask" and (approved or remembered))


@in_many_worlds
def test_a_run_is_of_bounded_size(seed: int) -> None:
    """The context keeps within its bytes whenever the model is asked, and within its number but for the newest unit."""
    for world, moved in walk(seed):
        run, rules = moved.after, world.spec.context
        assert run.messages_size == sum(message.size() for message in run.messages)
        assert len(encode_run(run)) < 400_000
        if run.state is RunState.MODEL_THINKING and run.agent == "agent":
            assert run.messages_size <= rules.bytes
        for message in run.messages[-1:]:
            assert message.role != "tool" or any(m.calls for m in run.messages)


@in_many_worlds
def test_a_call_in_the_context_is_never_parted_from_its_result(seed: int) -> None:
    for _, moved in walk(seed):
        open_ids: list[str] = []
        for message in moved.after.messages:
            if message.role == "tool":
                assert message.call_id == open_ids.pop(0)
            else:
                assert not open_ids
                open_ids = [call.id for call in message.calls]
        assert not open_ids


@in_many_worlds
def test_keys_of_what_is_outstanding_are_unique(seed: int) -> None:
    for _, moved in walk(seed):
        keys = [command.key for command in outstanding(moved.after)]
        assert len(keys) == len(set(keys))


@in_many_worlds
def test_a_live_run_waits_for_something(seed: int) -> None:
    """P10: an effect that is outstanding, a hold that somebody lifts, or the end of its grace."""
    for world, moved in walk(seed):
        run = moved.after
        if run.state in ENDED:
            assert wake_at(run, world.spec) is None
        elif run.ending is not None:
            assert run.state is RunState.EXECUTE_TOOL
            assert wake_at(run, world.spec) == run.ending.grace_until
        elif run.state is RunState.SUSPENDED:
            assert run.holds
            at_work = {call.id for call in run.calls if call.sub_agent}  # these go on elsewhere, whatever holds it
            assert not _effects(run) - at_work
        else:
            assert _effects(run)


def test_a_summary_that_uses_the_budget_up_lets_no_handoff_start() -> None:
    for _, moved in walk(1_210_641):
        if _stopped(moved.after) and isinstance(moved.result, Step):
            assert not any("handoff" in key for key in _effects(moved.after) - _effects(moved.before))


@in_many_worlds
def test_a_run_that_is_stopped_starts_nothing_new(seed: int) -> None:
    """Save `verify`, by which a write that was at work when the run was stopped finishes."""
    for _, moved in walk(seed):
        if _stopped(moved.after) and isinstance(moved.result, Step):
            new = _effects(moved.after) - _effects(moved.before)
            assert all(".verify." in key for key in new)


@in_many_worlds
def test_a_hold_is_lifted_by_its_own_event_only(seed: int) -> None:
    for _, moved in walk(seed):
        if moved.after.state in ENDED:
            continue
        for hold in set(moved.before.holds) - set(moved.after.holds):
            assert isinstance(moved.event, LIFTED_BY[hold.kind])
            if not isinstance(moved.event, InputReceived | TimerFired) and hold.call_id:
                assert moved.event.call_id == hold.call_id  # type: ignore[union-attr]


def _outside(run: Run, world: World) -> bool:
    spec = world.specs.get(run.spec)
    if spec is None or (spec.limits.external_seconds is None and spec.limits.sub_agents_at_once is None):
        return False  # by the rules of old
    return waits_outside(run, spec)


@in_many_worlds
def test_only_time_in_which_the_run_was_active_counts(seed: int) -> None:
    """P8: neither time suspended or outside, nor time in which no process had the run; and no time goes backwards."""
    active = 0.0
    for world, moved in walk(seed):
        before, after = moved.before, moved.after
        assert after.updated_at >= before.updated_at
        counts = isinstance(moved.result, Step) and before.state not in _INACTIVE
        counts = counts and not _outside(before, world)
        if counts and not isinstance(moved.event, (RunRecovered, ActorRestarted)):
            active += after.updated_at - before.updated_at
        assert after.active_seconds == active


@in_many_worlds
def test_a_path_takes_only_edges_that_are_drawn(seed: int) -> None:
    for _, moved in walk(seed):
        if isinstance(moved.result, Step):
            _check_path(moved)


def _check_path(moved: Moved) -> set[tuple[RunState, RunState]]:
    assert isinstance(moved.result, Step)
    start = () if moved.before.seq == 0 else (moved.before.state,)
    edges = set(pairwise((*start, *moved.result.path)))
    for before, after in edges:
        assert after in EDGES[before], f"{before} → {after} by {type(moved.event).__name__}"
    assert moved.after.path == moved.result.path
    return edges


def test_every_edge_that_is_drawn_is_taken_by_some_run() -> None:
    drawn = {(before, after) for before, afters in EDGES.items() for after in afters}
    taken = set(BY_HAND)
    for seed in (*RARE, *range(4_000)):
        for _, moved in walk(seed):
            if isinstance(moved.result, Step):
                taken |= _check_path(moved)
        if taken == drawn:
            break

    assert sorted(drawn - taken) == []


@in_many_worlds
def test_an_alarm_that_has_rung_does_not_ring_again_at_the_same_moment(seed: int) -> None:
    for world, moved in walk(seed):
        run, due = moved.after, wake_at(moved.after, world.spec)
        if due is None:
            continue
        now = max(due, run.updated_at)
        for _ in range(12):
            for event in alarms(run, world.specs[run.spec], now):
                result = step(run, event, world.specs)
                run = result.run if isinstance(result, Step) else run
        after = wake_at(run, world.specs[run.spec])
        assert after is None or after > now


@in_many_worlds
def test_an_ending_run_takes_only_what_ends_it(seed: int) -> None:
    for _, moved in walk(seed):
        if moved.before.ending is not None and moved.before.state not in ENDED and isinstance(moved.result, Step):
            assert type(moved.event) in WHILE_ENDING
            assert moved.after.ending == moved.before.ending


@in_many_worlds
def test_what_is_stuck_can_be_helped(seed: int) -> None:
    """P10: whatever `stuck` names as overdue, its timer or the end of the grace moves."""
    for world, moved in walk(seed):
        run = moved.after
        if run.state in ENDED:
            continue
        now = run.updated_at + 100_000.0
        found = stuck(run, now, world.specs[run.spec])
        if found is None or found.cause == "no_progress":
            continue
        helps = world.help(run, now)
        assert isinstance(step(run, helps, world.specs), Step)


@in_many_worlds
def test_what_goes_on_elsewhere_is_not_lost_with_a_process(seed: int) -> None:
    """Sub-agents, external calls and external models are still awaited under the same key after a recovery."""
    for world, moved in walk(seed):
        run = moved.before
        if not (isinstance(moved.event, RunRecovered) and isinstance(moved.result, Step)) or moved.after.state in ENDED:
            continue
        for call in run.calls:
            elsewhere = call.sub_agent or (call.external and not call.barrier)
            if elsewhere and call.status is CallStatus.RUNNING:
                assert moved.after.call(call.id) == call
        if (
            run.state is RunState.MODEL_THINKING
            and world.spec.model == EXTERNAL
            and not run.holds
            and run.agent == "agent"
        ):
            assert moved.after.model_attempt == run.model_attempt


@in_many_worlds
def test_a_result_of_what_is_outstanding_is_taken(seed: int) -> None:
    """Whatever the machine asks for it also accepts: every answer to an outstanding command moves the run."""
    for world, moved in walk(seed):
        for command in outstanding(moved.after):
            if type(command).__name__.startswith("Announce"):
                continue
            if isinstance(command, RunCall) and moved.after.ending is not None:
                continue
            event = world.plain_answer(command)
            assert isinstance(step(moved.after, event, world.specs), Step), event
