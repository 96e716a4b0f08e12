"""Why a run does not go on, as rows for people, in the order in which they ask: pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from geartrain.cli._text import one_line
from geartrain.cli._timeline import shown_time
from geartrain.runtime import Standing, StuckRun

_WIDE: Final = 160
_SHOWN: Final = 5


def why_rows(standing: Standing) -> Iterator[tuple[str, str]]:
    """Yield (name, text) rows: what was sent, whether it was processed, what was refused, and the cause if stuck."""
    for awaited in standing.awaited[:_SHOWN]:
        about = f" ({awaited.about})" if awaited.about else ""
        what = f"{awaited.command} {awaited.key}{about}"
        yield "sent", _line(f"{what}, asked for by event {awaited.seq} at {shown_time(awaited.since)}")
    if len(standing.awaited) > _SHOWN:
        yield "sent", f"and {len(standing.awaited) - _SHOWN} more"
    newest = f"the newest event is {standing.newest_seq}, {standing.newest_type} {standing.newest_id}"
    answered = "no answer yet" if standing.awaited else "nothing is awaited"
    yield "processed", _line(f"{answered}; {newest} at {shown_time(standing.newest_time)}")
    for refused in standing.refused[-_SHOWN:]:
        what = f"{refused.type} {refused.id} at {shown_time(refused.time)} in {refused.state}"
        yield "refused", _line(f"{what}: {refused.reason}")
    if standing.stuck is not None:
        yield "stuck", stuck_line(standing.stuck)


def stuck_line(stuck: StuckRun) -> str:
    """Return why a run does not get on, since when, and what was done about it."""
    done = f" (done: {stuck.done})" if stuck.done else ""
    return _line(f"{stuck.cause} since {shown_time(stuck.since)}: {stuck.about}{done}")


def _line(text: str) -> str:
    return one_line(text, _WIDE)
