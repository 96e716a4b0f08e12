"""The tools by which the runs of a tree tell each other something."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Final

from msgspec import Meta

from geartrain.machine import WAIT_SECONDS
from geartrain.tools._tool import Tool, tool

# As much as a call's arguments may hold beside its name.
PAYLOAD_CHARACTERS_MAX: Final = 16 * 1024
WAIT_SECONDS_MAX: Final = 7 * 86_400.0

Name = Annotated[str, Meta(min_length=1, max_length=200)]


@tool(name="publish", read_only=True, external=True, timeout_seconds=60.0)
def _publish(name: Name, payload: Annotated[str, Meta(max_length=PAYLOAD_CHARACTERS_MAX)] = "") -> str:
    """Publish something under a name, for all who work on the same task: who waits for that name is told.

    Args:
        name: What it is called.
        payload: What they are told.
    """
    raise NotImplementedError(f"{name!r} is published by the run itself: {payload!r}")


@tool(name="wait_for", read_only=True, external=True, timeout_seconds=WAIT_SECONDS_MAX)
def _wait_for(name: Name, timeout_seconds: Annotated[float, Meta(gt=0, le=WAIT_SECONDS_MAX)] = WAIT_SECONDS) -> str:
    """Wait until somebody who works on the same task publishes something under a name, and return it.

    Args:
        name: What it is called.
        timeout_seconds: How long to wait at most.
    """
    raise NotImplementedError(f"{name!r} is waited for by the run itself, {timeout_seconds} s")


publish: Final[Tool] = dataclasses.replace(_publish, kind="publish")
"""Publishes an event under a name within a tree of runs, once, however often the call is tried.

The run that all of them began with keeps it (`EVENTS_MAX` of them), so that a run that waits for it later hears it too.
"""

wait_for: Final[Tool] = dataclasses.replace(_wait_for, kind="wait_for")
"""Waits for the next event of a name that this run has not heard yet; its payload is the result.

The run rests meanwhile, and the wait outlives its process. When its time is over (after `WAIT_SECONDS`, unless the call
says otherwise) the result is `timed_out`. Of two calls of a run that wait for one name each hears another event.
"""
