"""Putting the context together as an effect: the agent's providers are asked, and what they tell is journalled."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from geartrain.errors import InvalidValue
from geartrain.machine import ContextFailed, ContextPrepared, Event, Message, PrepareContext
from geartrain.runtime._edge import clean_text
from geartrain.runtime._effects._effect import Effect, Registry
from geartrain.runtime._node import RunAtWork
from geartrain.runtime._policy import view_of
from geartrain.runtime._providers import ContextProvider, messages_told, room_for
from geartrain.runtime._tasks import End, Ended
from geartrain.tools import Ticket, error_text


class ContextEffect(Effect):
    """The providers that the run's spec names, one after the other, each in a task and within a time of its own.

    Each has a place in the pool of tools, so that a thousand runs that begin at once do not use up each other's time.
    """

    __slots__ = ("_messages", "_providers", "_ticket", "_waiting")

    command: PrepareContext

    def __init__(
        self, effects: Registry, run_id: str, command: PrepareContext, providers: Mapping[str, ContextProvider]
    ) -> None:
        super().__init__(effects, run_id, command)
        self._providers = providers
        self._waiting: list[str] = []
        self._messages: list[Message] = []
        self._ticket: Ticket | None = None

    def begin(self, actor: RunAtWork) -> None:
        """Ask the first one."""
        self._waiting = list(actor.specs[actor.run.spec].providers)
        self._ask()

    def _ask(self) -> None:
        """Queue to ask the provider whose turn it is, or report what all have told."""
        node = self.node
        if not self._waiting:
            messages = tuple(self._messages)
            event = ContextPrepared(
                id=f"{self.key}.prepared", time=node.clock.now(), source="context", messages=messages
            )
            self.report(event)
            return
        provider = self._providers.get(self._waiting[0])
        if provider is None:
            self._fail("it is gone: this agent has it no more")
            return
        kind: Literal["task", "thread"] = "task" if inspect.iscoroutinefunction(provider) else "thread"
        # The grant may come at once, before the ticket is known here.
        self._ticket = node.pool.request(self.run_id, kind, partial(self._granted, provider))

    def _granted(self, provider: ContextProvider) -> None:
        actor = self.node.actors.get(self.run_id)
        if self.unwanted or self.quiet or actor is None:
            asyncio.get_running_loop().call_soon(self._release)
            return
        try:
            work = self.effects.executor.ask_provider(provider, view_of(actor.run))
            self.spawn(work, self.node.limits.context_provider_seconds)
        except Exception as error:  # noqa: BLE001 - the pool must go on, whatever is wrong with this one
            asyncio.get_running_loop().call_soon(self._release)
            self.broken(error)

    def ended(self, ended: Ended) -> None:
        """Take what was told and ask the next one, or report the failure."""
        self._release()
        if ended.end is End.CANCELLED or self.run_id not in self.node.actors:
            self.finished()
        elif ended.end is End.TIMED_OUT:
            self._fail(f"no answer within {self.node.limits.context_provider_seconds:g} s")
        elif ended.end is End.RAISED:
            self._fail(error_text(ended.error) if ended.error is not None else "it failed")
        else:
            self._take(ended.value)

    def _take(self, answer: Any) -> None:
        name = self._waiting[0]
        try:
            told = messages_told(name, answer, room_for(self._messages, self.node.limits))
        except InvalidValue as invalid:
            self._fail(str(invalid))
            return
        except BaseException as error:  # noqa: BLE001 - a stranger's sequence: anything may happen when it is looked at
            self._fail(f"what it told cannot be read: {error_text(error)}")
            return
        self._messages.extend(told)
        del self._waiting[0]
        if self.node.closing:  # nothing new starts; all are asked again when the run is opened
            self.finished(reconcile=False)
        else:
            self._ask()

    def stop(self) -> None:
        """Have it stop; if it still queues, give the place up."""
        if self.task is None:
            self._release()
        super().stop()

    def _release(self) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            ticket.release()

    def _fail(self, problem: str) -> None:
        event: Event = ContextFailed(
            id=f"{self.key}.failed",
            time=self.node.clock.now(),
            source="context",
            provider=self._waiting[0],
            message=clean_text(problem),
        )
        self.report(event)
