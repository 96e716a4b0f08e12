"""Which time counts as standing still, and which loops are watched at all."""

from __future__ import annotations

import threading

import pytest
from runtime_world import Store

from geartrain.runtime._stall import lateness

TICK = 0.25


@pytest.mark.parametrize(
    ("elapsed", "used", "queued", "counted"),
    [
        (0.25, 0.0, 0.0, 0.25),  # it sleeps on the loop, and the watcher looks in time
        (0.25, 0.25, 0.0, 0.25),  # it computes on the loop
        (0.30, 0.0, 0.05, 0.25),  # what it was ready for and got no processor in does not count
        (0.25, 0.0, 0.25, 0.0),  # starved: others have the processor
        (0.25, 0.0, 9.0, 0.0),  # never less than nothing
        (60.0, 0.0, 0.0, 0.5),  # the process was stopped: the watcher looked late too
        (60.0, 0.0, 59.0, 0.5),
        (60.0, 59.5, 0.0, 59.5),  # the loop's thread computed and let nobody else run Python
        (0.25, 0.30, 0.0, 0.25),  # clocks differ a little: never more than has passed
    ],
)
def test_only_time_counts_in_which_the_loop_could_have_answered(
    elapsed: float, used: float, queued: float, counted: float
) -> None:
    assert lateness(elapsed, TICK, used=used, queued=queued) == pytest.approx(counted)


async def test_a_loop_with_virtual_time_is_not_watched() -> None:
    async with Store().runtime() as runtime:
        statistics = await runtime.statistics()

        assert not statistics.loop.watched
        assert not any(thread.name == "geartrain-stall" for thread in threading.enumerate())
