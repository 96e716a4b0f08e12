"""How callers reach one run: bringing it events, waiting for it, following it. Handles are made of this."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from geartrain.actors import ActorStopped, Reply
from geartrain.errors import (
    EventConflict,
    EventRefused,
    InternalError,
    InvalidValue,
    RunNotFound,
    RunSetApart,
    RuntimeClosed,
)
from geartrain.limits import Limits
from geartrain.machine import (
    ENDED,
    PUBLIC_EVENTS,
    AgentSpec,
    ApprovalDecided,
    Budget,
    BudgetRaised,
    CallAnswered,
    CallSettled,
    CancelRequested,
    Event,
    EventBase,
    InputReceived,
    PauseRequested,
    Run,
    RunResumed,
    RunStarted,
    ShareRaised,
    SubAgentEnded,
    TurnTaken,
    event_digest,
    rests,
    sub_agents_at_work,
)
from geartrain.mailbox import Lane
from geartrain.persistence import StoredEvent
from geartrain.runtime._circuit import outlast
from geartrain.runtime._delivery import Delivery
from geartrain.runtime._edge import checked_event
from geartrain.runtime._entry import CALL, SUB_AGENTS
from geartrain.runtime._host import Host
from geartrain.runtime._hub import Watch
from geartrain.runtime._node import Node, RunAtWork
from geartrain.runtime._reading._runs import JournalEntry, RunSnapshot, journal_entry, snapshot_of
from geartrain.runtime._reading._tree import RunTree, read_tree
from geartrain.runtime._sub_agents import input_of
from geartrain.tools import ArgumentsInvalid

# How often a run may come to rest at the very moment at which an event is brought to it.
_TRIES: Final = 100
# A tree tells when something in it comes to rest; should that ever be missed, it is looked at again after this long.
_LOOK_AGAIN_SECONDS: Final = 30.0
_PUBLIC: Final = tuple(kind.__name__ for kind in PUBLIC_EVENTS)
# In which lane an outside event travels; those that are not named are controls.
_LANES: Final[Mapping[type[EventBase], Lane]] = {
    ApprovalDecided: Lane.APPROVAL,
    CallSettled: Lane.APPROVAL,
    CallAnswered: Lane.APPROVAL,
    InputReceived: Lane.STEERING,
    TurnTaken: Lane.STEERING,
    PauseRequested: Lane.STEERING,
    RunResumed: Lane.STEERING,
    RunStarted: Lane.WORK,
    SubAgentEnded: Lane.WORK,
}


class RunAccess:
    """What a runtime lets callers do with one run."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def limits(self) -> Limits:
        """The runtime's limits."""
        return self._host.settings.limits

    async def deliver(self, run_id: str, event: Event) -> int:
        """Bring an event to a run; see `Runtime.deliver`."""
        node = self._host.node
        # The time is ours: a caller's clock must neither date a journal nor use a run's active seconds up.
        cleaned = msgspec.structs.replace(_from_user(run_id, event, self.limits), time=node.clock.now())
        known = await self._repeated(run_id, cleaned)
        if known is not None:
            return known.seq
        try:
            return await self._send(run_id, cleaned)
        except EventRefused:
            # The same event may have been stored in between, and have made this one impossible.
            known = await self._repeated(run_id, cleaned)
            if known is None:
                raise
            return known.seq

    async def _repeated(self, run_id: str, event: Event) -> StoredEvent | None:
        """Return the event if it is stored already.

        Raises:
            EventConflict: Its id is stored with another body.
        """
        journal = self._host.node.journal
        known = await journal.find(run_id, event.id)
        if known is None and isinstance(event, BudgetRaised):  # if a parent pays for it, that has the event
            row = await journal.head(run_id)
            if row is not None and row.head.parent is not None:
                return await self._repeated(row.head.parent, _for_parent(event, row.head.counters[CALL]))
        if known is not None and known.digest != event_digest(event):
            raise EventConflict(run_id, event.id)
        return known

    async def act(self, run_id: str, kind: type[Event], by: str, event_id: str | None, fields: dict[str, Any]) -> int:
        """Bring a new event of *kind* to a run; with an id of the caller's it is delivered like any other."""
        node = self._host.node
        own_id = node.ids.mint("e") if event_id is None else event_id
        event = kind(id=own_id, time=node.clock.now(), source="user", by=by, **fields)
        if event_id is not None:
            return await self.deliver(run_id, event)
        return await self._send(run_id, _from_user(run_id, event, self.limits))

    async def _send(self, run_id: str, event: Event) -> int:
        if isinstance(event, CancelRequested | PauseRequested):
            with self._host.residents.holding_back(run_id):
                return await self._sent(run_id, event)
        return await self._sent(run_id, event)

    async def _sent(self, run_id: str, event: Event) -> int:
        for _ in range(_TRIES):
            actor = await self._host.residents.actor(run_id)
            if isinstance(event, BudgetRaised):
                self._check_budget(actor, event.budget)
                if actor.run.parent is not None and actor.run.state not in ENDED:
                    actor.rest_if_idle()
                    parent = actor.run.parent
                    return await self._send(parent.run_id, _for_parent(event, parent.call_id))
            reply: Reply[int] = Reply()
            try:
                await actor.cell.send(Delivery(event, outside=True, reply=reply), _LANES.get(type(event), Lane.CONTROL))
            except ActorStopped:  # it came to rest and left memory at this very moment
                continue
            try:
                return await reply.wait_answered()
            except EventRefused as refused:  # what only the runtime may bring is of no use to a caller
                refused.possible = tuple(name for name in refused.possible if name in _PUBLIC)
                raise
        raise InternalError(f"run {run_id!r}: left memory {_TRIES} times while an event was brought to it")

    def _check_budget(self, actor: RunAtWork, budget: Budget) -> None:
        """Refuse a limit of cost for a run whose cost nothing tells."""
        registered = self._host.settings.agents.get(actor.run.agent)
        spec = actor.specs.get(actor.run.spec)
        if registered is not None and spec is not None and spec.price is None:
            try:
                registered.agent.checked_budget(budget)
            except InvalidValue:
                actor.rest_if_idle()
                raise

    async def tree(self, run_id: str) -> RunTree:
        """Return a run with all that is below it; see `RunHandle.tree`."""
        return await read_tree(self._host.node.journal, run_id, self.snapshot)

    async def below(self, run_id: str, other: str) -> str:
        """Return *other* if it is a run below *run_id*, or that itself.

        Raises:
            RunNotFound: It is not.
        """
        node, above = self._host.node, other
        for _ in range(self.limits.sub_agent_depth + 1):
            if above == run_id:
                return other
            actor = node.actors.get(above)
            if actor is not None and actor.run.seq:
                parent = actor.run.parent.run_id if actor.run.parent is not None else None
            else:
                row = await node.journal.head(above)
                parent = row.head.parent if row is not None else None
            if parent is None:
                break
            above = parent
        raise RunNotFound(other)

    async def check_arguments(self, run_id: str, call_id: str, arguments: str) -> None:
        """Check arguments that a person edited, before they are accepted.

        Raises:
            ArgumentsInvalid: They do not fit the tool.
            InvalidValue: They are no text, or too large.
        """
        room = self.limits.argument_bytes
        if not isinstance(arguments, str) or len(arguments) > room:
            raise InvalidValue("edited arguments", f"JSON text of at most {room} characters", arguments)
        actor = await self._host.residents.actor(run_id)
        call = actor.run.call(call_id)
        registered = self._host.settings.agents.get(actor.run.agent)
        tool = registered.agent.tools.get(call.tool) if registered is not None and call is not None else None
        actor.rest_if_idle()
        if tool is not None:
            tool.decode(arguments)
        elif call is not None and call.sub_agent:
            try:
                input_of(arguments)
            except InvalidValue as problem:
                raise ArgumentsInvalid(call.tool, str(problem)) from None

    async def snapshot(self, run_id: str) -> RunSnapshot:
        """Return a run as it is stored now."""
        node = self._host.node
        actor = node.actors.get(run_id)
        if actor is not None and actor.run.seq:
            return RunSnapshot.of(actor.run, actor.specs[actor.run.spec])
        return await snapshot_of(node.journal, run_id)

    async def wait_until(self, run_id: str, *, at_rest: bool) -> RunSnapshot:
        """Wait until a run has ended (or rests, with all that is below it); see `RunHandle`."""
        kin, inbox = self._host.residents.kin, self._host.node.journal.inbox
        # Whether a tree rests is read from the store: as long as that fails, nobody can say.
        if await self._has_sub_agents(run_id):
            await outlast(partial(kin.adopt, run_id))  # perhaps nobody else moves those below it
        while True:
            snapshot = await self._reached(run_id, at_rest=at_rest)
            # Something may be on its way from a run to itself, too: the root keeps what its tree publishes.
            if snapshot.ended or (not snapshot.sub_agents and not await outlast(partial(inbox, run_id, limit=1))):
                return snapshot
            moved = kin.follow(snapshot.root)
            try:
                # Asked after it is followed: what comes to rest meanwhile is looked at again.
                if not await outlast(partial(kin.busy, run_id)) and (await self.snapshot(run_id)).seq == snapshot.seq:
                    return msgspec.structs.replace(snapshot, at_rest=True)
                await asyncio.wait([moved], timeout=_LOOK_AGAIN_SECONDS)
            finally:
                kin.unfollow(snapshot.root, moved)

    async def _has_sub_agents(self, run_id: str) -> bool:
        actor = self._host.node.actors.get(run_id)
        if actor is not None and actor.run.seq:
            return bool(sub_agents_at_work(actor.run))
        row = await self._host.node.journal.head(run_id)
        return row is not None and row.mark is None and SUB_AGENTS in row.head.holds

    async def _reached(self, run_id: str, *, at_rest: bool) -> RunSnapshot:
        """Wait until a run itself has ended (or rests)."""
        node = self._host.node
        reached = rests if at_rest else _ended
        future: asyncio.Future[RunSnapshot] = asyncio.get_running_loop().create_future()
        node.waiters.setdefault(run_id, []).append((reached, future))
        try:
            actor = node.actors.get(run_id)
            if actor is None or not actor.run.seq:
                row = await node.journal.head(run_id)
                actor = node.actors.get(run_id)
                if actor is None and row is None:
                    raise RunNotFound(run_id)
                moves = row is not None and row.head.live and not node.suspects.waits(run_id)
                if actor is None and row is not None and (moves or row.mark is not None):
                    actor = await self._host.residents.actor(run_id)  # nobody else moves it
                if row is not None and actor is None:
                    node.on_wake_at(row.head.wake_at, run_id)  # it rests, and is waited for
                if actor is None:
                    snapshot = await snapshot_of(node.journal, run_id)
                    if snapshot.ended or (at_rest and (snapshot.at_rest or snapshot.sub_agents)):
                        return snapshot
            if actor is not None and actor.run.seq:
                spec = actor.specs[actor.run.spec]
                if reached(actor.run, spec):
                    return RunSnapshot.of(actor.run, spec)
            return await future
        finally:
            future.cancel()
            self._forget_waiter(node, run_id, future)

    def _forget_waiter(self, node: Node, run_id: str, future: asyncio.Future[RunSnapshot]) -> None:
        left = [waiter for waiter in node.waiters.get(run_id, ()) if waiter[1] is not future]
        if left:
            node.waiters[run_id] = left
        else:
            node.waiters.pop(run_id, None)

    async def follow(self, run_id: str, after: int) -> AsyncIterator[JournalEntry]:
        """Yield a run's journal, and go on as it grows; see `RunHandle.events`."""
        node, after = self._host.node, max(0, after)
        while True:
            moved = node.hub.follow(run_id)
            try:
                # Asked before reading: what is stored until then is read, the end included.
                ended, apart = False, None
                try:
                    ended = await self._is_over(run_id)
                except RunSetApart as error:  # what can be read of it comes first
                    apart = error
                while page := await node.journal.read(run_id, after=after, limit=100):
                    for row in page:
                        after = row.seq
                        ended = ended or (bool(row.path) and row.path.rsplit(">", 1)[-1] in ENDED)
                        yield journal_entry(row)
                if apart is not None:
                    raise apart
                if ended:
                    return
                await moved
                if self._host.closed:
                    raise RuntimeClosed("following a run")
            finally:
                node.hub.unfollow(run_id, moved)

    async def _is_over(self, run_id: str) -> bool:
        row = await self._host.node.journal.head(run_id)
        if row is None:
            raise RunNotFound(run_id)
        if row.mark is not None:
            raise RunSetApart(run_id, row.mark.reason)
        if run_id in self._host.node.apart and not row.head.ended:
            raise self._host.node.apart[run_id]
        return row.head.ended

    def watch(self, run_id: str) -> Watch:
        """Return a live stream of what happens to a run from now on; see `RunHandle.watch`."""
        return self._host.node.hub.watch(run_id, self._is_over)


def _for_parent(event: BudgetRaised, call_id: str) -> ShareRaised:
    """Return what the raised budget of a sub-agent's run is to its parent, which pays for it."""
    return ShareRaised(
        id=event.id, time=event.time, source=event.source, by=event.by, call_id=call_id, budget=event.budget
    )


def _from_user(run_id: str, event: Event, limits: Limits) -> Event:
    """Return *event* as it is stored, if callers may bring it.

    Whoever brings it is a user: neither the system nor a parent run can be pretended.

    Raises:
        EventRefused: Only the runtime itself can know such a thing: a forged tool result is none.
        InvalidValue: It could not be read back.
    """
    if not isinstance(event, PUBLIC_EVENTS):
        name = type(event).__name__
        raise EventRefused(run_id, name, "any state", "only the runtime itself can know this", _PUBLIC)
    checked = checked_event(event, limits)
    code = {"code": "cancelled_by_user"} if isinstance(checked, CancelRequested) else {}
    return msgspec.structs.replace(checked, source="user", **code)


def _ended(run: Run, _spec: AgentSpec) -> bool:
    return run.state in ENDED
