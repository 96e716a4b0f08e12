"""Trees of actors that tests break."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from geartrain.actors import Actor, ActorFailure, ActorGroup
from geartrain.limits import Limits
from geartrain.supervisor import (
    NO_BACKOFF,
    ChildSpec,
    CrashReport,
    Supervisor,
    SupervisorRef,
    supervise,
)


class Crash(BaseException):
    """No `Exception`: what ends most things."""


@dataclass
class World:
    """What a test sees: what happened to which child, in order; what was reported; what the group was told."""

    events: list[str] = field(default_factory=list)
    reports: list[CrashReport] = field(default_factory=list)
    failures: list[ActorFailure] = field(default_factory=list)
    instances: list[Toy] = field(default_factory=list)
    # Child: how many of its next starts fail; and how long each of its hooks takes.
    bad_starts: dict[str, int] = field(default_factory=dict)
    bad_stops: set[str] = field(default_factory=set)
    start_seconds: dict[str, float] = field(default_factory=dict)
    stop_seconds: dict[str, float] = field(default_factory=dict)

    def toy(self, name: str) -> Callable[[], Toy]:
        return lambda: Toy(self, name)

    def spec(self, name: str, **settings: Any) -> ChildSpec:
        return ChildSpec(name, self.toy(name), **settings)

    def supervisor(self, *names: str, **settings: Any) -> Supervisor:
        settings.setdefault("backoff", NO_BACKOFF)
        return Supervisor([self.spec(name) for name in names], **settings)

    def drain(self) -> list[str]:
        events, self.events = self.events, []
        return events

    @contextlib.asynccontextmanager
    async def tree(self, supervisor: Supervisor, *, up: bool = True, **limits: Any) -> AsyncIterator[SupervisorRef]:
        async with ActorGroup(limits=Limits(**limits), on_failure=self.failures.append) as group:
            tree = supervise(group, supervisor, name="root", on_crash=self.reports.append, seed=1)
            self.group = group
            if up:
                await tree.wait_started()
                self.drain()
            yield tree


class Toy(Actor):
    """Notes its starts and stops; does what a message says, as `actor_world.Doer` does."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.handled: list[Any] = []
        world.instances.append(self)

    async def started(self) -> None:
        if seconds := self.world.start_seconds.get(self.name, 0):
            await asyncio.sleep(seconds)
        if self.world.bad_starts.get(self.name, 0) > 0:
            self.world.bad_starts[self.name] -= 1
            self.world.events.append(f"{self.name} cannot start")
            raise OSError(f"{self.name} cannot start")
        self.world.events.append(f"+{self.name}")

    async def receive(self, message: Any) -> Any:
        match message:
            case BaseException():
                raise message
            case ("sleep", seconds):
                await asyncio.sleep(seconds)
            case ("swallow", seconds):
                until = asyncio.get_running_loop().time() + seconds
                while (left := until - asyncio.get_running_loop().time()) > 0:
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.sleep(left)
            case "stop":
                self.ref.stop()
        self.handled.append(message)
        return f"{self.name} {message}"

    async def stopping(self) -> None:
        if seconds := self.world.stop_seconds.get(self.name, 0):
            await asyncio.sleep(seconds)
        if self.name in self.world.bad_stops:
            self.world.events.append(f"{self.name} cannot stop")
            raise OSError(f"{self.name} cannot stop")
        self.world.events.append(f"-{self.name}")


def moved(events: list[str]) -> str:
    """Return starts and stops as one word list."""
    return " ".join(events)
