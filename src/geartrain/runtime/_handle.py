"""The handle of a run: what a caller does with one run. Cheap, and made anew whenever it is wanted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, Protocol

from geartrain.errors import InvalidValue
from geartrain.limits import Limits
from geartrain.machine import (
    ApprovalDecided,
    Budget,
    BudgetRaised,
    CallAnswered,
    CallSettled,
    CancelRequested,
    Event,
    InputReceived,
    PauseRequested,
    RequestedCall,
    ResultStatus,
    RunResumed,
    TurnTaken,
)
from geartrain.runtime._edge import checked_input, clean_text
from geartrain.runtime._hub import Watch
from geartrain.runtime._reading._runs import JournalEntry, RunSnapshot
from geartrain.runtime._reading._tree import RunTree
from geartrain.runtime._starting import checked_budget


class Access(Protocol):
    """What a handle needs: the way to runs of the runtime that it was made by."""

    @property
    def limits(self) -> Limits:
        """The runtime's limits."""
        ...

    async def snapshot(self, run_id: str) -> RunSnapshot:
        """Return a run as it is stored now."""
        ...

    async def wait_until(self, run_id: str, *, at_rest: bool) -> RunSnapshot:
        """Wait until a run has ended, or rests."""
        ...

    async def tree(self, run_id: str) -> RunTree:
        """Return a run with all that is below it."""
        ...

    async def below(self, run_id: str, other: str) -> str:
        """Return *other* if it is a run below *run_id*, or that itself."""
        ...

    def follow(self, run_id: str, after: int) -> AsyncIterator[JournalEntry]:
        """Yield a run's journal, and go on as it grows."""
        ...

    def watch(self, run_id: str) -> Watch:
        """Return a live stream of what happens to a run from now on."""
        ...

    async def check_arguments(self, run_id: str, call_id: str, arguments: str) -> None:
        """Check arguments that a person edited."""
        ...

    async def act(self, run_id: str, kind: type[Event], by: str, event_id: str | None, fields: dict[str, Any]) -> int:
        """Bring an event of *kind* to a run."""
        ...


