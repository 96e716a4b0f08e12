"""Runs that may have killed the process that moved them, and go on one at a time.

Rule 1: nobody can see which of a thousand runs has ended a process. So none is blamed for being there: runs that keep
being in the middle of something that could have, `limits.crashes_before_alone` times in a row without progress, go on
alone, all others as ever. Only who was alone when the process died is counted (`Run.crashes_alone`), in its journal.
Rule 2: at first only calls of tools that run inside this process are suspect; what else a stranger has written (models,
providers, policies) runs inside it as well, and is suspect if the deaths go on.
Rule 3: who waits for its turn stays in the store. What is brought to it meanwhile is stored, and starts nothing. The
wait is no active time, and nothing is overdue in it: the run has nothing in progress.
Rule 4: before the death that would set it apart, alone is alone: for `HOLD_SECONDS` no call of another run begins that
runs inside this process. Else whoever is slow would be blamed for what a newer one does beside it. While runs are taken
over nobody knows yet who will be alone, so of those who were in the middle no such call begins until that is over.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Final

from geartrain.limits import Limits
from geartrain.machine import (
    IN_PROGRESS,
    STOPPING,
    AgentSpec,
    AnnounceApproval,
    AnnounceEnd,
    Call,
    Event,
    Run,
    RunQuarantined,
    RunRecovered,
    awaits_answer,
    is_outside,
    outstanding,
    rests,
    wake_at,
)
from geartrain.persistence import Claim, LoadedRun
from geartrain.runtime._agent import RegisteredAgent
from geartrain.runtime._entry import EPOCH

# Not for as long as the call may take: what kills does so soon, and others have budgets and deadlines.
HOLD_SECONDS: Final = 10.0
SHUTDOWN: Final = "shutdown"
CRASH: Final = "crash"
READ_AGAIN: Final = "read again"


def interruption(loaded: LoadedRun, claim: Claim) -> str:
    """Return why a run that is found in the middle is there: its process died, was stopped, or is this very one."""
    epoch = loaded.head.counters.get(EPOCH)
    if epoch == claim.epoch:
        return READ_AGAIN
    # Of runs from before it was recorded, only that of the claim before this one is known.
    return CRASH if (claim.epoch - 1 if epoch is None else epoch) in claim.lost else SHUTDOWN


def recovered(run: Run, time: float, reason: str, *, alone: bool = False) -> RunRecovered:
    """Return the first event of a run that was left in the middle."""
    attempt = run.recoveries + 1
    clean = reason != CRASH
    return RunRecovered(id=f"recovery.{attempt}", time=time, attempt=attempt, clean=clean, alone=alone, reason=reason)


def suspect(run: Run, spec: AgentSpec, reason: str, agents: Mapping[str, RegisteredAgent], limits: Limits) -> bool:
    """Whether *run*, interrupted for *reason*, may have killed the processes that moved it, by today's code."""
    deaths = run.unclean + (reason == CRASH)
    if deaths < limits.crashes_before_alone:
        return False
    if _convicted(run, reason, limits):
        return False  # it is set apart at once, and needs no turn for that
    if any(_runs_in_process(call, agents.get(run.agent)) for call in run.calls):
        return True
    patience = limits.crashes_before_alone + 2 * limits.crashes_alone
    return deaths >= patience and any(
        not isinstance(command, (AnnounceApproval, AnnounceEnd)) and not is_outside(command, spec)
        for command in outstanding(run)
    )


def _convicted(run: Run, reason: str, limits: Limits) -> bool:
    return run.crashes_alone + (run.alone and reason == CRASH) >= limits.crashes_alone


def _runs_in_process(call: Call, registered: RegisteredAgent | None) -> bool:
    if call.status not in IN_PROGRESS or call.sub_agent or awaits_answer(call) or registered is None:
        return False
    return is_inside(call.tool, registered)


def is_inside(tool: str, registered: RegisteredAgent) -> bool:
    """Whether a tool runs inside this process, and so may end it."""
    found = registered.agent.tools.get(tool)
    return found is not None and found.isolation != "process"


def verdict(run: Run, spec: AgentSpec, limits: Limits) -> RunQuarantined | None:
    """Return what sets a run apart that was alone too often when its process died; None if it was not."""
    if not limits.crashes_alone <= run.crashes_alone or run.ending is not None or rests(run, spec):
        return None
    open_calls = [f"{call.id} of {call.tool!r}" for call in run.calls if call.result is None and call.attempt > 1]
    what = f"call {', '.join(open_calls)}" if open_calls else f"what it does in {run.state}"
    reason = (
        f"{what} kills the process: {run.unclean} processes in a row died without progress of this run, "
        f"{run.crashes_alone} of them while it alone was suspect"
    )
    return RunQuarantined(id=f"kills.{run.seq}", time=run.updated_at, reason=reason)


