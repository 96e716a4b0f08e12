"""Which runs are in memory: loading them, waking them, and taking over what another process left.

Rule 1: a run is loaded once at a time; whoever asks meanwhile waits for the same load.
Rule 2: a run that is found in the middle of something was left there by a process that is gone: the first thing
appended to it is `RunRecovered`.
Rule 3: one that may have killed that process goes on alone, when its turn has come (`_suspects`).
Rule 4: a run that cannot be read is set apart with its reason; its journal is left as it is, and others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Final

from geartrain import faults
from geartrain.errors import (
    FormatUnknown,
    GeartrainError,
    RunNotBegun,
    RunNotFound,
    RunSetApart,
    RuntimeClosed,
    plain_traceback,
)
from geartrain.machine import ENDED, Event, Run, TimerFired, alarms, wake_at
from geartrain.mailbox import Lane
from geartrain.persistence import JournalConflict, LoadedRun, OwnershipLost, RunCorrupt, StoreFailed
from geartrain.runtime._actor import RunActor
from geartrain.runtime._apart import tell_kin
from geartrain.runtime._circuit import outlast
from geartrain.runtime._delivery import Delivery
from geartrain.runtime._entry import Revived, nothing_new, revive
from geartrain.runtime._kin import PAGE, Kin, deliver
from geartrain.runtime._log import log
from geartrain.runtime._node import FoundSpecs, Node, RunAtWork
from geartrain.runtime._run_supervisor import BACKOFF
from geartrain.runtime._suspects import READ_AGAIN, interruption, recovered, suspect
from geartrain.supervisor import RestartLimit
from geartrain.tools import error_text

_PAGE: Final = 100
# After so long a run leaves memory that was loaded and has nothing to do.
_UNUSED_SECONDS: Final = 1.0


class Residents:
    """The run actors of one node."""

    __slots__ = ("_held_back", "_kin", "_later", "_load_crashes", "_loading", "_marking", "_node", "_recovering")

    def __init__(self, node: Node) -> None:
        self._node = node
        self._kin = Kin(node, self)
        node.kin = self._kin
        self._loading: dict[str, asyncio.Future[RunAtWork]] = {}
        self._recovering = False
        # Runs that could not be loaded for a fault of ours: when, and how many are to be tried again.
        self._load_crashes: dict[str, tuple[float, ...]] = {}
        self._later = 0
        # Runs that are damaged, until all who must know it do.
        self._marking: set[str] = set()
        # Runs that are being loaded to be stopped.
        self._held_back: set[str] = set()

    @property
    def idle(self) -> bool:
        """Whether nothing is being loaded or brought to anybody, and nobody is still to be taken over."""
        suspects = self._node.suspects
        return self._kin.idle and not (
            self._loading or self._recovering or self._later or self._marking or suspects.alone or suspects.waiting
        )

    def begin_recovery(self) -> None:
        """Take note that all runs that were left in the middle are going to be taken over."""
        self._recovering = True
        self._node.suspects.look(True)

    @property
    def kin(self) -> Kin:
        """The trees of this node."""
        return self._kin

    def new(self, run_id: str) -> RunAtWork:
        """Return the actor of a run that is about to start, or of the one that has this id already."""
        actor = self._node.actors.get(run_id)
        if actor is None:
            actor = self._node.actors[run_id] = RunActor(self._node, Run(id=run_id), {})
        return actor

    async def actor(self, run_id: str) -> RunAtWork:
        """Return the actor of a run, read from the store if it is not in memory.

        Raises:
            RunNotFound: There is no such run.
            RunSetApart: It cannot be read, or was set apart before.
        """
        actor = self._node.actors.get(run_id)
        if actor is not None and actor.run.seq:
            return actor
        loading = self._loading.get(run_id)
        if loading is None:
            loading = asyncio.get_running_loop().create_future()
            loading.add_done_callback(lambda future: future.cancelled() or future.exception())
            self._loading[run_id] = loading
            self._node.spawn(self._load, run_id, loading)
        return await asyncio.shield(loading)

    async def _load(self, run_id: str, loading: asyncio.Future[RunAtWork]) -> None:
        try:
            actor = await self._loaded(run_id)
        except GeartrainError as error:
            loading.set_exception(error)
        except asyncio.CancelledError:
            loading.set_exception(RuntimeClosed("loading a run"))
            raise
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one run, the others go on
            log.error("run_not_loaded", run_id=run_id, traceback=plain_traceback(error))
            apart = RunSetApart(run_id, f"loading it failed: {error_text(error)}")
            loading.set_exception(apart)
            self._load_again(run_id, apart)
        else:
            loading.set_result(actor)
            self._load_crashes.pop(run_id, None)
            # Whoever wanted it may have been cancelled meanwhile.
            asyncio.get_running_loop().call_later(_UNUSED_SECONDS, actor.rest_if_idle)
        finally:
            del self._loading[run_id]
            self._node.left.set()

    def _load_again(self, run_id: str, apart: RunSetApart) -> None:
        """Try again later to load a run that met a fault of ours or of the store's code; past the limit give it up."""
        node = self._node
        limit = RestartLimit(node.limits.restarts_per_window, node.limits.restart_window_seconds)
        history, allowed = limit.restarted(self._load_crashes.get(run_id, ()), node.clock.now())
        if allowed:
            self._load_crashes[run_id] = history
            self._later += 1
            node.spawn(self._recover_later, run_id, BACKOFF.wait_seconds(len(history), node.rng.random()))
        else:
            self._load_crashes.pop(run_id, None)
            node.set_apart(run_id, apart, lasting=True)

    async def _recover_later(self, run_id: str, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
            await outlast(partial(self.recover, run_id))
        finally:
            self._later -= 1
            self._node.left.set()

    async def _loaded(self, run_id: str) -> RunAtWork:
        node = self._node
        if run_id in node.apart:
            raise node.apart[run_id]
        try:
            loaded = await node.journal.load(run_id)
            if loaded is None:
                return await self._newborn(run_id)
            if loaded.mark is not None:
                raise RunSetApart(run_id, loaded.mark.reason)
            revived = revive(loaded)
            specs = await self._kin.specs_of(loaded.inbox[:PAGE])
        except RunCorrupt as error:
            self._set_apart(run_id, error.reason)
            raise RunSetApart(run_id, error.reason) from error
        except FormatUnknown as error:
            node.set_apart(run_id, RunSetApart(run_id, str(error)), lasting=True)
            raise node.apart[run_id] from error
        return self._resident(loaded, revived, specs)

    async def _newborn(self, run_id: str) -> RunAtWork:
        """Return the actor of a run that another one has started and that has no journal yet."""
        try:
            items, specs = await self._kin.newborn(run_id)
        except RunNotFound:
            present = self._node.actors.get(run_id)
            if present is None or not present.run.seq:
                raise
            return present  # it has begun while this was being looked for
        actor = self.new(run_id)
        deliver(actor, items, specs)
        return actor

    def _set_apart(self, run_id: str, reason: str) -> None:
        if run_id not in self._marking:
            log.error("run_set_apart", run_id=run_id, reason=reason)
            self._marking.add(run_id)
            self._node.spawn(self._mark, run_id, reason)

    async def _mark(self, run_id: str, reason: str) -> None:
        """Mark a run that is damaged, once its kin have been told."""
        node = self._node
        try:
            await outlast(partial(tell_kin, node, self, run_id, reason))
            await node.journal.mark(run_id, reason, now=node.clock.now())
        except GeartrainError as error:  # damaged there too: then this process alone knows, and others go on
            log.error("run_not_marked", run_id=run_id, error=str(error))
        finally:
            node.set_apart(run_id, RunSetApart(run_id, reason), lasting=True)
            self._marking.discard(run_id)
            node.left.set()

    def _resident(self, loaded: LoadedRun, revived: Revived, specs: FoundSpecs) -> RunAtWork:
        node, run_id = self._node, revived.run.id
        present = node.actors.get(run_id)
        if present is not None:  # started under the same id while this was being read
            return present
        actor = RunActor(node, revived.run, revived.specs, revived.tail_bytes)
        node.actors[run_id] = actor
        if node.approvals.active:
            node.approvals.moved(None, revived.run)
        if loaded.head.live:
            if revived.run.parent is not None:
                self._kin.places.take(run_id, revived.run.root)
            self._recover(actor, interruption(loaded, node.claim))
        for event in alarms(revived.run, revived.specs[revived.run.spec], node.clock.now()):
            # Before whatever made us load it: an approval that has expired is not approved.
            actor.cell.send_nowait(Delivery(event, outside=False), Lane.CONTROL)
        deliver(actor, loaded.inbox[:PAGE], specs)
        return actor

    def _recover(self, actor: RunAtWork, reason: str) -> None:
        """Let a run go on that was left in the middle: alone, if it is suspect and its turn has come."""
        node, run = self._node, actor.run
        alone = False
        spec = actor.specs[run.spec]
        if suspect(run, spec, reason, node.agents, node.limits):
            if run.id in self._held_back:
                node.suspects.hold_back(run, spec)
            else:
                alone = node.suspects.admit(run, spec)
        event = recovered(run, node.clock.now(), reason, alone=alone)
        actor.cell.send_nowait(Delivery(event, outside=False), Lane.CONTROL)
        faults.reach("run.recovered", run.id)

    @contextlib.contextmanager
    def holding_back(self, run_id: str) -> Iterator[None]:
        """Bring a run what may stop it before it goes on, if it is suspect."""
        self._held_back.add(run_id)
        try:
            yield
        finally:
            self._held_back.discard(run_id)
            if not self._node.closing:
                self._node.suspects.go_on()

    def take_turn(self, run_id: str) -> None:
        """Let a suspect go on alone, whose turn has come."""
        if not self._node.closing:
            self._node.spawn(self._go_on_alone, run_id)

    def begin_deferred(self) -> None:
        """Let calls begin that were deferred while somebody else had to be alone."""
        asyncio.get_running_loop().call_soon(self._reconcile_all)

    def _reconcile_all(self) -> None:
        node = self._node
        for actor in list(node.actors.values()):
            if actor.run.calls and not node.closing:
                node.effects.reconcile(actor)

    async def _go_on_alone(self, run_id: str) -> None:
        node = self._node
        actor = node.actors.get(run_id)
        if actor is not None:  # something was brought to it while it waited, so it is recovered already
            event = recovered(actor.run, node.clock.now(), READ_AGAIN, alone=True)
            actor.cell.put_result(Delivery(event, outside=False))
            return
        try:
            (await outlast(partial(self.actor, run_id))).rest_if_idle()
        except GeartrainError as error:
            log.error("run_not_recovered", run_id=run_id, error=str(error))
            node.suspects.gone(run_id)
            node.left.set()

    def probe(self, run_id: str) -> None:
        """Try whether the store can write, with what changes nothing: where that run is, once more."""
        node = self._node
        actor = node.actors.get(run_id)
        if actor is None or not actor.run.seq:
            return
        future = node.journal.append(nothing_new(actor.run, actor.specs[actor.run.spec], node.claim.epoch))
        future.add_done_callback(self._probed)

    def _probed(self, future: asyncio.Future[int]) -> None:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, OwnershipLost):
            self._node.on_ownership_lost(error)
        elif error is None or isinstance(error, JournalConflict):  # it could look, and was about to write
            self._node.circuit.answers()

    async def wake(self, run_id: str) -> float | None:
        """Bring a run the events whose time has come; return when it wants to be woken next if it does not move now.

        An overdue answer is not brought if it is known why it takes so long. Then the run stays due in the store, and
        what it wants later is not found there.
        """
        node = self._node
        now, suspects = node.clock.now(), node.suspects
        if run_id not in node.actors and suspects.sleeps(run_id, now):
            return suspects.wakes_at(run_id)
        try:
            actor = await self.actor(run_id)
            following = self._alarm(actor, now)
            actor.rest_if_idle()
        except StoreFailed:
            raise
        except GeartrainError as error:
            log.warning("run_not_woken", run_id=run_id, error=str(error))
            return None
        return following

    def _alarm(self, actor: RunAtWork, now: float) -> float | None:
        node, run = self._node, actor.run
        if not run.seq or run.state in ENDED:
            return None
        spec, at_work = actor.specs[run.spec], not node.suspects.waits(run.id)
        for event in alarms(run, spec, now, at_work=at_work):
            if not (_is_dwell(event) and (node.circuit.open or node.effects.vouches(actor))):
                actor.put_alarm(event)
        return wake_at(run, spec, after=now, at_work=at_work)

    async def recover_all(self) -> None:
        """Load every run that a process left in the middle, or for which something waits; a page at a time.

        Those that have yet to begin come last: the places of the others are theirs.
        """
        journal, after = self._node.journal, ""
        unborn: list[str] = []
        # As long as the store cannot be read, nothing else would go better.
        while page := await outlast(partial(journal.runnable, after=after, limit=_PAGE)):
            for run_id in page:
                if await outlast(partial(self._unborn, run_id)):
                    unborn.append(run_id)
                else:
                    await outlast(partial(self.recover, run_id))
            after = page[-1]
        for run_id in unborn:
            await outlast(partial(self.recover, run_id))
        self._recovering = False
        self._node.suspects.look(False)
        self._node.left.set()

    async def _unborn(self, run_id: str) -> bool:
        try:
            return await self._node.journal.head(run_id) is None
        except StoreFailed:
            raise
        except GeartrainError:  # loading it says what is wrong
            return False

    async def recover(self, run_id: str) -> None:
        """Load one run; one that cannot be read stops nobody, and a suspect waits for its turn where it is."""
        try:
            if not await self._must_wait(run_id):
                (await self.actor(run_id)).rest_if_idle()
        except StoreFailed:
            raise
        except RunNotBegun:
            return
        except GeartrainError as error:
            log.error("run_not_recovered", run_id=run_id, error=str(error))

    async def _must_wait(self, run_id: str) -> bool:
        """Put a suspect in the queue of those that wait for their turn, without taking it into memory."""
        node = self._node
        if node.suspects.alone is None or run_id in node.actors or run_id in self._loading:
            return False
        try:
            loaded = await node.journal.load(run_id)
            if loaded is None or not loaded.head.live or loaded.mark is not None:
                return False
            revived = revive(loaded)
        except StoreFailed:
            raise
        except Exception:  # noqa: BLE001 - whatever is wrong with it, loading it says so, and others go on
            return False
        run, reason = revived.run, interruption(loaded, node.claim)
        if run_id in node.actors or not suspect(run, revived.specs[run.spec], reason, node.agents, node.limits):
            return False
        return not node.suspects.admit(run, revived.specs[run.spec])

    async def reload(self, run_id: str) -> None:
        """Load a run again whose actor was dropped because the store did not say what became of an append."""
        try:
            actor = await outlast(partial(self.actor, run_id))
        except GeartrainError as error:
            self._node.fail_waiters(run_id, error)
            return
        # What was appended in the end has told nobody yet.
        self._node.tell_waiters(actor.run, actor.specs[actor.run.spec])
        if actor.run.state in ENDED:
            self._node.hub.gone(run_id)
        else:
            self._node.hub.look_again(run_id)
        actor.rest_if_idle()


def _is_dwell(event: Event) -> bool:
    """Whether an event says that an answer is overdue."""
    return isinstance(event, TimerFired) and event.kind == "dwell"
