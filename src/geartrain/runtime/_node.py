"""What the run actors of one runtime share: ports, limits, agents, pools, and the other actors."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from geartrain.actors import Cell, Reply
from geartrain.clock import Clock
from geartrain.errors import GeartrainError, RunSetApart
from geartrain.ids import Ids
from geartrain.limits import Limits
from geartrain.machine import AgentSpec, Command, EvaluatePermissions, Event, Run
from geartrain.persistence import Claim, Journal, Outgoing
from geartrain.runtime._agent import RegisteredAgent
from geartrain.runtime._approvals import Approvals
from geartrain.runtime._attempts import Attempts
from geartrain.runtime._circuit import StoreCircuit
from geartrain.runtime._hub import Hub
from geartrain.runtime._judging import PendingVerdicts
from geartrain.runtime._policy import Policy
from geartrain.runtime._reading._runs import RunSnapshot
from geartrain.runtime._refusals import Refusals
from geartrain.runtime._suspects import Suspects
from geartrain.runtime._tasks import EffectTasks
from geartrain.tools import Pool, ProcessStatistics, ThreadPool

# Specs by digest, each with its stored form.
FoundSpecs = Mapping[str, tuple[AgentSpec, bytes]]


class RunAtWork(Protocol):
    """A run in memory, as effects and services see it."""

    run: Run
    specs: dict[str, AgentSpec]
    pending_verdicts: dict[str, PendingVerdicts]
    # Keys of effects whose events are on their way in: they have ended, and are not to begin once more.
    arriving: set[str]
    # The newest of what other runs have sent that it was given, and whether more waits in the store.
    inbox_mark: int
    inbox_more: bool

    @property
    def cell(self) -> Cell[Any]:
        """The actor's mailbox and life."""
        ...

    @property
    def appending(self) -> asyncio.Future[int] | None:
        """The append under way, or the last one."""
        ...

    def put_result(
        self,
        event: Event,
        artifacts: Mapping[str, bytes] = ...,
        *,
        specs: FoundSpecs | None = ...,
        reply: Reply[int] | None = ...,
        settled: Callable[[], object] | None = ...,
    ) -> None:
        """Take what an effect of this run brought; *reply* and *settled* are told when it is stored, or is not."""
        ...

    def put_alarm(self, event: Event) -> None:
        """Take an event whose time has come."""
        ...

    def ask_policy_again(self, command: EvaluatePermissions) -> None:
        """Ask the policy about calls whose verdicts another actor of this run had waited for."""
        ...

    def rest_if_idle(self) -> None:
        """Leave memory if nothing is to be done."""
        ...

    def drop(self, error: GeartrainError | None) -> None:
        """Take the actor out of memory."""
        ...


class Relations(Protocol):
    """What runs of one tree have to do with each other, as run actors see it."""

    def moved(self, run: Run, *, resting: bool, sent: Sequence[Outgoing], more: object) -> None:
        """Take note of a stored step: where the run is, whom it sent something, and whether more waits for it."""
        ...

    def left(self, run: Run) -> None:
        """Take note that a run is no more in memory."""
        ...


class EffectRegistry(Protocol):
    """All effects of one runtime, as actors and services see them."""

    @property
    def count(self) -> int:
        """How many effects there are."""
        ...

    def of(self, run_id: str) -> int:
        """Return how many effects a run has here."""
        ...

    def reconcile(self, actor: RunAtWork, commands: tuple[Command, ...] | None = None) -> None:
        """Start what the run wants and has not, stop what it has and does not want."""
        ...

    def vouches(self, actor: RunAtWork) -> bool:
        """Whether what a run's overdue answers are awaited from is known to be in order."""
        ...

    def patrol(self, actor: RunAtWork) -> tuple[str, ...]:
        """Begin again what a run wants and nothing here is at work on; return the keys."""
        ...

    def forget(self, run_id: str) -> None:
        """Stop all effects of a run without a word."""
        ...

    def stop_waiting(self) -> None:
        """Stop without a word what is not at work."""
        ...

    async def drain(self, grace_seconds: float) -> None:
        """Let started writes finish within the grace, stop all else, and wait until all has stopped."""
        ...

    async def wait_empty(self, seconds: float | None) -> None:
        """Wait until nothing is in progress, at most *seconds* if given."""
        ...