def interrupted(run: Run, event: Event, spec: AgentSpec) -> RunRecovered | None:
    """Return what lets a suspect that waits for its turn rest, or end, at once, if *event* is a reason for it to.

    To the run its calls are in progress, but nobody will ever bring their results.
    """
    stopped = run.ending is not None or any(map(run.held_by, STOPPING))
    if isinstance(event, RunRecovered) or not stopped or rests(run, spec):
        return None
    return recovered(run, run.updated_at, READ_AGAIN)


class Suspects:
    """Whose turn it is to go on alone, who waits for one, and whose calls are held back meanwhile."""

    __slots__ = ("_crashes_alone", "_holding", "_last", "_looking", "_timer", "_waiting", "alone", "on_free", "on_turn")

    def __init__(self, limits: Limits) -> None:
        self.alone: str | None = None
        # Told the id of the run whose turn has come.
        self.on_turn: Callable[[str], None] = lambda _run_id: None
        # Called when calls that were held back may begin.
        self.on_free: Callable[[], None] = lambda: None
        self._crashes_alone = limits.crashes_alone
        # Whether one more death sets apart who is alone; whether runs are being taken over; whether a call is held.
        self._last = self._looking = self._holding = False
        self._timer: asyncio.TimerHandle | None = None
        # In the order in which they came, with when each wants to be woken all the same: it has a deadline, say.
        self._waiting: dict[str, float] = {}

    @property
    def waiting(self) -> tuple[str, ...]:
        """Who waits for a turn, the next one first."""
        return tuple(self._waiting)

    def waits(self, run_id: str) -> bool:
        """Whether a run waits for its turn: nothing of it may start."""
        return run_id in self._waiting

    def sleeps(self, run_id: str, now: float) -> bool:
        """Whether a run waits for its turn and wants nothing else at *now*."""
        return now < self._waiting.get(run_id, -math.inf)

    def wakes_at(self, run_id: str) -> float | None:
        """Return when a run that waits for its turn wants to be woken all the same; None for never."""
        time = self._waiting.get(run_id, math.inf)
        return time if time < math.inf else None

    def admit(self, run: Run, spec: AgentSpec) -> bool:
        """Let a suspect go on if nobody else is alone; otherwise it waits, and this returns False."""
        if self.alone in (None, run.id):
            self.alone = run.id
            self._waiting.pop(run.id, None)
            return True
        self.hold_back(run, spec)
        return False

    def hold_back(self, run: Run, spec: AgentSpec) -> None:
        """Have a suspect wait, even if nobody else is alone; `go_on` lets the next one have its turn."""
        wanted = wake_at(run, spec, at_work=False)
        self._waiting[run.id] = math.inf if wanted is None else wanted

    def go_on(self) -> None:
        """Let the next one have its turn, if nobody is alone."""
        if self.alone is None:
            self.alone = next(iter(self._waiting), None)
            if self.alone is not None:
                del self._waiting[self.alone]
                self.on_turn(self.alone)

    def moved(self, run: Run, spec: AgentSpec) -> None:
        """Note how far a run has come: after progress, or at rest, it is suspect no longer."""
        if run.id == self.alone:
            if not run.unclean or rests(run, spec):
                self.gone(run.id)
            elif self._timer is None and run.alone and run.crashes_alone >= self._crashes_alone - 1:
                self._last = True
                self._timer = asyncio.get_running_loop().call_later(HOLD_SECONDS, self._hold_no_longer)
        elif run.id in self._waiting and rests(run, spec):
            del self._waiting[run.id]

    def gone(self, run_id: str) -> None:
        """Note that a run is no longer in memory, or no longer suspect: the next one's turn has come."""
        if run_id == self.alone:
            self.alone = None
            self._end_hold()
            self.go_on()
            self._free()

    def look(self, looking: bool) -> None:
        """Note that runs are being taken over from now on, or are no longer."""
        self._looking = looking
        if not looking:
            self._free()

    def defers_call_of(self, run: Run) -> bool:
        """Whether a call of *run* that would run inside this process must not begin yet; `on_free` is called then."""
        if run.id == self.alone:
            return False
        held = self._last or (self._looking and bool(run.unclean))
        self._holding |= held
        return held

    def close(self) -> None:
        """Let nobody have a turn any more."""
        self._waiting.clear()
        self.alone = None
        self._end_hold()
        self._looking = self._holding = False

    def _end_hold(self) -> None:
        self._last = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hold_no_longer(self) -> None:
        self._last = False
        self._free()

    def _free(self) -> None:
        if self._holding:
            self._holding = False
            self.on_free()
