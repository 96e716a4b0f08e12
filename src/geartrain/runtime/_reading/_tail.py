"""A run's timeline, read on as its journal grows: for whoever watches a run that another process moves."""

from __future__ import annotations

from geartrain.errors import RunSetApart
from geartrain.machine import AgentSpec, HandedOff, Refusal, Run, RunStarted, decode_event, step
from geartrain.persistence import Journal, RunCorrupt
from geartrain.runtime._reading._projection import project
from geartrain.runtime._reading._runs import RunSnapshot, specs_of
from geartrain.trace import TraceRecord

_PAGE = 500


class RunTail:
    """A cursor over one run's timeline. Made by `RunReader.tail`; each `read` gives what is new since the last."""

    __slots__ = ("_journal", "_run", "_specs")

    def __init__(self, journal: Journal, run_id: str) -> None:
        self._journal = journal
        self._run = Run(id=run_id)
        self._specs: dict[str, AgentSpec] = {}

    async def read(self) -> list[TraceRecord]:
        """Return what happened since the last read: nothing if the run has not moved, at most 500 events' worth.

        Raises:
            RunNotFound: There is no such run.
            RunSetApart: No process moves it any more, and all that happened was returned before.
            RunCorrupt: The journal is damaged, or does not lead where it led when it was written.
            FormatUnknown: Something of it is newer than this version.
        """
        run_id = self._run.id
        records: list[TraceRecord] = []
        for row in await self._journal.read(run_id, after=self._run.seq, limit=_PAGE):
            event = decode_event(row.type, row.version, row.body)
            if isinstance(event, RunStarted | HandedOff) and event.spec not in self._specs:
                self._specs = await specs_of(self._journal, run_id)
            result = step(self._run, event, self._specs)
            if isinstance(result, Refusal):
                raise RunCorrupt(run_id, f"event {row.seq} ({row.type}) cannot follow: {result.reason}")
            records += project(self._run, event, result.run, checkpointed=row.checkpointed)
            self._run = result.run
        if not records:
            await self._look_aside()
        return records

    async def _look_aside(self) -> None:
        row = await self._journal.head(self._run.id)
        if row is not None and row.mark is not None:
            raise RunSetApart(self._run.id, row.mark.reason)
        if not self._run.seq:
            await specs_of(self._journal, self._run.id)  # raises if there is no such run

    @property
    def snapshot(self) -> RunSnapshot | None:
        """The run as of what was read; None before its start was."""
        return RunSnapshot.of(self._run, self._specs[self._run.spec]) if self._run.seq else None
