"""What becomes of a run whose actor crashed: one for one, and no other run ever hears of it.

A crash is what a fault of our own makes, or a hook that is called on an actor's way: an event that cannot be stepped
through or stored. The run is read back from the store, so that nothing of the failed turn stays; its effects live on,
and are reconciled, so what is at work is not started twice. The restart is journalled, and then, after a back-off, what
was in hand is tried again, one by one. Past the limit what cannot be handled is set aside and the run is quarantined.

The rules are those of `supervisor` (OTP's `intensity` and `period`), over times that the run itself keeps: so they
survive the process, and a person who resumes the run lets them begin anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from geartrain.actors import ActorStopped, CellState
from geartrain.errors import GeartrainError, InternalError, RunSetApart, RuntimeClosed, plain_traceback
from geartrain.limits import Limits
from geartrain.machine import ENDED, ActorRestarted, Event, HoldKind, Run, RunQuarantined, encode_event
from geartrain.persistence import (
    CommitUnknown,
    DuplicateEvent,
    JournalConflict,
    OwnershipLost,
    RunCorrupt,
    StoreClosed,
    StoreFailed,
)
from geartrain.runtime._circuit import is_raised, outlast
from geartrain.runtime._delivery import Delivery, culprit_of
from geartrain.runtime._edge import clean_text
from geartrain.runtime._entry import revive
from geartrain.runtime._log import log
from geartrain.runtime._node import Node
from geartrain.supervisor import Backoff, CrashContext, CrashReport, Offender, Restart, RestartLimit
from geartrain.tools import error_text

if TYPE_CHECKING:
    from geartrain.runtime._actor import RunActor

NAME: Final = "runs"
BACKOFF: Final = Backoff(initial_seconds=0.1, factor=2.0, max_seconds=5.0, jitter=0.2)
# How much is kept of an event that was set aside, and of where it failed.
ASIDE_CHARACTERS: Final = 4_096
TRACEBACK_CHARACTERS: Final = 4_096


def wait_before_restart(run: Run, limits: Limits, now: float, chance: float) -> float | None:
    """Return how many seconds to wait before *run* goes on after one more crash, or None if that is one too many."""
    history, allowed = RestartLimit(limits.restarts_per_window, limits.restart_window_seconds).restarted(
        run.restarted_at, now
    )
    if not allowed or run.restarts >= limits.restarts_per_run:
        return None
    return BACKOFF.wait_seconds(len(history), chance)


def report_of(run: Run, error: BaseException) -> CrashReport:
    """Return what is to be said of the crash of a run's actor."""
    return CrashReport(
        supervisor=NAME,
        context=CrashContext.RUN,
        reason=clean_text(error_text(error)),
        offender=Offender(
            name=run.id,
            restart=Restart.TRANSIENT,
            restarts=run.restarts,
            traceback=clean_text(plain_traceback(error))[-TRACEBACK_CHARACTERS:],
        ),
    )


def quarantined(run: Run, report: CrashReport, aside: Event | None, now: float) -> RunQuarantined:
    """Return what sets *run* apart, with the crash report and the event set aside, if it was one."""
    return RunQuarantined(
        id=f"quarantine.{run.seq}",
        time=now,
        reason=report.reason,
        aside=type(aside).__name__ if aside is not None else "",
        aside_id=aside.id if aside is not None else "",
        aside_body=_body(aside) if aside is not None else "",
        traceback=report.offender.traceback,
        restarts=run.restarts,
    )


def _body(event: Event) -> str:
    try:
        text = encode_event(event).decode()
    except Exception:  # noqa: BLE001 - that it cannot be encoded may be what is wrong with it
        text = repr(event)
    return clean_text(text)[:ASIDE_CHARACTERS]


