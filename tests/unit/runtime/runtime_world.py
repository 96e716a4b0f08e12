"""What the runtime's tests share: a store that can be left, killed and opened again, and tools with a ledger."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from geartrain.clock import LoopClock
from geartrain.ids import CountedIds
from geartrain.limits import Limits
from geartrain.machine import RequestedCall, ResultStatus
from geartrain.models._scripted import Entry, ScriptedModel
from geartrain.persistence import Entry as JournalWrite
from geartrain.persistence import Journal, MemoryJournal
from geartrain.persistence.sqlite import SqliteJournal
from geartrain.runtime import Agent, Allow, JournalEntry, RunHandle, Runtime
from geartrain.runtime._reading._runs import journal_entry, read_run
from geartrain.testing import settle
from geartrain.tools import Tool, ToolContext, tool


class LastingJournal(MemoryJournal):
    """A memory journal that can be opened again, and copied as a killed process would leave it."""

    def opened(self) -> LastingJournal:
        self._closed = False
        return self

    def as_killed(self) -> LastingJournal:
        left = LastingJournal()
        left._runs = copy.deepcopy(self._runs)
        left._inbox = copy.deepcopy(self._inbox)
        left._last_number = self._last_number
        left._specs, left._artifacts = dict(self._specs), dict(self._artifacts)
        left._marks = dict(self._marks)
        lost = {*self._claim.lost, self._claim.epoch} if self._claimed else self._claim.lost
        left._claim = msgspec.structs.replace(self._claim, lost=frozenset(lost))
        return left


class Store:
    """One store, in memory or in a file, for any number of runtimes after each other."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.journal = LastingJournal()
        self.ids = CountedIds()

    @property
    def target(self) -> Any:
        return self.journal.opened() if self.path is None else self.path

    def runtime(self, *agents: Agent, **options: Any) -> Runtime:
        options.setdefault("clock", LoopClock())
        options.setdefault("ids", self.ids)
        options.setdefault("policy", allow_all)
        options.setdefault("seed", 1)
        return Runtime.open(options.pop("target", self.target), agents=agents, **options)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Journal]:
        """The journal underneath, while no runtime has it."""
        if self.path is None:
            yield self.journal.opened()
            return
        journal = await SqliteJournal.open(self.path)
        try:
            yield journal
        finally:
            await journal.aclose()

    async def rows(self, run_id: str) -> list[tuple[Any, ...]]:
        """All that is stored of a run, as it can be compared between stores."""
        async with self.opened() as journal:
            rows = await journal.read(run_id, limit=100_000)
            return [(r.seq, r.id, r.type, r.version, r.time, r.body, r.digest, r.path, r.outside) for r in rows]


class Ledger:
    """An outside world that counts what was done to it, by idempotency key."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.begun: Counter[str] = Counter()
        self.order: list[str] = []
        self.at_once = 0
        self.peak = 0
        self.alive = True

    def note(self, key: str) -> None:
        if self.alive:
            self.done[key] += 1
            self.order.append(key)

    def write(self, seconds: float = 0.0, **options: Any) -> Tool:
        """A write that takes *seconds* and is done at their end."""

        async def write(context: ToolContext, text: str = "") -> str:
            """Write."""
            if self.alive:
                self.begun[context.idempotency_key] += 1
            if seconds:
                await asyncio.sleep(seconds)
            self.note(context.idempotency_key)
            return f"wrote {text}"

        return tool(**options)(write)

    def read(self, seconds: float = 0.0, **options: Any) -> Tool:
        """A read that takes *seconds*."""

        async def read(context: ToolContext, text: str = "", after: float = 0.0) -> str:
            """Read."""
            self.at_once += 1
            self.peak = max(self.peak, self.at_once)
            try:
                if seconds or after:
                    await asyncio.sleep(seconds + after)
            finally:
                self.at_once -= 1
            self.note(context.idempotency_key)
            return f"read {text}"

        return tool(read_only=True, **options)(read)


def allow_all(_call: Any, _run: Any) -> Allow:
    return Allow()


def an_agent(replies: Sequence[Entry], *tools: Tool, name: str = "worker", **options: Any) -> Agent:
    return Agent(name, model=ScriptedModel(replies), tools=tools, **options)


def calling(name: str, arguments: str = "{}", provider_id: str = "") -> RequestedCall:
    return RequestedCall(tool=name, arguments=arguments, provider_id=provider_id)


async def journal_of(run: RunHandle, runtime: Runtime) -> list[JournalEntry]:
    """What is stored of a run now, without waiting for more."""
    rows = await runtime._host.node.journal.read(run.id, limit=100_000)
    return [journal_entry(row) for row in rows]


async def names_of(run: RunHandle, runtime: Runtime) -> list[str]:
    return [type(entry.event).__name__ for entry in await journal_of(run, runtime)]


async def results_of(run: RunHandle, runtime: Runtime) -> list[tuple[ResultStatus, str]]:
    """The results that the model was shown last, in their order."""
    revived = await read_run(runtime._host.node.journal, run.id)
    return [(message.status, message.text) for message in revived.run.messages if message.role == "tool"]


def quick(**options: Any) -> Limits:
    return Limits(**options)


class Gated:
    """A journal whose appends can be held back or made to fail."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.error: Exception | None = None
        self.at_once: Exception | None = None
        self.appends = 0
        self.failing = 0

    def append(self, entry: JournalWrite) -> asyncio.Future[int]:
        self.appends += 1
        if self.at_once is not None:
            raise self.at_once
        if self.error is not None:
            self.failing += 1
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(future.set_exception, self.error)
            return future
        return self.journal.append(entry)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.journal, name)


__all__ = [
    "Gated",
    "LastingJournal",
    "Ledger",
    "Store",
    "allow_all",
    "an_agent",
    "calling",
    "journal_of",
    "names_of",
    "quick",
    "results_of",
    "settle",
]
