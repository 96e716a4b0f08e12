"""What a living supervisor does: it starts, watches, restarts and stops its children.

Whatever happens (a child is up, fails, ends, is asked for by somebody; a time is over) changes what is known of one
child, and then `_advance` does what follows from what is known of all. So a stop may come at any moment, also between
the restarts of a strategy, and two crashes at once are two changes and one plan.

Rule 1: what must stop stops first, right to left, one after another; then what waits starts, left to right. Under
`one_for_one` children are independent once all were up, and nobody waits for anybody's back-off.
Rule 2: a child's life goes on from instance to instance, with its ref and its mailbox, also through a restart of its
supervisor; it ends when the child is to stay down. (In OTP and Akka a supervisor's restart gives new addresses.)
Rule 3: each restart counts once, whether the child had failed, had ended, or fails while it starts again. One too many:
all children stop and the supervisor fails, which its own supervisor hears of like any failure.
Rule 4: a child that fails in the very first start fails the supervisor at once: it is a mistake, not an accident.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextvars import Context
from enum import Enum
from typing import Final, Protocol, runtime_checkable

from geartrain.actors import Actor, ActorFailure, ActorLife, ActorState, ActorStopped, Overflow
from geartrain.errors import TimedOut
from geartrain.limits import UNLIMITED
from geartrain.supervisor._child import Child, ChildState
from geartrain.supervisor._errors import (
    ChildNotDown,
    ChildNotFound,
    ChildNotStarted,
    RestartsExhausted,
    SpecRefused,
    WrongSpec,
)
from geartrain.supervisor._order import Order
from geartrain.supervisor._report import CrashContext
from geartrain.supervisor._spec import ChildSpec, Supervisor
from geartrain.supervisor._strategy import Restart, Strategy, comes_back, plan_restart
from geartrain.supervisor._tree import Tree

# How many of its own signals may wait for it; one that is restarted may find one that its predecessor has left.
SIGNALS: Final = 4
# Children named to whoever asks for one that there is not.
_NAMED: Final = 10
_RUNS = (ChildState.STARTING, ChildState.UP)


Nest = Callable[[Supervisor, str, "Engine | None"], Actor]


class Mode(Enum):
    """What a supervisor is about."""

    STARTING = "starting"  # its children come up for the first time
    RUNNING = "running"
    ENDING = "ending"  # its children stop, and nothing starts any more


class Engine:
    """One instance of a supervisor, for the actor that lives for it.

    Args:
        spec: What it is to be.
        tree: What it shares with the others of its tree.
        path: Its name.
        nest: Makes the actor of a supervisor among its children, given the last instance of that, if there was one.
        on_exhausted: Called when there is nothing left to be tried; `fault` says why.
        predecessor: The instance that was here before, whose children's lives go on.
    """

    def __init__(
        self,
        spec: Supervisor,
        tree: Tree,
        path: str,
        *,
        nest: Nest,
        on_exhausted: Callable[[], None],
        predecessor: Engine | None = None,
    ) -> None:
        self.spec = spec
        self.path = path
        self.fault: Exception | None = None
        self._tree = tree
        self._nest = nest
        self._on_exhausted = on_exhausted
        self._mode = Mode.STARTING
        self._killing = False
        self._at_work = self._again = False
        self._history: tuple[float, ...] = ()
        # Done when all are up for the first time, or nothing will be; and when all have ended.
        self.settled: asyncio.Future[None] = tree.loop.create_future()
        self.ended: asyncio.Future[None] = tree.loop.create_future()
        self._order = Order()
        for child_spec in spec.children:
            child = Child(child_spec, f"{path}/{child_spec.name}")
            self._order.add(child)
            earlier = None if predecessor is None else predecessor.children.get(child.name)
            if earlier is not None:
                child.life, earlier.life = earlier.life, None
                if child.life is not None:
                    child.life.adopt(self)
                child.begun, child.restarts, child.failure = earlier.begun, earlier.restarts, earlier.failure

    @property
    def children(self) -> dict[str, Child]:
        """Its children by name, in their order."""
        return self._order.children

    # What its own life asks for

    def begin(self) -> None:
        """Have all children come up."""
        self._advance()

    def bury(self) -> None:
        """Stop what its children's lives were kept for: it does not come back."""
        for child in self.children.values():
            self._bury(child)

    def end(self) -> None:
        """Have all children stop, right to left, each within its limit."""
        if self._mode is Mode.ENDING:
            return
        self._mode = Mode.ENDING
        for child in list(self.children.values()):
            self._let_down(child)
        self._advance()

    def kill(self) -> None:
        """Have all children stop at once, whatever their limits."""
        self._killing = True
        self.end()
        for child in self.children.values():
            if child.state is ChildState.STOPPING:
                self._halt(child)
        self._advance()

    # What its children's lives call

    def started(self, life: ActorLife) -> None:
        """Hear that a child is up."""
        child = self._child_of(life)
        if child is not None and child.state is ChildState.STARTING and life.state is ActorState.RUNNING:
            self._order.came_up(child, self._tree.loop.time())
            self._advance()

    def failed(self, life: ActorLife, failure: ActorFailure) -> None:
        """Hear that a child has failed; if that ended it, decide what follows."""
        child = self._child_of(life)
        if child is None:
            return
        if life.state is ActorState.FAILED:
            self._ended_with(child, failure)
        else:  # it is on its way down anyway: its end will be told
            child.last_words = failure

    def halted(self, life: ActorLife) -> None:
        """Hear that a child has ended, asked by its supervisor or by anybody."""
        child = self._child_of(life)
        if child is None or life.state is not ActorState.HALTED:
            return
        failure, child.last_words = child.last_words, None
        if failure is None and child.is_late:
            error = TimedOut(f"start of {child.path!r}", float(child.spec.start_seconds))
            failure = ActorFailure(child.path, "started", error)
        self._ended_with(child, failure)

    def stopped(self, life: ActorLife) -> None:
        """Hear that a child's life is over; if it was not the supervisor that ended it, its group was closed."""
        child = self._child_of(life)
        if child is not None:
            child.life = None
            child.must_stop = child.comes_back = False
            self._order.move(child, ChildState.DOWN)
            self._advance()

    # What its reference calls

    def child(self, name: str) -> Child:
        """Return the child *name*; raises `ChildNotFound`."""
        child = self.children.get(name)
        if child is None:
            names = ", ".join(map(repr, list(self.children)[:_NAMED])) or "none"
            raise ChildNotFound(self.path, name, f"those that it has are {names}")
        return child

    def add(self, spec: ChildSpec) -> Child:
        """Add a child, which is started at once or when those before it are up."""
        self._check_open()
        if spec.name in self.children:
            raise SpecRefused(spec.name, WrongSpec.NAME_TAKEN, spec.name)
        child = Child(spec, f"{self.path}/{spec.name}", dynamic=True)
        self._order.add(child)
        self._advance()
        return child

    def stop_child(self, child: Child) -> None:
        """Have *child* stop, and stay down."""
        self._let_down(child)
        self._advance()

    def _let_down(self, child: Child) -> None:
        child.comes_back = False
        if child.state in _RUNS:
            self._order.call_for_stop(child)
        elif child.state is ChildState.WAITING:
            self._put_down(child)

    def restart_child(self, child: Child) -> bool:
        """Have *child* end, if it runs, and start again, not counted and without back-off; return whether it ran."""
        self._check_open()
        child.not_before = 0.0
        child.attempt = 0
        if child.state in _RUNS:
            child.comes_back = True
            self._order.call_for_stop(child)
        elif child.state is ChildState.STOPPING:
            child.comes_back = True
        else:
            self._order.move(child, ChildState.WAITING)
        runs = child.state in _RUNS
        self._advance()
        return runs

    def delete_child(self, child: Child) -> None:
        """Forget *child*, which is down."""
        if child.state is not ChildState.DOWN:
            raise ChildNotDown(child.path, child.state)
        self._bury(child)
        self._order.remove(child)

    @property
    def restarts_counted(self) -> int:
        """How many restarts count now."""
        return len(self._history)

    def _check_open(self) -> None:
        if self._mode is Mode.ENDING:
            raise ActorStopped(self.path, "its children are being stopped")

    # A child has ended

    def _child_of(self, life: ActorLife) -> Child | None:
        child = self.children.get(life.name.rpartition("/")[2])
        return child if child is not None and child.life is life else None

    def _ended_with(self, child: Child, failure: ActorFailure | None) -> None:
        """Do what follows from the end of *child*; its life is kept until that is decided."""
        now = self._tree.loop.time()
        if failure is not None:
            if child.state is ChildState.STARTING and failure.during != "started":
                self._order.came_up(child, now)  # and went down before that was told
            child.note_failure(failure)
        was = child.state
        # One that was to be stopped, and has ended before its turn came, has been spared the stop and nothing else.
        if was is ChildState.STOPPING or child.must_stop or self._mode is Mode.ENDING:
            self._tree.report_shutdown(self.path, child, failure)
            self._has_stopped(child)
        elif was is ChildState.STARTING and not child.was_up and (child.dynamic or self._mode is Mode.STARTING):
            self._never_started(child, failure)
        else:
            if failure is not None:
                self._tree.report(
                    self.path,
                    child,
                    CrashContext.START if was is ChildState.STARTING else CrashContext.RUN,
                    failure.error,
                )
            calm_seconds = now - child.up_since if was is ChildState.UP else 0.0
            self._decide(child, failure, calm_seconds)
        self._advance()

    def _has_stopped(self, child: Child) -> None:
        child.must_stop = False
        if child.comes_back and self._mode is not Mode.ENDING:
            child.comes_back = False
            self._wait(child)
        else:
            self._put_down(child)

    def _never_started(self, child: Child, failure: ActorFailure | None) -> None:
        """Not try again what has ended in its first start: that is its spec's fault."""
        if failure is None:  # it has stopped itself
            self._decide(child, None, 0.0)
            return
        self._tree.report(self.path, child, CrashContext.START, failure.error)
        if child.dynamic:
            self._put_down(child)
            if child.name in self.children:
                self._order.remove(child)
            return
        self.fault = ChildNotStarted(self.path, child.path, failure.reason)
        self.fault.__cause__ = failure.error
        self._order.move(child, ChildState.WAITING)  # for another instance of this supervisor
        self.end()

    def _decide(self, child: Child, failure: ActorFailure | None, calm_seconds: float) -> None:
        """Restart *child*, and those who go with it, or let it stay down."""
        failed = failure is not None
        if not comes_back(child.restart, failed=failed):
            self._put_down(child, f"failed: {failure.reason}" if failure is not None else "has ended")
            return
        now = self._tree.loop.time()
        self._history, allowed = self.spec.limit.restarted(self._history, now)
        if not allowed:
            self._exhausted(child, failure)
            return
        alone = self.spec.strategy is Strategy.ONE_FOR_ONE
        members = [each.member() for each in ([child] if alone else self.children.values())]
        plan = plan_restart(Strategy(self.spec.strategy), members, child.name, failed=failed)
        child.attempt = self.spec.backoff.next_attempt(child.attempt, calm_seconds)
        wait_seconds = self.spec.backoff.wait_seconds(child.attempt, self._tree.chance.random())
        for name in plan.start:
            self.children[name].not_before = now + wait_seconds
        self._wait(child)
        for name in plan.stop:
            other = self.children[name]
            other.comes_back = name in plan.start
            if other.state in _RUNS:
                self._order.call_for_stop(other)
            elif not other.comes_back:
                self._put_down(other)
            elif other.state is ChildState.WAITING:
                self._wait(other)

    def _exhausted(self, child: Child, failure: ActorFailure | None) -> None:
        """Fail, since there is nothing left to be tried here."""
        limit = self.spec.limit
        reason = "it has ended" if failure is None else failure.reason
        self.fault = RestartsExhausted(self.path, child.path, limit.restarts, limit.within_seconds, reason)
        self.fault.__cause__ = None if failure is None else failure.error
        self._tree.report(self.path, child, CrashContext.LIMIT, self.fault)
        self._order.move(child, ChildState.WAITING)  # for another instance of this supervisor
        come_up = self.settled.done()
        self.end()
        if come_up:  # else whoever waits for that sees it
            self._on_exhausted()

    def _put_down(self, child: Child, reason: str = "stopped by its supervisor") -> None:
        """Have *child* stay down; its life is kept if the supervisor may come back and start it again."""
        child.must_stop = child.comes_back = False
        temporary = child.restart is Restart.TEMPORARY
        if self._mode is not Mode.ENDING or child.dynamic or temporary:
            self._bury(child, reason)
        self._order.move(child, ChildState.DOWN)
        if temporary:
            self._order.remove(child)

    def _bury(self, child: Child, reason: str = "stopped by its supervisor") -> None:
        life, child.life = child.life, None
        if life is not None:
            if isinstance(life.actor, HasEngine):
                life.actor.engine.bury()
            life.stop(reason)

    # What follows from all that

    def _advance(self) -> None:
        self._again = True
        if self._at_work:  # a factory of the user's has asked for something
            return
        self._at_work = True
        try:
            while self._again:
                self._again = False
                self._stop_next()
                self._start_next()
        finally:
            self._at_work = False
        self._settle()

    def _stop_next(self) -> None:
        one_by_one = self._mode is Mode.ENDING or self.spec.strategy is not Strategy.ONE_FOR_ONE
        while (child := self._order.next_to_stop()) is not None:
            if one_by_one and self._order.count(ChildState.STOPPING) and not self._killing:
                return
            self._halt(child)

    def _start_next(self) -> None:
        if self._mode is Mode.ENDING:
            return
        in_order = self._mode is Mode.STARTING or self.spec.strategy is not Strategy.ONE_FOR_ONE
        stops = self._order.count(ChildState.STOPPING) or self._order.next_to_stop() is not None
        if in_order and stops:
            return
        now = self._tree.loop.time()
        while (child := self._order.next_to_start()) is not None:
            if in_order and (child.not_before > now or self._order.count(ChildState.STARTING)):
                return
            self._order.pass_over()
            if child.not_before <= now:
                self._start(child)

    def _settle(self) -> None:
        if self._mode is Mode.ENDING and self._order.all_in(ChildState.DOWN):
            for future in (self.settled, self.ended):
                if not future.done():
                    future.set_result(None)
        elif self._mode is Mode.STARTING and self._order.all_in(ChildState.DOWN, ChildState.UP):
            self._mode = Mode.RUNNING
            self.settled.set_result(None)

    def _start(self, child: Child) -> None:
        self._order.move(child, ChildState.STARTING)
        child.is_late = False
        child.restarts += child.begun
        child.begun = True
        try:
            # An empty context: an instance must not see what whoever happened to be at work had bound.
            actor = Context().run(self._made, child)
            if child.life is None:
                child.life = self._begun(child, actor)
            else:
                child.life.restart(actor)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a stranger's code
            self._ended_with(child, ActorFailure(child.path, "started", error))
            return
        if child.state is ChildState.STARTING and not child.is_supervisor and child.spec.start_seconds != UNLIMITED:
            child.timer = self._tree.loop.call_later(
                float(child.spec.start_seconds), self._is_late, child, context=Context()
            )

    def _made(self, child: Child) -> Actor:
        start = child.spec.start
        if not isinstance(start, Supervisor):
            return start()
        return self._nest(start, child.path, engine_of(child))

    def _begun(self, child: Child, actor: Actor) -> ActorLife:
        return self._tree.group.begin(
            actor,
            supervisor=self,
            name=child.path,
            capacity=SIGNALS if child.is_supervisor else child.spec.capacity,
            overflow=Overflow(child.spec.overflow),
            grace_seconds=math.inf if child.is_supervisor else child.own_grace_seconds,
        )

    def _halt(self, child: Child) -> None:
        child.must_stop = False
        self._order.move(child, ChildState.STOPPING)
        assert child.life is not None
        seconds = 0.0 if self._killing else child.shutdown_seconds(self._tree.grace_seconds)
        engine = engine_of(child)
        if engine is None:
            child.life.halt("stopped by its supervisor", seconds)
            return
        # It has the time that its children need; what ends earlier is them.
        child.life.halt("stopped by its supervisor", math.inf)
        if seconds <= 0:
            engine.kill()
        elif seconds < math.inf:
            child.timer = self._tree.loop.call_later(seconds, engine.kill, context=Context())

    def _is_late(self, child: Child) -> None:
        if child.state is ChildState.STARTING and child.life is not None:
            child.is_late = True
            child.life.halt("did not start in time", child.shutdown_seconds(self._tree.grace_seconds))

    def _wait(self, child: Child) -> None:
        """Have *child* start when its back-off is over."""
        self._order.move(child, ChildState.WAITING)
        if child.not_before > self._tree.loop.time():
            child.timer = self._tree.loop.call_at(child.not_before, self._back_off_over, child, context=Context())

    def _back_off_over(self, child: Child) -> None:
        child.not_before = 0.0  # a loop may call a hair too early, by its clock's resolution
        self._order.call_again(child)
        self._advance()


@runtime_checkable
class HasEngine(Protocol):
    """What a supervisor's actor is known by."""

    engine: Engine


def engine_of(child: Child) -> Engine | None:
    """Return the present instance of a child that is a supervisor, or the one that was the last."""
    actor = None if child.life is None else child.life.actor
    return actor.engine if isinstance(actor, HasEngine) else None
