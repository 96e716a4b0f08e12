"""A plan's turns as effects: its progress is read from the journal, and then it is asked like a model."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from functools import partial
from typing import Any

from msgspec.structs import replace

from geartrain.limits import Limits
from geartrain.machine import AgentSpec, Event, ModelFailed, ModelReplied, RequestedCall, RunQuarantined
from geartrain.models import ModelReply, ModelRequest
from geartrain.runtime._circuit import outlast
from geartrain.runtime._edge import clean_text
from geartrain.runtime._effects._model import ModelEffect
from geartrain.runtime._node import RunAtWork
from geartrain.runtime._planned import PlanChanged, PlanFailed, PlanModel


class PlanEffect(ModelEffect):
    """A turn of a plan."""

    __slots__ = ()

    def work(self, actor: RunAtWork) -> Awaitable[ModelReply]:
        """Return the work of asking the plan about the run as it is now."""
        spec = actor.specs[actor.run.spec]
        return self._asked(self.request(actor), actor.run.seq, spec)

    async def _asked(self, request: ModelRequest, seq: int, spec: AgentSpec) -> ModelReply:
        if not spec.plan or not isinstance(self._model, PlanModel):
            then, now = ("a plan", "none") if spec.plan else ("no plan", "one")
            raise PlanChanged(request.agent, f"the run was begun with {then}, and today there is {now}")
        # A store that fails is no fault of the plan's: the time limit of the turn is what ends this.
        progress = await outlast(partial(self.effects.plans.progress, self.run_id, seq))
        reply = await self.effects.executor.call_model(self._model, replace(request, progress=progress), self.emit)
        registered = self.node.agents.get(request.agent)
        changed = registered is None or registered.spec.plan != spec.plan
        new = _first_new(reply, spec) if changed else None
        if new is not None:
            reason = f"step {new.provider_id!r} runs {new.tool!r}, which the agent had not when the run began"
            raise PlanChanged(request.agent, reason)
        return reply

    def replied(self, reply: Any) -> Event:
        """Return the reply as it is stored: of many jobs so many as fit, the next turn brings more.

        One that cannot be stored, such as an answer that is too large, is the end.
        """
        if isinstance(reply, ModelReply):
            reply = replace(reply, calls=tuple(_fitting(reply.calls, self.node.limits)))
        event = super().replied(reply)
        # A plan that is asked again says the same again.
        problem = event.anomaly if isinstance(event, ModelReplied) else ""
        return self.failed(PlanFailed(problem), problem) if problem else event

    def _report(self, event: Event) -> None:
        self.report(event)  # no attempt is lost: none has cost anything

    def failed(self, error: BaseException | None, problem: str) -> Event:
        """Return the end that the plan has come to; one that cannot go on with what was begun sets its run apart."""
        if isinstance(error, PlanChanged):
            now, reason = self.node.clock.now(), clean_text(str(error))
            return RunQuarantined(id=f"{self.key}.changed", time=now, reason=reason, code="agent_gone")
        failed = super().failed(error, problem)
        if isinstance(error, PlanFailed) and isinstance(failed, ModelFailed):
            return replace(failed, code="plan_failed", message=clean_text(str(error)), source="plan")
        return failed


def _first_new(reply: ModelReply, spec: AgentSpec) -> RequestedCall | None:
    """Return the first call of what the recorded agent has not: the machine knows only what was recorded."""
    known = {tool.name for tool in spec.tools} | {agent.name for agent in spec.sub_agents}
    return next((call for call in reply.calls if call.tool not in known), None)


def _fitting(calls: tuple[RequestedCall, ...], limits: Limits) -> Iterator[RequestedCall]:
    """Yield the first of *calls* that one reply can hold, at least one."""
    room = limits.event_bytes // 4
    for position, call in enumerate(calls):
        room -= len(call.arguments)
        if position and (position >= limits.calls_per_reply or room < 0):
            return
        yield call
