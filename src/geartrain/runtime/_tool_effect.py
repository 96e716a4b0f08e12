"""A tool call as an effect: a place in the pool, the journalled start of a write, the result or the doubt."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from geartrain.actors import Reply
from geartrain.errors import GeartrainError
from geartrain.machine import CallStatus, ResultStatus, RunCall, ToolFinished, ToolStarted, WriteInDoubt
from geartrain.runtime._effect import Effect
from geartrain.runtime._executor import CallOutcome
from geartrain.runtime._log import log
from geartrain.runtime._tasks import End, Ended
from geartrain.tools import Ticket, Tool, ToolContext, cleaned, error_text

if TYPE_CHECKING:
    from geartrain.runtime._actor import RunActor
    from geartrain.runtime._effects import Effects


class ToolEffect(Effect):
    """A tool call: waits for a place in the pool, journals a write as started, runs, reports."""

    __slots__ = ("_asked_to_start", "_began", "_ticket", "_tool")

    command: RunCall

    def __init__(self, effects: Effects, run_id: str, command: RunCall, tool: Tool | None) -> None:
        super().__init__(effects, run_id, command)
        self._tool = tool
        self._ticket: Ticket | None = None
        self._asked_to_start = False
        self._began = False

    @property
    def must_finish(self) -> bool:
        """Whether a stop has to wait for it: a write that has begun."""
        return self._began and not self.command.read_only

    def begin(self, actor: RunActor) -> None:
        """Queue for a place in the pool."""
        command, tool = self.command, self._tool
        if tool is None:
            text = f"the tool {command.tool!r} is gone: this agent has it no more"
            self.report(self._finished_event(CallOutcome(ResultStatus.ERROR, text)))
            return
        call = actor.run.call(command.call_id)
        if call is not None and call.status is CallStatus.STARTED and command.mode == "run" and not command.external:
            self.report(self._in_doubt("it was started, and nothing here runs it"))
            return
        if command.external:
            return
        # The grant may come at once, before the ticket is known here.
        self._ticket = self.node.pool.request(self.run_id, tool.isolation, self._granted)

    def _granted(self) -> None:
        actor = self.node.actors.get(self.run_id)
        if self.unwanted or self.quiet or actor is None:
            asyncio.get_running_loop().call_soon(self._release)
            return
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
        )
        self.spawn(self._work(context), self.command.timeout_seconds)

    def _emit(self, name: str, payload: Mapping[str, Any]) -> None:
        self.node.hub.live_from_anywhere(self.run_id, name, {**payload, "call_id": self.command.call_id})

    async def _work(self, context: ToolContext) -> CallOutcome | None:
        command = self.command
        if not command.read_only and command.mode == "run":
            self._asked_to_start = True
            if not await self._journal_start():
                return None
        assert self._tool is not None
        return await self.effects.executor.run_tool(self._tool, command, context, self._begin)

    def _begin(self) -> None:
        self._began = True

    async def _journal_start(self) -> bool:
        """Return once the start is durable; False if the run does not want it any more."""
        event = ToolStarted(
            id=f"{self.key}.started",
            time=self.node.clock.now(),
            source="tool",
            call_id=self.command.call_id,
            attempt=self.command.attempt,
        )
        actor = self.node.actors.get(self.run_id)
        if actor is None:
            return False
        reply: Reply[int] = Reply()
        actor.put_internal(event, reply)
        try:
            await reply.wait_answered()
        except GeartrainError:
            return False
        return True

    def ended(self, ended: Ended) -> None:
        """Report a result, a doubt, or nothing if the run had turned away before it began."""
        self._release()
        command = self.command
        risky = self._began and not command.read_only
        match ended.end:
            case End.RETURNED if ended.value is None:
                self.finished()
            case End.RETURNED:
                self._report_outcome(ended.value)
            case End.RAISED if risky:
                self.report(self._in_doubt(f"running it failed: {error_text(ended.error or RuntimeError())}"))
            case End.RAISED:
                log.error("effect_failed", run_id=self.run_id, key=self.key, exc_info=ended.error)
                text = f"it could not be run: {error_text(ended.error or RuntimeError())}"
                self.report(self._finished_event(CallOutcome(ResultStatus.ERROR, text)))
            case End.TIMED_OUT if risky:
                self.report(self._in_doubt(f"no result within {command.timeout_seconds:g} s"))
            case End.TIMED_OUT:
                text = f"no result within {command.timeout_seconds:g} s"
                self.report(self._finished_event(CallOutcome(ResultStatus.TIMED_OUT, text)))
            case End.CANCELLED if risky:
                self.report(self._in_doubt("it was cancelled while it ran"))
            case End.CANCELLED if self.unwanted and not self._awaited():
                self.finished()
            case End.CANCELLED:
                self.report(self._finished_event(CallOutcome(ResultStatus.CANCELLED, "cancelled while it ran")))

    def _awaited(self) -> bool:
        """Whether the run still waits for a result of this attempt: it is ending, or has journalled the start."""
        actor = self.node.actors.get(self.run_id)
        return actor is not None and (actor.run.ending is not None or self._asked_to_start)

    def _report_outcome(self, outcome: CallOutcome) -> None:
        if outcome.doubt:
            self.report(self._in_doubt(outcome.doubt))
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
        )

    def _in_doubt(self, reason: str) -> WriteInDoubt:
        return WriteInDoubt(
            id=f"{self.key}.doubt",
            time=self.node.clock.now(),
            source="tool",
            call_id=self.command.call_id,
            attempt=self.command.attempt,
            reason=cleaned(reason),
        )

    def stop(self) -> None:
        """Have it stop; if it still queues, give the place up."""
        if self.task is None:
            self._release()
            self.unwanted = True
            if self._awaited():
                self.report(self._finished_event(CallOutcome(ResultStatus.CANCELLED, "cancelled before it ran")))
                return
        super().stop()

    def _release(self) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            ticket.release()
