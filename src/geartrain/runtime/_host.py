"""The host: the task that owns a runtime's services, from opening the store to closing it.

Whoever opens or closes a runtime may do so from any task: scopes and connections live in this one.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import TaskGroup

from geartrain.actors import ActorFailure, ActorGroup, CellState
from geartrain.clock import Clock
from geartrain.errors import GeartrainError, InternalError, InvalidValue, RuntimeClosed, UsageError, plain_traceback
from geartrain.ids import Ids
from geartrain.limits import Limits
from geartrain.persistence import Claim, Journal
from geartrain.runtime._agent import Agent, RegisteredAgent
from geartrain.runtime._approvals import ApprovalHook, Approvals, HookCaller
from geartrain.runtime._effects._executor import Executor
from geartrain.runtime._effects._handoff import with_others
from geartrain.runtime._effects._registry import Effects
from geartrain.runtime._hub import Hub
from geartrain.runtime._log import log
from geartrain.runtime._node import Node
from geartrain.runtime._patrol import patrol
from geartrain.runtime._policy import Policy
from geartrain.runtime._residents import Residents
from geartrain.runtime._run_supervisor import RunSupervisor
from geartrain.runtime._stall import LoopStall, StallDetector
from geartrain.runtime._tasks import NUDGE_SECONDS, EffectTasks
from geartrain.runtime._timer import Timer
from geartrain.tools import Pool, ThreadPool, loading_in_a_worker
from geartrain.trace import Observer, TraceRecord

# The claim on a store that only one process can have open lasts until it is released.
_LEASE_SECONDS = 10 * 365 * 86_400.0
_NUMBERS = itertools.count(1)
# When the grace is used up, each step of closing that is left may still take so long.
LAST_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a runtime was opened with."""

    agents: dict[str, RegisteredAgent]
    policy: Policy
    on_approval: ApprovalHook | None = None
    limits: Limits
    observers: tuple[Observer, ...]
    recover: str
    clock: Clock
    ids: Ids
    executor: Callable[[Limits, ThreadPool], Executor]
    rng: random.Random


def registered_agents(agents: Iterable[Agent], limits: Limits) -> dict[str, RegisteredAgent]:
    """Return *agents* by name, with those that they may hand over to or call.

    Raises:
        InvalidValue: Two have one name, or one is no agent.
    """
    if isinstance(agents, Agent):
        raise InvalidValue("agents", "a list of agents", agents)
    given: dict[str, Agent] = {}
    for agent in agents:
        if not isinstance(agent, Agent):
            raise InvalidValue("agents", "a list of agents", agent)
        if agent.name in given:
            raise InvalidValue("agents", "agents with different names", agent.name)
        given[agent.name] = agent
    known = {agent.name: agent for agent in reversed(with_others(given.values()))}
    for agent in known.values():
        for other in (*agent.handoffs, *agent.sub_agents):
            if isinstance(other, Agent) and known[other.name] is not other:
                what = f"agents, those of the handoffs and sub-agents of {agent.name!r} included"
                raise InvalidValue(what, "one of a name", other.name)
    return {agent.name: RegisteredAgent(agent, limits, known) for agent in with_others(given.values())}