class RunSupervisor:
    """The supervisor of all run actors of one node."""

    __slots__ = ("_node",)

    def __init__(self, node: Node) -> None:
        self._node = node

    def crashed(self, actor: RunActor, error: BaseException, batch: Sequence[Delivery]) -> None:
        """Take over an actor whose cell is broken, and the batch that it had in hand."""
        if actor.run.seq == 0:  # nothing to read back
            self._give_up(actor, _logged(actor, error), batch)
        else:
            self._node.spawn(self._restart, actor, error, batch)

    def stumbled(self, actor: RunActor, error: BaseException) -> None:
        """Deal with what was raised after a step was stored: the actor works, but it may not have told everybody."""
        report = _logged(actor, error)
        if actor.run.held_by(HoldKind.QUARANTINED) or actor.run.state in ENDED:
            return
        event = self._judged(actor.run, report, None)
        with contextlib.suppress(ActorStopped):
            actor.put_result(event)

    async def _restart(self, actor: RunActor, error: BaseException, batch: Sequence[Delivery]) -> None:
        report = _logged(actor, error)
        pending = deque(batch)
        try:
            await self._read_back(actor)
            await self._count(actor, report, culprit_of(batch, actor.run, actor.specs), pending)
            while pending:
                await self._try(actor, pending)
            actor.go_on_with(())
        except _Left as left:
            actor.failed(left.error, list(pending))
            pending.clear()
        except Exception as second:  # noqa: BLE001 - not even the restart can be stored; this run alone is given up
            self._give_up(actor, _logged(actor, second), pending)
            pending.clear()
        finally:
            for delivery in pending:
                delivery.fail(RuntimeClosed(f"storing an event of run {actor.run.id!r}"))

    async def _try(self, actor: RunActor, pending: deque[Delivery]) -> None:
        """Try the next delivery once more, alone: so if it crashes the actor again, it is known which one it was."""
        delivery = pending[0]
        try:
            await self._stored(actor, delivery, on_trial=delivery)
        except _Left:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it crashes the actor, and only this one
            report = _logged(actor, error)
            await self._read_back(actor)
            await self._count(actor, report, delivery, pending)
        else:
            pending.popleft()

    async def _count(
        self, actor: RunActor, report: CrashReport, culprit: Delivery | None, pending: deque[Delivery]
    ) -> None:
        """Journal one more restart, and wait; or, past the limit, set the culprit aside and the run apart."""
        event = self._judged(actor.run, report, culprit)
        apart = culprit is not None and isinstance(event, RunQuarantined)
        # What another run has sent is taken out of the store when it is set aside.
        inbox = culprit.inbox if apart and culprit is not None else None
        await self._stored(actor, Delivery(event, outside=False, inbox=inbox))
        if isinstance(event, ActorRestarted):
            await asyncio.sleep(max(0.0, (event.resume_at or 0.0) - self._node.clock.now()))
            return
        if culprit is not None:
            pending.remove(culprit)
            what = type(culprit.event).__name__
            culprit.fail(InternalError(f"run {actor.run.id!r}: {what} could not be handled: {report.reason}"))

    def _judged(self, run: Run, report: CrashReport, culprit: Delivery | None) -> ActorRestarted | RunQuarantined:
        node, aside = self._node, culprit.event if culprit is not None else None
        now = node.clock.now()
        wait = wait_before_restart(run, node.limits, now, node.rng.random())
        if wait is None:
            return quarantined(run, report, aside, now)
        return ActorRestarted(
            id=f"restart.{run.seq}",
            time=now,
            reason=report.reason,
            restarts=run.restarts + 1,
            resume_at=now + wait,
            aside=type(aside).__name__ if aside is not None else "",
        )

    async def _read_back(self, actor: RunActor) -> None:
        """Put the actor where the store is; as long as that cannot be read, wait."""
        loaded = await outlast(partial(self._node.journal.load, actor.run.id))
        if loaded is None:
            raise RunCorrupt(actor.run.id, "it is no longer in the store")
        actor.renew(revive(loaded))

    async def _stored(self, actor: RunActor, delivery: Delivery, *, on_trial: Delivery | None = None) -> None:
        """Have the actor take one delivery, and wait until it is stored; what is wrong with the store is waited out.

        Of one *on_trial*, what the store raises that it should not counts like a crash.
        """
        for attempt in itertools.count(1):
            if actor.cell.state is CellState.STOPPED:
                raise _Left(RuntimeClosed(f"storing an event of run {actor.run.id!r}"))
            try:
                under_way = _taken(actor, delivery)
                if under_way is not None:
                    await under_way
            except DuplicateEvent as error:
                actor.unstored([delivery])
                actor.tell_duplicate(delivery, error)
            except StoreFailed as error:
                actor.unstored([delivery])
                if is_raised(error) and delivery is on_trial:
                    raise
                self._node.circuit.fails(error)
                if not delivery.outside or delivery.inbox is not None:
                    await asyncio.sleep(BACKOFF.wait_seconds(attempt, 0.0))
                    continue
                delivery.fail(error)
            except (CommitUnknown, JournalConflict, OwnershipLost, StoreClosed) as error:
                raise _Left(error) from error
            return

    def _give_up(self, actor: RunActor, report: CrashReport, batch: Iterable[Delivery]) -> None:
        """Give up on the run in this process: whoever waits for it, now or later, is told why."""
        run_id = actor.run.id
        apart = RunSetApart(run_id, report.reason)
        for delivery in batch:
            delivery.fail(apart)
        actor.drop(apart)
        self._node.set_apart(run_id, apart, lasting=bool(actor.run.seq))


def _taken(actor: RunActor, delivery: Delivery) -> asyncio.Future[int] | None:
    try:
        return actor.receive([delivery])
    except (KeyboardInterrupt, SystemExit):
        raise
    except Exception:
        raise
    except BaseException as error:  # it does not wait, so this is no cancellation of ours, but one more crash
        raise InternalError(f"run {actor.run.id!r}: its step raised {error!r}") from error


class _Left(Exception):
    """What is stored is not what the actor holds, or it may store nothing any more."""

    def __init__(self, error: GeartrainError) -> None:
        super().__init__(error)
        self.error = error


def _logged(actor: RunActor, error: BaseException) -> CrashReport:
    report = report_of(actor.run, error)
    log.error("run_actor_crashed", run_id=actor.run.id, error=report.reason, traceback=report.offender.traceback)
    return report
