"""Events between the runs of a tree: published under a name, and waited for. The run that all began with is the broker.

    a call of `publish` begins   → `EventPublished` to the root → `EventHeard` to the call, and to all who wait for it
    a call of `wait_for` begins  → `EventAwaited` to the root   → `EventHeard` to the call, now or later

Rule 1: what is published stays: who waits for it later hears it too.
Rule 2: each run hears the events of one name one after the other, and each of them once: of two calls that wait at the
same time, one hears it and the other asks for the next.
Rule 3: both calls are answered from elsewhere, like those of an external tool: they rest, outlive their process and
end by their time-out.
Rule 4: the root keeps so many events and waits, and refuses what is more.
"""

from __future__ import annotations

from typing import Final

import msgspec

from geartrain.machine._call_handlers import moved
from geartrain.machine._draft import Draft, Refused
from geartrain.machine._events import EventAwaited, EventHeard, EventPublished
from geartrain.machine._run import Call, Run
from geartrain.machine._states import RUNNING, ResultStatus
from geartrain.machine._values import AwaitedEvent, CallResult, PublishedEvent

EVENTS_MAX: Final = 1_000
EVENTS_BYTES_MAX: Final = 256 * 1024
WAITS_MAX: Final = 1_000


class _Published(msgspec.Struct, frozen=True):
    name: str
    payload: str = ""


class _Awaited(msgspec.Struct, frozen=True):
    name: str


def published_by(run: Run, call: Call) -> EventPublished:
    """Return what a call of `publish` brings to the root."""
    asked = msgspec.json.decode(call.arguments, type=_Published)  # its tool has checked them
    return EventPublished(
        id=f"{run.id}/{call.id}.published",
        time=run.updated_at,
        source="event",
        run_id=run.id,
        call_id=call.id,
        name=asked.name,
        payload=asked.payload,
    )


def awaited_by(run: Run, call: Call) -> EventAwaited:
    """Return what a call of `wait_for` brings to the root."""
    asked = msgspec.json.decode(call.arguments, type=_Awaited)  # its tool has checked them
    after = run.heard.get(asked.name, 0)
    return EventAwaited(
        id=f"{run.id}/{call.id}.awaited.{after}",
        time=run.updated_at,
        source="event",
        run_id=run.id,
        call_id=call.id,
        name=asked.name,
        after=after,
        until=call.since + call.timeout_seconds,
    )


def on_published(draft: Draft, event: EventPublished) -> None:
    """Keep what was published, if there is room; who waits for it waits no longer."""
    run = draft.run
    size = sum(len(each.name) + len(each.payload) for each in run.published)
    if len(run.published) >= EVENTS_MAX or size + len(event.name) + len(event.payload) > EVENTS_BYTES_MAX:
        return  # its call is told so
    kept = PublishedEvent(
        number=len(run.published) + 1,
        name=event.name,
        payload=event.payload,
        run_id=event.run_id,
        call_id=event.call_id,
    )
    left = tuple(wait for wait in run.awaited if wait.name != event.name)
    draft.set(published=(*run.published, kept), awaited=left)


def on_awaited(draft: Draft, event: EventAwaited) -> None:
    """Note who waits for what, unless it is there already, in the place of those whose time is over."""
    run = draft.run
    waiting = tuple(wait for wait in run.awaited if wait.waits(event.time))
    if found_for(run, event) is None and len(waiting) < WAITS_MAX:
        wait = AwaitedEvent(name=event.name, run_id=event.run_id, call_id=event.call_id, until=event.until)
        waiting = (*waiting, wait)
    if waiting != run.awaited:
        draft.set(awaited=waiting)


def found_for(run: Run, event: EventAwaited) -> PublishedEvent | None:
    """Return the first event that was published and not yet heard by those who ask."""
    return next((each for each in run.published if each.name == event.name and each.number > event.after), None)


def answers(before: Run, event: EventPublished | EventAwaited, after: Run) -> tuple[tuple[str, EventHeard], ...]:
    """Return what the root says to what has come: to which run, and what it hears."""
    if isinstance(event, EventAwaited):
        found = found_for(after, event)
        if found is not None:
            return ((event.run_id, _heard(event.call_id, after, found)),)
        if any((wait.run_id, wait.call_id) == (event.run_id, event.call_id) for wait in after.awaited):
            return ()
        return ((event.run_id, _refusal(event, after, f"{WAITS_MAX} waits are open, the most that are kept")),)
    if len(after.published) == len(before.published):
        most = f"{EVENTS_MAX} events of {EVENTS_BYTES_MAX} bytes are the most that are kept"
        return ((event.run_id, _refusal(event, after, most)),)
    new = after.published[-1]
    told = EventHeard(
        id=f"{event.call_id}.told", time=after.updated_at, source="event", call_id=event.call_id, name=event.name
    )
    waiting = [wait for wait in before.awaited if wait.name == event.name and wait.waits(event.time)]
    return ((event.run_id, told), *((wait.run_id, _heard(wait.call_id, after, new)) for wait in waiting))


def _heard(call_id: str, root: Run, found: PublishedEvent) -> EventHeard:
    return EventHeard(
        id=f"{call_id}.heard.{found.number}",
        time=root.updated_at,
        source="event",
        call_id=call_id,
        name=found.name,
        number=found.number,
        payload=found.payload,
    )


def _refusal(event: EventPublished | EventAwaited, root: Run, why: str) -> EventHeard:
    return EventHeard(
        id=f"{event.call_id}.refused",
        time=root.updated_at,
        source="event",
        call_id=event.call_id,
        name=event.name,
        refused=why,
    )


def on_heard(draft: Draft, event: EventHeard) -> None:
    """Take what the root says for the result of the call."""
    call = draft.need_call(event.call_id, RUNNING)
    if not call.event:
        raise Refused(f"call {call.id!r} waits for no event")
    if 0 < event.number <= draft.run.heard.get(event.name, 0):
        return  # another call has heard it meanwhile: this one asks for the next
    if event.number:
        draft.set(heard={**draft.run.heard, event.name: event.number})
    status = ResultStatus.REFUSED if event.refused else ResultStatus.OK
    draft.finish_call(call, CallResult(status=status, text=event.text, size=len(event.text)))
    moved(draft)
