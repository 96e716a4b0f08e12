"""Reading a store without owning it: for listings and timelines while another process moves its runs."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from geartrain.machine import AgentSpec, decode_spec
from geartrain.persistence import Journal, StoreStatistics
from geartrain.runtime._keeping import checked_time
from geartrain.runtime._reading._runs import (
    JournalEntry,
    ReplayReport,
    RunSnapshot,
    RunSummary,
    journal_entry,
    list_runs,
    replay,
    snapshot_of,
    stepper_of,
    stored_events,
    timeline,
)
from geartrain.runtime._reading._standing import Standing, standing_of
from geartrain.runtime._reading._statistics import RunTotals, counted
from geartrain.runtime._reading._stepper import Stepper
from geartrain.runtime._reading._stuck_runs import StuckRun, stuck_runs
from geartrain.runtime._reading._tail import RunTail
from geartrain.runtime._reading._tree import RunTree, read_tree
from geartrain.trace import TraceRecord


class RunReader(AbstractAsyncContextManager["RunReader"]):
    """A store, or an exported run, opened for reading only; moves nothing and writes nothing.

    A store may be owned by another process meanwhile. An exported run is read whole when it is entered, and is then
    the only run of its reader: `exported` says that it is so.
    """

    def __init__(self, store: str | os.PathLike[str]) -> None:
        self._store = Path(store)
        self._journal: Journal | None = None
        self.exported = False

    async def __aenter__(self) -> Self:
        self.exported = _is_export(self._store)
        if self.exported:
            from geartrain.runtime._travel._exported import open_export  # noqa: PLC0415 - few need it

            self._journal = await open_export(self._store)
        else:
            from geartrain.persistence.sqlite import SqliteJournal  # noqa: PLC0415 - loads the database driver

            self._journal = await SqliteJournal.open(self._store, read_only=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._journal is not None:
            await self._journal.aclose()

    @property
    def journal(self) -> Journal:
        """The journal underneath."""
        assert self._journal is not None, "enter the reader with `async with` first"
        return self._journal

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
        """Return runs, newest first; see `Runtime.list`."""
        return await list_runs(
            self.journal, after=after, limit=limit, states=states, agent=agent, waiting=waiting, root=root
        )

    async def snapshot(self, run_id: str) -> RunSnapshot:
        """Return a run as it is stored.

        Raises:
            RunNotFound: There is no such run.
            RunCorrupt: What is stored of it is damaged.
            FormatUnknown: Something of it is newer than this version.
        """
        return await snapshot_of(self.journal, run_id)

    async def tree(self, run_id: str) -> RunTree:
        """Return a run with all that is below it; raises as `snapshot` does."""
        return await read_tree(self.journal, run_id, self.snapshot)

    async def spec(self, digest: str) -> AgentSpec | None:
        """Return the spec recorded under *digest*, or None."""
        data = await self.journal.spec(digest)
        return decode_spec(data) if data is not None else None

    async def events(self, run_id: str, after: int = 0) -> AsyncIterator[JournalEntry]:
        """Yield what is stored of a run's journal above *after*, and end there."""
        async for row in stored_events(self.journal, run_id, after):
            yield journal_entry(row)

    def timeline(self, run_id: str, *, full: bool = False) -> AsyncIterator[TraceRecord]:
        """Yield all that happened in a run; with *full*, what each model call saw as well."""
        return timeline(self.journal, run_id, full=full)

    def tail(self, run_id: str) -> RunTail:
        """Return a cursor over a run's timeline, to be read again and again while another process moves the run."""
        return RunTail(self.journal, run_id)

    async def replay(self, run_id: str) -> ReplayReport:
        """Fold a run's journal again, and compare every path with the recorded one."""
        return await replay(self.journal, run_id)

    async def steps(self, run_id: str) -> Stepper:
        """Return a run to be gone through event by event, forth and back, with what each did.

        Raises:
            RunNotFound: There is no such run.
            RunCorrupt: A row is damaged or a number is missing.
        """
        return await stepper_of(self.journal, run_id)

    def export(self, run_id: str, *, redact: Sequence[str] = (), artifacts: bool = True) -> AsyncIterator[bytes]:
        """Yield a run as lines of JSON, to be written to a file that `open_reader` reads where there is no store.

        Nothing is yielded before it is known that the run, without what *redact* leaves out, still goes the way it
        went. If the iteration ends early, what was yielded is refused as cut.

        Args:
            run_id: The run.
            redact: What is left out: `secrets` (fields and texts that look like them), `text:REGEX`, the `NAME` of a
                field at any depth, or `TYPE.FIELD…` such as `ToolFinished.text`; `*` stands for any letters.
            artifacts: Whether large outputs go with it.

        Raises:
            RunNotFound: There is no such run.
            RunCorrupt: What is stored of it is damaged.
            InvalidValue: A redaction rule is none.
            RedactionRefused: Without what is left out, the run would go another way.
        """
        from geartrain.runtime._travel._export import export_run  # noqa: PLC0415 - few need it

        return export_run(self.journal, run_id, redact=redact, artifacts=artifacts)

    async def count_ended(self, *, before: float | datetime) -> int:
        """Return how many runs ended before a time: those that `Runtime.prune` would delete.

        Raises:
            InvalidValue: *before* is no time.
        """
        return await self.journal.ended(before=checked_time(before))

    def stuck(self, *, now: float | None = None) -> AsyncIterator[StuckRun]:
        """Yield the runs that do not get on at *now* (seconds since 1970; None is this moment), each with its cause.

        Only runs at work are read, and those held for it: runs that rest or have ended cost nothing.
        """
        return stuck_runs(self.journal, time.time() if now is None else now)

    async def standing(self, run_id: str, *, now: float | None = None) -> Standing:
        """Return how a run stands: what was sent and not answered, the newest event, what was refused, why it is stuck.

        Raises:
            RunNotFound: There is no such run.
            RunCorrupt: What is stored of it is damaged.
            FormatUnknown: Something of it is newer than this version.
        """
        return await standing_of(self.journal, run_id, time.time() if now is None else now)

    async def totals(self) -> RunTotals:
        """Return what all runs of the store come to: by state, errors by kind, turns, tokens, calls."""
        return RunTotals.of(await counted(self.journal))

    async def statistics(self) -> StoreStatistics:
        """Return how the store is doing."""
        return await self.journal.statistics()


def _is_export(path: Path) -> bool:
    """Say whether *path* is read as an exported run rather than as a store: a file of text, or a pipe."""
    if not path.is_file():
        return path.is_fifo()
    with path.open("rb") as file:
        return file.read(1) == b"{"


def open_reader(store: str | os.PathLike[str]) -> RunReader:
    """Return a reader of the store (or the exported run) at *store*, to be entered with `async with`.

    Raises (on entering):
        ExportUnusable: It is an exported run that was cut or changed; its `line` says where.
        StoreUnusable: There is no store, or it cannot be read.
        FormatUnknown: It was written by a newer version.
    """
    return RunReader(store)
