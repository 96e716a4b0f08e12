"""One effect: a command being carried out, from its start to the event that answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import Context, ContextVar
from functools import partial
from typing import Any, Protocol

from geartrain import faults
from geartrain.errors import plain_traceback
from geartrain.machine import Command, Event, RunQuarantined
from geartrain.runtime._edge import clean_text
from geartrain.runtime._effects._executor import Executor
from geartrain.runtime._effects._gate import Gate
from geartrain.runtime._effects._given_up import GIVEN_UP, name_what_runs_on
from geartrain.runtime._effects._shelf import PlanShelf
from geartrain.runtime._log import log
from geartrain.runtime._node import FoundSpecs, Node, RunAtWork
from geartrain.runtime._tasks import EffectTask, Ended
from geartrain.tools import StartedTasks, error_text

# The run that the code at work belongs to; bound in every effect.
current_run: ContextVar[str] = ContextVar("geartrain_run_id", default="")
# The key of its effect.
current_key: ContextVar[str] = ContextVar("geartrain_effect_key", default="")


class Registry(Protocol):
    """What an effect needs of the registry that it is in."""

    node: Node
    executor: Executor
    plans: PlanShelf

    def gate(self, model: str) -> Gate:
        """Return the gate of that model."""
        ...

    def reconcile(self, actor: RunAtWork, commands: tuple[Command, ...] | None = None) -> None:
        """Look again at what the run wants."""
        ...

    def remove(self, effect: Effect) -> None:
        """Take an effect out."""
        ...


class Effect:
    """One command being carried out. Subclasses know what to start and what its end means."""

    __slots__ = (
        "_parked",
        "begun_at",
        "command",
        "effects",
        "key",
        "node",
        "quiet",
        "run_id",
        "started",
        "task",
        "unwanted",
    )

    def __init__(self, effects: Registry, run_id: str, command: Any) -> None:
        self.effects = effects
        self.node = effects.node
        self.run_id = run_id
        self.command = command
        # Unique within its run.
        self.key: str = command.key
        self.task: EffectTask | None = None
        # When it was first at work, in seconds since 1970: before that it has waited for a place.
        self.begun_at: float | None = None
        # What it is about to do, as long as the store cannot write.
        self._parked: tuple[Coroutine[Any, Any, Any], Callable[[], None]] | None = None
        self.started = StartedTasks()
        self.unwanted = False
        self.quiet = False

    @property
    def must_finish(self) -> bool:
        """Whether a stop has to wait for it, within the grace."""
        return False

    def is_within(self, limit_seconds: float, now: float) -> bool:
        """Whether it waits for a place or its next try, or has begun no longer than *limit_seconds* ago."""
        return self.task is None or self.begun_at is None or now < self.begun_at + limit_seconds

    def begin(self, actor: RunAtWork) -> None:
        """Start it, or queue for a place."""
        raise NotImplementedError

    def ended(self, ended: Ended) -> None:
        """Report how its task ended."""
        raise NotImplementedError

    def stop(self) -> None:
        """Have it stop: it is no longer wanted."""
        self.unwanted = True
        parked, self._parked = self._parked, None
        if parked is not None:
            self.node.circuit.forget(parked[1])
            parked[0].close()
        if self.task is not None:
            self.task.cancel()
        else:
            self.finished()

    def spawn(self, work: Any, timeout_seconds: float) -> None:
        """Run *work* as an effect task in a fresh context with the run's id bound, once the store can write."""
        if self.node.circuit.open:
            self._parked = (work, partial(self._unpark, timeout_seconds))
            self.node.circuit.when_closed(self.run_id, self._parked[1])
            return
        context = Context()
        context.run(current_run.set, self.run_id)
        context.run(current_key.set, self.key)
        self.started.bind(context)
        faults.reach("effect.start", f"{self.run_id}/{self.key}")
        if self.begun_at is None:
            self.begun_at = self.node.clock.now()
        self.task = self.node.tasks.start(
            f"{self.run_id}/{self.key}",
            work,
            timeout_seconds=timeout_seconds,
            context=context,
            on_end=self._task_ended,
        )

    def _unpark(self, timeout_seconds: float) -> None:
        parked, self._parked = self._parked, None
        if parked is None:
            return
        try:
            self.spawn(parked[0], timeout_seconds)
        except Exception as error:  # noqa: BLE001 - as in `_begin`: its run is set apart, nobody else hurt
            self.broken(error)

    def _task_ended(self, ended: Ended) -> None:
        task, self.task = self.task, None
        if ended.end in GIVEN_UP:
            try:
                self.given_up(task if ended.abandoned else None)
            except Exception as error:  # noqa: BLE001 - tasks may be of a stranger's kind; only their names are missing
                log.warning("effect_not_named", run_id=self.run_id, key=self.key, traceback=plain_traceback(error))
        if self.quiet:
            self.finished()
            return
        faults.reach("effect.end", f"{self.run_id}/{self.key}")
        try:
            self.ended(ended)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the run must not wait for this effect for ever
            self.broken(error)

    def given_up(self, abandoned: EffectTask | None) -> None:
        """Name what still runs of it, its task among that if it was *abandoned*."""
        name_what_runs_on(
            self.node,
            self.run_id,
            self.key,
            abandoned=abandoned,
            elsewhere=() if abandoned is not None else self.elsewhere(),
            started=self.started,
        )

    def elsewhere(self) -> Sequence[str]:
        """Return what of it runs outside of the event loop, in words."""
        return ()

    def broken(self, error: BaseException) -> None:
        """Set the run apart: this effect can neither be carried out nor reported."""
        log.error("effect_broken", run_id=self.run_id, key=self.key, traceback=plain_traceback(error))
        self.quiet, self.unwanted = True, True
        self.stop()
        actor = self.node.actors.get(self.run_id)
        if actor is not None:
            reason = f"{self.key} cannot be carried out: {error_text(error)}"
            now = self.node.clock.now()
            actor.put_result(RunQuarantined(id=f"{self.key}.broken", time=now, reason=clean_text(reason)))

    def report(
        self, event: Event, artifacts: Mapping[str, bytes] | None = None, *, specs: FoundSpecs | None = None
    ) -> None:
        """Bring *event* to the run, and be done; until it has arrived the effect does not begin once more."""
        self.finished(reconcile=False)
        if self.quiet:
            return
        actor = self.node.actors.get(self.run_id)
        if actor is None:
            self.node.hub.live(self.run_id, "result_dropped", {"key": self.key, "type": type(event).__name__})
        else:
            arrived = partial(actor.arriving.discard, self.key)
            actor.put_result(event, artifacts or {}, specs=specs, settled=arrived)
            actor.arriving.add(self.key)

    def finished(self, *, reconcile: bool = True) -> None:
        """Leave the registry; if it was stopped, look again whether the run wants it after all, or may leave memory."""
        self.effects.remove(self)
        if reconcile and self.unwanted and not self.quiet:
            actor = self.node.actors.get(self.run_id)
            if actor is not None and not self.node.closing:
                self.effects.reconcile(actor)
                # Soon, not now: this may be within the reconciling that stopped it.
                asyncio.get_running_loop().call_soon(actor.rest_if_idle, context=Context())
