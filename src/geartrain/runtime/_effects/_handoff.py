"""Handing a run over to another agent: found by name among those registered here, or told to the model as failed."""

from __future__ import annotations

from collections.abc import Iterable

from geartrain.limits import UNLIMITED
from geartrain.machine import Event, HandedOff, HandoffFailed, PrepareContext
from geartrain.runtime._agent import Agent
from geartrain.runtime._effects._effect import Effect
from geartrain.runtime._node import RunAtWork
from geartrain.runtime._tasks import Ended


def with_others(agents: Iterable[Agent]) -> list[Agent]:
    """Return *agents* and all those that they may hand over to or call, if these were given as agents, not by name.

    The given ones come first and in their order; of two of one name the first is returned.
    """
    found = list(agents)
    names = {agent.name for agent in found}
    for agent in found:
        for other in (*agent.handoffs, *agent.sub_agents):
            if isinstance(other, Agent) and other.name not in names:
                names.add(other.name)
                found.append(other)
    return found


class HandoffEffect(Effect):
    """Finding the agent that takes a run over: known at once, so that nothing is ever at work for it."""

    __slots__ = ()

    command: PrepareContext

    def begin(self, actor: RunAtWork) -> None:
        """Report the agent's spec as it is today, or that there is no such agent here."""
        node, name = self.node, self.command.handoff_to
        registered = node.agents.get(name)
        message = ""
        if registered is None:
            message = f"no agent {name!r} is registered here"
        elif actor.run.budget.max_cost is not UNLIMITED and not registered.agent.tells_cost:
            message = f"the run's cost is limited, and nothing tells what a call of agent {name!r} costs"
        if registered is None or message:
            failed: Event = HandoffFailed(id=f"{self.key}.failed", time=node.clock.now(), agent=name, message=message)
            self.report(failed)
            return
        event = HandedOff(
            id=f"{self.key}.handed_off",
            time=node.clock.now(),
            agent=name,
            spec=registered.digest,
            call=actor.run.handing_off,
        )
        self.report(event, specs={registered.digest: (registered.spec, registered.encoded)})

    def ended(self, ended: Ended) -> None:
        """Do nothing: there is no task."""
