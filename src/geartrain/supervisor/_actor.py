"""A supervisor as an actor: it has a life like its children, so the supervisor above it needs nothing special."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from geartrain.actors import Actor, ActorState, ActorStopped, Signal
from geartrain.supervisor._engine import Engine
from geartrain.supervisor._spec import Supervisor
from geartrain.supervisor._tree import Tree


class SupervisorActor(Actor):
    """Lives as its engine says: starts when all children are up, stops when all have ended, fails when it gives up."""

    def __init__(
        self, spec: Supervisor, tree: Tree, path: str, *, nested: bool = False, predecessor: Engine | None = None
    ) -> None:
        self._tree = tree
        self._nested = nested
        self._give_up = Signal()
        self.engine = Engine(spec, tree, path, nest=self._nest, on_exhausted=self._exhausted, predecessor=predecessor)

    async def started(self) -> None:
        """Have all children come up."""
        self.engine.begin()
        await self._wait(self.engine.settled)
        if self.engine.fault is not None:
            self._bury_if_final()
            raise self.engine.fault

    def receive(self, message: Any) -> None:
        """Fail, if that was decided; a signal that a predecessor has left is none of its business."""
        if message is self._give_up and self.engine.fault is not None:
            raise self.engine.fault

    async def stopping(self) -> None:
        """Have all children end."""
        self.engine.end()
        await self._wait(self.engine.ended)
        self._bury_if_final()

    def _when_ending(self) -> None:
        self.engine.end()

    def _exhausted(self) -> None:
        with suppress(ActorStopped):  # then it is at its end anyway
            self.ref.send_nowait(self._give_up)

    async def _wait(self, future: asyncio.Future[None]) -> None:
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:  # whoever stops it has no more time; the rest takes a few turns of the loop
                self.engine.kill()

    def _bury_if_final(self) -> None:
        """Let go of what its children's lives were kept for, unless another instance may come."""
        if not self._nested or self.ref.statistics().state is ActorState.STOPPING:
            self.engine.bury()

    def _nest(self, spec: Supervisor, path: str, predecessor: Engine | None) -> Actor:
        return SupervisorActor(spec, self._tree, path, nested=True, predecessor=predecessor)
