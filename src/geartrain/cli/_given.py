"""What is given as RUN: a run of a store, by its id or the beginning of it, or a file to which a run was exported."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from geartrain.cli._acts import Setting
from geartrain.cli._errors import OptionInvalid
from geartrain.cli._stores import Place, find_run
from geartrain.persistence import StoreUnusable
from geartrain.runtime import RunReader, open_reader

EXPORTED = "exported"  # how a place was found that is no store


@dataclass(frozen=True, slots=True)
class Given:
    """A run, where it is, and what reads it."""

    place: Place
    run_id: str
    reader: RunReader

    @property
    def exported(self) -> bool:
        """Whether it stands in a file of its own, with no store that could go on with it."""
        return self.place.how == EXPORTED


@asynccontextmanager
async def opened(setting: Setting, given: str) -> AsyncIterator[Given]:
    """Find a run and open what has it, for reading.

    Raises:
        RunUnknown: No store that was looked through has it.
        ExportUnusable: It is a file, and no whole exported run.
        OptionInvalid: It is a path at which nothing is, or something else.
    """
    path = Path(given)
    if _is_path(given, path):
        async with AsyncExitStack() as stack:
            try:
                reader = await stack.enter_async_context(open_reader(path))
            except StoreUnusable as problem:  # nobody spoke of a store
                raise OptionInvalid("RUN", f"{given!r} is no exported run (and no store: {problem.reason})") from None
            if not reader.exported:
                raise OptionInvalid("RUN", f"{given!r} is a store; name a run, and the store with --store")
            (run,) = await reader.list()
            yield Given(Place(setting.folder / path, EXPORTED), run.id, reader)
        return
    place, run_id = await find_run(given, setting.store, setting.folder, setting.index)
    if place.how == "known":
        setting.screen.tell(f"store {place.path}", "dim")
    async with open_reader(place.path) as reader:
        yield Given(place, run_id, reader)


def _is_path(given: str, path: Path) -> bool:
    try:
        if path.is_file() or path.is_fifo():
            return True
    except (OSError, ValueError):  # too long, or with characters that no path has
        return False
    if os.sep in given or given.endswith(".jsonl"):
        raise OptionInvalid("RUN", f"there is no file {given!r}")
    return False