class Host:
    """A runtime's inner life. Opened once, closed once."""

    def __init__(self, store: str | os.PathLike[str] | Journal, settings: Settings) -> None:
        self._store = store
        self.settings = settings
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._node: Node | None = None
        self._residents: Residents | None = None
        self._actors: ActorGroup | None = None
        self.stall = StallDetector(settings.limits.loop_stall_seconds, self._tell_stall)
        self.closed = False
        self.draining = False
        # On the loop's clock, when closing is to be over.
        self._over_at = 0.0

    @property
    def node(self) -> Node:
        """What the run actors share; raises `RuntimeClosed` before opening and after closing."""
        if self.closed or self._node is None:
            raise RuntimeClosed("using a runtime")
        return self._node

    @property
    def actors(self) -> ActorGroup:
        """The actors that are no runs; raises `RuntimeClosed` before opening."""
        if self._actors is None:
            raise RuntimeClosed("using a runtime")
        return self._actors

    @property
    def residents(self) -> Residents:
        """The run actors; raises as `node` does."""
        if self.closed or self._residents is None:
            raise RuntimeClosed("using a runtime")
        return self._residents

    async def open(self) -> None:
        """Open the store and start the services; if it fails or is cancelled, nothing stays behind."""
        if self._task is not None:
            raise UsageError("this runtime was opened before; make a new one with Runtime.open")
        if loading_in_a_worker():
            raise UsageError(
                "a worker process imports this module to find a tool in it, and that opens a runtime; "
                'open it below `if __name__ == "__main__":`'
            )
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError("geartrain runs on asyncio; this is another event loop") from None
        ready: asyncio.Future[None] = loop.create_future()
        self._task = loop.create_task(self._serve(ready), name="geartrain-host")
        try:
            await asyncio.shield(ready)
        except BaseException:
            self._stop.set()
            await asyncio.wait([self._task])
            raise

    async def close(self) -> None:
        """Stop; if the call is cancelled, closing goes on."""
        self.closed = True
        self._stop.set()
        if self._task is None:
            return
        await asyncio.wait([self._task])
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error

    async def wait_closed(self) -> None:
        """Wait until all has stopped, for whatever reason."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def wait_at_rest(self) -> None:
        """Wait until no run is in memory, and none is to be taken over."""
        while True:
            node, residents = self.node, self.residents
            if residents.idle and not node.actors:
                return
            node.left.clear()
            await node.left.wait()

    async def drain(self) -> None:
        """Start nothing new, and return when nothing is in progress."""
        node = self.node
        self.draining = True
        node.closing = True
        node.effects.stop_waiting()
        await node.effects.wait_empty(None)
        await self._wait_stored(node, node.limits.grace_seconds)

    async def _serve(self, ready: asyncio.Future[None]) -> None:
        """Own the services from opening to closing."""
        journal: Journal | None = None
        try:
            journal = await self._open_journal()
            node = await self._make_node(journal)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the opener is told
            # A journal that was given stays its giver's, who may have opened another runtime over it.
            try:
                if journal is not None and journal is not self._store:
                    await journal.aclose()
            finally:
                if not ready.done():
                    ready.set_exception(error if isinstance(error, Exception) else InternalError(repr(error)))
            return
        residents = self._residents = Residents(node)
        timer = Timer(node, residents.wake, only_used=self.settings.recover == "none")
        node.on_wake_at = timer.note
        node.on_ownership_lost = self._ownership_lost
        supervisor = RunSupervisor(node)
        node.on_crash, node.on_stumbled = supervisor.crashed, supervisor.stumbled
        node.circuit.probe = residents.probe
        node.suspects.on_turn = residents.take_turn
        node.suspects.on_free = residents.begin_deferred
        try:
            async with anyio.create_task_group() as services:
                node.spawn = partial(_spawn, services)
                node.on_dropped = partial(node.spawn, residents.reload)
                services.start_soon(timer.serve)
                services.start_soon(patrol, node)
                services.start_soon(node.refusals.serve, journal)
                if node.approvals.hook is not None:
                    services.start_soon(node.approvals.hook.serve, journal, self.settings.recover == "all")
                if self.settings.recover == "all":
                    residents.begin_recovery()
                    services.start_soon(residents.recover_all)
                self.stall.open()
                ready.set_result(None)
                await self._stop.wait()
                await self._shut(node)
                timer.close()
                services.cancel_scope.cancel()
            await node.refusals.flush(journal)
        finally:
            self.closed = node.closing = True
            try:
                await self._let_go(node)
            finally:
                self.stall.close()

    async def _open_journal(self) -> Journal:
        store, settings = self._store, self.settings
        if not isinstance(store, (str, os.PathLike)):
            return store
        from geartrain.persistence.sqlite import SqliteJournal  # noqa: PLC0415 - loads the database driver

        return await SqliteJournal.open(Path(store), clock=settings.clock, limits=settings.limits)

    async def _make_node(self, journal: Journal) -> Node:
        clock = self.settings.clock
        # A name of its own for each runtime: two in one process are two owners.
        owner = f"pid {os.getpid()}, runtime {next(_NUMBERS)}"
        claim = await journal.claim(owner, now=clock.now(), lease_seconds=_LEASE_SECONDS)
        try:
            return self._node_over(journal, claim)
        except BaseException:
            await journal.release(claim)
            raise

    def _node_over(self, journal: Journal, claim: Claim) -> Node:
        settings = self.settings
        limits, clock = settings.limits, settings.clock
        hub = Hub(
            settings.observers,
            clock,
            observer_records=limits.observer_records,
            watch_records=limits.watch_records,
        )
        hub.open()
        threads = ThreadPool(limits.thread_calls_at_once)
        tasks = EffectTasks(limits.grace_seconds)
        hook = settings.on_approval
        node = Node(
            journal=journal,
            claim=claim,
            limits=limits,
            clock=clock,
            ids=settings.ids,
            agents=settings.agents,
            policy=settings.policy,
            hub=hub,
            tasks=tasks,
            pool=Pool(limits),
            threads=threads,
            rng=settings.rng,
            approvals=Approvals(HookCaller(hook, tasks, limits) if hook is not None else None),
        )
        self._actors = ActorGroup(limits=limits, on_failure=_log_failure, clock=clock)
        executor = settings.executor(limits, threads)
        node.effects = Effects(node, executor)
        node.close_executor = getattr(executor, "aclose", None)
        node.process_statistics = getattr(executor, "process_statistics", None)
        self._node = node
        return node

    async def _shut(self, node: Node) -> None:
        """Let what was accepted be stored, and what must finish finish: all that within the grace, and little more."""
        self.closed = True
        node.closing = True
        self._over_at = asyncio.get_running_loop().time() + node.limits.grace_seconds
        node.tasks.latest = self._over_at + NUDGE_SECONDS
        node.approvals.stop()
        await node.effects.drain(node.limits.grace_seconds)
        await node.approvals.wait_stopped()
        await self._wait_stored(node, self._left())

    def _left(self) -> float:
        """Return how many seconds there are for what is left to do when closing."""
        return max(LAST_SECONDS, self._over_at - asyncio.get_running_loop().time())

    async def _wait_stored(self, node: Node, seconds: float) -> None:
        """Wait until no actor has anything to do or an append under way, at most for so long."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (busy := [actor for actor in node.actors.values() if not actor.cell.idle]) and loop.time() < until:
            appends = [actor.appending for actor in busy if actor.appending and not actor.appending.done()]
            if appends:
                await asyncio.wait(appends, timeout=until - loop.time())
            # Their next turn; those that broke down wait for a time, and asking at once would not let it pass.
            await asyncio.sleep(0 if any(actor.cell.state is not CellState.BROKEN for actor in busy) else 0.05)

    async def _let_go(self, node: Node) -> None:
        error = RuntimeClosed("waiting for a run")
        node.suspects.close()
        node.circuit.close()
        for actor in list(node.actors.values()):
            actor.drop(error)
        node.left.set()
        for run_id in list(node.waiters):
            node.fail_waiters(run_id, error)
        with anyio.CancelScope(shield=True), anyio.move_on_after(2 * node.limits.grace_seconds + 30.0, shield=True):
            if node.close_executor is not None:
                # While the store is still ours: nothing of a write may run on when somebody else recovers it.
                try:
                    await node.close_executor(self._left())
                except Exception as failed:  # noqa: BLE001 - perhaps a stranger's: the store is let go all the same
                    log.error("executor_not_closed", error=str(failed), traceback=plain_traceback(failed))
            await node.hub.aclose(min(1.0, self._left()))
            await self.actors.aclose()  # last of all: what runs and observers still do may need them
            try:
                await node.journal.release(node.claim)
            except GeartrainError as failed:
                log.warning("claim_not_released", error=str(failed))
            await node.journal.aclose()
        node.tasks.close()
        node.threads.close()

    def _tell_stall(self, event: str, stall: LoopStall) -> None:
        """Tell the observers; called on the detector's thread, where a clock of the loop could not be read."""
        if self._node is not None:
            payload = msgspec.structs.asdict(stall)
            record = TraceRecord(run_id=payload.pop("run_id"), event=event, ts=time.time(), payload=payload)
            self._node.hub.tell_observers(record)

    def _ownership_lost(self, error: GeartrainError) -> None:
        if not self.closed:
            log.critical("ownership_lost", error=str(error))
        self.closed = True
        if self._node is not None:
            self._node.closing = True
        self._stop.set()


def _log_failure(failure: ActorFailure) -> None:
    log.error(
        "actor_failed",
        actor=failure.actor,
        during=failure.during,
        error=failure.reason,
        traceback=plain_traceback(failure.error),
        stopping_traceback=plain_traceback(failure.stopping_error),
    )


def _spawn(services: TaskGroup, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
    services.start_soon(work, *arguments)
