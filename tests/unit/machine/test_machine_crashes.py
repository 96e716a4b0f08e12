"""What a run remembers of processes that died and of actors that crashed, and when it forgets."""

from __future__ import annotations

from typing import Any

import pytest
from machine_bench import Bench, event_of, writing

from geartrain.limits import RESTARTS_KEPT
from geartrain.machine import (
    ActorRestarted,
    ApprovalDecided,
    Event,
    InputReceived,
    PauseRequested,
    RunQuarantined,
    RunRecovered,
    RunResumed,
    ToolStarted,
)
from geartrain.machine._crashes import _PROGRESS


def reading() -> Bench:
    return Bench().starts().replies("", "look").verdicts("allow")


def dies(bench: Bench, **fields: Any) -> Bench:
    return bench.does(RunRecovered, attempt=bench.run.recoveries + 1, **fields)


def counts(bench: Bench) -> tuple[int, bool, int]:
    return bench.run.unclean, bench.run.alone, bench.run.crashes_alone


# -- processes that died


def test_every_process_that_dies_in_a_row_counts_against_the_run() -> None:
    assert [counts(dies(bench))[0] for bench in [reading()] for _ in range(3)] == [1, 2, 3]


def test_an_orderly_stop_counts_nothing_and_forgives_nothing() -> None:
    bench = dies(dies(reading()), clean=True, reason="shutdown")

    assert counts(bench) == (1, False, 0)


def test_only_the_death_of_a_process_in_which_the_run_was_alone_says_something_about_it() -> None:
    bench = dies(dies(reading()))
    assert counts(bench) == (2, False, 0)

    assert counts(dies(bench, alone=True)) == (3, True, 0)
    assert counts(dies(bench, alone=True)) == (4, True, 1)
    assert counts(dies(bench)) == (5, False, 2)
    assert counts(dies(bench)) == (6, False, 2)


def test_a_process_that_stopped_in_order_while_the_run_was_alone_says_nothing_about_it() -> None:
    bench = dies(dies(reading(), alone=True), clean=True, alone=True)

    assert counts(bench) == (1, True, 0)


def test_what_an_effect_brings_lets_the_count_begin_anew() -> None:
    bench = dies(dies(reading()), alone=True)

    assert counts(bench.finishes("t1.c1")) == (0, False, 0)


def test_verdicts_and_a_start_are_no_progress_as_a_call_that_kills_has_them_each_time() -> None:
    bench = writing("put")
    for death in (1, 2):
        dies(bench)
        bench.verdicts("allow").begins("t1.c1")

        assert counts(bench) == (death, False, 0)


def test_what_is_said_to_a_run_is_no_progress_of_its_own() -> None:
    bench = dies(reading()).does(InputReceived, text="and?").does(PauseRequested)

    assert counts(bench) == (1, False, 0)


def test_a_decision_of_a_person_is_progress() -> None:
    bench = dies(Bench().starts().replies("", "write", "look").verdicts("ask", "allow"))

    assert counts(bench.does(ApprovalDecided, call_id="t1.c1", approved=True)) == (0, False, 0)


def test_a_person_who_resumes_a_run_lets_every_count_begin_anew() -> None:
    bench = dies(dies(dies(reading()), alone=True), alone=True)
    bench.does(ActorRestarted, reason="bug", restarts=3, resume_at=bench.now + 9)
    bench.does(RunQuarantined, reason="poison").does(RunResumed)

    assert counts(bench) == (0, False, 0)
    assert (bench.run.restarts, bench.run.restarted_at) == (0, ())


def test_no_event_that_a_killing_call_brings_each_time_counts_as_progress() -> None:
    assert not _PROGRESS & {RunRecovered, ActorRestarted, RunQuarantined, ToolStarted, InputReceived}


# -- actors that crashed


def test_a_run_keeps_the_times_of_its_newest_restarts() -> None:
    bench = reading()
    times = []
    for count in range(1, RESTARTS_KEPT + 10):
        bench.does(ActorRestarted, reason="bug", restarts=count)
        times.append(bench.now)

    assert bench.run.restarted_at == tuple(times[-RESTARTS_KEPT:])
    assert bench.run.restarts == RESTARTS_KEPT + 9


# -- time in which the store could not write


def test_time_in_which_the_store_could_not_write_is_no_active_time() -> None:
    bench = reading()
    active = bench.run.active_seconds

    bench.does(InputReceived, text="and?", time=bench.now + 100.0, idle_seconds=90.0)

    assert bench.run.active_seconds == active + 10.0


def test_more_idle_time_than_has_passed_takes_no_active_time_back() -> None:
    bench = reading()
    active = bench.run.active_seconds

    bench.does(InputReceived, text="and?", idle_seconds=90.0)

    assert bench.run.active_seconds == active


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_a_time_that_cannot_have_passed_is_refused(seconds: float) -> None:
    assert "none that passed" in reading().refuses(InputReceived, text="t", idle_seconds=seconds)


def test_an_event_says_nothing_of_idle_time_where_there_was_none() -> None:
    event: Event = event_of(InputReceived)

    assert event.idle_seconds == 0.0