@dataclass(slots=True, eq=False)
class Node:
    """One process's part of the work: it owns the store's runs while it holds the claim."""

    journal: Journal
    claim: Claim
    limits: Limits
    clock: Clock
    ids: Ids
    agents: Mapping[str, RegisteredAgent]
    policy: Policy
    hub: Hub
    tasks: EffectTasks
    pool: Pool
    threads: ThreadPool
    rng: random.Random
    approvals: Approvals
    actors: dict[str, RunAtWork] = field(default_factory=dict)
    attempts: Attempts = field(default_factory=Attempts)
    refusals: Refusals = field(default_factory=Refusals)
    waiters: dict[str, list[tuple[Callable[[Run, AgentSpec], bool], asyncio.Future[RunSnapshot]]]] = field(
        default_factory=dict
    )
    # When a run wants to be woken next, or None for never.
    on_wake_at: Callable[[float | None, str], None] = lambda _time, _run_id: None
    on_ownership_lost: Callable[[GeartrainError], None] = lambda _error: None
    # Starts a service of the runtime's own, in its task group.
    spawn: Callable[..., None] = field(init=False)
    on_dropped: Callable[[str], None] = lambda _run_id: None
    # Runs that this process has given up on though their journals are as they should be, and why.
    apart: dict[str, RunSetApart] = field(default_factory=dict)
    circuit: StoreCircuit = field(init=False)
    suspects: Suspects = field(init=False)
    # What the supervisor of the runs does about an actor that crashed with a batch, or after a step was stored.
    on_crash: Callable[[Any, BaseException, Any], None] = field(init=False)
    on_stumbled: Callable[[Any, BaseException], None] = field(init=False)
    # What the executor offers besides carrying out effects, if it does.
    close_executor: Callable[[float], Awaitable[None]] | None = None
    process_statistics: Callable[[], ProcessStatistics | None] | None = None
    closing: bool = False
    # Set when a run leaves memory, or there is no more to be taken over.
    left: asyncio.Event = field(default_factory=asyncio.Event)
    effects: EffectRegistry = field(init=False)
    kin: Relations = field(init=False)

    def __post_init__(self) -> None:
        self.circuit = StoreCircuit(self.clock)
        self.suspects = Suspects(self.limits)

    def dated_now(self, event: Event) -> Event:
        """Return *event* as of now."""
        return msgspec.structs.replace(event, time=max(event.time, self.clock.now()))

    def dated(self, event: Event, run: Run) -> Event:
        """Return *event* with the time since the one before in which nothing could go on."""
        waits = self.suspects.waits(run.id)
        if not run.seq or not (waits or self.circuit.has_failed):
            return event
        now = max(event.time, run.updated_at)
        idle = now - run.updated_at if waits else self.circuit.idle_seconds(run.updated_at, now)
        return msgspec.structs.replace(event, idle_seconds=idle) if idle else event

    def tell_waiters(self, run: Run, spec: AgentSpec) -> None:
        """Let those go on that wait for what *run* has now reached."""
        waiting = self.waiters.get(run.id)
        if waiting is None:
            return
        left = []
        for reached, future in waiting:
            if future.done():
                continue
            if reached(run, spec):
                future.set_result(RunSnapshot.of(run, spec))
            else:
                left.append((reached, future))
        if left:
            self.waiters[run.id] = left
        else:
            del self.waiters[run.id]

    def fail_waiters(self, run_id: str, error: GeartrainError) -> None:
        """Tell those who wait for *run_id* that it will not come."""
        for _, future in self.waiters.pop(run_id, ()):
            if not future.done():
                future.set_exception(error)

    def set_apart(self, run_id: str, error: RunSetApart, *, lasting: bool) -> None:
        """Tell whoever waits for a run, follows or watches it that this process will not move it."""
        if lasting:
            self.apart[run_id] = error
        self.fail_waiters(run_id, error)
        self.hub.gone(run_id)
