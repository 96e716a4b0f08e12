"""Going on from an ended run: what a new run takes over of its conversation.

Rule 1: the messages of the ended run as its model saw them last, without its instructions: the new agent has its own.
Rule 2: what does not fit into one event is left out from the oldest on, pinned messages last; calls stay with results.
Rule 3: calls of earlier runs are named `RUN/CALL`, so that no call of the new run is taken for one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from geartrain.errors import RunStillGoing
from geartrain.limits import Limits
from geartrain.machine import ENDED, Message, groups
from geartrain.persistence import Journal
from geartrain.runtime._reading._runs import read_run

_BETWEEN: Final = "/"


async def history_of(journal: Journal, run_id: str, limits: Limits) -> tuple[Message, ...]:
    """Return what a run that goes on from *run_id* begins with.

    Raises:
        RunNotFound: There is no such run.
        RunStillGoing: It has not ended.
        RunCorrupt: What is stored of it is damaged.
        FormatUnknown: Something of it is newer than this version.
    """
    run = (await read_run(journal, run_id)).run
    if run.state not in ENDED:
        raise RunStillGoing(run_id, str(run.state))
    # The input and what is given beside it need the other half.
    return fitted([_taken_over(message, run_id) for message in run.messages], limits.event_bytes // 2)


def _taken_over(message: Message, run_id: str) -> Message:
    calls = tuple(replace(call, id=_earlier(call.id, run_id)) for call in message.calls)
    call_id, text = _earlier(message.call_id, run_id), message.text
    if message.shrunk or message.artifact:  # it says how the rest is read
        text = text.replace(f'call="{message.call_id}"', f'call="{call_id}"')
    return replace(message, text=text, calls=calls, call_id=call_id, turn=0)


def _earlier(call_id: str, run_id: str) -> str:
    return call_id if not call_id or _BETWEEN in call_id else f"{run_id}{_BETWEEN}{call_id}"


def fitted(messages: Sequence[Message], room: int) -> tuple[Message, ...]:
    """Return what of *messages*, instructions aside, takes at most *room* bytes: pinned and newest ones first."""
    units = groups(tuple(message for message in messages if message.role != "system"))
    sizes = [sum(len(msgspec.json.encode(message)) + 1 for message in unit) for unit in units]
    kept: set[int] = set()
    for position, unit in enumerate(units):
        if any(message.pinned for message in unit) and sizes[position] <= room:
            kept.add(position)
            room -= sizes[position]
    for position in reversed(range(len(units))):
        if position in kept:
            continue
        room -= sizes[position]
        if room < 0:
            break
        kept.add(position)
    return tuple(message for position in sorted(kept) for message in units[position])
