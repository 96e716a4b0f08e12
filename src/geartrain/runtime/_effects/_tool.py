"""A tool call as an effect: a place in the pool, the journalled start of a write, the result or the doubt.

As long as an earlier attempt of a write is at work in this runtime, the write is neither verified nor run again. The
effect waits for the end of that attempt, without a task and without a place in the pool, for at most
`limits.dwell_seconds`: with the call's own time-out that is as long as a call may dwell. Then the write is in doubt,
which ends with a person: a verification leads there at once, an attempt no later than after `write_attempts`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from geartrain.actors import Reply
from geartrain.errors import plain_traceback
from geartrain.machine import CallStatus, ResultStatus, RunCall, ToolFinished, ToolStarted, WriteInDoubt
from geartrain.runtime._attempts import Wait
from geartrain.runtime._edge import clean_text, plain_payload
from geartrain.runtime._effects._effect import Effect, Registry
from geartrain.runtime._effects._executor import CallOutcome
from geartrain.runtime._effects._given_up import tell_late_end
from geartrain.runtime._effects._traced import TracedRecords
from geartrain.runtime._log import log
from geartrain.runtime._node import RunAtWork
from geartrain.runtime._reading._projection import OWN_NAMES
from geartrain.runtime._reading._results import whole_result
from geartrain.runtime._tasks import EffectTask, End, Ended
from geartrain.tools import Ticket, Tool, ToolContext, cleaned, error_text


class ToolEffect(Effect):
    """A tool call: waits for a place in the pool, journals a write as started, runs, reports."""

    __slots__ = (
        "_asked_to_start",
        "_at_work",
        "_began",
        "_earlier",
        "_given_up",
        "_held_back",
        "_returned",
        "_runs",
        "_ticket",
        "_tool",
        "_traced",
    )

    command: RunCall

    def __init__(self, effects: Registry, run_id: str, command: RunCall, tool: Tool | None) -> None:
        super().__init__(effects, run_id, command)
        self._tool = tool
        self._ticket: Ticket | None = None
        self._earlier: Wait | None = None
        self._held_back = False
        self._asked_to_start = False
        self._began = False
        self._returned = False
        self._at_work = False
        self._runs = False
        self._given_up = False
        self._traced = TracedRecords(self.node.clock.now())

    @property
    def must_finish(self) -> bool:
        """Whether a stop has to wait for it: a write whose start is journalled, or about to be."""
        return self._writes and (self._asked_to_start or self.task is not None)

    @property
    def _writes(self) -> bool:
        return not self.command.read_only and self.command.mode == "run"

    def begin(self, actor: RunAtWork) -> None:
        """Queue for a place in the pool, once no earlier attempt of a write is at work any more."""
        command, tool = self.command, self._tool
        if tool is None:
            text = f"the tool {command.tool!r} is gone: this agent has it no more"
            self._report_outcome(CallOutcome(ResultStatus.ERROR, text))
            return
        call = actor.run.call(command.call_id)
        if call is not None and call.status is CallStatus.STARTED and command.mode == "run":
            self.report(self._in_doubt("it was started, and nothing here runs it"))
            return
        if not command.read_only:
            seconds = self.node.limits.dwell_seconds
            self._earlier = self.node.attempts.when_over(self.run_id, command.call_id, seconds, self._waited)
        if self._earlier is None:
            self._queue(tool)

    def _waited(self, over: bool) -> None:
        """Go on once no earlier attempt is at work, or once there is no more time to wait for that."""
        self._earlier = None
        actor = self.node.actors.get(self.run_id)
        try:
            if over and self._tool is not None:
                self._queue(self._tool)
            elif self._writes and actor is not None:
                # Only a started write can be in doubt.
                self._held_back = True
                self._journal_start(actor)
            else:
                self._report_held_back()
        except Exception as error:  # noqa: BLE001 - as in `_granted`: its run is set apart, nobody else hurt
            self.broken(error)

    def _report_held_back(self) -> None:
        seconds = self.node.limits.dwell_seconds
        self.report(self._in_doubt(f"an earlier attempt still runs; its end was awaited for {seconds:g} s"))

    def _queue(self, tool: Tool) -> None:
        # The grant may come at once, before the ticket is known here.
        self._ticket = self.node.pool.request(self.run_id, tool.isolation, self._granted)

    def _granted(self) -> None:
        actor = self.node.actors.get(self.run_id)
        if self.unwanted or self.quiet or actor is None:
            asyncio.get_running_loop().call_soon(self._release)
            return
        try:
            if self._writes:
                self._journal_start(actor)
            else:
                self._run(actor)
        except Exception as error:  # noqa: BLE001 - the pool must go on, whatever is wrong with this one
            asyncio.get_running_loop().call_soon(self._release)  # the ticket may not be known here yet
            self.broken(error)

    def _journal_start(self, actor: RunAtWork) -> None:
        """Have the start stored; the write waits for that without a task, and its time begins afterwards."""
        event = ToolStarted(
            id=f"{self.key}.started",
            time=self.node.clock.now(),
            source="tool",
            call_id=self.command.call_id,
            attempt=self.command.attempt,
        )
        reply: Reply[int] = Reply()
        reply.when_answered(self._start_answered)
        actor.put_result(event, reply=reply)
        self._asked_to_start = True

    def _start_answered(self, answer: asyncio.Future[int]) -> None:
        """Run once the start is durable; do nothing if the run had turned away before."""
        self._asked_to_start = False
        refused = answer.cancelled() or answer.exception() is not None
        actor = self.node.actors.get(self.run_id)
        if refused or actor is None or self.quiet:
            self._release()
            self.unwanted = True
            self.finished()
            return
        # Stored, so the run wants it: whatever made it unwanted before has been taken back.
        self.unwanted = False
        try:
            if self._held_back:
                self._report_held_back()
            else:
                self._run(actor)
        except Exception as error:  # noqa: BLE001 - as above
            self.broken(error)

    def _run(self, actor: RunAtWork) -> None:
        assert self._tool is not None, "asked for a place only with a tool"
        run = actor.run
        call_id = self.command.call_id
        context = ToolContext(
            run_id=self.run_id,
            call_id=call_id,
            idempotency_key=f"{self.run_id}/{call_id}",
            attempt=self.command.attempt,
            deadline=run.deadline,
            context=run.context,
            principal=run.principal,
            emit=self._emit,
            read_result=partial(whole_result, self.node.journal, self.run_id),
        )
        work = self.effects.executor.run_tool(
            self._tool, self.command, context, self._begin, self._over, returned=self._function_returned
        )
        self.spawn(work, self._seconds)

    @property
    def _seconds(self) -> float:
        """How long it may take: of an external tool's own time, asking it here takes no more than a call does here."""
        seconds = self.command.timeout_seconds
        return min(seconds, self.node.limits.tool_call_seconds) if self.command.external else seconds

    def _emit(self, name: str, payload: Mapping[str, Any]) -> None:
        name = f"tool.{clean_text(name)}" if name in OWN_NAMES else clean_text(name)
        plain = plain_payload({**payload, "call_id": self.command.call_id})
        self.node.hub.live_from_anywhere(self.run_id, name, plain)
        self._traced.note(name, plain)

    def _begin(self) -> None:
        self._began = self._runs = True
        if self._writes and not self._at_work:
            self._at_work = True
            self.node.attempts.begin(self.run_id, self.command.call_id)

    def _function_returned(self) -> None:
        self._returned = True

    def _over(self) -> None:
        self._runs = False
        if self._given_up:
            end = End.RETURNED if self._returned else End.RAISED
            tell_late_end(self.node, self.run_id, self.key, Ended(end))
        if self._at_work:
            self._at_work = False
            self.node.attempts.end(self.run_id, self.command.call_id)

    def elsewhere(self) -> Sequence[str]:
        """Return what of it runs outside of the event loop: on a thread it goes on, a worker process is ended."""
        if self._runs and self.command.mode == "run" and self._tool is not None and self._tool.isolation == "thread":
            return (f"{self.command.tool} on a thread",)
        return ()

    def given_up(self, abandoned: EffectTask | None) -> None:
        """Name what still runs of it; the end of a function on a thread is told when it comes."""
        super().given_up(abandoned)
        self._given_up = abandoned is None and bool(self.elsewhere())

    def ended(self, ended: Ended) -> None:
        """Report a result, a doubt, or nothing if the run had turned away before it began."""
        self._release()
        command = self.command
        error = error_text(ended.error) if ended.error is not None else ""
        if ended.end is End.RETURNED:
            self._report_outcome(ended.value)
        elif self._returned and ended.end is not End.RAISED:
            # Its effect has happened; only making the result presentable took too long.
            text = "done; its result could not be made presentable in time"
            self._report_outcome(CallOutcome(ResultStatus.OK, text))
        elif self._began and not command.read_only:
            reason = {
                End.RAISED: f"running it failed: {error}",
                End.TIMED_OUT: f"no result within {self._seconds:g} s",
                End.CANCELLED: "it was cancelled while it ran",
            }[ended.end]
            self.report(self._in_doubt(reason))
        elif ended.end is End.RAISED:
            log.error("effect_failed", run_id=self.run_id, key=self.key, traceback=plain_traceback(ended.error))
            self._report_outcome(CallOutcome(ResultStatus.ERROR, f"it could not be run: {error}"))
        elif ended.end is End.CANCELLED and self.unwanted and not self._awaited():
            self.finished()
        elif self._writes:  # journalled as started, but known not to have begun
            text = f"it did not begin within {self._seconds:g} s: no place to run it was free"
            self._report_outcome(CallOutcome(ResultStatus.NOT_STARTED, text))
        elif ended.end is End.TIMED_OUT:
            text = f"no result within {self._seconds:g} s"
            self._report_outcome(CallOutcome(ResultStatus.TIMED_OUT, text))
        else:
            self._report_outcome(CallOutcome(ResultStatus.CANCELLED, "cancelled while it ran"))

    def _awaited(self) -> bool:
        """Whether the run still waits for a result of this attempt: it is ending, or has journalled the start."""
        actor = self.node.actors.get(self.run_id)
        return actor is not None and (actor.run.ending is not None or self._writes)

    def _report_outcome(self, outcome: CallOutcome) -> None:
        if outcome.doubt:
            self.report(self._in_doubt(outcome.doubt))
        elif self.command.mode == "verify" and outcome.status is not ResultStatus.OK:
            # What kept us from asking says nothing about the write.
            self.report(self._in_doubt(f"it could not be verified: {outcome.text}"))
        else:
            self.report(self._finished_event(outcome), outcome.artifacts)

    def _finished_event(self, outcome: CallOutcome) -> ToolFinished:
        verifying = self.command.mode == "verify"
        return ToolFinished(
            id=f"{self.key}.finished",
            time=self.node.clock.now(),
            source="tool",
            call_id=self.command.call_id,
            attempt=self.command.attempt,
            status=outcome.status,
            text=cleaned(outcome.text),
            size=outcome.size or len(outcome.text),
            artifact=outcome.artifact,
            tries=outcome.tries,
            verdict=("not_done" if outcome.not_done else "done") if verifying else "",
            traced=self._traced.taken(),
        )

    def _in_doubt(self, reason: str) -> WriteInDoubt:
        return WriteInDoubt(
            id=f"{self.key}.doubt",
            time=self.node.clock.now(),
            source="tool",
            call_id=self.command.call_id,
            attempt=self.command.attempt,
            reason=cleaned(reason),
            traced=self._traced.taken(),
        )

    def stop(self) -> None:
        """Have it stop; if it still queues, give the place up."""
        if self._asked_to_start:
            self.unwanted = True  # whether its start was stored comes first
            return
        if self.task is None:
            self._release()
            self.unwanted = True
            actor = self.node.actors.get(self.run_id)
            if actor is not None and actor.run.ending is not None:
                self._report_outcome(CallOutcome(ResultStatus.CANCELLED, "cancelled before it ran"))
                return
        super().stop()

    def _release(self) -> None:
        earlier, self._earlier = self._earlier, None
        if earlier is not None:
            earlier.cancel()
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            ticket.release()
