"""How far the runs with a plan have come, kept from turn to turn: what was read of a journal is not read again."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from geartrain.limits import Limits
from geartrain.machine import AgentSpec, HandedOff, Progress, ProgressBook, RunStarted, decode_event, decode_spec
from geartrain.persistence import Journal, RunCorrupt

_PAGE: Final = 1_000


class PlanShelf:
    """The progress of those runs whose plan was asked last, as far as `Limits.plan_progress_bytes` goes.

    One that is not here is read from its start.
    """

    __slots__ = ("_books", "_journal", "_limits", "_specs")

    def __init__(self, journal: Journal, limits: Limits) -> None:
        self._journal = journal
        self._limits = limits
        self._books: OrderedDict[str, ProgressBook] = OrderedDict()
        self._specs: dict[str, AgentSpec] = {}

    def __len__(self) -> int:
        return len(self._books)

    async def progress(self, run_id: str, seq: int) -> Progress:
        """Return the progress of a run as of its event *seq*, which must be stored.

        Raises:
            RunCorrupt: The journal is damaged, or does not lead where it led.
        """
        book = self._books.pop(run_id, None) or ProgressBook(run_id)
        await self._read_on(book, seq)
        await self._fill(book)
        self._books[run_id] = book
        self._make_room()
        return book.progress

    async def _read_on(self, book: ProgressBook, seq: int) -> None:
        run_id = book.run.id
        while book.run.seq < seq:
            rows = await self._journal.read(run_id, after=book.run.seq, limit=min(_PAGE, seq - book.run.seq))
            if not rows:
                raise RunCorrupt(run_id, f"event {book.run.seq + 1} is missing")
            for row in rows:
                event = decode_event(row.type, row.version, row.body)
                if isinstance(event, RunStarted | HandedOff):
                    await self._need_spec(event.spec)
                refusal = book.take(event, self._specs)
                if refusal is not None:
                    raise RunCorrupt(run_id, f"event {row.seq} ({row.type}) cannot follow: {refusal.reason}")

    async def _need_spec(self, digest: str) -> None:
        if digest not in self._specs and (data := await self._journal.spec(digest)) is not None:
            self._specs[digest] = decode_spec(data)

    async def _fill(self, book: ProgressBook) -> None:
        """Take whole what can be passed on whole; the rest stays shortened, and its size says so."""
        for step in book.progress.steps.values():
            artifact = step.artifact
            if artifact is None or not artifact.media_type.startswith(("text/", "application/json")):
                continue
            if artifact.size <= self._limits.argument_bytes:
                data = await self._journal.artifact(artifact.digest)
                if data is not None:
                    book.fill(step.name, data.decode(errors="backslashreplace"))

    def _make_room(self) -> None:
        total = sum(book.size for book in self._books.values())
        while total > self._limits.plan_progress_bytes and len(self._books) > 1:
            _, oldest = self._books.popitem(last=False)
            total -= oldest.size

    def forget(self, run_id: str) -> None:
        """Let go of the progress of a run that has ended, however it has."""
        self._books.pop(run_id, None)
