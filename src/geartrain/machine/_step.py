"""The step: (run, event) → (run', commands, path), or a refusal with its reason.

It reads the run, the event and the recorded spec, and nothing else. It is total: an impossible pair is a returned
`Refusal`, not an exception.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from geartrain.machine._commands import Command
from geartrain.machine._crashes import forget_deaths
from geartrain.machine._draft import Draft, Refused
from geartrain.machine._ending import check_budget
from geartrain.machine._events import ActorRestarted, Event, EventBase, HandedOff, RunRecovered, RunStarted
from geartrain.machine._moves import go_on, settle_calls
from geartrain.machine._outside import in_inactive_wait
from geartrain.machine._outstanding import outstanding
from geartrain.machine._run import Run
from geartrain.machine._spec import AgentSpec
from geartrain.machine._states import ENDED, RunState
from geartrain.machine._table import ROWS, WHILE_ENDING, possible

Specs = Mapping[str, AgentSpec]

# In these states time is not active time.
_INACTIVE: Final = frozenset({RunState.CREATED, RunState.SUSPENDED, *ENDED})
_NO_TIME: Final = (RunRecovered, ActorRestarted)


class Step(msgspec.Struct, frozen=True, gc=False):
    """What a step gives: the run after the event, what must be in progress now, and the states passed through."""

    run: Run
    commands: tuple[Command, ...]
    path: tuple[RunState, ...]


class Refusal(msgspec.Struct, frozen=True):
    """Why an event cannot move a run. `duplicate` when it says what is known already."""

    state: RunState
    event: str
    reason: str
    possible: tuple[str, ...] = ()
    duplicate: bool = False


def step(run: Run, event: Event, specs: Specs) -> Step | Refusal:
    """Move *run* by one *event*.

    *specs* holds the specs by digest: the run's own, and for `RunStarted` and `HandedOff` the one they name.
    """
    handler = ROWS[run.state].get(type(event))
    if handler is None or (run.ending is not None and type(event) not in WHILE_ENDING):
        return _refused(run, event, _why_not(run))
    digest = event.spec if isinstance(event, (RunStarted, HandedOff)) else run.spec
    spec = specs.get(digest)
    if spec is None:
        return _refused(run, event, f"the spec {digest!r} is not known here")
    if not -math.inf < event.time < math.inf or not 0.0 <= event.idle_seconds < math.inf:
        return _refused(run, event, f"{event.time} is no time, or {event.idle_seconds} none that passed")
    now = max(event.time, run.updated_at)
    draft = Draft(run, spec, now, [RunState.CREATED] if run.seq == 0 else [])
    if run.state not in _INACTIVE and not isinstance(event, _NO_TIME) and not in_inactive_wait(run, spec):
        passed = now - run.updated_at - event.idle_seconds
        draft.set(active_seconds=run.active_seconds + max(0.0, passed))
    try:
        handler(draft, event)
    except Refused as refused:
        return _refused(run, event, refused.reason, duplicate=refused.duplicate)
    _after(draft)
    forget_deaths(draft, event)
    path = tuple(draft.path)
    draft.set(seq=run.seq + 1, updated_at=now, path=path, shortened=draft.shortened)
    return Step(draft.run, outstanding(draft.run), path)


def _refused(run: Run, event: EventBase, reason: str, *, duplicate: bool = False) -> Refusal:
    can = possible(run.state, ending=run.ending is not None)
    return Refusal(run.state, type(event).__name__, reason, can, duplicate)


def _why_not(run: Run) -> str:
    if run.state in ENDED:
        return f"the run ended at event {run.seq}"
    if run.ending is not None:
        return f"the run is ending ({run.ending.error.code if run.ending.error else run.ending.state})"
    return "the run has not started" if run.state is RunState.CREATED else "that is not awaited"


def _after(draft: Draft) -> None:
    """Look at the limits once more, and let what they held or cut off take effect."""
    if draft.run.state in ENDED or draft.run.ending is not None:
        return
    holds, calls = draft.run.holds, draft.run.calls
    check_budget(draft)
    if draft.run.ending is not None:
        return
    if draft.run.holds != holds and draft.run.state in (RunState.WAIT_APPROVAL, RunState.EXECUTE_TOOL):
        settle_calls(draft)
    elif draft.run.calls is not calls:
        go_on(draft)
