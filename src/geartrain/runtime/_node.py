"""What the run actors of one runtime share: ports, limits, agents, pools, and the other actors."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from geartrain.clock import Clock
from geartrain.errors import GeartrainError
from geartrain.ids import Ids
from geartrain.limits import Limits
from geartrain.machine import Run
from geartrain.persistence import Claim, Journal
from geartrain.runtime._agent import RegisteredAgent
from geartrain.runtime._hub import Hub
from geartrain.runtime._log import log
from geartrain.runtime._policy import Policy
from geartrain.runtime._tasks import EffectTasks
from geartrain.tools import Pool, ThreadPool

if TYPE_CHECKING:
    from geartrain.runtime._actor import RunActor
    from geartrain.runtime._effects import Effects


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
    actors: dict[str, RunActor] = field(default_factory=dict)
    waiters: dict[str, list[tuple[Callable[[Run], bool], asyncio.Future[Run]]]] = field(default_factory=dict)
    on_wake_at: Callable[[float], None] = lambda _time: None
    on_ownership_lost: Callable[[GeartrainError], None] = lambda _error: None
    # Starts a service of the runtime's own, in its task group.
    spawn: Callable[..., None] = field(init=False)
    on_dropped: Callable[[str], None] = lambda _run_id: None
    store_failed_since: float | None = None
    closing: bool = False
    effects: Effects = field(init=False)

    def tell_waiters(self, run: Run) -> None:
        """Let those go on that wait for what *run* has now reached."""
        waiting = self.waiters.get(run.id)
        if waiting is None:
            return
        left = []
        for reached, future in waiting:
            if future.done():
                continue
            if reached(run):
                future.set_result(run)
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

    def store_answers(self) -> None:
        """Note that the store can write again."""
        if self.store_failed_since is not None:
            log.info("store_recovered", failed_seconds=round(self.clock.now() - self.store_failed_since, 3))
            self.store_failed_since = None

    def store_fails(self, error: GeartrainError) -> None:
        """Note that the store cannot write: effects pause until it can."""
        if self.store_failed_since is None:
            self.store_failed_since = self.clock.now()
            log.error("store_failed", error=str(error))
