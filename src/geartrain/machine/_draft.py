"""The step at work: a run being changed, and the path of states it takes."""

from __future__ import annotations

from typing import Any, Literal

from msgspec.structs import force_setattr, replace

from geartrain.machine._run import Call, Run
from geartrain.machine._shorten import brief, shortened
from geartrain.machine._spec import AgentSpec
from geartrain.machine._states import (
    ALLOWED,
    DONE,
    ENDED,
    IN_PROGRESS,
    RUNNING,
    STOPPING,
    CallStatus,
    HoldKind,
    RunState,
)
from geartrain.machine._values import CallResult, Hold, PermissionDecision, Shortening

# Decisions kept in the run itself; all of them are in the journal.
DECISIONS_KEPT = 64
# Calls named of those whose results have shrunk.
CALLS_NAMED = 50
Shortened = Literal["window", "shrink", "summary", "cut"]


class Refused(Exception):
    """An event that cannot move the run, with the reason; never leaves the machine."""

    def __init__(self, reason: str, *, duplicate: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.duplicate = duplicate


class Draft:
    """A run on its way through one step: only `step` makes one, and only its result is kept.

    It works on a copy of the run that nobody else has seen, and changes that in place: half a step's time would
    otherwise go into copies of copies.
    """

    __slots__ = ("now", "path", "run", "shortened", "spec")

    def __init__(self, run: Run, spec: AgentSpec, now: float, path: list[RunState]) -> None:
        self.run = replace(run)
        self.spec = spec
        self.now = now
        self.path = path
        self.shortened: tuple[Shortening, ...] = ()

    def set(self, **changes: Any) -> None:
        """Change fields of the run."""
        run = self.run
        for name, value in changes.items():
            force_setattr(run, name, value)

    def shorten(self, how: Shortened, messages: int, size: int, calls: tuple[str, ...] = ()) -> None:
        """Note that this step has shortened the context: so many messages, by so many bytes."""
        shortening = Shortening(how=how, messages=messages, bytes=size, calls=calls[:CALLS_NAMED])
        self.shortened = (*self.shortened, shortening)

    def enter(self, state: RunState) -> None:
        """Go into *state*; a run that is suspended or ends remembers where it was."""
        self.path.append(state)
        if state is RunState.SUSPENDED or state in ENDED:
            self.set(state=state, entered_at=self.now)
        else:
            self.set(state=state, phase=state, entered_at=self.now)

    def set_call(self, call: Call, **changes: Any) -> Call:
        """Change fields of one open call, and date the change of its status."""
        if "status" in changes:
            changes["since"] = self.now
        changed = replace(call, **changes)
        call_id = call.id
        force_setattr(self.run, "calls", tuple([changed if each.id == call_id else each for each in self.run.calls]))
        return changed

    def finish_call(self, call: Call, result: CallResult) -> None:
        """Give a call its one result, trimmed to what the context takes; whatever held the run for it is lifted."""
        room = self.spec.context.result_bytes
        if len(result.text) > room:
            result = replace(result, text=shortened(result.text, room), size=max(result.size, len(result.text)))
        self.set_call(call, status=DONE, result=result)
        if self.run.holds:
            self.lift(lambda hold: hold.call_id == call.id)
        if len(self.run.calls) > 1 and self.spec.consult == "each_result":
            self.set(unconsulted=self.run.unconsulted + 1)

    def need_call(self, call_id: str, *statuses: CallStatus) -> Call:
        """Return the open call of that id in one of *statuses*, or refuse."""
        call = self.run.call(call_id)
        if call is None:
            raise Refused(f"call {call_id!r} is not open")
        if call.status not in statuses:
            if call.result is not None:
                raise Refused(f"call {call_id!r} already has its result ({call.result.status})", duplicate=True)
            raise Refused(f"call {call_id!r} is {call.status}")
        return call

    def hold(self, kind: HoldKind, call_id: str = "", reason: str = "", *, code: str = "") -> None:
        """Add a reason why the run is suspended. One that stops the run also takes back writes not yet started.

        Such a hold lasts as long as an approval does; *code* is what the run ends with then.
        """
        if any(hold.kind is kind and hold.call_id == call_id for hold in self.run.holds):
            return
        hold = Hold(kind=kind, call_id=call_id, reason=brief(reason))
        if kind in STOPPING and self.spec.rules_version >= 2:
            hold = replace(hold, expires_at=self.now + self.spec.limits.approval_expiry_seconds, code=code)
        self.set(holds=(*self.run.holds, hold))
        if kind in STOPPING:
            self.take_back_writes()

    def take_back_writes(self) -> None:
        """Make writes that were to start, and have not been journalled as started, wait again."""
        for call in self.run.calls:
            if call.status is RUNNING and call.barrier:
                self.set_call(call, status=ALLOWED)

    def lift(self, which: Any) -> bool:
        """Take away the holds for which *which* is true; return whether there were any."""
        kept = tuple(hold for hold in self.run.holds if not which(hold))
        if len(kept) == len(self.run.holds):
            return False
        self.set(holds=kept)
        return True

    def decided(self, decision: PermissionDecision) -> None:
        """Record a decision about a call."""
        self.set(permission_decisions=(*self.run.permission_decisions, decision)[-DECISIONS_KEPT:])

    @property
    def stopped(self) -> bool:
        """Whether nothing new may start: paused, out of budget or quarantined."""
        holds = self.run.holds
        return bool(holds) and any(hold.kind in STOPPING for hold in holds)

    @property
    def calls_in_progress(self) -> bool:
        """Whether an effect or a sub-agent is at work on a call."""
        return any(call.status in IN_PROGRESS for call in self.run.calls)
