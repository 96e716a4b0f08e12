"""The runtime: opens a store, moves its runs, and is the one place through which callers reach them."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from geartrain.actors import Actor, ActorGroup, ActorGroupStatistics, ActorRef, Overflow, Reply
from geartrain.clock import Clock, SystemClock
from geartrain.errors import (
    AgentNotFound,
    EventConflict,
    EventRefused,
    RunExists,
    RunNotFound,
    RuntimeClosed,
)
from geartrain.ids import Ids, RandomIds
from geartrain.limits import Limits
from geartrain.machine import (
    Budget,
    Event,
    RunStarted,
)
from geartrain.persistence import Journal, StoreStatistics
from geartrain.runtime._access import RunAccess
from geartrain.runtime._agent import Agent, RegisteredAgent
from geartrain.runtime._approvals import ApprovalHook, open_approvals
from geartrain.runtime._crashes import logged
from geartrain.runtime._delivery import Delivery
from geartrain.runtime._effects._executor import Executor, LiveExecutor
from geartrain.runtime._handle import RunHandle
from geartrain.runtime._host import Host, Settings, registered_agents
from geartrain.runtime._hub import ObserverStatistics, Watch
from geartrain.runtime._keeping import delete_run, prune_runs
from geartrain.runtime._policy import Policy, default_policy
from geartrain.runtime._reading._continuing import history_of
from geartrain.runtime._reading._runs import (
    OpenCall,
    ReplayReport,
    RunSnapshot,
    RunSummary,
    journal_entry,
    list_runs,
    replay,
    timeline,
)
from geartrain.runtime._reading._statistics import RunTotals, counted
from geartrain.runtime._reading._stuck_runs import StuckRun, stuck_runs
from geartrain.runtime._stall import LoopStatistics
from geartrain.runtime._starting import own_run_id, started_event
from geartrain.supervisor import OnCrash, Supervisor, SupervisorRef, supervise
from geartrain.tools import ProcessStatistics, ThreadPool
from geartrain.trace import Observer, TraceRecord


class RuntimeStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """How a runtime is doing, as of the moment of asking; `processes` is None until a tool needs a worker process.

    `loop` says how often and where the event loop stood still.
    `store_failing_since` is when the store began to fail (seconds since 1970; None: it can write). `suspects_waiting`
    are the runs that may have killed earlier processes, and wait for their turn to go on alone.
    """

    runs_loaded: int
    effects: int
    effect_tasks: int
    effects_abandoned: tuple[str, ...]
    store_failing: bool
    store: StoreStatistics
    actors: ActorGroupStatistics
    totals: RunTotals
    observers: tuple[ObserverStatistics, ...]
    processes: ProcessStatistics | None = None
    loop: LoopStatistics = LoopStatistics()
    store_failing_since: float | None = None
    suspects_waiting: tuple[str, ...] = ()


class Runtime(AbstractAsyncContextManager["Runtime"]):
    """Moves the runs of one store. Opened with `Runtime.open`, used as an async context manager.

    Its services live in a task of their own, so it may be opened and closed from any task. It installs no signal
    handlers. Leaving it stops intake, lets started writes finish within the grace and cancels the rest; no run ends
    because of it, and each goes on when the store is opened again.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._access = RunAccess(host)
        self.limits = host.settings.limits

    @classmethod
    def open(
        cls,
        store: str | os.PathLike[str] | Journal,
        *,
        agents: Iterable[Agent] = (),
        policy: Policy = default_policy,
        on_approval: ApprovalHook | None = None,
        limits: Limits | None = None,
        observers: Sequence[Observer] = (),
        recover: Literal["all", "none"] = "all",
        clock: Clock | None = None,
        ids: Ids | None = None,
        executor: Callable[[Limits, ThreadPool], Executor] = LiveExecutor,
        seed: int | None = None,
    ) -> Self:
        """Return a runtime over *store*, to be entered with `async with`.

        Args:
            store: The path of an SQLite file, or an open journal (which is closed with the runtime).
            agents: Today's code for the runs, found by name.
            policy: Decides about each tool call; the default allows read-only tools and asks about the rest.
            on_approval: Called with a copy of each call that waits for a decision: at least once, and again after a
                restart (with the same `id`). Plain functions run on a thread. One that raises or does not end is
                called three times in all, and changes nothing.
            limits: Every bound of the runtime.
            observers: Told what happens, in batches, each in a thread of its own.
            recover: "all" goes on with every run that was left in the middle, and wakes every run whose time has come;
                "none" does so only with runs that are used.
            clock: What time it is.
            ids: Where new ids come from.
            executor: What carries out effects.
            seed: For the jitter of back-offs; None takes it from the system.

        Raises (on entering):
            StoreBusy: Another process owns the store.
            StoreUnusable: The file cannot be used, with the reason.
            FormatUnknown: The store was written by a newer version.
            InvalidValue: Two agents have one name.
        """
        limits = limits or Limits()
        settings = Settings(
            agents=registered_agents(agents, limits),
            policy=policy,
            on_approval=on_approval,
            limits=limits,
            observers=tuple(observers),
            recover=recover,
            clock=clock or SystemClock(),
            ids=ids or RandomIds(),
            executor=executor,
            rng=random.Random(seed),  # noqa: S311 - jitter, no secret
        )
        return cls(Host(store, settings))

    # Opening and closing

    async def __aenter__(self) -> Self:
        await self._host.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop intake, let started writes finish within the grace, cancel the rest, close the store.

        If the call is cancelled, closing goes on. Closing twice changes nothing.
        """
        await self._host.close()

    async def wait_closed(self) -> None:
        """Wait until the runtime has closed, for whatever reason."""
        await self._host.wait_closed()

    async def wait_at_rest(self) -> None:
        """Wait until every run that this runtime moves has ended or waits for somebody.

        With `recover="all"` those are all runs of the store, also those that still have to be taken over. Cancelling
        the wait changes nothing.

        Raises:
            RuntimeClosed: It closed before.
        """
        await self._host.wait_at_rest()

    async def drain(self) -> None:
        """Take no new runs in and start nothing new; return when nothing is in progress.

        What runs may finish in its own time. Runs stay where they are and go on when the store is opened again.
        """
        await self._host.drain()

    # Starting and reaching runs

    async def start(
        self,
        agent: Agent | str,
        input: str,  # noqa: A002 - the field's word for it
        *,
        run_id: str | None = None,
        idempotency_key: str | None = None,
        budget: Budget | None = None,
        deadline: float | datetime | None = None,
        continues: str | None = None,
        principal: str = "",
        permissions: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> RunHandle:
        """Start a run, and return its handle once its start is stored.

        With a `run_id` or an `idempotency_key`, starting the same again returns the same run, also after a restart.

        Args:
            agent: One of this runtime's agents, or its name.
            input: What the run is to do.
            run_id: An id of your own for the run.
            idempotency_key: A key of your own from which the run's id is derived.
            budget: In place of the agent's own.
            deadline: An absolute time: seconds since 1970, or a datetime with a time zone.
            continues: The id of a run that has ended, however it did. This one begins with its messages, as far as they
                fit into an event: the oldest are left out first. The agent may be another one.
            principal: On whose behalf it runs; policies and tools see it.
            permissions: What the principal may do, for policies.
            labels: For listings.
            context: JSON data kept with the run and given to tools and policies, such as `{"root": "/data"}`.

        Raises:
            AgentNotFound: The agent is not registered here.
            RunExists: The id or key was used for another request.
            RunNotFound, RunStillGoing: There is no run to continue, or it has not ended.
            InvalidValue: Something given cannot be stored.
            StoreFailed: The store cannot write; nothing was started.
        """
        node = self._host.node
        registered = self._registered(agent)
        new_id = (own_id := own_run_id(run_id, idempotency_key)) or node.ids.mint("r")
        event = started_event(
            registered,
            run_id=new_id,
            text=input,
            time=node.clock.now(),
            limits=self.limits,
            budget=budget,
            deadline=deadline,
            principal=principal,
            permissions=permissions,
            labels=labels or {},
            context=context or {},
            continues=continues,
        )
        if own_id is None or not await self._same_run(own_id, event.request):
            await self._begin(new_id, event, registered)
        return RunHandle(self._access, new_id)

    async def _begin(self, run_id: str, event: RunStarted, registered: RegisteredAgent) -> None:
        """Have the start stored; another start of the same run that was faster is as good."""
        if event.continues:
            history = await history_of(self._host.node.journal, event.continues, self.limits)
            event = msgspec.structs.replace(event, history=history)
        reply: Reply[int] = Reply()
        specs = {registered.digest: (registered.spec, registered.encoded)}
        actor = self._host.residents.new(run_id)
        actor.cell.send_nowait(Delivery(event, outside=True, reply=reply, specs=specs))
        try:
            await reply.wait_answered()
        except EventConflict:  # another request under this id was on its way
            raise RunExists(run_id) from None
        except EventRefused:
            if not await self._same_run(run_id, event.request):
                raise

    def _registered(self, agent: Agent | str) -> RegisteredAgent:
        if self._host.draining:
            raise RuntimeClosed("starting a run")
        agents = self._host.settings.agents
        name = agent if isinstance(agent, str) else agent.name
        registered = agents.get(name)
        if registered is None or (not isinstance(agent, str) and registered.agent is not agent):
            raise AgentNotFound(name, tuple(agents))
        return registered

    async def _same_run(self, run_id: str, request: str) -> bool:
        """Return whether the run is there already, started by the same request."""
        node = self._host.node
        actor = node.actors.get(run_id)
        found = actor.run.request if actor is not None and actor.run.seq else None
        if found is None:
            rows = await node.journal.read(run_id, limit=1)
            if not rows:
                return False
            started = journal_entry(rows[0]).event
            found = started.request if isinstance(started, RunStarted) else ""
        if found != request:
            raise RunExists(run_id)
        return True

    async def get(self, run_id: str) -> RunHandle:
        """Return the handle of a run.

        Raises:
            RunNotFound: There is no such run.
        """
        node = self._host.node
        if run_id not in node.actors and await node.journal.head(run_id) is None:
            raise RunNotFound(run_id)
        return RunHandle(self._access, run_id)

    async def list(
        self,
        *,
        after: tuple[float, str] | None = None,
        limit: int = 100,
        states: Sequence[str] = (),
        agent: str | None = None,
        waiting: bool = False,
        root: str | None = None,
    ) -> Sequence[RunSummary]:
        """Return runs, newest first; the cursor of the next page is (`created_at`, `id`) of the last.

        *waiting* keeps those that wait for somebody: a decision, a word on a doubt, an input, a higher budget, to be
        resumed (paused, stuck, quarantined), or (outside) a reply or an answer. *root* keeps the runs of one tree: that
        one, and all that is below it.
        """
        return await list_runs(
            self._host.node.journal, after=after, limit=limit, states=states, agent=agent, waiting=waiting, root=root
        )

    def approvals(self, *, follow: bool = False) -> AsyncIterator[OpenCall]:
        """Yield every call that waits for a decision, those of the newest runs first.

        With *follow* it goes on with each call that begins to wait, until the runtime closes (`RuntimeClosed`): every
        one once, with the same `id` as in a listing, and none that is decided by then.
        """
        node = self._host.node
        return node.approvals.follow(node.journal) if follow else open_approvals(node.journal)

    def stuck(self) -> AsyncIterator[StuckRun]:
        """Yield the runs that do not get on, each with its cause and what was done about it; see `RunReader.stuck`."""
        node = self._host.node
        return stuck_runs(node.journal, node.clock.now())

    # Actors that are no runs

    @property
    def actors(self) -> ActorGroup:
        """The actors spawned here: their dead letters, and how they are doing."""
        return self._host.actors

    def spawn(
        self,
        actor: Actor,
        *,
        name: str | None = None,
        capacity: int | None = None,
        overflow: Overflow | Literal["wait", "refuse", "drop_oldest"] = Overflow.WAIT,
    ) -> ActorRef:
        """Give an actor of your own a life next to the runs; arguments and errors are those of `ActorGroup.spawn`.

        Tools, policies and observers may send to it. It is not stored: it lives as long as this runtime, and is stopped
        within the grace after the runs' effects have stopped. If it fails it stops, which is logged.

        Raises:
            RuntimeClosed: This runtime is not open.
        """
        if self._host.closed:
            raise RuntimeClosed("spawning an actor")
        return self.actors.spawn(actor, name=name, capacity=capacity, overflow=overflow)

    def supervise(
        self, supervisor: Supervisor, *, name: str | None = None, on_crash: OnCrash | None = None
    ) -> SupervisorRef:
        """Start a tree of actors of your own next to the runs; they are restarted as it says.

        Nothing of it is stored: it lives as long as this runtime, and is stopped right to left, within the grace, after
        the runs' effects have stopped. Each crash is logged (`actor_crashed`) and then told to *on_crash*, on the event
        loop. If the tree fails as a whole it has stopped, which is logged (`actor_failed`); runs go on.

        Raises:
            RuntimeClosed: This runtime is not open.
            InvalidValue: It is no `Supervisor`, or the name cannot be used.
            TooManyActors: Nothing was started.
        """
        if self._host.closed:
            raise RuntimeClosed("starting a supervisor")
        return supervise(self.actors, supervisor, name=name, on_crash=logged(on_crash))

    # Events

    async def deliver(self, run_id: str, event: Event) -> int:
        """Bring an event to a run, and return the number under which it is stored.

        The same event again (by its id) is acknowledged and changes nothing. When the call returns, the event
        survives a crash; if the call is cancelled it may or may not be stored.

        Raises:
            RunNotFound: There is no such run.
            EventRefused: The event cannot move the run now, or may not come from outside. Nothing was stored.
            EventConflict: The id is stored with another body.
            RunSetApart: The run cannot be moved.
        """
        return await self._access.deliver(run_id, event)

    async def snapshot(self, run_id: str) -> RunSnapshot:
        """Return a run as it is stored now."""
        return await self._access.snapshot(run_id)

    def watch(self, run_id: str) -> Watch:
        """Return a live stream of what happens to a run from now on; it may be one that has yet to start."""
        return self._access.watch(run_id)

    def timeline(self, run_id: str, *, full: bool = False) -> AsyncIterator[TraceRecord]:
        """Yield all that happened in a run, from its journal; with *full*, what each model call saw as well."""
        return timeline(self._host.node.journal, run_id, full=full)

    async def replay(self, run_id: str) -> ReplayReport:
        """Fold a run's journal again, and compare every path with the recorded one."""
        return await replay(self._host.node.journal, run_id)

    def export(self, run_id: str, *, redact: Sequence[str] = (), artifacts: bool = True) -> AsyncIterator[bytes]:
        """Yield a run as lines of JSON that can be read where there is no store; see `RunReader.export`."""
        from geartrain.runtime._travel._export import export_run  # noqa: PLC0415 - few need it

        return export_run(self._host.node.journal, run_id, redact=redact, artifacts=artifacts)

    # What is kept

    async def delete(self, run_id: str) -> None:
        """Delete an ended run for good: its journal, its large outputs, what else is its own, and all runs below it.

        When the call returns it is gone from the store. Its id, or idempotency key, may then begin a run anew. If the
        call is cancelled, some of the runs below it are gone, and it is still there.

        Raises:
            RunNotFound: There is no such run.
            RunNotEnded: It has not ended, or one below it has not. Nothing was deleted.
        """
        await delete_run(self._host.node, run_id)

    async def prune(self, *, before: float | datetime, dry_run: bool = False) -> int:
        """Delete all runs that ended before a time, oldest first, and return how many.

        Runs that have not ended stay, however old, and so do those below which one has not. They go some hundred at
        a time, so that other runs are not held up; if the call is cancelled, some are gone and the others are whole.

        Args:
            before: Seconds since 1970, or a datetime with a time zone.
            dry_run: Delete nothing, only count.

        Raises:
            InvalidValue: *before* is no time.
        """
        return await prune_runs(self._host.node, before, dry_run=dry_run)

    async def totals(self) -> RunTotals:
        """Return what all runs of the store come to: by state, errors by kind, turns, tokens, calls."""
        return RunTotals.of(await counted(self._host.node.journal))

    async def statistics(self) -> RuntimeStatistics:
        """Return how the runtime is doing, and all runs of its store together."""
        node = self._host.node
        store = await counted(node.journal)
        return RuntimeStatistics(
            runs_loaded=len(node.actors),
            effects=node.effects.count,
            effect_tasks=node.tasks.alive,
            effects_abandoned=node.tasks.abandoned,
            store_failing=node.circuit.open,
            store_failing_since=node.circuit.failing_since,
            suspects_waiting=node.suspects.waiting,
            store=store,
            actors=self.actors.statistics(),
            totals=RunTotals.of(store),
            observers=node.hub.statistics(),
            processes=None if node.process_statistics is None else node.process_statistics(),
            loop=self._host.stall.statistics(),
        )
