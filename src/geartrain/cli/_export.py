"""`export`: a run leaves its store."""

from __future__ import annotations

from collections.abc import Sequence

from geartrain.cli._acts import Setting
from geartrain.cli._errors import OptionInvalid
from geartrain.cli._given import opened
from geartrain.cli._text import counted


async def export(setting: Setting, given: str, *, redact: Sequence[str], artifacts: bool) -> int:
    """Write a run to standard output; return 0."""
    screen = setting.screen
    if screen.shown:
        raise OptionInvalid("standard output", "is a terminal; write the run to a file, as in `> run.jsonl`")
    lines = size = 0
    async with opened(setting, given) as one:
        async for line in one.reader.export(one.run_id, redact=redact, artifacts=artifacts):
            screen.write(line)
            lines += 1
            size += len(line)
    screen.tell(f"run {one.run_id}: {counted(lines, 'line')}, {counted(size, 'byte')}", "green")
    return 0
