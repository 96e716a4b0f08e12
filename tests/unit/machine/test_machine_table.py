"""Every state with every event: a row that handles it, or a refusal with its reason."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from machine_bench import Bench, event_of
from machine_world import walk

from geartrain.machine import (
    ENDED,
    KIND_OF_CODE,
    PUBLIC_EVENTS,
    ROWS,
    CancelRequested,
    ErrorKind,
    Event,
    InputReceived,
    ModelReplied,
    PauseRequested,
    ReasonCode,
    Refusal,
    Run,
    RunStarted,
    RunState,
    Step,
    ToolFinished,
    possible,
    step,
)

KINDS = get_args(Event)
PASSED_THROUGH = (RunState.DECIDE_ACTION, RunState.OBSERVE)


def _resting() -> dict[RunState, tuple[Run, Any]]:
    """Return one run, of many worlds, at rest in each state; those that never rest are made."""
    found: dict[RunState, tuple[Run, Any]] = {RunState.CREATED: (Run(id="r-1"), {"": Bench().spec})}
    for seed in range(400):
        for world, moved in walk(seed, events=40):
            if moved.after.ending is None or moved.after.state in ENDED:
                found.setdefault(moved.after.state, (moved.after, world.specs))
        if len(found) == len(RunState) - len(PASSED_THROUGH):
            break
    thinking, specs = found[RunState.MODEL_THINKING]
    for state in PASSED_THROUGH:
        found[state] = (_in_state(thinking, state), specs)
    return found


def _in_state(run: Run, state: RunState) -> Run:
    return msgspec.structs.replace(run, state=state)


RESTING = _resting()


@pytest.mark.parametrize("state", RunState)
@pytest.mark.parametrize("kind", KINDS)
def test_each_event_in_each_state_is_handled_or_refused_with_its_reason(kind: type[Any], state: RunState) -> None:
    run, specs = RESTING[state]
    event = event_of(kind)

    result = step(run, event, specs)

    if isinstance(result, Step):
        assert kind in ROWS[state]
        assert result.run.seq == run.seq + 1
    else:
        assert (result.state, result.event) == (state, kind.__name__)
        assert result.reason
        assert result.possible == possible(state)
        if kind not in ROWS[state]:
            assert result.reason in (
                f"the run ended at event {run.seq}", "the run has not started", "that is not awaited",
            )  # fmt: skip


def test_the_table_names_every_state_and_every_event() -> None:
    assert set(ROWS) == set(RunState)
    assert {kind for row in ROWS.values() for kind in row} == set(KINDS)


@pytest.mark.parametrize("state", [*ENDED, *PASSED_THROUGH])
def test_what_has_ended_or_never_rests_takes_nothing(state: RunState) -> None:
    assert possible(state) == ()


def test_every_kind_of_event_is_handled_somewhere_in_the_worlds() -> None:
    """The walk of the product would prove little if an event were always refused."""
    handled: set[type[Any]] = set()
    for seed in range(1_500):
        handled |= {type(moved.event) for _, moved in walk(seed) if isinstance(moved.result, Step)}
        if handled == set(KINDS):
            break

    assert set(KINDS) - handled == set()


def test_a_run_that_is_ending_says_so_and_names_what_it_still_takes() -> None:
    bench = Bench().starts().replies("", "look").verdicts("allow").does(CancelRequested)

    result = bench.offer(InputReceived, text="wait")

    assert isinstance(result, Refusal)
    assert result.reason == "the run is ending (cancelled_by_user)"
    assert "GraceElapsed" in result.possible
    assert "InputReceived" not in result.possible


def test_an_event_under_a_spec_that_is_not_known_is_refused() -> None:
    bench = Bench()

    assert "the spec 'other' is not known here" in bench.refuses(
        RunStarted, agent="agent", spec="other", input="go", budget=bench.spec.budget
    )


@pytest.mark.parametrize("time", [float("nan"), float("inf"), float("-inf")])
def test_a_time_that_is_none_is_refused(time: float) -> None:
    assert "is no time" in Bench().starts().refuses(PauseRequested, time=time)


def test_every_reason_code_has_its_kind_and_every_kind_a_code() -> None:
    assert set(KIND_OF_CODE) == set(ReasonCode)
    assert set(KIND_OF_CODE.values()) == set(ErrorKind)


def test_callers_may_not_post_what_only_the_runtime_knows() -> None:
    assert set(PUBLIC_EVENTS) < set(KINDS)
    assert not {ModelReplied, ToolFinished, RunStarted} & set(PUBLIC_EVENTS)
