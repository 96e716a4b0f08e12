"""Cancelled runs at sampled instants, and the sweep itself: the short version of what `make cancel-sweep` does."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import cancel_sweep
import pytest
from cancel_sweep import Row, Sweep

from geartrain.errors import EventRefused
from geartrain.runtime import RunHandle
from geartrain.runtime._effects import _tool as _tool_effect
from geartrain.runtime._tasks import EffectTask

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]

ON_THE_LOOP = (
    "never_answer",
    "swallow_cancel_once",
    "swallow_cancel_always",
    "wait_for_stubborn_tasks",
    "leave_a_task",
)
ELSEWHERE = ("block_for_seconds", "spin", "kill_itself")


def wrong(rows: list[Row]) -> list[str]:
    return [found for row in rows for found in row.wrong]


def test_runs_cancelled_or_out_of_time_at_any_moment_end_in_time_and_leave_nothing() -> None:
    # How long it takes on the real clock is for `make cancel-sweep`: here other tests may have the processors.
    names = (*ON_THE_LOOP, *ELSEWHERE)
    real = {"acknowledged_seconds": 5.0, "slack_seconds": 5.0}
    rows = cancel_sweep.run(Sweep(instants=24, real_instants=4, seed=3, names=names, **real))

    assert wrong(rows) == []
    assert len(rows) == 2 * len(names)
    assert sum(row.runs - row.over_before for row in rows) > 200


def test_the_sweep_finds_an_effect_that_is_not_told_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EffectTask, "stop", lambda _self, _why: None)

    found = wrong(cancel_sweep.run(Sweep(instants=12, names=("never_answer",), real_instants=0)))

    assert any("s to end, and may take 1 s" in each for each in found)


def test_the_sweep_finds_a_place_in_the_pool_that_is_not_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = _tool_effect.ToolEffect.stop

    def forgetful(self: Any) -> None:
        self._ticket = None if self.task is None else self._ticket
        stop(self)

    monkeypatch.setattr(_tool_effect.ToolEffect, "stop", forgetful)

    found = wrong(cancel_sweep.run(Sweep(instants=60, names=("never_answer",), real_instants=0)))

    assert any("places in the pool" in each for each in found)


def test_the_sweep_finds_an_acknowledgement_that_comes_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    cancel = RunHandle.cancel
    under_way: set[Any] = set()

    async def later(self: RunHandle, reason: str) -> None:
        await asyncio.sleep(0.05)
        with suppress(EventRefused):
            await cancel(self, reason)

    async def early(self: RunHandle, reason: str = "") -> None:
        task = asyncio.create_task(later(self, reason))
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    monkeypatch.setattr(RunHandle, "cancel", early)

    found = wrong(cancel_sweep.run(Sweep(instants=60, names=("pretend_to_be_cancelled",), real_instants=0)))

    assert any("was called afterwards" in each for each in found)
