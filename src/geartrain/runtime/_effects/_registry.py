"""Effects are reconciled, not fired: what must be in progress for a run is compared with what is.

Rule 1: an effect starts only after the append that asked for it, and there is one per key.
Rule 2: one that is no longer wanted is cancelled; what it still brings is refused by the run.
Rule 3: a write is journalled as started before it starts. If it began and its outcome was not seen, it is in doubt;
only an exception raised by the tool itself is a failure.
Rule 4: on a stop, started writes have the grace to finish; everything else is cancelled without a word, so that the
run goes on from where it was when it is opened again.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final

from geartrain.machine import (
    ENDED,
    AnnounceApproval,
    AnnounceEnd,
    CallModel,
    Command,
    CompactContext,
    EvaluatePermissions,
    PrepareContext,
    Run,
    RunCall,
    RunQuarantined,
    StartSubAgent,
    is_outside,
    outstanding,
    overdue_keys,
)
from geartrain.runtime._effects._compact import CompactEffect
from geartrain.runtime._effects._context import ContextEffect
from geartrain.runtime._effects._effect import Effect
from geartrain.runtime._effects._executor import Executor
from geartrain.runtime._effects._gate import Gate
from geartrain.runtime._effects._handoff import HandoffEffect
from geartrain.runtime._effects._model import ModelEffect, PolicyEffect
from geartrain.runtime._effects._plan import PlanEffect
from geartrain.runtime._effects._shelf import PlanShelf
from geartrain.runtime._effects._tool import ToolEffect
from geartrain.runtime._node import Node, RunAtWork
from geartrain.runtime._suspects import is_inside
from geartrain.runtime._tasks import NUDGE_SECONDS

# Told to people by trace, hooks and waiters, or sent to other runs with the append: nothing runs for them here.
_ANNOUNCEMENTS: Final = (AnnounceApproval, AnnounceEnd, StartSubAgent)


class Effects:
    """The registry of effects of one runtime, by run and key."""

    def __init__(self, node: Node, executor: Executor) -> None:
        self.node = node
        self.executor = executor
        self.plans = PlanShelf(node.journal, node.limits)
        self._by_run: dict[str, dict[str, Effect]] = {}
        self._gates: dict[str, Gate] = {}
        self._emptied: set[asyncio.Future[None]] = set()

    def gate(self, model: str) -> Gate:
        """Return the gate of that model."""
        gate = self._gates.get(model)
        if gate is None:
            gate = self._gates[model] = Gate(self.node.limits.model_calls_at_once)
        return gate

    def of(self, run_id: str) -> int:
        """Return how many effects a run has here."""
        return len(self._by_run.get(run_id, ()))

    @property
    def count(self) -> int:
        """How many effects there are."""
        return sum(map(len, self._by_run.values()))

    def reconcile(self, actor: RunAtWork, commands: tuple[Command, ...] | None = None) -> None:
        """Start what the run wants and has not, stop what it has and does not want.

        *commands* is what `outstanding` says of the run, if the caller knows it already. Nothing is started of a
        suspect that waits for its turn.
        """
        run = actor.run
        if run.state in ENDED:
            self.plans.forget(run.id)
        if self.node.suspects.waits(run.id):
            return
        if commands is None:
            commands = outstanding(run)
        mine = self._by_run.get(run.id)
        if mine:
            wanted = {command.key for command in commands}
            for effect in [effect for key, effect in mine.items() if key not in wanted and not effect.unwanted]:
                effect.stop()
            mine = self._by_run.get(run.id)
        for command in commands:
            if isinstance(command, _ANNOUNCEMENTS) or (mine and command.key in mine):
                continue
            if command.key in actor.arriving:  # it is done; the run only has yet to take what it brought
                continue
            if is_outside(command, actor.specs[run.spec]):  # the run waits for an event, and its alarm for the end
                continue
            if self._is_deferred(run, command):  # it begins when `Suspects.on_free` says so
                continue
            self._begin(actor, command)
            mine = self._by_run.get(run.id)

    def _is_deferred(self, run: Run, command: Command) -> bool:
        registered = self.node.agents.get(run.agent)
        inside = isinstance(command, RunCall) and registered is not None and is_inside(command.tool, registered)
        return inside and self.node.suspects.defers_call_of(run)

    def vouches(self, actor: RunAtWork) -> bool:
        """Whether what a run's overdue answers are awaited from is known to be in order.

        What has brought its answer is, and what waits for a place or its next try; so is what is at work, for it has a
        time-out of its own, unless the agent's rules give the wait a limit: that begins with the work.
        """
        run, spec, now = actor.run, actor.specs[actor.run.spec], self.node.clock.now()
        limit = math.inf if spec.stuck is None else spec.stuck.dwell.get(run.state, math.inf)
        mine = self._by_run.get(run.id, {})
        if any(self._is_deferred(run, command) for command in outstanding(run)):
            return True
        keys = overdue_keys(run, spec, now)
        return bool(keys) and all(
            key in actor.arriving or (key in mine and mine[key].is_within(limit, now)) for key in keys
        )

    def patrol(self, actor: RunAtWork) -> tuple[str, ...]:
        """Begin again what a run wants and nothing here is at work on; return the keys."""
        before = set(self._by_run.get(actor.run.id, ()))
        self.reconcile(actor)
        return tuple(key for key in self._by_run.get(actor.run.id, ()) if key not in before)

    def _begin(self, actor: RunAtWork, command: Command) -> None:
        effect = self._made(actor, command)
        if effect is None:
            return
        self._by_run.setdefault(effect.run_id, {})[effect.key] = effect
        try:
            effect.begin(actor)
        except Exception as error:  # noqa: BLE001 - a stranger's model or executor; its run is set apart, not ours hurt
            effect.broken(error)

    def _made(self, actor: RunAtWork, command: Command) -> Effect | None:  # noqa: PLR0911 - one a kind
        registered = self.node.agents.get(actor.run.agent)
        if registered is None:
            return None
        agent, run_id = registered.agent, actor.run.id
        match command:
            case RunCall():
                return ToolEffect(self, run_id, command, agent.tools.get(command.tool))
            case CallModel() if agent.plan is not None or actor.specs[actor.run.spec].plan:
                return PlanEffect(self, run_id, command, agent.model)
            case CallModel():
                return ModelEffect(self, run_id, command, agent.model)
            case EvaluatePermissions():
                return PolicyEffect(self, run_id, command)
            case PrepareContext() if command.handoff_to:
                return HandoffEffect(self, run_id, command)
            case CompactContext():
                return CompactEffect(self, run_id, command, agent.summariser or agent.model)
            case PrepareContext(handoff_to=""):
                return ContextEffect(self, run_id, command, agent.providers)
            case _:
                reason = f"{type(command).__name__} cannot be carried out by this version"
                event = RunQuarantined(id=f"{command.key}.unknown", time=self.node.clock.now(), reason=reason)
                actor.put_result(event)
                return None

    def remove(self, effect: Effect) -> None:
        """Take an effect out."""
        mine = self._by_run.get(effect.run_id)
        if mine is not None and mine.get(effect.key) is effect:
            del mine[effect.key]
            if not mine:
                del self._by_run[effect.run_id]
            if not self._by_run:
                for waiter in self._emptied:
                    if not waiter.done():
                        waiter.set_result(None)

    def forget(self, run_id: str) -> None:
        """Stop all effects of a run without a word."""
        for effect in list(self._by_run.get(run_id, {}).values()):
            effect.quiet = True
            effect.stop()

    def stop_waiting(self) -> None:
        """Stop without a word what is not at work: it waits for a place, its next try, or somebody outside."""
        for effect in [effect for mine in self._by_run.values() for effect in mine.values()]:
            if effect.task is None and not effect.must_finish:
                effect.quiet = True
                effect.stop()

    async def drain(self, grace_seconds: float) -> None:
        """Let started writes finish within the grace, stop all else, and wait until all has stopped.

        What is at work at the end of the grace, and ignores being cancelled, is abandoned right after it.
        """
        for effect in [effect for mine in self._by_run.values() for effect in mine.values()]:
            if not effect.must_finish:
                effect.quiet = True
                effect.stop()
        await self.wait_empty(grace_seconds)
        for run_id in list(self._by_run):
            self.forget(run_id)
        await self.wait_empty(2 * NUDGE_SECONDS)

    async def wait_empty(self, seconds: float | None) -> None:
        """Wait until nothing is in progress, at most *seconds* if given."""
        if not self._by_run:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._emptied.add(waiter)
        try:
            await asyncio.wait([waiter], timeout=seconds)
        finally:
            self._emptied.discard(waiter)
