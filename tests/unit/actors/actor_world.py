"""Actors that tests send to."""

from __future__ import annotations

import asyncio
from typing import Any

from geartrain.actors import Actor, ActorFailure, ActorGroup
from geartrain.limits import Limits


class Doer(Actor):
    """Does what a message says: ("return", x), ("raise", error), ("sleep", seconds), or a function of this actor."""

    def __init__(self) -> None:
        self.handled: list[Any] = []
        self.calls: list[str] = []

    def receive(self, message: Any) -> Any:
        self.handled.append(message)
        match message:
            case ("raise", error):
                raise error
            case ("sleep", seconds):
                return self.sleep(seconds)
            case ("return", answer):
                return answer
        return message(self) if callable(message) else message

    async def sleep(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "slept"


class Waiter(Doer):
    """The same, but each message waits before and after."""

    async def receive(self, message: Any) -> Any:
        await asyncio.sleep(0)
        answer = super().receive(message)
        if asyncio.iscoroutine(answer):
            answer = await answer
        await asyncio.sleep(0)
        return answer


class Failures(list[ActorFailure]):
    """A group's ear."""

    def __call__(self, failure: ActorFailure) -> None:
        self.append(failure)


def group_of(failures: Failures | None = None, **limits: Any) -> ActorGroup:
    """Return a group that keeps its failures to itself."""
    return ActorGroup(limits=Limits(**limits), on_failure=failures if failures is not None else Failures())
