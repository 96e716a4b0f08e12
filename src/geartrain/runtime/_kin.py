"""What runs of one tree have to do with each other here: bringing what they sent, places to work in, and their rest.

Rule 1: what was sent waits in the store until its receiver has taken or refused it; it is brought in order, a page at
a time. Who is told of it again finds nothing new.
Rule 2: a sub-agent's run has a place (`_places`) from its start to its end, or until it rests. One that is cancelled
before it has begun needs none, and one that is paused does not begin.
Rule 3: a tree rests when nothing in it works, is queued, or is on its way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from geartrain.errors import FormatUnknown, GeartrainError, RunNotBegun, RunNotFound
from geartrain.ids import sub_agent_run_id
from geartrain.machine import (
    ENDED,
    CancelRequested,
    PauseRequested,
    Run,
    RunResumed,
    RunStarted,
    decode_event,
    decode_spec,
    rests,
    sub_agents_at_work,
)
from geartrain.mailbox import Lane
from geartrain.persistence import InboxItem, Outgoing, RunCorrupt
from geartrain.runtime._circuit import outlast
from geartrain.runtime._delivery import Delivery
from geartrain.runtime._entry import SUB_AGENTS
from geartrain.runtime._log import log
from geartrain.runtime._node import FoundSpecs, Node, RunAtWork
from geartrain.runtime._places import Places
from geartrain.runtime._reading._runs import read_run

# What is brought to one run at once; the rest follows when this is taken.
PAGE: Final = 200
_PAUSES: Final = (PauseRequested.__name__, RunResumed.__name__)


class Loader(Protocol):
    """Who has runs in memory, or loads them."""

    async def actor(self, run_id: str) -> RunAtWork:
        """Return the actor of a run."""
        ...


class Kin:
    """The trees of one node."""

    def __init__(self, node: Node, loader: Loader) -> None:
        self._node = node
        self._loader = loader
        self.places = Places(node.limits)
        # Who is being brought something just now, and whether to look once more.
        self._bringing: dict[str, bool] = {}
        self._followers: dict[str, set[asyncio.Future[None]]] = {}

    @property
    def idle(self) -> bool:
        """Whether nothing is being brought to anybody, and nobody waits for a place."""
        return not self._bringing and not self.places.waiting

    # Bringing what was sent

    def call(self, run_ids: Iterable[str]) -> None:
        """Have each of these runs take what waits for it."""
        for run_id in run_ids:
            if self._node.closing:
                return
            under_way = run_id in self._bringing
            self._bringing[run_id] = under_way
            if not under_way:
                self._node.spawn(self._bring, run_id)

    async def _bring(self, run_id: str) -> None:
        try:
            while not self._node.closing:
                self._bringing[run_id] = False
                try:
                    brought = await outlast(partial(self._feed, run_id))
                except RunNotBegun:
                    brought = True
                except GeartrainError as error:
                    log.warning("sent_not_taken", run_id=run_id, error=str(error))
                    brought = True
                if brought and not self._bringing[run_id]:
                    return
        finally:
            del self._bringing[run_id]
            self._node.left.set()  # whoever waits until nothing is to be done looks again

    async def _feed(self, run_id: str) -> bool:
        """Bring a run what waits for it in the store, as much as is brought at once.

        Returns False if it has left memory meanwhile and something waits for it: then it is to be loaded again.
        """
        actor = await self._loader.actor(run_id)
        items = await self._node.journal.inbox(run_id, limit=PAGE)
        specs = await self.specs_of(items)
        if self._node.actors.get(run_id) is not actor:
            return all(item.number <= actor.inbox_mark for item in items)
        deliver(actor, items, specs)
        actor.rest_if_idle()
        return True

    async def specs_of(self, items: Sequence[InboxItem]) -> FoundSpecs:
        """Return the specs that starts among *items* name.

        Raises:
            FormatUnknown: One of them is newer than this version.
        """
        specs: dict[str, tuple[object, bytes]] = {}
        for item in items:
            event = decode_event(item.type, item.version, item.body)
            if isinstance(event, RunStarted):
                registered = self._node.agents.get(event.agent)
                if registered is not None and registered.digest == event.spec:
                    specs[event.spec] = (registered.spec, registered.encoded)
                elif (data := await self._node.journal.spec(event.spec)) is not None:
                    specs[event.spec] = (decode_spec(data), data)
        return specs  # type: ignore[return-value]

    async def newborn(self, run_id: str) -> tuple[Sequence[InboxItem], FoundSpecs]:
        """Return what waits for a run that has yet to start, once it has a place.

        Raises:
            RunNotBegun: It waits for a place, or is paused.
            RunNotFound: Nobody has started such a run.
        """
        items = await self._node.journal.inbox(run_id, limit=PAGE)
        started = next((item for item in items if item.type == RunStarted.__name__), None)
        if started is None:
            raise RunNotFound(run_id)
        event = decode_event(started.type, started.version, started.body)
        root = event.root if isinstance(event, RunStarted) else ""
        specs = await self.specs_of(items)
        if any(item.type == CancelRequested.__name__ for item in items):
            self.places.take(run_id, root)  # it does not work
        elif _held(items):
            self.call(self.places.leave(run_id))
            raise RunNotBegun(run_id)
        elif not self.places.take_if_free(run_id, root):
            raise RunNotBegun(run_id)
        return items, specs

    # What becomes of a run here

    def moved(self, run: Run, *, resting: bool, sent: Sequence[Outgoing], more: object) -> None:
        """Take note of a stored step: where the run is, whom it sent something, and whether more waits for it."""
        if run.parent is not None:
            if resting:
                self.call(self.places.leave(run.id))
            else:
                self.places.take(run.id, run.root)
        self.call(dict.fromkeys(each.run_id for each in sent))
        if more:
            self.call((run.id,))
        if resting:
            self._tell(run.root)

    def left(self, run: Run) -> None:
        """Take note that a run is no more in memory."""
        self.call(self.places.leave(run.id))
        self._tell(run.root)

    def _tell(self, root: str) -> None:
        for follower in self._followers.pop(root, ()):
            if not follower.done():
                follower.set_result(None)

    # The rest of a tree

    def follow(self, root: str) -> asyncio.Future[None]:
        """Return a future that is done when a run of that tree next comes to rest."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._followers.setdefault(root, set()).add(future)
        return future

    def unfollow(self, root: str, future: asyncio.Future[None]) -> None:
        """Follow no longer."""
        future.cancel()
        followers = self._followers.get(root)
        if followers is not None:
            followers.discard(future)
            if not followers:
                del self._followers[root]

    async def busy(self, run_id: str) -> bool:
        """Return whether anything below a run works, is queued, or is on its way; what nobody moves is moved."""
        async with contextlib.aclosing(self._busy(run_id)) as busy:
            async for _ in busy:
                return True
        return False

    async def adopt(self, run_id: str) -> None:
        """Have all below a run go on that another process has left in the middle, side by side."""
        async for _ in self._busy(run_id):
            pass

    async def _busy(self, run_id: str) -> AsyncGenerator[str, None]:
        """Yield all of a run and of what is below it that is to move; each that nobody moves is called."""
        node = self._node
        actor = node.actors.get(run_id)
        run = actor.run if actor is not None and actor.run.seq else (await read_run(node.journal, run_id)).run
        if run.state not in ENDED and await node.journal.inbox(run_id, limit=1):
            self.call((run_id,))  # perhaps an event that somebody below waits for
            yield run_id
        for call in sub_agents_at_work(run):
            child = sub_agent_run_id(run_id, call.id)
            actor = node.actors.get(child)
            if actor is not None and actor.run.seq:
                works = actor.run.state in ENDED or not rests(actor.run, actor.specs[actor.run.spec])
                if works or not actor.cell.idle:
                    yield child
            else:
                row = await node.journal.head(child)
                if child in node.apart or (row is not None and row.mark is not None):
                    continue
                waiting = await node.journal.inbox(child, limit=PAGE)
                if row is None and _held(waiting):
                    continue
                if row is None or row.head.live or row.head.ended or waiting:
                    # Its end is on its way to its parent, if it has ended.
                    self.call((run_id if row is not None and row.head.ended else child,))
                    yield child
                if row is None or SUB_AGENTS not in row.head.holds:
                    continue
            try:
                async with contextlib.aclosing(self._busy(child)) as below:
                    async for each in below:
                        yield each
            except (RunCorrupt, FormatUnknown):  # whoever loads it sets it apart
                self.call((child,))
                yield child


def _held(items: Sequence[InboxItem]) -> bool:
    """Whether what was sent to a run that has yet to begin has paused it."""
    last = next((item.type for item in reversed(items) if item.type in _PAUSES), "")
    return last == PauseRequested.__name__


def deliver(actor: RunAtWork, items: Sequence[InboxItem], specs: FoundSpecs) -> None:
    """Put what was sent to a run into its mailbox, in order; what it has been given already is left out.

    What there is no room for follows, like all beyond a page, when something of this is taken.
    """
    actor.inbox_more = len(items) >= PAGE
    for item in items:
        if item.number <= actor.inbox_mark:
            continue
        if not actor.cell.has_room(Lane.WORK):
            actor.inbox_more = True
            return
        actor.inbox_mark = item.number
        event = decode_event(item.type, item.version, item.body)
        found = specs if isinstance(event, RunStarted) else None
        actor.cell.send_nowait(Delivery(event, outside=True, inbox=item.number, specs=found), Lane.WORK)
