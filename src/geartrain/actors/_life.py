"""The life of an actor, from its owner's side.

| state    | means                                             | leaves on                                           |
|----------|---------------------------------------------------|-----------------------------------------------------|
| STARTING | `started` is called first; messages gather        | it returns → RUNNING; it raises → FAILED            |
| RUNNING  | messages are handled one after another            | `receive` raises → FAILED                           |
| FAILED   | `stopping` has cleaned up; the owner was told     | the owner: `restart` → STARTING, `stop` → STOPPING  |
| HALTING  | as STOPPING, but messages gather                  | both done, or the grace over → HALTED               |
| HALTED   | the instance has ended; the owner was told        | the owner: `restart` → STARTING, `stop` → STOPPING  |
| STOPPING | the message in hand, then `stopping`, may finish  | both done, or the grace over → STOPPED              |
| STOPPED  | for good                                          | nothing                                             |

`halt` leads from each of the first three to HALTING, `stop` from each of the first five to STOPPING.

Rule 1: a failure is told to the owner once, after `stopping` of the failed instance is done. What comes next is the
owner's to decide: messages wait in the mailbox, and a restarted actor finds them all but the one that was in hand.
Rule 2: a stop or halt is over within the grace, whatever the actor's code does.
Rule 3: a supervised actor is one that may come back. So whoever stops it by its `ref` halts it, and its owner decides.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Sequence
from contextvars import Context
from dataclasses import replace
from typing import Any, Final, Literal

from geartrain.actors._actor import Actor, ActorFailure, ActorState, ActorStatistics, Overflow, check_actor
from geartrain.actors._dead_letters import WhyDead
from geartrain.actors._envelope import NOTICE, START, Envelope, Signal
from geartrain.actors._errors import (
    ActorExited,
    ActorFailed,
    ActorNotBroken,
    ActorStopped,
    MessageNotHandled,
    described,
)
from geartrain.actors._home import Home
from geartrain.actors._intake import Intake
from geartrain.actors._owner import ActorOwner, ActorSupervisor
from geartrain.actors._patience import Patience
from geartrain.actors._ref import ActorRef
from geartrain.actors._watch import Stopped, Watches
from geartrain.errors import InvalidValue
from geartrain.mailbox import Lane

_ENDING: Final = (ActorState.HALTING, ActorState.STOPPING)
_ON_THE_WAY: Final = (ActorState.STARTING, ActorState.HALTING, ActorState.HALTED)

# Shares of the grace: that after which work that has not ended is first cancelled, and what it then has to end. First
# for the message in hand, then for `stopping`, which may take the rest.
_MESSAGE_SHARES: Final = (0.5, 0.25)
_STOPPING_SHARES: Final = (0.9, 0.1)

# A Ctrl-C is meant for the process; any other BaseException of a stranger's is a failure of that stranger.
_PASSED_ON: Final = (Exception, asyncio.CancelledError, KeyboardInterrupt)


class ActorLife(Intake):
    """An actor as its owner sees it: what starts it again or ends it. Everybody else has its `ref`."""

    __slots__ = (
        "_abandoned",
        "_actor",
        "_cleaning",
        "_ending_since",
        "_failure",
        "_failures",
        "_grace",
        "_grace_given",
        "_handled",
        "_in_hand",
        "_owner",
        "_since",
        "_start_waits",
        "_supervisor",
        "_untold",
        "_up",
        "_watch",
        "ref",
    )

    def __init__(
        self,
        name: str,
        actor: Actor,
        home: Home,
        *,
        owner: ActorOwner,
        supervisor: ActorSupervisor | None,
        grace_seconds: float,
        capacity: int,
        overflow: Overflow,
    ) -> None:
        super().__init__(name, home, behaviour=self, on_failure=self._failed, capacity=capacity, overflow=overflow)
        self.ref = ActorRef(self)
        self._owner = owner
        self._supervisor = supervisor
        self._grace = self._grace_given = grace_seconds
        self._ending_since = 0.0
        self._failure: ActorFailure | None = None
        self._untold: ActorFailure | None = None
        self._handled = self._failures = 0
        # What the task has in hand, if it is no `stopping`, and since when.
        self._in_hand: Envelope | None = None
        self._since = 0.0
        self._abandoned = False
        # Whether `stopping` is to be called for the present instance, and whether it is at work.
        self._up = False
        self._cleaning = False
        self._start_waits = False
        self._watch: Watches | None = None
        self._take_in(actor)

    # For the owner

    @property
    def supervised(self) -> bool:
        """Whether the actor may come back when its instance has ended."""
        return self._supervisor is not None

    @property
    def actor(self) -> Actor:
        """The present instance, or the one that was the last."""
        return self._actor

    @property
    def abandoned(self) -> bool:
        """Whether the present instance had a message in hand that did not end within the grace."""
        return self._abandoned

    def restart(self, actor: Actor) -> None:
        """Go on with *actor*, a new instance, from the messages that have gathered.

        Raises:
            ActorNotBroken: It has neither failed nor been halted, or the owner was not told yet.
            InvalidValue: *actor* is not one that can live.
        """
        if self._state not in (ActorState.FAILED, ActorState.HALTED) or self._cleaning:
            raise ActorNotBroken(self.name, self._state)
        check_actor(actor)
        self._reason = ""
        self._grace = self._grace_given
        self._abandoned = False
        self._take_in(actor)
        self._cell.restart(self)

    def adopt(self, supervisor: ActorSupervisor) -> None:
        """Have another supervisor decide from now on."""
        self._owner = self._supervisor = supervisor

    def leave(self) -> None:
        """See `ActorRef.stop`."""
        if self._supervisor is None:
            self.stop()
        else:
            self.halt()

    def halt(self, reason: str = "asked to stop", grace_seconds: float | None = None) -> None:
        """End the instance as `stop` does, but let messages gather; the supervisor is told. A later grace counts too.

        Whoever waits for the answer to the message in hand gets `ActorFailed` if that is not handled within the grace.
        """
        self._check_ending(grace_seconds)
        if self._state in (ActorState.HALTED, ActorState.STOPPING, ActorState.STOPPED):
            return
        if self._state is not ActorState.HALTING:
            self._reason = reason
        elif grace_seconds is None:
            return
        self._cell.hold()
        self._begin_to_end(ActorState.HALTING, grace_seconds)

    def stop(self, reason: str = "asked to stop", grace_seconds: float | None = None) -> None:
        """Take and handle nothing more, and be stopped within the grace; the first call counts."""
        self._check_ending(grace_seconds)
        if self._state in (ActorState.STOPPING, ActorState.STOPPED):
            return
        self._reason = reason
        left = self._cell.close(reason)
        for envelope in left:
            self._lose(envelope, WhyDead.STOPPED, ActorStopped(self.name, reason))
        self._begin_to_end(ActorState.STOPPING, grace_seconds)

    def _check_ending(self, grace_seconds: float | None) -> None:
        self._home.check_loop(self.name)
        if grace_seconds is not None and not grace_seconds >= 0:
            raise InvalidValue("grace_seconds", "at least 0", grace_seconds)

    def _begin_to_end(self, state: ActorState, grace_seconds: float | None) -> None:
        if grace_seconds is not None:
            self._grace = grace_seconds
        self._ending_since = self._home.loop.time()
        self._move(state)
        if self._actor._when_ending is not None:  # noqa: SLF001 - one half of one thing
            self._actor._when_ending()  # noqa: SLF001
        if self._task is not None:
            self._hurry(self._task)
        elif not self._cleaning and not self._entered:  # else it comes to its end, and sees that there is a stop
            self._wind_up()

    # For those who wait or look

    async def wait_started(self) -> None:
        """See `ActorRef.wait_started`."""
        await self._wait_until(lambda state: state not in _ON_THE_WAY)
        if self._state is ActorState.RUNNING:  # perhaps after a restart: an earlier failure no longer matters
            return
        if self._failure is not None and self._failure.during == "started":
            raise _failed_error(self.name, self._failure.error)
        if self._state in (ActorState.STOPPING, ActorState.STOPPED):
            raise ActorStopped(self.name, self._reason)

    async def wait_stopped(self) -> None:
        """See `ActorRef.wait_stopped`."""
        await self._wait_until(lambda state: state is ActorState.STOPPED)

    def statistics(self) -> ActorStatistics:
        """See `ActorRef.statistics`."""
        cell = self._cell.statistics()
        return ActorStatistics(
            name=self.name,
            state=self._state,
            reason=self._reason,
            failure=self._failure,
            handled=self._handled,
            failures=self._failures,
            restarts=cell.restarts,
            dropped=self._dropped,
            expired=self._expired,
            refused=cell.mailbox.refused,
            waiting=cell.mailbox.waiting,
            waiting_peak=cell.mailbox.waiting_peak,
            senders_waiting=cell.mailbox.senders_waiting,
            capacity=cell.mailbox.capacity,
            asks_open=cell.asks_open,
            in_hand_seconds=None if self._task is None else self._home.loop.time() - self._since,
        )

    # For those who watch

    def watches(self) -> Watches:
        """Return whom it watches and who watches it."""
        if self._watch is None:
            self._watch = Watches(self)
        return self._watch

    def check_loop(self) -> None:
        """Refuse a call from anywhere but within the loop."""
        self._home.check_loop(self.name)

    def ask_for_notice(self) -> None:
        """Have the next notice handled soon, before other messages."""
        self._cell.send_nowait(Envelope(NOTICE, None, None), Lane.STEERING)

    @property
    def end(self) -> Stopped | None:
        """What is told of its end; None before that."""
        return Stopped(self.ref, self._reason, self._failure) if self._state is ActorState.STOPPED else None

    # One message after another

    def receive(self, batch: Sequence[Envelope], /) -> asyncio.Future[Any] | None:
        """Have the one message of *batch* handled; called by the cell."""
        (envelope,) = batch
        if envelope.message is NOTICE:
            envelope.message = self.watches().take_notice()
            if envelope.message is None:  # it was taken back
                return None
        if envelope.expires_at is not None and envelope.expires_at <= self._home.loop.time():
            self._expired += 1
            self._lose(envelope, WhyDead.EXPIRED, MessageNotHandled(self.name, "expired"))
            return None
        self._entered = True
        try:
            answer = self._enter(envelope.message)
            if inspect.iscoroutine(answer):
                task = self._home.hands.start(self._handle(envelope, answer), self.name)
                if task is not None:
                    self._keep(task, envelope)
                    return task
            else:
                self._done(envelope, answer)
        except _PASSED_ON:
            raise
        except BaseException as error:
            raise ActorExited(self.name, described(error)) from error
        finally:
            self._entered = False
        if self._state in _ENDING:
            self._wind_up()
        return None

    def _enter(self, message: Any) -> Any:
        if message is START:
            self._start_waits = False
            return self._actor.started()
        return self._actor.receive(message)

    async def _handle(self, envelope: Envelope, work: Coroutine[Any, Any, Any]) -> None:
        actor = self._actor
        answer = await self._only(work)
        if actor is self._actor and not self._abandoned:  # else it was given up, and perhaps another instance is here
            self._done(envelope, answer)

    async def _only(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await work
        except _PASSED_ON:
            raise
        except BaseException as error:  # in a task, SystemExit would end the loop
            raise ActorExited(self.name, described(error)) from error

    def _done(self, envelope: Envelope, answer: Any) -> None:
        if envelope.message is START:
            self._up = True
            if self._state is ActorState.STARTING:
                self._run()
            return
        self._handled += 1
        if envelope.reply is not None:
            envelope.reply.answer(answer)

    def _keep(self, task: asyncio.Task[None], envelope: Envelope) -> None:
        """Own a message's task until it ends."""
        self._task, self._in_hand, self._since = task, envelope, self._home.loop.time()
        task.add_done_callback(self._task_done, context=Context())
        if self._state in _ENDING:  # asked for before the first wait
            self._hurry(task)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        if task in self._home.abandoned:
            self._home.abandoned.discard(task)
            return
        self._task = self._in_hand = None
        succeeded = not task.cancelled() and task.exception() is None
        if succeeded and self._state in _ENDING:
            self._wind_up()

    def _failed(self, error: BaseException, batch: Sequence[Envelope]) -> None:
        """Hear from the cell that the message in hand was too much."""
        if self._abandoned:  # it was told then, and the rest is nobody's business
            return
        (envelope,) = batch
        ending = self._state in _ENDING
        # In a group that closes, whoever sends to another finds it stopped: that is no failure of either.
        if ending and isinstance(error, (asyncio.CancelledError, ActorStopped)):
            self._give_up_on(envelope)
            self._wind_up()
            return
        message = None if isinstance(envelope.message, Signal) else envelope.message
        self._count_failure()
        during: Literal["started", "receive"] = "started" if envelope.message is START else "receive"
        self._failure = self._untold = ActorFailure(self.name, during, error, message)
        self._lose(envelope, WhyDead.FAILED, _failed_error(self.name, error))
        if not ending:
            self._ending_since = self._home.loop.time()
            self._move(ActorState.FAILED)
        self._wind_up()

    # Getting up and winding up

    def _take_in(self, actor: Actor) -> None:
        self._actor = actor
        actor._ref = self.ref  # noqa: SLF001 - one half of one thing
        if type(actor).started is Actor.started and not self._start_waits:
            self._up = True
            self._run()
            return
        self._move(ActorState.STARTING)
        if not self._start_waits:  # else it is still there, from an instance that was halted before its turn
            self._start_waits = True
            self._cell.send_nowait(Envelope(START, None, None), Lane.CONTROL)

    def _run(self) -> None:
        self._move(ActorState.RUNNING)
        if self._supervisor is not None:
            self._home.loop.call_soon(self._supervisor.started, self, context=Context())

    def _wind_up(self) -> None:
        """Have the instance clean up if it was up; then all is told."""
        if not self._up or type(self._actor).stopping is Actor.stopping:
            self._up = False
            self._wound_up(None)
            return
        self._up = False
        self._cleaning = True
        # Soon, not now: this may be within a task, and actors' code is not called within others'.
        self._home.loop.call_soon(self._clean_up, context=Context())

    def _clean_up(self) -> None:
        # A loop that was held up may have eaten the grace; then this has its quarter all the same.
        earliest = self._home.loop.time() - sum(_MESSAGE_SHARES) * self._grace
        self._ending_since = max(self._ending_since, earliest)
        self._entered = True
        try:
            answer = self._actor.stopping()
            if inspect.iscoroutine(answer):
                task = self._home.hands.start(self._only(answer), f"{self.name} (stopping)")
                if task is not None:
                    self._task, self._since = task, self._home.loop.time()
                    task.add_done_callback(self._cleaned_up, context=Context())
                    self._hurry(task)
                    return
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a stranger's code
            raised: BaseException | None = error
        else:
            raised = None
        finally:
            self._entered = False
        self._wound_up(raised)

    def _cleaned_up(self, task: asyncio.Task[None]) -> None:
        if task in self._home.abandoned:
            self._home.abandoned.discard(task)
            return
        self._task = None
        self._wound_up(asyncio.CancelledError() if task.cancelled() else task.exception())

    def _wound_up(self, error: BaseException | None) -> None:
        self._cleaning = False
        if error is not None:
            self._count_failure()
            failure = self._untold
            self._failure = self._untold = (
                replace(failure, stopping_error=error)
                if failure is not None
                else ActorFailure(self.name, "stopping", error)
            )
        untold, self._untold = self._untold, None
        try:
            if untold is not None:
                self._owner.failed(self, untold)
        finally:
            if self._state is ActorState.STOPPING:
                self._end()
            elif self._state is ActorState.HALTING:
                self._move(ActorState.HALTED)
                if self._supervisor is not None:
                    self._home.loop.call_soon(self._supervisor.halted, self, context=Context())

    def _hurry(self, task: asyncio.Task[None]) -> None:
        finish_share, unwind_share = _STOPPING_SHARES if self._cleaning else _MESSAGE_SHARES
        Patience(
            task,
            finish_at=self._ending_since + finish_share * self._grace,
            unwind_seconds=unwind_share * self._grace,
            on_given_up=self._give_up,
        )

    def _give_up(self, task: asyncio.Task[Any]) -> None:
        """Go on without work that does not end; it is held, and named in the group's statistics, until it does."""
        if task is not self._task:  # given up before: it was hurried twice, the second time by a stop
            return
        self._home.abandoned.add(task)
        self._task = None
        if self._cleaning:
            self._wound_up(TimeoutError("stopping() did not end within the grace"))
            return
        self._abandoned = True
        self._cell.let_go()
        envelope, self._in_hand = self._in_hand, None
        if envelope is not None:
            self._give_up_on(envelope)
        self._wind_up()

    def _give_up_on(self, envelope: Envelope) -> None:
        """Tell that the message in hand is not handled, by an actor that may or may not come back."""
        back = self._state is ActorState.HALTING
        error = ActorFailed(self.name, self._reason) if back else ActorStopped(self.name, self._reason)
        self._lose(envelope, WhyDead.STOPPED, error)

    def _end(self) -> None:
        self._cell.stop(self._reason)
        self._move(ActorState.STOPPED)
        self._home.forget(self)
        if self._watch is not None:
            self._watch.over()
        # Soon, not now: what an owner does then, or raises, must not come between a group and its other actors.
        self._home.loop.call_soon(self._owner.stopped, self, context=Context())

    # The rest

    def _count_failure(self) -> None:
        self._failures += 1
        self._home.failures += 1


def _failed_error(name: str, error: BaseException) -> ActorFailed:
    failed = ActorFailed(name, described(error))
    failed.__cause__ = error
    return failed