class RunHandle:
    """One run of a runtime. Made by `Runtime.start` and `Runtime.get`.

    Every act is an event: when the call returns it is stored. `by` names who acts; it is kept with the event.
    `event_id` makes an act repeatable: the same id again is acknowledged and changes nothing. A call of a run below
    this one is named `RUN/CALL`, as the `id` of an `OpenCall` is; `RunNotFound` if that run is not below it.
    """

    __slots__ = ("_runtime", "id")

    def __init__(self, runtime: Access, run_id: str) -> None:
        self._runtime = runtime
        self.id = run_id

    def __repr__(self) -> str:
        return f"<RunHandle {self.id}>"

    async def snapshot(self) -> RunSnapshot:
        """Return the run as it is stored now."""
        return await self._runtime.snapshot(self.id)

    async def tree(self) -> RunTree:
        """Return the run with all that is below it: who is at work for whom, and who waits for somebody."""
        return await self._runtime.tree(self.id)

    async def wait_ended(self) -> RunSnapshot:
        """Wait until the run has ended. Cancelling the wait never cancels the run.

        Raises:
            RunSetApart: The run cannot be moved.
            RuntimeClosed: The runtime closed first.
        """
        return await self._runtime.wait_until(self.id, at_rest=False)

    async def wait_at_rest(self) -> RunSnapshot:
        """Wait until the run has ended, or it and all that is below it wait for somebody and for nothing else.

        Cancelling the wait never cancels the run. Raises as `wait_ended` does.
        """
        return await self._runtime.wait_until(self.id, at_rest=True)

    def events(self, after: int = 0) -> AsyncIterator[JournalEntry]:
        """Yield the journal's entries numbered above *after*, in order and without gaps, until the run has ended.

        At the end of what is stored it waits for more. Each entry is stored before it is seen; leave the iteration
        whenever you like, and go on from the last number you saw.
        """
        return self._runtime.follow(self.id, after)

    def watch(self) -> Watch:
        """Return a live stream of trace records and pieces of replies: bounded, and lossy for a slow reader."""
        return self._runtime.watch(self.id)

    async def send(
        self, text: str, *, by: str = "", pinned: bool = False, event_id: str | None = None, to: str = ""
    ) -> int:
        """Say something to the run, or *to* one below it: it is heard at the next model call, or is an answer.

        With *pinned* it is neither dropped from the context nor shortened or summarised, however long the run is.

        Raises:
            EventRefused: It does not fit into the context, beside what is pinned there; or too much waits already.
        """
        cleaned = checked_input(text, self._runtime.limits)
        return await self._act(InputReceived, by, event_id, to=to, text=cleaned, pinned=pinned)

    async def approve(
        self,
        call_id: str,
        *,
        by: str,
        reason: str = "",
        arguments: str | None = None,
        arguments_digest: str = "",
        remember: Literal["", "run"] = "",
        event_id: str | None = None,
    ) -> int:
        """Approve one call. The policy in force is asked once more before it runs; a denial there wins.

        Args:
            call_id: Which call.
            by: Who decides.
            reason: Why, for the record.
            arguments: JSON text that replaces the model's arguments.
            arguments_digest: What the decider saw; a decision about other arguments is refused.
            remember: "run" approves the same tool with the same arguments for the rest of this run.
            event_id: For a repeatable delivery.

        Raises:
            EventRefused: The call is not waiting for a decision; the reason says what was decided already.
            ArgumentsInvalid: The edited arguments do not fit the tool.
        """
        if arguments is not None:
            run_id, own_id = await self._target(call_id)
            await self._runtime.check_arguments(run_id, own_id, arguments)
        return await self._act(
            ApprovalDecided,
            _named(by),
            event_id,
            call_id=call_id,
            approved=True,
            reason=clean_text(reason),
            arguments=arguments,
            arguments_digest=arguments_digest,
            remember=remember,
        )

    async def deny(self, call_id: str, *, by: str, reason: str = "", event_id: str | None = None) -> int:
        """Deny one call: the run ends, or the model is told, as the agent's `on_denied` says.

        Raises:
            EventRefused: The call is not waiting for a decision.
        """
        return await self._act(
            ApprovalDecided, _named(by), event_id, call_id=call_id, approved=False, reason=clean_text(reason)
        )

    async def settle(
        self,
        call_id: str,
        *,
        by: str,
        done: bool = False,
        not_done: Literal["", "run", "skip"] = "",
        text: str = "",
        event_id: str | None = None,
    ) -> int:
        """Settle a doubt: the write was done (*text* is its result), or it was not and is to be run, or skipped.

        Raises:
            InvalidValue: Not exactly one of *done* and *not_done* is given.
            EventRefused: The call is not in doubt.
        """
        if done == bool(not_done):
            raise InvalidValue("done and not_done", "given one of the two", (done, not_done))
        return await self._act(
            CallSettled, _named(by), event_id, call_id=call_id, done=done, not_done=not_done, text=text
        )

    async def answer_call(
        self,
        call_id: str,
        text: str,
        *,
        by: str,
        status: Literal["ok", "error"] = "ok",
        event_id: str | None = None,
    ) -> int:
        """Answer a call in the tool's place, with *text* as its result; the way to answer an external tool's call.

        Raises:
            InvalidValue: *status* is neither "ok" nor "error".
            EventRefused: The call has its result, or is a write that has started here.
        """
        if status not in ("ok", "error"):
            raise InvalidValue("status", '"ok" or "error"', status)
        return await self._act(
            CallAnswered, _named(by), event_id, call_id=call_id, text=text, status=ResultStatus(status)
        )

    async def reply(
        self,
        text: str = "",
        *,
        by: str,
        calls: Sequence[RequestedCall] = (),
        turn: int | None = None,
        event_id: str | None = None,
    ) -> int:
        """Write the model's turn in its place: an answer, calls, or both.

        With *turn* (`turn_count + 1` of the snapshot that was replied to) it is for that turn only, so that it is not
        taken for a later one if somebody else was faster; without, for whichever is awaited.

        Raises:
            InvalidValue: *turn* is less than 1.
            EventRefused: The model's turn has not come, or another one is awaited.
        """
        if turn is not None and turn < 1:
            raise InvalidValue("turn", "at least 1, or None", turn)
        return await self._act(TurnTaken, _named(by), event_id, text=text, calls=tuple(calls), turn=turn or 0)

    async def pause(self, *, by: str = "", reason: str = "", event_id: str | None = None) -> int:
        """Pause: what runs finishes, nothing new starts."""
        return await self._act(PauseRequested, by, event_id, reason=clean_text(reason))

    async def resume(self, *, by: str = "", event_id: str | None = None) -> int:
        """Go on after a pause or out of quarantine.

        Raises:
            EventRefused: The run is not paused; the reason names what it waits for.
        """
        return await self._act(RunResumed, by, event_id)

    async def raise_budget(self, budget: Budget, *, by: str = "", event_id: str | None = None) -> int:
        """Put *budget* in the place of the run's own; a run held for its budget goes on.

        Every limit of the old one is gone: to change some, have `msgspec.structs.replace` change `snapshot().budget`.
        A sub-agent's run is paid for by its parent, which takes the event (the number returned is one of the parent's
        journal), reserves what is more, and passes it on.

        Raises:
            InvalidValue: It is no budget, or limits a cost that nothing tells.
            EventRefused: The parent of a sub-agent's run has not so much left; the reason says how much it has.
        """
        return await self._act(BudgetRaised, by, event_id, budget=checked_budget(budget))

    async def cancel(self, reason: str = "", *, by: str = "", event_id: str | None = None) -> int:
        """Cancel the run: nothing starts any more, what is in progress has the grace."""
        return await self._act(CancelRequested, by, event_id, reason=clean_text(reason))

    async def _act(self, kind: type[Event], by: str, event_id: str | None, *, to: str = "", **fields: object) -> int:
        run_id = await self._runtime.below(self.id, to) if to else self.id
        if "call_id" in fields:
            run_id, fields["call_id"] = await self._target(fields["call_id"])
        return await self._runtime.act(run_id, kind, by, event_id, fields)

    async def _target(self, call_id: Any) -> tuple[str, str]:
        """Return the run and the call that are meant by a call's id, or by RUN/CALL."""
        run_id, slash, own_id = call_id.rpartition("/") if isinstance(call_id, str) else ("", "", call_id)
        return (await self._runtime.below(self.id, run_id), own_id) if slash else (self.id, own_id)


def _named(by: str) -> str:
    """Return who acts, if that is said.

    Raises:
        InvalidValue: It is blank: a decision is somebody's.
    """
    if isinstance(by, str) and not by.strip():
        raise InvalidValue("by", "the name of who acts, not blank", by)
    return by
